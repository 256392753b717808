"""Every state against every request, and the errors that come before the state is looked at."""

import pytest
from tests.support.groups import GROUP, GroupBench

from headrace.common.errors import (
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    GroupIdNotFoundError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    InvalidGroupIdError,
    InvalidSessionTimeoutError,
    KafkaError,
    NonEmptyGroupError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from headrace.coordinator.group.classic import PREDECESSORS, ClassicGroup, GroupState

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = (
    GroupState.EMPTY,
    GroupState.PREPARING_REBALANCE,
    GroupState.COMPLETING_REBALANCE,
    GroupState.STABLE,
    GroupState.DEAD,
)
OK, WAITS = "ok", "waits"
Answer = type[KafkaError] | str


@pytest.fixture
def bench() -> GroupBench:
    return GroupBench()


def answer_of(replies: list) -> Answer:  # type: ignore[type-arg]
    if not replies:
        return WAITS
    code = replies[0].error_code
    return OK if code == 0 else next(each for each in ERRORS if each.code == code)


ERRORS = (
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    InvalidGroupIdError,
    InvalidSessionTimeoutError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)

TABLE: dict[str, dict[GroupState, Answer]] = {
    "join of a member, nothing changed": {
        EMPTY: UnknownMemberIdError,
        PREPARING: OK,  # the last one that was waited for
        COMPLETING: OK,
        STABLE: OK,
        DEAD: CoordinatorNotAvailableError,
    },
    "join of the leader": {
        EMPTY: UnknownMemberIdError,
        PREPARING: WAITS,
        COMPLETING: OK,
        STABLE: WAITS,
        DEAD: CoordinatorNotAvailableError,
    },
    "join with other protocols": {
        EMPTY: UnknownMemberIdError,
        PREPARING: OK,
        COMPLETING: WAITS,
        STABLE: WAITS,
        DEAD: CoordinatorNotAvailableError,
    },
    "join of somebody new": {
        EMPTY: OK,
        PREPARING: WAITS,
        COMPLETING: WAITS,
        STABLE: WAITS,
        DEAD: CoordinatorNotAvailableError,
    },
    "sync": {
        EMPTY: UnknownMemberIdError,
        PREPARING: RebalanceInProgressError,
        COMPLETING: WAITS,
        STABLE: OK,
        DEAD: CoordinatorNotAvailableError,
    },
    "heartbeat": {
        EMPTY: UnknownMemberIdError,
        PREPARING: RebalanceInProgressError,
        COMPLETING: OK,
        STABLE: OK,
        DEAD: CoordinatorNotAvailableError,
    },
    "leave": {
        EMPTY: UnknownMemberIdError,
        PREPARING: OK,
        COMPLETING: OK,
        STABLE: OK,
        DEAD: CoordinatorNotAvailableError,
    },
    "commit of a member": {
        EMPTY: UnknownMemberIdError,
        PREPARING: OK,
        COMPLETING: RebalanceInProgressError,
        STABLE: OK,
        DEAD: CoordinatorNotAvailableError,
    },
    "commit of nobody": {
        EMPTY: OK,
        PREPARING: UnknownMemberIdError,
        COMPLETING: UnknownMemberIdError,
        STABLE: UnknownMemberIdError,
        DEAD: CoordinatorNotAvailableError,
    },
    "delete": {
        EMPTY: OK,
        PREPARING: NonEmptyGroupError,
        COMPLETING: NonEmptyGroupError,
        STABLE: NonEmptyGroupError,
        DEAD: GroupIdNotFoundError,
    },
}


@pytest.mark.parametrize("state", GroupState)
@pytest.mark.parametrize("request_", TABLE)
def test_each_state_answers_each_request(bench: GroupBench, request_: str, state: GroupState) -> None:
    member, generation = bench.in_state(state)
    answer: Answer
    if request_ == "join of a member, nothing changed":
        answer = answer_of(bench.join(member))
    elif request_ == "join of the leader":
        answer = answer_of(bench.join(bench.group.leader_id or member))
    elif request_ == "join with other protocols":
        answer = answer_of(bench.join(member, protocols=[("range", b"changed")]))
    elif request_ == "join of somebody new":
        answer = answer_of(bench.join())
    elif request_ == "sync":
        answer = answer_of(bench.sync(member, generation))
    elif request_ == "heartbeat":
        answer = bench.heartbeat(member, generation) or OK
    elif request_ == "leave":
        replies = bench.leave(member)
        answer = answer_of(replies) if isinstance(replies, list) else replies
    elif request_ == "delete":
        answer = bench.ask(lambda shard: shard.delete_group(GROUP)) or OK
    else:
        code = bench.commit(5, member, generation) if request_ == "commit of a member" else bench.commit(5)
        answer = OK if code == 0 else code  # type: ignore[assignment]
    assert answer == TABLE[request_][state]


@pytest.mark.parametrize("state", [PREPARING, COMPLETING, STABLE])
class TestErrorsBeforeTheState:
    def test_unknown_member(self, bench: GroupBench, state: GroupState) -> None:
        _, generation = bench.in_state(state)
        assert answer_of(bench.join("nobody")) is UnknownMemberIdError
        assert answer_of(bench.sync("nobody", generation)) is UnknownMemberIdError
        assert bench.heartbeat("nobody", generation) is UnknownMemberIdError
        assert bench.commit(1, "nobody", generation) is UnknownMemberIdError
        (left,) = bench.leave("nobody")
        assert left.error_code == UnknownMemberIdError.code

    def test_wrong_generation(self, bench: GroupBench, state: GroupState) -> None:
        member, generation = bench.in_state(state)
        for wrong in (generation - 1, generation + 1):
            assert answer_of(bench.sync(member, wrong)) is IllegalGenerationError
            assert bench.heartbeat(member, wrong) is IllegalGenerationError
            assert bench.commit(1, member, wrong) is IllegalGenerationError

    def test_unknown_instance(self, bench: GroupBench, state: GroupState) -> None:
        member, generation = bench.in_state(state)
        assert answer_of(bench.join(member, instance="i")) is UnknownMemberIdError
        assert answer_of(bench.sync(member, generation, instance="i")) is UnknownMemberIdError
        assert bench.heartbeat(member, generation, instance="i") is UnknownMemberIdError
        assert bench.commit(1, member, generation, instance="i") is UnknownMemberIdError

    def test_other_protocols_than_the_group_speaks(self, bench: GroupBench, state: GroupState) -> None:
        bench.in_state(state)
        assert answer_of(bench.join(protocols=[("other", b"")])) is InconsistentGroupProtocolError
        assert answer_of(bench.join(protocol_type="connect")) is InconsistentGroupProtocolError
        assert answer_of(bench.join(protocols=[])) is InconsistentGroupProtocolError


@pytest.mark.parametrize("state", [COMPLETING, STABLE])
def test_a_sync_names_the_groups_protocol(bench: GroupBench, state: GroupState) -> None:
    member, generation = bench.in_state(state)
    assert answer_of(bench.sync(member, generation, protocol_type="x")) is InconsistentGroupProtocolError
    assert answer_of(bench.sync(member, generation, protocol="x")) is InconsistentGroupProtocolError
    expected = WAITS if state is COMPLETING else OK
    assert answer_of(bench.sync(member, generation, protocol_type="consumer", protocol="range")) == expected


def test_a_group_that_is_not_there(bench: GroupBench) -> None:
    assert answer_of(bench.join("m")) is UnknownMemberIdError
    assert answer_of(bench.sync("m", 1)) is UnknownMemberIdError
    assert bench.heartbeat("m", 1) is UnknownMemberIdError
    assert bench.leave("m") is UnknownMemberIdError
    assert bench.commit(1, "m", 1) is GroupIdNotFoundError
    assert bench.shard.groups == {}
    assert bench.commit(1) == 0


def test_a_group_without_a_name(bench: GroupBench) -> None:
    assert answer_of(bench.join(group_id="")) is InvalidGroupIdError
    assert answer_of(bench.sync("m", 1, group_id="")) is InvalidGroupIdError
    assert bench.heartbeat("m", 1, group_id="") is InvalidGroupIdError
    assert bench.leave("m", group_id="") is InvalidGroupIdError


@pytest.mark.parametrize(("session_ms", "fits"), [(5_999, False), (6_000, True), (1_800_000, True), (1_800_001, False)])
def test_session_timeouts_have_limits(bench: GroupBench, session_ms: int, fits: bool) -> None:
    answer = answer_of(bench.join(session_ms=session_ms))
    assert answer == (OK if fits else InvalidSessionTimeoutError)
    assert (GROUP in bench.shard.groups) is fits


def test_a_first_member_names_a_protocol(bench: GroupBench) -> None:
    assert answer_of(bench.join(protocol_type="")) is InconsistentGroupProtocolError
    assert answer_of(bench.join(protocols=[])) is InconsistentGroupProtocolError
    assert bench.shard.groups == {}


@pytest.mark.parametrize("state", GroupState)
def test_a_state_is_entered_from_its_predecessors_only(state: GroupState) -> None:
    for before in GroupState:
        group = ClassicGroup("g", 0, before)
        if before in PREDECESSORS[state]:
            group.transition(state, 7)
            assert (group.state, group.state_timestamp_ms) == (state, 7)
        else:
            with pytest.raises(Exception, match="cannot go from"):
                group.transition(state, 7)
