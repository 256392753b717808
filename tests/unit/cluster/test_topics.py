import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from tests.support.cluster.fake_cluster import async_test

from headrace.cluster import znodes
from headrace.cluster.commands import BrokerInfo
from headrace.cluster.embedded_store import EmbeddedStore
from headrace.cluster.registration import prepare_cluster, register_broker
from headrace.cluster.store import (
    ConnectionLoss,
    CoordinationStore,
    Operation,
    OperationResult,
    SessionExpired,
    Stat,
    Watch,
)
from headrace.cluster.topics import TopicAdmin, TopicNames, TopicSpec, check_topic_name, is_internal
from headrace.cluster.znodes import TopicAssignment
from headrace.common.errors import (
    InvalidConfigurationError,
    InvalidPartitionsError,
    InvalidReplicationAssignmentError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    InvalidTopicError,
    KafkaError,
    ReassignmentInProgressError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from headrace.common.ids import make_random
from headrace.testing.clock import ManualClock


async def make_store(*brokers: int) -> EmbeddedStore:
    store = EmbeddedStore(None, ManualClock())
    await prepare_cluster(store, make_random(1))
    for broker_id in brokers:
        await register_broker(store, BrokerInfo(broker_id), ManualClock())
    return store


def make_admin(store: CoordinationStore) -> TopicAdmin:
    def check_config(topic: str, configs: Mapping[str, str]) -> None:
        if "bad" in configs:
            raise InvalidConfigurationError(f"Unknown topic config name: bad of {topic}")

    return TopicAdmin(
        store,
        make_random(1),
        default_partitions=lambda: 4,
        default_replication_factor=lambda: 2,
        check_config=check_config,
    )


# ---- names


@pytest.mark.parametrize("name", ["a", "A-b_c.d9", "x" * 249, "...", "__consumer_offsets", "-", "_"])
def test_accepts_legal_names(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "the empty string is not allowed"),
        (".", r"'\.' is not allowed"),
        ("..", r"'\.\.' is not allowed"),
        ("x" * 250, "is longer than the max allowed length 249"),
        ("a/b", "other than ASCII alphanumerics"),
        ("a b", "other than ASCII alphanumerics"),
        ("größe", "other than ASCII alphanumerics"),
        ("a\n", "other than ASCII alphanumerics"),
        ("__cluster_metadata", "reserved for Kafka's metadata log"),
    ],
)
def test_rejects_illegal_names(name: str, problem: str) -> None:
    with pytest.raises(InvalidTopicError, match=problem):
        check_topic_name(name)


@pytest.mark.parametrize(
    ("existing", "name", "collides_with"),
    [(["x", "a_b"], "a.b", "a_b"), (["a.b.c"], "a_b.c", "a.b.c"), (["a_b"], "a-b", None), (["a.b"], "ab", None)],
)
def test_names_collide_if_only_dots_and_underscores_differ(
    existing: list[str], name: str, collides_with: str | None
) -> None:
    added_later = TopicNames([])
    added_later.check_collision("x.y")
    for topic in existing:
        added_later.add(topic)
    for names in (TopicNames(existing), added_later):
        if collides_with is None:
            names.check_collision(name)
        else:
            with pytest.raises(InvalidTopicError, match=f"'{name}' collides with existing topic: {collides_with}"):
                names.check_collision(name)


def test_internal_topics() -> None:
    assert is_internal("__consumer_offsets")
    assert is_internal("__transaction_state")
    assert not is_internal("orders")


# ---- creating


@async_test
async def test_writes_topic_and_configs() -> None:
    store = await make_store(1, 2)
    made = await make_admin(store).create_topic(TopicSpec("orders", 3, 1, configs={"retention.ms": "5"}))
    data, _ = await store.get("/brokers/topics/orders")
    assert znodes.decode_topic("orders", data) == made
    assert sorted(made.partitions) == [0, 1, 2]
    data, _ = await store.get("/config/topics/orders")
    assert znodes.decode_config("", data) == {"retention.ms": "5"}
    (change,) = await store.children(znodes.CONFIG_CHANGES)
    assert change == "config_change_0000000000"


@async_test
async def test_uses_broker_defaults() -> None:
    made = await make_admin(await make_store(1, 2, 3)).create_topic(TopicSpec("orders"))
    assert len(made.partitions) == 4
    assert {len(one.replicas) for one in made.partitions.values()} == {2}


@async_test
async def test_validate_only_writes_nothing() -> None:
    store = await make_store(1, 2)
    admin = make_admin(store)
    made = await admin.create_topic(TopicSpec("orders", 3), validate_only=True)
    assert len(made.partitions) == 3
    assert await store.children(znodes.TOPICS) == []
    assert await store.children("/config/topics") == []
    await admin.create_topic(TopicSpec("orders", 3))
    with pytest.raises(TopicAlreadyExistsError):
        await admin.create_topic(TopicSpec("orders", 3), validate_only=True)


@async_test
async def test_manual_assignment() -> None:
    store = await make_store(1, 2, 3)
    made = await make_admin(store).create_topic(TopicSpec("orders", assignment={1: [3, 1], 0: [2, 3]}))
    assert {index: one.replicas for index, one in made.partitions.items()} == {0: (2, 3), 1: (3, 1)}


REFUSED: list[tuple[TopicSpec, type[KafkaError], str]] = [
    (TopicSpec("no/topic"), InvalidTopicError, "other than ASCII alphanumerics"),
    (TopicSpec("orders"), TopicAlreadyExistsError, "Topic 'orders' already exists"),
    (TopicSpec("the_orders"), InvalidTopicError, r"Topic 'the_orders' collides with existing topic: the\.orders"),
    (TopicSpec("a", 0), InvalidPartitionsError, "invalid non-positive value: 0"),
    (TopicSpec("a", -2), InvalidPartitionsError, "invalid non-positive value: -2"),
    (TopicSpec("a", 1, 0), InvalidReplicationFactorError, "larger than 0, or -1 to use the default value"),
    (
        TopicSpec("a", 1, 4),
        InvalidReplicationFactorError,
        r"replication factor of 4 cannot be reached because only 3 broker\(s\)",
    ),
    (TopicSpec("a", configs={"bad": "1"}), InvalidConfigurationError, "Unknown topic config name: bad of a"),
    (TopicSpec("a", 1, assignment={0: [1]}), InvalidRequestError, "numPartitions was not set to -1"),
    (TopicSpec("a", -1, 1, assignment={0: [1]}), InvalidRequestError, "replication factor was not set to -1"),
    (TopicSpec("a", assignment={}), InvalidPartitionsError, "at least one partition"),
    (TopicSpec("a", assignment={1: [1]}), InvalidReplicationAssignmentError, "consecutive 0-based integer sequence"),
    (
        TopicSpec("a", assignment={0: [1], 2: [1]}),
        InvalidReplicationAssignmentError,
        "consecutive 0-based integer sequence",
    ),
    (
        TopicSpec("a", assignment={0: []}),
        InvalidReplicationAssignmentError,
        r"includes an empty replica list. \(Partition 0\)",
    ),
    (
        TopicSpec("a", assignment={0: [1, 1]}),
        InvalidReplicationAssignmentError,
        "includes the broker 1 more than once",
    ),
    (
        TopicSpec("a", assignment={0: [1, 9]}),
        InvalidReplicationAssignmentError,
        "includes broker 9, but no such broker is registered",
    ),
    (
        TopicSpec("a", assignment={0: [1, 2], 1: [3]}),
        InvalidReplicationAssignmentError,
        r"1 replica\(s\), .* which have 2 replica\(s\)",
    ),
]


@pytest.mark.parametrize(("new", "error", "message"), REFUSED)
def test_rejects_invalid_topics(new: TopicSpec, error: type[KafkaError], message: str) -> None:
    async def run() -> None:
        store = await make_store(1, 2, 3)
        admin = make_admin(store)
        await admin.create_topic(TopicSpec("orders"))
        await admin.create_topic(TopicSpec("the.orders"))
        with pytest.raises(error, match=message):
            await admin.create_topic(new)
        assert await store.children(znodes.TOPICS) == ["orders", "the.orders"]
        assert await store.children("/config/topics") == ["orders", "the.orders"]

    async_test(run)()


@async_test
async def test_gives_way_between_topics_even_if_all_are_invalid() -> None:
    admin = make_admin(await make_store(1))
    creating = asyncio.ensure_future(admin.create_topics([TopicSpec(f"t{number}", 0) for number in range(20)]))
    turns = 0
    while not creating.done():
        await asyncio.sleep(0)
        turns += 1
    assert all(isinstance(result, InvalidPartitionsError) for result in creating.result())
    assert turns >= 20


@async_test
async def test_only_one_of_many_concurrent_creations_succeeds() -> None:
    store = await make_store(1, 2)
    outcomes = await asyncio.gather(
        *(make_admin(store).create_topic(TopicSpec("orders", 1)) for _ in range(10)), return_exceptions=True
    )
    assert sum(isinstance(one, TopicAlreadyExistsError) for one in outcomes) == 9


@async_test
async def test_replaces_leftover_configs() -> None:
    store = await make_store(1, 2)
    await store.create("/config/topics/orders", znodes.encode_config({"old": "1"}))
    await make_admin(store).create_topic(TopicSpec("orders", 1))
    assert (await store.get("/config/topics/orders"))[0] == znodes.encode_config({})


class FailingStore:
    """Passes the calls on to a store, but fails the writes for which `fails` returns True."""

    def __init__(self, store: EmbeddedStore, fails: Callable[[Sequence[Operation]], bool]):
        self._store = store
        self._fails = fails

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        if self._fails(operations):
            raise ConnectionLoss("disk full")
        return await self._store.multi(operations)


@async_test
async def test_failed_write_fails_only_the_topics_of_its_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.cluster.topics._TOPICS_PER_WRITE", 2)
    store = await make_store(1, 2)
    failing = FailingStore(store, lambda operations: any(each.path == znodes.topic_path("c") for each in operations))
    created: list[str] = []
    results = await make_admin(cast(CoordinationStore, failing)).create_topics(
        [TopicSpec(name) for name in "abcde"], on_created=lambda spec: created.append(spec.name)
    )
    assert [isinstance(result, ConnectionLoss) for result in results] == [False, False, True, True, False]
    assert created == await store.children(znodes.TOPICS) == ["a", "b", "e"]


@async_test
async def test_lost_session_fails_all_topics() -> None:
    store = await make_store(1, 2)
    await store.close()
    results = await make_admin(store).create_topics([TopicSpec("a"), TopicSpec("b")])
    assert [type(result) for result in results] == [SessionExpired, SessionExpired]


# ---- adding partitions


@async_test
async def test_adds_partitions() -> None:
    store = await make_store(1, 2, 3)
    admin = make_admin(store)
    before = await admin.create_topic(TopicSpec("orders", 2, 2))
    after = await admin.create_partitions("orders", 5)
    assert after.topic_id == before.topic_id
    assert {index: after.partitions[index] for index in (0, 1)} == dict(before.partitions)
    assert sorted(after.partitions) == [0, 1, 2, 3, 4]
    assert all(len(set(one.replicas)) == 2 for one in after.partitions.values())
    assert await admin.create_partitions("orders", 6, [[3, 1]], validate_only=True) != after
    assert znodes.decode_topic("orders", (await store.get("/brokers/topics/orders"))[0]) == after
    given = await admin.create_partitions("orders", 7, [[3, 1], [1, 3]])
    assert (given.partitions[5].replicas, given.partitions[6].replicas) == ((3, 1), (1, 3))


@pytest.mark.parametrize(
    ("total", "assignments", "error", "message"),
    [
        (1, None, InvalidPartitionsError, r"currently has 2 partition\(s\); 1 would not be an increase"),
        (2, None, InvalidPartitionsError, r"already has 2 partition\(s\)"),
        (
            4,
            [[1, 2]],
            InvalidReplicationAssignmentError,
            r"add 2 additional partition\(s\), but only 1 assignment\(s\)",
        ),
        (3, [[1]], InvalidReplicationAssignmentError, r"1 replica\(s\), .* which have 2 replica\(s\)"),
        (3, [[1, 7]], InvalidReplicationAssignmentError, "includes broker 7, but no such broker is registered"),
        (3, [[1, 1]], InvalidReplicationAssignmentError, "includes the broker 1 more than once"),
        (3, [[]], InvalidReplicationAssignmentError, "an empty replica list"),
    ],
)
def test_rejects_invalid_partition_additions(
    total: int, assignments: list[list[int]] | None, error: type[KafkaError], message: str
) -> None:
    async def run() -> None:
        admin = make_admin(await make_store(1, 2))
        await admin.create_topic(TopicSpec("orders", 2, 2))
        with pytest.raises(error, match=message):
            await admin.create_partitions("orders", total, assignments)
        with pytest.raises(UnknownTopicOrPartitionError, match="Topic 'none' does not exist"):
            await admin.create_partitions("none", total, assignments)

    async_test(run)()


@async_test
async def test_rejects_new_partitions_during_reassignment() -> None:
    store = await make_store(1, 2)
    admin = make_admin(store)
    made = await admin.create_topic(TopicSpec("orders", 1, 1))
    moved = znodes.TopicAssignment("orders", made.topic_id, {0: znodes.ReplicaAssignment((1, 2), (2,), (1,))})
    await store.set("/brokers/topics/orders", znodes.encode_topic(moved))
    with pytest.raises(ReassignmentInProgressError, match="in progress for topic 'orders'"):
        await admin.create_partitions("orders", 2)


@async_test
async def test_concurrent_partition_additions() -> None:
    store = await make_store(1, 2)
    admin = make_admin(store)
    await admin.create_topic(TopicSpec("orders", 1, 1))
    outcomes = await asyncio.gather(
        *(admin.create_partitions("orders", total) for total in (3, 5, 4)), return_exceptions=True
    )
    assert len(znodes.decode_topic("orders", (await store.get("/brokers/topics/orders"))[0]).partitions) == 5
    assert all(isinstance(one, znodes.TopicAssignment | InvalidPartitionsError) for one in outcomes)


# ---- deleting


@async_test
async def test_delete_marks_topic() -> None:
    store = await make_store(1, 2)
    admin = make_admin(store)
    await admin.create_topic(TopicSpec("orders", 1, 1))
    assert not await admin.is_marked_for_deletion("orders")
    await admin.delete_topic("orders")
    await admin.delete_topic("orders")
    assert await admin.is_marked_for_deletion("orders")
    with pytest.raises(TopicAlreadyExistsError, match="Topic 'orders' already exists and is marked for deletion"):
        await admin.create_topic(TopicSpec("orders", 1, 1))
    with pytest.raises(InvalidTopicError, match="Topic 'orders' is marked for deletion"):
        await admin.create_partitions("orders", 2)
    with pytest.raises(UnknownTopicOrPartitionError, match="Topic 'none' does not exist"):
        await admin.delete_topic("none")


@async_test
async def test_deletion_invalidates_concurrent_partition_addition() -> None:
    """A caller that read the topic before it was marked cannot add partitions afterwards."""
    store = await make_store(1, 2)
    admin = make_admin(store)
    await admin.create_topic(TopicSpec("orders", 1, 1))
    _, version = await admin._read_topic("orders")
    await admin.delete_topic("orders")
    stat = await store.exists("/brokers/topics/orders")
    assert stat is not None
    assert stat.version > version


@async_test
async def test_only_one_of_colliding_names_is_created_concurrently(tmp_path: Path) -> None:
    """With a store on disk each creation takes some time."""
    store = EmbeddedStore(tmp_path / "store.sqlite", ManualClock())
    await prepare_cluster(store, make_random(1))
    await register_broker(store, BrokerInfo(1), ManualClock())
    admin = make_admin(store)
    names = ["a.b", "a_b", "a.b"]
    made = await asyncio.gather(*(admin.create_topic(TopicSpec(name, 1, 1)) for name in names), return_exceptions=True)
    assert [type(one) for one in made[1:]] == [InvalidTopicError, TopicAlreadyExistsError]
    assert await store.children(znodes.TOPICS) == ["a.b"]
    await store.close()


@async_test
async def test_creation_is_retried_if_configs_appear_meanwhile() -> None:
    """Another broker alters the configs of a topic while this one creates it."""
    store = await make_store(1, 2)
    exists = store.exists
    path = znodes.config_path(znodes.TOPIC_CONFIGS, "orders")

    async def exists_before_creation(checked: str, watch: Watch | None = None) -> Stat | None:
        stat = await exists(checked, watch)
        if checked == path and stat is None:
            await store.create(path, znodes.encode_config({}))
        return stat

    store.exists = exists_before_creation  # type: ignore[method-assign]
    await make_admin(store).create_topic(TopicSpec("orders"))
    assert await exists(znodes.topic_path("orders")) is not None


@async_test
async def test_brokers_change_topics_at_the_same_time() -> None:
    store = await make_store(1, 2, 3)
    admins = [make_admin(store.new_session()) for _ in range(3)]
    specs = [TopicSpec(f"t{number}", 1, 1) for number in range(10)]
    results = await asyncio.gather(*(admin.create_topics(specs) for admin in admins))
    for outcomes in zip(*results, strict=True):
        created = [result for result in outcomes if isinstance(result, TopicAssignment)]
        refused = [result for result in outcomes if isinstance(result, TopicAlreadyExistsError)]
        assert (len(created), len(refused)) == (1, 2)
    await asyncio.gather(
        *(admin.create_partitions("t0", 3 + number) for number, admin in enumerate(admins)), return_exceptions=True
    )
    data, _ = await store.get(znodes.topic_path("t0"))
    assert len(znodes.decode_topic("t0", data).partitions) == 5
    await asyncio.gather(*(admin.delete_topic("t0") for admin in admins))
    assert await store.children(znodes.DELETE_TOPICS) == ["t0"]
