"""Requests to group coordinators: exactly one response, and a turn for other requests in between."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.broker.group_requests import run_group_operations, run_member_operation
from headrace.common.errors import GroupIdNotFoundError, KafkaError, NotCoordinatorError, UnknownError
from headrace.coordinator.result import CoordinatorResponse, CoordinatorResult

TURN = 10


class Groups:
    """A runtime that completes operations at once, or when the test says so."""

    def __init__(self, delayed: bool = False) -> None:
        self.operations = 0
        self.turns: list[int] = []
        """The number of operations before each turn of other requests."""
        self.delayed: list[Callable[[], None]] = []
        self.write_error: KafkaError | None = None
        self._delayed = delayed

    def write(
        self,
        index: int,
        operation: Callable[[Any], CoordinatorResult[Any]],
        done: Callable[[CoordinatorResponse[Any]], None],
    ) -> None:
        self.operations += 1
        result: CoordinatorResponse[Any]
        try:
            reply = operation(index).response
            result = (
                CoordinatorResponse(reply) if self.write_error is None else CoordinatorResponse(error=self.write_error)
            )
        except KafkaError as error:
            result = CoordinatorResponse(error=error)
        if self._delayed:
            self.delayed.append(lambda: done(result))
        else:
            done(result)


def coordinators_with(groups: Groups) -> Any:
    return SimpleNamespace(groups=groups, group_partition=len)


# ---- operations on many groups


def run(groups: Groups, group_ids: list[str]) -> list[list[str]]:
    """Returns a list that gets the response when there is one."""
    responses: list[list[str]] = []

    def operation(shard: Any, group_id: str) -> CoordinatorResult[str]:
        if group_id == "missing":
            raise GroupIdNotFoundError("not found")
        return CoordinatorResult((), f"{group_id} of {shard}")

    work = run_group_operations(
        coordinators_with(groups),
        SimpleNamespace(authorizer=None, turn_is_over=lambda: groups.operations % TURN == 0),
        group_ids,
        str,
        operation,
        lambda group_id, error: f"{group_id}: {error}",
        responses.append,
    )
    groups.turns = [groups.operations for _ in work]
    return responses


def test_results_are_in_the_order_of_the_groups() -> None:
    assert run(Groups(), ["a", "missing", "bcd"]) == [["a of 1", "missing: not found", "bcd of 3"]]
    assert run(Groups(), []) == [[]]


def test_errors_are_not_raised_again() -> None:
    """A raised error is in a reference cycle with its traceback, and only a garbage collection frees it."""
    groups = Groups()
    groups.write_error = error = NotCoordinatorError("moved")
    assert run(groups, ["a", "bcd"]) == [["a: moved", "bcd: moved"]]
    assert error.__traceback__ is None


def test_response_waits_for_all_groups() -> None:
    groups = Groups(delayed=True)
    responses = run(groups, ["a", "bcd"])
    for complete in reversed(groups.delayed):
        assert responses == []
        complete()
    assert responses == [["a of 1", "bcd of 3"]]


def test_many_groups_let_other_requests_run() -> None:
    groups = Groups()
    (response,) = run(groups, [str(number) for number in range(3 * TURN + 1)])
    assert groups.turns == [TURN, 2 * TURN, 3 * TURN]
    assert len(response) == 3 * TURN + 1


# ---- operations of a member


class Member:
    """A JoinGroup or SyncGroup request: keeps the function for its response, and the responses that it got."""

    def __init__(self, groups: Groups, error: KafkaError | None = None, responds: bool = False) -> None:
        self.responses: list[str] = []
        self.reply: Callable[[str], None] = lambda _: None

        def operation(_: Any, reply: Callable[[str], None]) -> CoordinatorResult[None]:
            self.reply = reply
            if error is not None:
                raise error
            if responds:
                reply("joined")
            return CoordinatorResult((), None)

        run_member_operation(
            coordinators_with(groups), "group", operation, lambda error: type(error).__name__, self.responses.append
        )


def test_group_responds_at_once_or_later() -> None:
    assert Member(Groups(), responds=True).responses == ["joined"]
    member = Member(Groups())
    assert member.responses == []
    member.reply("joined")
    assert member.responses == ["joined"]


@pytest.mark.parametrize("error", [NotCoordinatorError("not here"), UnknownError("a bug")])
def test_operation_that_fails_responds_with_its_error_once(error: KafkaError) -> None:
    member = Member(Groups(), error=error)
    member.reply("late")
    assert member.responses == [type(error).__name__]


def test_group_responds_after_a_failed_write() -> None:
    groups = Groups()
    groups.write_error = NotCoordinatorError("not here")
    member = Member(groups)
    assert member.responses == []
    member.reply("refused")
    assert member.responses == ["refused"]
