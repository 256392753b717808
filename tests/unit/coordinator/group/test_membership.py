"""Rebalances with a manual clock: delays, timeouts, votes, leaders, static members, limits, failed writes."""

from typing import Any

import pytest
from tests.support.coordinator.groups import GROUP, REBALANCE_MS, SESSION_MS, GroupBench

from headrace.common.errors import (
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    GroupMaxSizeReachedError,
    InvalidGroupIdError,
    InvalidRequestError,
    MemberIdRequiredError,
    MessageSizeTooLargeError,
    NotCoordinatorError,
    NotEnoughReplicasError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from headrace.coordinator.group.classic_group import GroupState
from headrace.coordinator.group.config import GroupConfig
from headrace.coordinator.group.joining import NEW_MEMBER_JOIN_TIMEOUT_MS
from headrace.coordinator.group.records import decode_group_value, decode_key
from headrace.records import decode_rows

STATIC = {"instance": "one"}


@pytest.fixture
def bench() -> GroupBench:
    return GroupBench()


@pytest.fixture
def slow() -> GroupBench:
    """A bench with Kafka's initial rebalance delay."""
    return GroupBench(GroupConfig(initial_rebalance_delay_ms=3_000))


def stored_groups(bench: GroupBench) -> list[tuple[int, list[str]]]:
    """Returns generation and members of each written group record."""
    found = []
    for batch in bench.log.batches:
        for record in decode_rows(batch.records()):
            if record.value is not None and type(decode_key(record.key or b"")).__name__ == "GroupMetadataKey":
                value = decode_group_value(record.value)
                found.append((value.generation, [member.member_id for member in value.members]))
    return found


# ---- first generation


def test_single_member_joins_and_syncs(bench: GroupBench) -> None:
    (joined,) = bench.join(protocols=[("range", b"meta")])
    assert joined.generation_id == 1
    assert joined.leader == joined.member_id
    assert joined.member_id.startswith("client-")
    assert joined.protocol_name == "range"
    assert [(member.member_id, member.metadata) for member in joined.members] == [(joined.member_id, b"meta")]
    (synced,) = bench.sync(joined.member_id, 1, {joined.member_id: b"all"})
    assert synced.assignment == b"all"
    assert bench.state is GroupState.STABLE
    assert stored_groups(bench) == [(1, [joined.member_id])]


def test_initial_rebalance_delay_waits_for_more_members(slow: GroupBench) -> None:
    first = slow.join()
    slow.pass_time(2_999)
    assert first == []
    second = slow.join()  # extends the delay
    slow.pass_time(1)
    assert first == []
    slow.pass_time(3_000)
    assert first[0].generation_id == second[0].generation_id == 1
    assert len(first[0].members) == 2
    assert second[0].members == []


def test_initial_delay_is_limited_by_rebalance_timeout(slow: GroupBench) -> None:
    first = slow.join(rebalance_ms=7_000)
    for _ in range(6):
        slow.pass_time(1_000)
        slow.join(rebalance_ms=7_000)
        assert first == []
    slow.pass_time(1_000)
    assert len(first[0].members) == 7


def test_initial_delay_does_not_end_early(slow: GroupBench) -> None:
    first = slow.join()
    again = slow.join(slow.group.leader_id or "")
    assert first[0].error_code == RebalanceInProgressError.code  # replaced by the later request
    assert again == []
    slow.pass_time(3_000)
    assert again[0].generation_id == 1


# ---- assigned member ids


def test_member_id_is_assigned_before_join(bench: GroupBench) -> None:
    (refused,) = bench.join(version=4)
    assert refused.error_code == MemberIdRequiredError.code
    assert bench.group.pending_joins == {refused.member_id}
    assert bench.state is GroupState.EMPTY
    (joined,) = bench.join(refused.member_id, version=4)
    assert joined.error_code == 0
    assert joined.member_id == refused.member_id
    assert bench.group.pending_joins == set()


def test_rebalance_waits_for_pending_member_ids(bench: GroupBench) -> None:
    (leader,) = bench.stable()
    (refused,) = bench.join(version=4)
    again = bench.join(leader)
    assert again == []
    bench.join(refused.member_id, version=4)
    assert len(again[0].members) == 2


def test_pending_member_id_expires_after_session_timeout(bench: GroupBench) -> None:
    (leader,) = bench.stable(session_ms=60_000)
    (refused,) = bench.join(version=4)
    again = bench.join(leader, session_ms=60_000)
    bench.pass_time(SESSION_MS)
    assert again[0].generation_id == 2
    (late,) = bench.join(refused.member_id, version=4)
    assert late.error_code == UnknownMemberIdError.code


def test_pending_member_id_can_leave(bench: GroupBench) -> None:
    (leader,) = bench.stable()
    (refused,) = bench.join(version=4)
    again = bench.join(leader)
    (left,) = bench.leave(refused.member_id)
    assert left.error_code == 0
    assert again[0].generation_id == 2


def test_static_member_joins_without_member_id(bench: GroupBench) -> None:
    (joined,) = bench.join(version=9, instance="one")
    assert joined.error_code == 0
    assert joined.member_id.startswith("one-")


# ---- sessions


def test_member_without_heartbeats_is_removed(bench: GroupBench) -> None:
    leader, other = bench.stable(2)
    for _ in range(5):
        bench.pass_time(SESSION_MS - 1)
        assert bench.heartbeat(leader, bench.group.generation_id) is None
        if other in bench.group.members:
            bench.heartbeat(other, bench.group.generation_id)
    bench.pass_time(SESSION_MS - 1)
    bench.heartbeat(leader, bench.group.generation_id)
    bench.pass_time(1)
    assert list(bench.group.members) == [leader]
    assert bench.heartbeat(leader, bench.group.generation_id) is RebalanceInProgressError


def test_commit_counts_as_heartbeat(bench: GroupBench) -> None:
    (leader,) = bench.stable()
    for offset in range(5):
        bench.pass_time(SESSION_MS - 1)
        assert bench.commit(offset, leader, 1) == 0
    assert bench.state is GroupState.STABLE


def test_empty_group_is_stored_when_last_member_times_out(bench: GroupBench) -> None:
    (leader,) = bench.stable()
    bench.pass_time(SESSION_MS)
    assert bench.state is GroupState.EMPTY
    assert bench.group.generation_id == 2
    assert stored_groups(bench) == [(1, [leader]), (2, [])]


def test_member_with_pending_request_does_not_time_out(bench: GroupBench) -> None:
    leader, other = bench.stable(2, rebalance_ms=100_000)
    again = bench.join(leader, rebalance_ms=100_000)
    for _ in range(9):
        bench.pass_time(SESSION_MS - 1)
        bench.heartbeat(other, bench.group.generation_id)
    assert leader in bench.group.members
    bench.join(other, rebalance_ms=100_000)
    assert again[0].error_code == 0


def test_new_member_times_out_after_five_minutes(bench: GroupBench) -> None:
    (leader,) = bench.stable(session_ms=1_000_000, rebalance_ms=1_000_000)
    joining = bench.join(rebalance_ms=1_000_000)
    bench.pass_time(NEW_MEMBER_JOIN_TIMEOUT_MS - 1)
    assert joining == []
    bench.pass_time(1)
    assert joining[0].error_code == UnknownMemberIdError.code
    assert list(bench.group.members) == [leader]


# ---- rebalances


def test_member_that_does_not_rejoin_in_time_is_removed(bench: GroupBench) -> None:
    leader, other = bench.stable(2)
    joining = bench.join()
    again = bench.join(leader)
    for _ in range(10):
        bench.pass_time(REBALANCE_MS // 10 - 1)
        bench.heartbeat(other, bench.group.generation_id)
    assert joining == []
    bench.pass_time(10)
    assert joining[0].generation_id == again[0].generation_id
    assert other not in bench.group.members
    assert bench.heartbeat(other, bench.group.generation_id) is UnknownMemberIdError


def test_largest_rebalance_timeout_applies(bench: GroupBench) -> None:
    leader, _ = bench.stable(2, session_ms=600_000, rebalance_ms=50_000)
    again = bench.join(leader, session_ms=600_000, rebalance_ms=10_000)
    bench.pass_time(49_999)
    assert again == []
    bench.pass_time(1)
    assert again[0].error_code == 0


def test_member_that_does_not_sync_in_time_is_removed(bench: GroupBench) -> None:
    leader, other = bench.stable(2)
    bench.join(leader), bench.join(other)
    generation = bench.group.generation_id
    bench.sync(leader, generation, {})
    for _ in range(10):
        bench.pass_time(REBALANCE_MS // 10 - 1)
        bench.heartbeat(leader, generation), bench.heartbeat(other, generation)
    bench.pass_time(10)
    assert list(bench.group.members) == [leader]
    assert bench.state is GroupState.PREPARING_REBALANCE


def test_leader_that_does_not_sync_is_removed(bench: GroupBench) -> None:
    leader, other = bench.stable(2)
    bench.join(leader), bench.join(other)
    generation = bench.group.generation_id
    waiting = bench.sync(other, generation)
    for _ in range(10):
        bench.pass_time(REBALANCE_MS // 10 - 1)
        bench.heartbeat(leader, generation)
    bench.pass_time(10)
    assert waiting[0].error_code == RebalanceInProgressError.code
    assert list(bench.group.members) == [other]


def test_leave_during_rebalance_does_not_delay_it(bench: GroupBench) -> None:
    leader, other = bench.stable(2)
    again = bench.join(leader)
    assert again == []
    bench.leave(other)
    assert again[0].generation_id == 3
    assert [member.member_id for member in again[0].members] == [leader]


def test_leave_while_completing_fails_pending_syncs(bench: GroupBench) -> None:
    leader, other = bench.stable(2)
    bench.join(leader), bench.join(other)
    waiting = bench.sync(other, bench.group.generation_id)
    bench.leave(leader)
    assert waiting[0].error_code == RebalanceInProgressError.code
    assert bench.group.leader_id == other


def test_pending_request_of_removed_member_fails(bench: GroupBench) -> None:
    (leader,) = bench.stable()
    joining = bench.join()
    (new,) = set(bench.group.members) - {leader}
    bench.leave(new)
    assert joining[0].error_code == UnknownMemberIdError.code


def test_assignments_of_unknown_members_are_ignored(bench: GroupBench) -> None:
    leader, other = bench.stable(2)
    bench.join(leader), bench.join(other)
    generation = bench.group.generation_id
    waiting = bench.sync(other, generation)
    (synced,) = bench.sync(leader, generation, {leader: b"mine", "stranger": b"?"})
    assert synced.assignment == b"mine"
    assert waiting[0].assignment == b""
    assert bench.sync(other, generation)[0].assignment == b""


def test_second_sync_completes_first_one(bench: GroupBench) -> None:
    leader, other = bench.stable(2)
    bench.join(leader), bench.join(other)
    generation = bench.group.generation_id
    first, second = bench.sync(other, generation), bench.sync(other, generation)
    assert first[0].error_code == RebalanceInProgressError.code
    bench.sync(leader, generation, {other: b"x"})
    assert second[0].assignment == b"x"


def test_several_members_leave_at_once(bench: GroupBench) -> None:
    leader, second, third = bench.stable(3)
    replies = bench.leave(second, "nobody", third)
    assert [reply.error_code for reply in replies] == [0, UnknownMemberIdError.code, 0]
    assert list(bench.group.members) == [leader]


# ---- votes and leaders


def test_protocol_with_most_votes_is_selected(bench: GroupBench) -> None:
    orders = [("a", "b"), ("b", "a"), ("b", "a")]
    protocols = [[(name, b"") for name in order] for order in orders]
    bench.join(protocols=protocols[0])
    leader = bench.group.leader_id or ""
    bench.join(protocols=protocols[1]), bench.join(protocols=protocols[2])
    bench.join(leader, protocols=protocols[0])
    assert bench.group.protocol == "b"


def test_only_common_protocols_can_be_selected(bench: GroupBench) -> None:
    bench.join(protocols=[("a", b""), ("c", b"")])
    leader = bench.group.leader_id or ""
    joined = bench.join(protocols=[("b", b""), ("c", b"mine")])
    bench.join(leader, protocols=[("a", b""), ("c", b"")])
    assert joined[0].protocol_name == "c"


def test_new_leader_if_leader_does_not_rejoin(bench: GroupBench) -> None:
    leader, other = bench.stable(2)
    bench.join(other, protocols=[("range", b"changed")])
    bench.pass_time(SESSION_MS)
    assert bench.group.leader_id == other
    assert leader not in bench.group.members


# ---- static members


def test_static_member_is_replaced_without_rebalance(bench: GroupBench) -> None:
    (old,) = bench.stable(instance="one")
    (replaced,) = bench.join(instance="one", version=9)
    assert replaced.error_code == 0
    assert replaced.member_id != old
    assert replaced.generation_id == 1
    assert replaced.leader == replaced.member_id
    assert replaced.skip_assignment
    assert [member.member_id for member in replaced.members] == [replaced.member_id]
    assert bench.state is GroupState.STABLE
    (synced,) = bench.sync(replaced.member_id, 1, instance="one")
    assert synced.assignment == old.encode()
    assert stored_groups(bench)[-1] == (1, [replaced.member_id])


def test_old_client_that_replaces_leader_is_not_named_leader(bench: GroupBench) -> None:
    (old,) = bench.stable(instance="one")
    (replaced,) = bench.join(instance="one", version=8)
    assert replaced.leader == old
    assert replaced.members == []
    assert not replaced.skip_assignment


def test_replaced_static_member_is_fenced(bench: GroupBench) -> None:
    (old,) = bench.stable(instance="one")
    bench.join(instance="one", version=9)
    assert bench.join(old, instance="one")[0].error_code == FencedInstanceIdError.code
    assert bench.sync(old, 1, instance="one")[0].error_code == FencedInstanceIdError.code
    assert bench.heartbeat(old, 1, instance="one") is FencedInstanceIdError
    assert bench.commit(1, old, 1, instance="one") is FencedInstanceIdError
    assert bench.leave((old, "one"))[0].error_code == FencedInstanceIdError.code
    assert bench.heartbeat(old, 1) is UnknownMemberIdError


def test_pending_requests_of_replaced_static_member_are_fenced(bench: GroupBench) -> None:
    leader, _ = bench.stable(2, session_ms=60_000)
    joining = bench.join(instance="one")
    again = bench.join(instance="one")
    assert joining[0].error_code == FencedInstanceIdError.code
    assert again == []
    assert leader in bench.group.members


def test_replacement_rebalances_if_selected_protocol_changes(bench: GroupBench) -> None:
    bench.stable(instance="one", protocols=[("a", b""), ("b", b"")])
    (replaced,) = bench.join(instance="one", protocols=[("b", b"")], version=9)
    assert replaced.generation_id == 2
    assert replaced.protocol_name == "b"


def test_absent_static_member_stays_in_next_generation(bench: GroupBench) -> None:
    """It has the same time as the others to send SyncGroup."""
    long = {"session_ms": 600_000}
    (dynamic,) = bench.stable(**long)
    bench.join(instance="one", **long)
    bench.join(dynamic, **long)
    generation = bench.group.generation_id
    bench.sync(dynamic, generation, {})
    static = bench.group.static_members["one"]
    bench.sync(static, generation)
    again = bench.join(dynamic, **long)
    bench.pass_time(REBALANCE_MS)  # the static member does not rejoin
    assert [member.member_id for member in again[0].members] == [dynamic, static]
    bench.sync(dynamic, generation + 1, {static: b"kept"})
    (replaced,) = bench.join(instance="one", version=9, **long)
    assert replaced.generation_id == generation + 1
    assert bench.sync(replaced.member_id, generation + 1, instance="one")[0].assignment == b"kept"
    bench.join(dynamic, **long)
    bench.pass_time(REBALANCE_MS)  # absent again
    generation = bench.group.generation_id
    bench.sync(dynamic, generation, {})
    assert list(bench.group.members) == [dynamic, replaced.member_id]
    bench.pass_time(REBALANCE_MS)
    assert list(bench.group.members) == [dynamic]
    assert bench.heartbeat(dynamic, generation) is RebalanceInProgressError


def test_group_of_absent_static_members(bench: GroupBench) -> None:
    (old,) = bench.stable(instance="one", session_ms=100_000)
    bench.shard.members.rebalances.prepare_rebalance(bench.group, "a test")
    bench.pass_time(REBALANCE_MS * 2)
    assert bench.state is GroupState.PREPARING_REBALANCE
    assert list(bench.group.members) == [old]
    bench.pass_time(100_000)
    assert bench.state is GroupState.EMPTY


def test_admin_removes_static_member_by_instance_id(bench: GroupBench) -> None:
    bench.stable(instance="one")
    replies = bench.leave(("", "one"), ("", "two"))
    assert [reply.error_code for reply in replies] == [0, UnknownMemberIdError.code]
    assert bench.state is GroupState.EMPTY


def test_unwritten_replacement_is_undone(bench: GroupBench) -> None:
    (old,) = bench.stable(instance="one")
    bench.log.failure = NotEnoughReplicasError("too few")
    (refused,) = bench.join(instance="one", version=9)
    assert refused.error_code == CoordinatorNotAvailableError.code
    assert bench.heartbeat(old, 1, instance="one") is None


def test_written_replacement_stays_if_commit_times_out(bench: GroupBench) -> None:
    """The log is authoritative; the client retries and replaces itself."""
    (old,) = bench.stable(instance="one")
    bench.log.replicated = False
    first = bench.join(instance="one", version=9)
    bench.log.commit(CoordinatorNotAvailableError("too slow"))
    assert first[0].error_code == CoordinatorNotAvailableError.code
    live = list(bench.group.members)
    bench.log.replicated = True
    bench.reload()
    assert list(bench.group.members) == live != [old]
    assert bench.heartbeat(old, 1, instance="one") is FencedInstanceIdError


def test_second_replacement_before_first_commit(bench: GroupBench) -> None:
    bench.stable(instance="one")
    bench.log.replicated = False
    first, second = bench.join(instance="one", version=9), bench.join(instance="one", version=9)
    assert first == second == []
    bench.log.commit()
    assert first[0].error_code == FencedInstanceIdError.code
    assert second[0].error_code == 0
    assert bench.group.static_members == {"one": second[0].member_id}


def test_syncing_member_is_replaced_before_commit(bench: GroupBench) -> None:
    (old,) = bench.stable(instance="one")
    bench.log.replicated = False
    bench.commit_later(5, old, 1, instance="one")
    waiting = bench.sync(old, 1, instance="one")
    replaced = bench.join(instance="one", version=9)
    bench.log.commit()
    assert waiting[0].error_code == FencedInstanceIdError.code
    assert replaced[0].error_code == 0


# ---- limits


def test_rejected_member_of_full_group_leaves_no_state() -> None:
    bench = GroupBench(GroupConfig(initial_rebalance_delay_ms=0, max_size=1))
    (leader,) = bench.stable(session_ms=1_000_000)
    bench.leave(leader)
    (refused,) = bench.join(version=4)  # the group is empty and has room
    bench.stable(session_ms=1_000_000)
    (full,) = bench.join(refused.member_id, version=4, protocols=[("other", b"")])
    assert full.error_code == GroupMaxSizeReachedError.code
    assert bench.group.pending_joins == set()
    assert not bench.is_scheduled("pending")


def test_group_max_size() -> None:
    bench = GroupBench(GroupConfig(initial_rebalance_delay_ms=0, max_size=2))
    leader, _ = bench.stable(2)
    (refused,) = bench.join()
    assert refused.error_code == GroupMaxSizeReachedError.code
    assert bench.state is GroupState.STABLE
    bench.join(leader)
    assert bench.state is GroupState.PREPARING_REBALANCE
    assert bench.join() == []  # the other member has not rejoined yet: first come, first served


def test_static_member_of_full_group_can_be_replaced() -> None:
    bench = GroupBench(GroupConfig(initial_rebalance_delay_ms=0, max_size=1))
    bench.stable(instance="one")
    (replaced,) = bench.join(instance="one", version=9)
    assert replaced.error_code == 0


def test_loaded_group_above_max_size_shrinks() -> None:
    bench = GroupBench()
    ids = bench.stable(3)
    bench.config = GroupConfig(initial_rebalance_delay_ms=0, max_size=2)
    bench.reload()
    bench.pass_time(1)
    assert bench.state is GroupState.PREPARING_REBALANCE
    replies = [bench.join(each) for each in ids]
    assert [reply[0].error_code for reply in replies if reply].count(GroupMaxSizeReachedError.code) == 1
    assert len(bench.group.members) == 2


# ---- writing and loading


def test_unwritten_assignment_starts_rebalance(bench: GroupBench) -> None:
    leader, other = bench.stable(2)
    bench.join(leader), bench.join(other)
    generation = bench.group.generation_id
    waiting = bench.sync(other, generation)
    bench.log.failure = NotEnoughReplicasError("too few")
    (refused,) = bench.sync(leader, generation, {})
    assert refused.error_code == waiting[0].error_code == CoordinatorNotAvailableError.code
    bench.log.failure = None
    bench.pass_time(1)
    assert bench.state is GroupState.PREPARING_REBALANCE


def test_unwritten_assignment_of_group_without_members_starts_no_rebalance(bench: GroupBench) -> None:
    (leader,) = bench.stable(1)
    bench.join(leader)
    bench.log.failure = NotEnoughReplicasError("too few")
    bench.sync(leader, bench.group.generation_id, {})
    bench.log.failure = None
    bench.leave(leader)
    assert bench.state is GroupState.EMPTY
    generation = bench.group.generation_id
    bench.pass_time(1)
    assert (bench.state, bench.group.generation_id) == (GroupState.EMPTY, generation)


def test_too_large_group_fails_with_unknown_error(bench: GroupBench) -> None:
    (joined,) = bench.join()
    bench.log.failure = MessageSizeTooLargeError("large")
    (refused,) = bench.sync(joined.member_id, 1)
    assert refused.error_code == -1


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"group_id": "g" * 33_000}, InvalidGroupIdError),
        ({"group_id": "ä" * 16_001}, InvalidGroupIdError),
        ({"group_id": "ä" * 16_000}, None),
        ({"protocol_type": "x" * 33_000}, InvalidRequestError),
        ({"protocols": [("x" * 33_000, b"")]}, InvalidRequestError),
        ({"instance": "x" * 33_000}, InvalidRequestError),
        ({"client_id": "x" * 32_767}, InvalidRequestError),
    ],
)
def test_rejects_too_long_names(bench: GroupBench, options: dict[str, Any], error: Any) -> None:
    (reply,) = bench.join(**options)
    assert reply.error_code == (error.code if error is not None else 0)


def test_assignment_is_sent_after_commit(bench: GroupBench) -> None:
    (joined,) = bench.join()
    bench.log.replicated = False
    waiting = bench.sync(joined.member_id, 1, {joined.member_id: b"all"})
    again = bench.sync(joined.member_id, 1)
    assert waiting == again == []
    bench.log.commit()
    assert waiting[0].assignment == again[0].assignment == b"all"


def test_rebalance_before_assignment_is_committed(bench: GroupBench) -> None:
    (joined,) = bench.join()
    bench.log.replicated = False
    waiting = bench.sync(joined.member_id, 1, {joined.member_id: b"all"})
    joining = bench.join()
    assert waiting[0].error_code == RebalanceInProgressError.code
    bench.log.commit()
    assert len(waiting) == 1
    assert joining == []
    assert bench.state is GroupState.PREPARING_REBALANCE


def test_group_becomes_empty_even_if_not_written(bench: GroupBench) -> None:
    (leader,) = bench.stable()
    bench.log.failure = NotEnoughReplicasError("too few")
    bench.leave(leader)
    assert bench.state is GroupState.EMPTY
    bench.log.failure = None
    (joined,) = bench.join()
    assert joined.generation_id == 3


def test_loaded_group_continues(bench: GroupBench) -> None:
    leader, other = bench.stable(2, protocols=[("range", b"meta")])
    generation = bench.group.generation_id
    bench.reload()
    assert bench.state is GroupState.STABLE
    assert bench.heartbeat(leader, generation) is None
    assert bench.sync(other, generation)[0].assignment == other.encode()
    bench.pass_time(SESSION_MS - 1)
    assert bench.heartbeat(leader, generation) is None
    bench.pass_time(1)
    assert list(bench.group.members) == [leader]


def test_static_members_survive_load(bench: GroupBench) -> None:
    (old,) = bench.stable(instance="one")
    bench.reload()
    assert bench.heartbeat(old, 1, instance="one") is None
    (replaced,) = bench.join(instance="one", version=9)
    assert replaced.generation_id == 1


def test_pending_requests_fail_when_coordinator_moves(bench: GroupBench) -> None:
    leader, other = bench.stable(2)
    joining = bench.join(leader)
    bench.runtime.unload(0)
    assert joining[0].error_code == NotCoordinatorError.code
    assert bench.timer.next_due_ms() is None
    bench.load()
    bench.join(leader), bench.join(other)
    syncing = bench.sync(other, bench.group.generation_id)
    bench.runtime.unload(0)
    assert syncing[0].error_code == NotCoordinatorError.code


def test_never_stable_group_is_not_loaded(bench: GroupBench) -> None:
    bench.join()
    bench.reload()
    assert GROUP not in bench.shard.groups
