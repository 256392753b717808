import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from tests.support.cluster.fake_cluster import async_test, until
from tests.support.security.reference_authorizer import allow, deny, literal, prefixed

from headrace.cluster.change_notifications import RETENTION_MS
from headrace.cluster.embedded_store import EmbeddedStore
from headrace.cluster.store import ConnectionLoss, Operation, OperationResult
from headrace.common.principal import Principal
from headrace.security import acl_nodes
from headrace.security import acls as vocabulary
from headrace.security.acl_authorizer import AclAuthorizer
from headrace.security.acl_store import AclStore
from headrace.security.acls import AclBinding, AclEntry, ResourcePattern, ResourceType
from headrace.testing.clock import ManualClock

READ, WRITE = vocabulary.Operation.READ, vocabulary.Operation.WRITE
ORDERS, PREFIX = literal("orders"), prefixed("ord")
ALICE = allow(ORDERS, READ)
BOB = deny(ORDERS, WRITE, principal="User:bob", host="10.0.0.1")


@dataclass
class Follower:
    """A broker, as far as ACLs are concerned."""

    store: EmbeddedStore
    acls: AclStore
    authorizer: AclAuthorizer

    def entries(self, pattern: ResourcePattern = ORDERS) -> frozenset[AclEntry]:
        return self.authorizer.entries(pattern)

    async def add(self, *bindings: AclBinding) -> None:
        for binding in bindings:
            await self.acls.alter(
                binding.pattern, lambda before, binding=binding: (before or frozenset()) | {binding.entry}
            )  # type: ignore[misc]

    async def remove(self, binding: AclBinding) -> None:
        await self.acls.alter(binding.pattern, lambda before: (before or frozenset()) - {binding.entry})


@asynccontextmanager
async def followers(count: int, clock: ManualClock | None = None) -> AsyncIterator[list[Follower]]:
    clock = clock or ManualClock()
    first = EmbeddedStore(None, clock)
    started: list[Follower] = []
    for number in range(count):
        store = first.new_session() if number else first
        authorizer = AclAuthorizer()
        started.append(Follower(store, AclStore(store, clock, authorizer), authorizer))
        await started[-1].acls.start()
    try:
        yield started
    finally:
        for follower in started:
            await follower.acls.stop()


@async_test
async def test_every_broker_follows_changes() -> None:
    async with followers(3) as (one, *others):
        await one.add(ALICE, BOB, allow(PREFIX, READ))
        assert one.entries() == {ALICE.entry, BOB.entry}  # at once
        for other in others:
            await until(lambda other=other: other.entries() == one.entries() and other.entries(PREFIX))  # type: ignore[misc]
        await others[0].remove(ALICE)
        await others[1].remove(allow(PREFIX, READ))
        for follower in (one, *others):
            await until(lambda follower=follower: follower.entries() == {BOB.entry})  # type: ignore[misc]
            await until(lambda follower=follower: list(follower.authorizer.patterns()) == [ORDERS])  # type: ignore[misc]
        assert await one.store.children("/kafka-acl/Topic") == ["orders"]
        assert await one.store.children("/kafka-acl-extended/prefixed/Topic") == []


@async_test
async def test_reads_all_acls_at_the_start() -> None:
    async with followers(1) as (one,):
        bindings = [
            allow(make(name, resource_type), READ)
            for make in (literal, prefixed)
            for resource_type in vocabulary.RESOURCE_TYPES
            for name in ("a", "b c", "*", "müller")
        ]
        await one.add(*bindings)
        authorizer = AclAuthorizer()
        late = AclStore(one.store.new_session(), ManualClock(), authorizer)
        await late.start()
        assert set(authorizer.patterns()) == {binding.pattern for binding in bindings}
        await late.stop()


@async_test
async def test_unchanged_acls_are_not_written() -> None:
    async with followers(1) as (one,):
        await one.add(ALICE)
        await one.add(ALICE)
        await one.remove(BOB)
        await one.remove(allow(literal("x"), READ))
        assert len(await one.store.children("/kafka-acl-changes")) == 1


@async_test
async def test_concurrent_changes_are_all_kept() -> None:
    """CVE-2024-27309: removing one of two ACLs of a resource must not lose the other."""
    async with followers(2) as (one, two):
        await one.add(*(allow(ORDERS, READ, principal=f"User:{number}") for number in range(20)))
        changes = [
            *(one.remove(allow(ORDERS, READ, principal=f"User:{number}")) for number in range(10)),
            *(two.remove(allow(ORDERS, READ, principal=f"User:{number}")) for number in range(10, 19)),
            two.add(ALICE),
        ]
        await asyncio.gather(*changes)
        expected = {ALICE.entry, allow(ORDERS, READ, principal="User:19").entry}
        for follower in (one, two):
            await until(lambda follower=follower: follower.entries() == expected)  # type: ignore[misc]


@async_test
async def test_tries_again_if_another_broker_was_faster() -> None:
    async with followers(2) as (one, two):
        for other, mine in ((ALICE, BOB), (BOB, ALICE)):  # the node is created, then changed, by the other one
            multi = one.store.multi

            async def late(operations: Sequence[Operation]) -> list[OperationResult]:
                one.store.multi = multi  # type: ignore[method-assign] # noqa: B023
                await two.add(other)  # noqa: B023
                return await multi(operations)  # noqa: B023

            one.store.multi = late  # type: ignore[method-assign]
            await one.add(mine)
            assert one.entries() == {ALICE.entry, BOB.entry}
            if other is ALICE:
                await one.remove(BOB)
                await one.remove(ALICE)


@async_test
async def test_failed_write_changes_nothing() -> None:
    async with followers(1) as (one,):
        await one.add(ALICE)

        async def lose(_: Sequence[Operation]) -> list[OperationResult]:
            raise ConnectionLoss("lost")

        one.store.multi = lose  # type: ignore[method-assign]
        with pytest.raises(ConnectionLoss):
            await one.add(BOB)
        assert one.entries() == {ALICE.entry}


@async_test
async def test_new_session_reads_everything_again() -> None:
    async with followers(1) as (one,):
        await one.add(ALICE, allow(PREFIX, READ))
        # Changes without a notification stand for those during the lost session.
        await one.store.delete(acl_nodes.acl_path(PREFIX))
        await one.store.set(acl_nodes.acl_path(ORDERS), acl_nodes.encode_acls([BOB.entry]))
        one.acls.restart_watch()
        await until(lambda: one.entries() == {BOB.entry})
        assert list(one.authorizer.patterns()) == [ORDERS]


@async_test
async def test_follows_apache_kafka() -> None:
    """Kafka writes the node and the notification one after the other."""
    async with followers(1) as (one,):
        path = "/kafka-acl/TransactionalId/t-1"
        acl = '{"principal":"User:alice","permissionType":"Allow","operation":"DescribeConfigs","host":"*"}'
        await one.store.create(path, f'{{"version":1,"acls":[{acl}]}}'.encode())
        await one.store.create("/kafka-acl-changes/acl_changes_", b"TRANSACTIONAL_ID:t-1", sequential=True)
        pattern = literal("t-1", ResourceType.TRANSACTIONAL_ID)
        await until(lambda: one.entries(pattern) == {allow(pattern, vocabulary.Operation.DESCRIBE_CONFIGS).entry})


@async_test
@pytest.mark.parametrize(
    "data",
    [
        b"nonsense",
        b"[]",
        b'{"version":2,"acls":[]}',
        b'{"version":1}',
        b'{"version":1,"acls":[7]}',
        b'{"version":1,"acls":[{"principal":"alice","permissionType":"Allow","operation":"Read","host":"*"}]}',
        b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Allow","operation":"Fly","host":"*"}]}',
        b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Perhaps","operation":"Read","host":"*"}]}',
        b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Allow","operation":"Read","host":null}]}',
    ],
)
async def test_damaged_acls_deny(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with followers(1) as (one,):
        await one.add(ALICE, allow(literal("payments"), READ))
        await one.store.set(acl_nodes.acl_path(ORDERS), data)
        await one.store.create("/kafka-acl-changes/acl_changes_", b"Topic:orders", sequential=True)
        alice = Principal("User", "alice")

        def may_read(name: str) -> bool:
            topic = vocabulary.Resource(ResourceType.TOPIC, name)
            return one.authorizer.is_authorized(alice, "::1", READ, topic)

        await until(lambda: not may_read("orders"))
        assert may_read("payments")
        assert "Denying everything on Topic:LITERAL:orders to everybody but super users" in caplog.text
        seen: list[object] = []
        await one.acls.alter(ORDERS, lambda before: [seen.append(before), ALICE.entry][1:])  # type: ignore[func-returns-value, list-item]
        assert seen == [None]
        assert may_read("orders")


@async_test
async def test_damaged_notification_reads_everything_again(caplog: pytest.LogCaptureFixture) -> None:
    async with followers(1) as (one,):
        await one.store.create(acl_nodes.acl_path(ORDERS), acl_nodes.encode_acls([ALICE.entry]))
        for root, data in (
            ("/kafka-acl-changes", b"orders"),
            ("/kafka-acl-changes", b"ANY:orders"),
            ("/kafka-acl-extended-changes", b"{}"),
        ):
            await one.store.create(f"{root}/acl_changes_", data, sequential=True)
        await until(lambda: one.entries() == {ALICE.entry})
        await until(lambda: caplog.text.count("not a notification of a changed ACL") == 3)


@async_test
async def test_unknown_resource_types_have_no_effect(caplog: pytest.LogCaptureFixture) -> None:
    async with followers(1) as (one,):
        await one.store.create("/kafka-acl/Share")
        await one.store.create("/kafka-acl/Share/x")
        await one.add(ALICE)
        one.acls.restart_watch()
        await until(lambda: "unknown type of resource" in caplog.text)
        await until(lambda: one.entries() == {ALICE.entry})


@async_test
async def test_expired_notifications_are_deleted() -> None:
    clock = ManualClock()
    async with followers(2, clock) as (one, two):
        await one.add(ALICE, allow(PREFIX, READ))
        await until(lambda: two.entries(PREFIX))
        clock.advance(RETENTION_MS + 1)
        await one.add(BOB, allow(PREFIX, WRITE))
        while [
            len(await one.store.children(path)) for path in ("/kafka-acl-changes", "/kafka-acl-extended-changes")
        ] != [1, 1]:
            await asyncio.sleep(0)
        await until(lambda: len(two.entries(PREFIX)) == 2)


@async_test
async def test_retries_after_a_failed_read(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.cluster.change_notifications._RETRY_SECONDS", 0)
    async with followers(2) as (one, two):
        children = two.store.children

        async def fail(*_: object) -> list[str]:
            two.store.children = children  # type: ignore[method-assign]
            raise ConnectionLoss("lost")

        two.store.children = fail  # type: ignore[method-assign, assignment]
        await one.add(ALICE)
        await until(lambda: two.entries() == {ALICE.entry})
        assert "this broker uses the old ones until then: lost" in caplog.text
        await one.add(BOB)
        await until(lambda: two.entries() == {ALICE.entry, BOB.entry})
