"""Markers: their content, and when a replayed batch is rejected."""

from types import SimpleNamespace
from typing import Any

import pytest

from headrace import OffsetAndMetadata, TopicPartition
from headrace.common.errors import GroupAuthorizationFailedError
from headrace.spark import markers
from headrace.spark.markers import Marker, NotDeterministicError, check_replay, check_tasks, task_name


class Offsets:
    """An admin client with fixed groups and offsets."""

    def __init__(self, groups: dict[str, dict[TopicPartition, OffsetAndMetadata]], **errors: Any):
        self.groups = groups
        self.errors = errors
        self.stable_reads: list[bool] = []

    def list_groups(self) -> list[Any]:
        return [SimpleNamespace(group_id=name) for name in self.groups]

    def list_group_offsets(self, names: list[str], require_stable: bool = False) -> dict[str, Any]:
        self.stable_reads.append(require_stable)
        return {name: SimpleNamespace(offsets=self.groups.get(name, {}), errors=self.errors) for name in names}


def test_marker_round_trip() -> None:
    marker = Marker(7, 20, "00ff")
    assert Marker.latest({TopicPartition("t", 0): marker.as_offset()}) == marker


def test_latest_marker_of_any_topic_counts() -> None:
    offsets = {TopicPartition(name, 0): Marker(batch, batch, "d").as_offset() for name, batch in [("a", 3), ("b", 9)]}
    assert Marker.latest(offsets) == Marker(9, 9, "d")
    assert Marker.latest({}) is None


def test_foreign_offset_still_has_a_batch_id() -> None:
    marker = Marker.latest({TopicPartition("t", 0): OffsetAndMetadata(5, "by hand")})
    assert marker is not None
    assert marker.batch_id == 5
    check_replay(marker, 5, 1, "x", "task")


@pytest.mark.parametrize("is_owner", [True, False])
def test_only_the_owner_waits_for_pending_transactions(is_owner: bool) -> None:
    admin: Any = Offsets({"g": {TopicPartition("t", 0): Marker(1, 2, "d").as_offset()}})
    markers.read(admin, "g", is_owner=is_owner)
    assert admin.stable_reads == [is_owner]


def test_read_raises_broker_errors() -> None:
    admin: Any = Offsets({"g": {TopicPartition("t", 0): Marker(1, 2, "d").as_offset()}})
    assert markers.read(admin, "g", is_owner=True) == Marker(1, 2, "d")
    assert markers.read(admin, "other", is_owner=False) is None
    refused: Any = Offsets({}, t=GroupAuthorizationFailedError("no"))
    with pytest.raises(GroupAuthorizationFailedError):
        markers.read(refused, "g", is_owner=True)


def test_replay_with_other_rows_is_rejected() -> None:
    marker = Marker(4, 10, "aa")
    check_replay(marker, 4, 10, "aa", "task")
    check_replay(marker, 5, 1, "bb", "task")
    with pytest.raises(NotDeterministicError, match=r"task: batch 3 is older than batch 4.*queryId"):
        check_replay(marker, 3, 10, "aa", "task")
    for rows, digest in [(9, "aa"), (10, "bb")]:
        with pytest.raises(NotDeterministicError, match=r"task: batch 4 was written before with 10 rows.*sinkName"):
            check_replay(marker, 4, rows, digest, "task")


def test_replay_with_fewer_tasks_is_rejected() -> None:
    def groups(batch: int, *tasks: int) -> Any:
        return Offsets(
            {task_name("q", "s", task): {TopicPartition("t", 0): Marker(batch, 1, "d").as_offset()} for task in tasks}
        )

    prefix = markers.names_prefix("q", "s")
    check_tasks(groups(4, 0, 1, 2), prefix, 3, 4)
    check_tasks(groups(3, 0, 1, 2, 3), prefix, 3, 4)
    with pytest.raises(NotDeterministicError, match=r"batch 4 now has 2 tasks.*headrace-spark-q/s/3"):
        check_tasks(groups(4, 3), prefix, 2, 4)


def test_ignores_other_sinks_and_groups() -> None:
    offset = {TopicPartition("t", 0): Marker(4, 1, "d").as_offset()}
    names = [task_name("q", "s-1", 9), task_name("q2", "s", 9), "headrace-spark-q/s/x", "shop"]
    admin: Any = Offsets(dict.fromkeys(names, offset))
    check_tasks(admin, markers.names_prefix("q", "s"), 1, 4)


def test_names_of_sinks_are_unique() -> None:
    parts = [("daily", "orders-eu"), ("daily-orders", "eu"), ("a/b", "c"), ("a", "b/c"), ("a%2Fb", "c")]
    assert len({task_name(query, sink, 0) for query, sink in parts}) == len(parts)
