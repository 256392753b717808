"""ConsumerCoordinator in virtual time, against the broker's group coordinator."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.support.coordinator.group_sim import Group, User, partitions
from tests.support.net.virtual_loop import run

from headrace.client.errors import CommitFailedError
from headrace.client.group.member import MemberState
from headrace.client.types import OffsetAndMetadata
from headrace.common.errors import (
    ConfigError,
    FencedInstanceIdError,
    GroupAuthorizationFailedError,
    InconsistentGroupProtocolError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from headrace.protocol.messages.heartbeat import HeartbeatResponse
from headrace.protocol.messages.join_group import JoinGroupResponse

ALL = partitions("t", 6)


def in_group(test: Callable[[Group], Awaitable[None]], **config: Any) -> None:
    async def main() -> None:
        group = Group(**config)
        group.metadata.set_topics(t=6)
        try:
            await test(group)
        finally:
            await group.close()

    run(main())


def kinds(user: User) -> list[str]:
    return [kind for kind, _ in user.told]


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "sticky", "cooperative-sticky", None])
def test_members_join_and_leave(strategy: str | None) -> None:
    async def test(group: Group) -> None:
        config = {} if strategy is None else {"partition_assignment_strategy": strategy}
        first = await group.add("t", **config)
        await group.until(lambda: group.is_settled(*ALL))
        assert first.told == [("assigned", frozenset(ALL))]
        second = await group.add("t", **config)
        await group.until(lambda: group.is_settled(*ALL) and second.owns)
        assert len(first.owns) == len(second.owns) == 3
        await group.remove(first)
        await group.until(lambda: group.is_settled(*ALL))
        assert "lost" not in kinds(first) + kinds(second)
        assert kinds(first)[-1] == "revoked"

    in_group(test)


def test_cooperative_members_keep_partitions() -> None:
    async def test(group: Group) -> None:
        first = await group.add("t", partition_assignment_strategy="cooperative-sticky")
        await group.until(lambda: group.is_settled(*ALL))
        await group.add("t", partition_assignment_strategy="cooperative-sticky")
        await group.until(lambda: group.is_settled(*ALL) and len(group.users) == 2)
        revoked = [tps for kind, tps in first.told if kind == "revoked"]
        assert len(revoked) == 1
        assert len(revoked[0]) == 3
        assert first.owns == frozenset(ALL) - revoked[0]

    in_group(test)


def test_eager_members_revoke_all_first() -> None:
    async def test(group: Group) -> None:
        first = await group.add("t", partition_assignment_strategy="sticky")
        await group.until(lambda: group.is_settled(*ALL))
        second = await group.add("t", partition_assignment_strategy="sticky")
        await group.until(lambda: group.is_settled(*ALL) and second.owns)
        assert ("revoked", frozenset(ALL)) in first.told

    in_group(test)


def test_automatic_commit_before_revocation() -> None:
    """No record is read twice when members join and leave in order."""

    async def test(group: Group) -> None:
        first = await group.add("t", auto_commit_interval_ms=1_000_000)
        await group.until(lambda: len(first.read) > 30)
        second = await group.add("t", auto_commit_interval_ms=1_000_000)
        await group.until(lambda: len(second.read) > 30)
        await group.remove(first)
        await group.until(lambda: group.is_settled(*ALL))
        await group.until(lambda: len(second.read) > 100)
        await group.remove(second)
        read = sorted(first.read + second.read)
        assert len(read) == len(set(read))
        for tp in ALL:
            offsets = [offset for each, offset in read if each == tp]
            assert offsets == list(range(len(offsets)))
            assert group.coordinator.bench.committed(tp.topic, tp.partition) == len(offsets)

    in_group(test)


def test_revocation_waits_for_poll() -> None:
    async def test(group: Group) -> None:
        first = await group.add("t", max_poll_interval_ms=60_000)
        await group.until(lambda: group.is_settled(*ALL))
        first.is_hanging = True
        await group.run(5)
        second = await group.add("t", max_poll_interval_ms=60_000)
        await group.run(20)
        assert first.owns == frozenset(ALL)
        assert not second.owns
        first.is_hanging = False
        await group.until(lambda: group.is_settled(*ALL) and second.owns)
        assert "lost" not in kinds(first)

    in_group(test)


def test_close_leaves_group_once() -> None:
    async def test(group: Group) -> None:
        user = await group.add("t")
        await group.until(lambda: group.is_settled(*ALL))
        reasons: list[str] = []

        async def record_leave(reason: str, force: bool) -> None:
            reasons.append(reason)

        user.consumer_coordinator._send_leave = record_leave  # type: ignore[method-assign]
        await user.consumer_coordinator.close()
        await user.consumer_coordinator.close()
        assert reasons == ["the consumer was closed"]

    in_group(test)


def test_member_without_polls_leaves_until_next_poll() -> None:
    async def test(group: Group) -> None:
        first = await group.add("t", max_poll_interval_ms=5000)
        second = await group.add("t", max_poll_interval_ms=5000)
        await group.until(lambda: group.is_settled(*ALL))
        first.is_hanging = True
        await group.until(lambda: second.owns == frozenset(ALL))
        assert group.coordinator.members == [second.consumer_coordinator.member.member_id]
        assert first.consumer_coordinator.group_metadata().generation_id == -1
        assert all(state.is_stopped for state in first.subscription.states())  # buffered records are not returned
        with pytest.raises(CommitFailedError):
            await first.consumer_coordinator.commits.commit({ALL[0]: OffsetAndMetadata(1)}, timeout_ms=1000)
        await group.run(20)
        assert len(group.coordinator.members) == 1
        first.is_hanging = False
        await group.until(lambda: group.is_settled(*ALL) and first.owns)
        assert "lost" in kinds(first)

    in_group(test)


def test_member_without_partitions_waits_for_poll() -> None:
    async def test(group: Group) -> None:
        group.metadata.set_topics(t=1)
        first = await group.add("t", max_poll_interval_ms=5000)
        second = await group.add("t", max_poll_interval_ms=5000)
        await group.until(lambda: group.is_settled(ALL[0]) and len(group.users) == 2)
        idle = second if first.owns else first
        idle.is_hanging = True
        await group.until(lambda: len(group.coordinator.members) == 1)
        joins = group.coordinator.seen["JoinGroupRequest"]
        await group.run(30)
        assert group.coordinator.seen["JoinGroupRequest"] <= joins + 2
        idle.is_hanging = False
        await group.until(lambda: group.is_settled(ALL[0]) and len(group.coordinator.members) == 2)

    in_group(test)


def test_crashed_member_is_removed_after_session_timeout() -> None:
    async def test(group: Group) -> None:
        first, second = await group.add("t"), await group.add("t")
        await group.until(lambda: group.is_settled(*ALL))
        await group.remove(first, crash=True)
        await group.until(lambda: group.is_settled(*ALL), 30)
        assert second.owns == frozenset(ALL)

    in_group(test)


def test_disconnected_member_loses_partitions() -> None:
    async def test(group: Group) -> None:
        first, second = await group.add("t"), await group.add("t")
        await group.until(lambda: group.is_settled(*ALL))
        first.network.is_cut = True
        await group.until(lambda: second.owns == frozenset(ALL))
        first.network.is_cut = False
        await group.until(lambda: group.is_settled(*ALL) and first.owns)
        assert "lost" in kinds(first)
        assert "lost" not in kinds(second)

    in_group(test)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_coordinator_moves(strategy: str) -> None:
    """The new coordinator loads the state of the old one, and the members continue."""

    async def test(group: Group) -> None:
        users = [await group.add("t", partition_assignment_strategy=strategy) for _ in range(3)]
        await group.until(lambda: group.is_settled(*ALL))
        group.coordinator.is_moved = True
        await group.run(2)
        assert all(user.network.forgotten for user in users)
        group.coordinator.bench.reload()
        group.coordinator.is_moved = False
        await group.run(10)
        assert group.is_settled(*ALL)
        assert not any("lost" in kinds(user) for user in users)

    in_group(test)


def test_new_partitions_and_topics_are_assigned() -> None:
    async def test(group: Group) -> None:
        await group.add("t", "u")
        await group.add("t")
        await group.until(lambda: group.is_settled(*ALL))
        group.metadata.set_topics(t=8)
        await group.until(lambda: group.is_settled(*partitions("t", 8)))
        group.metadata.set_topics(t=8, u=2)
        await group.until(lambda: group.is_settled(*partitions("t", 8), *partitions("u", 2)))

    in_group(test)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_subscription_change_rejoins(strategy: str) -> None:
    async def test(group: Group) -> None:
        group.metadata.set_topics(t=6, u=4)
        first = await group.add("t", partition_assignment_strategy=strategy)
        second = await group.add("t", partition_assignment_strategy=strategy)
        await group.until(lambda: group.is_settled(*ALL))
        first.subscription.subscribe(["u"])
        first.consumer_coordinator.subscription_changed()
        await group.until(lambda: group.is_settled(*ALL, *partitions("u", 4)))
        assert first.owns == frozenset(partitions("u", 4))
        assert second.owns == frozenset(ALL)
        await first.consumer_coordinator.leave()
        first.subscription.unsubscribe()
        assert group.coordinator.members == [second.consumer_coordinator.member.member_id]
        assert first.consumer_coordinator.member.state is MemberState.UNJOINED
        first.subscription.subscribe(["t"])
        first.consumer_coordinator.subscription_changed()
        await group.until(lambda: group.is_settled(*ALL) and first.owns)

    in_group(test)


def test_static_member_returns_without_rebalance() -> None:
    async def test(group: Group) -> None:
        first = await group.add("t", group_instance_id="one", session_timeout_ms=30_000)
        second = await group.add("t", group_instance_id="two", session_timeout_ms=30_000)
        await group.until(lambda: group.is_settled(*ALL))
        shares, generation = (first.owns, second.owns), second.consumer_coordinator.member.generation
        await group.remove(first)
        assert len(group.coordinator.members) == 2  # static members do not leave
        again = await group.add("t", group_instance_id="one", session_timeout_ms=30_000)
        await group.until(lambda: group.is_settled(*ALL))
        assert (again.owns, second.owns) == shares
        assert second.consumer_coordinator.member.generation == generation

    in_group(test)


def test_static_member_is_fenced_by_same_instance_id() -> None:
    async def test(group: Group) -> None:
        first = await group.add("t", group_instance_id="one")
        await group.until(lambda: group.is_settled(*ALL))
        del group.users[first.name]
        second = await group.add("t", group_instance_id="one")
        await group.until(lambda: first.errors and second.owns)
        assert isinstance(first.errors[0], FencedInstanceIdError)
        await group.until(lambda: "lost" in kinds(first))
        await group.run(5)
        assert second.is_stable
        assert not first.owns
        await first.crash()

    in_group(test)


def test_static_member_leaves_on_request() -> None:
    async def test(group: Group) -> None:
        first = await group.add("t", group_instance_id="one")
        await group.until(lambda: group.is_settled(*ALL))
        await first.crash_program()
        first._polls.set()
        await first.consumer_coordinator.close(leave=True)
        assert group.coordinator.members == []

    in_group(test)


def test_close_during_join() -> None:
    async def test(group: Group) -> None:
        first = await group.add("t")
        await group.until(lambda: group.is_settled(*ALL))
        first.is_hanging = True
        second = await group.add("t")
        await group.until(lambda: second.consumer_coordinator.member.state is MemberState.JOINING)
        await group.remove(second)
        first.is_hanging = False
        await group.until(lambda: group.is_settled(*ALL))
        assert first.owns == frozenset(ALL)

    in_group(test)


def test_close_without_leaving() -> None:
    async def test(group: Group) -> None:
        first = await group.add("t")
        await group.until(lambda: group.is_settled(*ALL))
        await first.crash_program()
        first._polls.set()
        await first.consumer_coordinator.close(leave=False)
        assert len(group.coordinator.members) == 1

    in_group(test)


def test_members_without_common_assignor() -> None:
    async def test(group: Group) -> None:
        first = await group.add("t", partition_assignment_strategy="range")
        await group.until(lambda: group.is_settled(*ALL))
        second = await group.add("t", partition_assignment_strategy="roundrobin")
        await group.until(lambda: second.errors)
        assert isinstance(second.errors[0], InconsistentGroupProtocolError)
        assert first.is_stable

    in_group(test)


def test_authorization_error_is_raised_and_retried() -> None:
    async def test(group: Group) -> None:
        coordinator = group.coordinator
        real = coordinator.handle
        refused = [GroupAuthorizationFailedError.code]

        def handle(request: Any, reply: Callable[[Any], None]) -> None:
            if refused and type(request).__name__ == "JoinGroupRequest":
                reply(JoinGroupResponse(error_code=refused[0]))
            elif refused and type(request).__name__ == "HeartbeatRequest":
                reply(HeartbeatResponse(error_code=refused[0]))
            else:
                real(request, reply)

        coordinator.handle = handle  # type: ignore[method-assign]
        user = await group.add("t")
        await group.until(lambda: user.errors)
        assert isinstance(user.errors[0], GroupAuthorizationFailedError)
        refused.clear()
        await group.until(lambda: group.is_settled(*ALL))
        user.errors.clear()
        refused.append(GroupAuthorizationFailedError.code)
        await group.until(lambda: user.errors)
        refused.clear()
        await group.until(lambda: group.is_settled(*ALL))

    in_group(test)


def test_assignor_error_is_raised() -> None:
    from headrace.client.group.assignors import Assignor

    class Broken(Assignor):
        name = "broken"

        def assign(self, topics: Any, members: Any) -> Any:
            raise ZeroDivisionError

    async def test(group: Group) -> None:
        user = await group.add("t", partition_assignment_strategy=[Broken])
        await group.until(lambda: user.errors)
        assert isinstance(user.errors[0], ZeroDivisionError)

    in_group(test)


def test_custom_assignor() -> None:
    from headrace.client.group.assignors import Assignor

    class Greedy(Assignor):
        name = "greedy"

        def assign(self, topics: Any, members: Any) -> Any:
            return {min(members): topics.all_partitions()}

    async def test(group: Group) -> None:
        await group.add("t", partition_assignment_strategy=[Greedy])
        await group.add("t", partition_assignment_strategy=[Greedy()])
        await group.until(lambda: group.is_settled(*ALL))
        assert sorted(len(user.owns) for user in group.users.values()) == [0, 6]

    in_group(test)


def test_commit_during_join() -> None:
    async def test(group: Group) -> None:
        first = await group.add("t", partition_assignment_strategy="cooperative-sticky", enable_auto_commit=False)
        await group.until(lambda: group.is_settled(*ALL))
        await first.consumer_coordinator.commits.commit({ALL[0]: OffsetAndMetadata(7, "note")})
        assert await first.consumer_coordinator.commits.committed([ALL[0], ALL[1]]) == {
            ALL[0]: OffsetAndMetadata(7, ""),
            ALL[1]: None,
        }
        second = await group.add("t", partition_assignment_strategy="range,cooperative-sticky")
        second.is_hanging = True
        await group.until(lambda: first.consumer_coordinator.member.state is MemberState.JOINING)
        with pytest.raises(RebalanceInProgressError):
            await first.consumer_coordinator.commits.commit({ALL[0]: OffsetAndMetadata(8)})
        await group.until(lambda: group.is_settled(*ALL))

    in_group(test, initial_rebalance_delay_ms=0)


def test_leaving_rebalances_immediately() -> None:
    async def test(group: Group) -> None:
        first = await group.add("t", session_timeout_ms=600_000)
        second = await group.add("t", session_timeout_ms=600_000)
        await group.until(lambda: group.is_settled(*ALL))
        await group.remove(first)
        started = asyncio.get_running_loop().time()
        await group.until(lambda: second.owns == frozenset(ALL))
        assert asyncio.get_running_loop().time() - started < 60

    in_group(test, max_session_timeout_ms=1_800_000)


def test_statistics() -> None:
    async def test(group: Group) -> None:
        first = await group.add("t")
        await group.until(lambda: group.is_settled(*ALL))
        shown = first.consumer_coordinator.statistics()
        assert shown["join_state"] == "steady"
        assert shown["assignment_size"] == 6
        assert shown["rebalance_cnt"] == 1
        assert shown["state"] == "up"

    in_group(test)


def test_poll_interval_starts_with_subscription() -> None:
    async def test(group: Group) -> None:
        user = User(group, "late", {"max.poll.interval.ms": 5000}, group.chance)
        await asyncio.sleep(60)
        group.users["late"] = user
        await user.start("t")
        await group.until(lambda: group.is_settled(*ALL))
        await group.run(10)
        assert kinds(user) == ["assigned"]

    in_group(test)


def test_heartbeat_interval_must_be_below_session_timeout() -> None:
    async def test(group: Group) -> None:
        with pytest.raises(ConfigError, match=r"heartbeat\.interval\.ms \(6000\)"):
            await group.add("t", heartbeat_interval_ms=6000)
        group.users.clear()

    in_group(test)


def test_rack_aware_assignment() -> None:
    async def test(group: Group) -> None:
        racks = {number: "xy"[number % 2] for number in range(6)}
        group.metadata.set_topics(racks, t=6)
        near_x = await group.add("t", partition_assignment_strategy="range", client_rack="x")
        near_y = await group.add("t", partition_assignment_strategy="range", client_rack="y")
        await group.until(lambda: group.is_settled(*ALL) and near_y.owns and near_x.owns)
        assert {tp.partition for tp in near_x.owns} == {0, 2, 4}
        group.metadata.set_topics({number: "yx"[number % 2] for number in range(6)}, t=6)
        await group.until(lambda: {tp.partition for tp in near_x.owns} == {1, 3, 5} and group.is_settled(*ALL))

    in_group(test)


def test_unknown_member_backs_off() -> None:
    async def test(group: Group) -> None:
        coordinator = group.coordinator
        real = coordinator.handle
        is_odd = True

        def handle(request: Any, reply: Callable[[Any], None]) -> None:
            if is_odd and type(request).__name__ == "JoinGroupRequest":
                coordinator.seen["refused"] += 1
                reply(JoinGroupResponse(error_code=UnknownMemberIdError.code))
            else:
                real(request, reply)

        coordinator.handle = handle  # type: ignore[method-assign]
        await group.add("t")
        await group.run(30)
        assert coordinator.seen["refused"] < 60
        is_odd = False
        await group.until(lambda: group.is_settled(*ALL))

    in_group(test)
