"""Markers that tasks commit with their rows, so that no batch is written twice.

    transactional id = group id   headrace-spark-<query>/<sink>/<task's partition>
    committed offset              the id of the last batch that was written
    metadata of the offset        {"rows": 20000, "digest": "9f1c..."}

A marker is a committed offset of a consumer group without members. A task commits its rows and its marker in one
transaction: both exist or neither. The offset is committed for partition 0 of one of the written topics. Any existing
partition would do.

A task that runs again first acquires the transactional id. This aborts the open transaction of an earlier attempt, and
the marker can no longer change.

`check_tasks` runs in the driver, everything else in tasks. Only `read` and `check_tasks` send requests to a broker.
"""

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from headrace.client.types import OffsetAndMetadata
from headrace.common.types import TopicPartition

if TYPE_CHECKING:
    from headrace.client.admin.admin import Admin

__all__ = ["Marker", "NotDeterministicError", "check_replay", "check_tasks", "names_prefix", "read", "task_name"]

_PREFIX = "headrace-spark"
_WHAT_TO_DO = (
    "Exactly-once delivery requires that a replayed batch gives the same rows to the same tasks. Use the settings of "
    "the previous run (spark.sql.shuffle.partitions, spark.sql.adaptive.*, options of the source), avoid rand(), "
    "uuid() and similar functions, leave spark.sql.execution.sortBeforeRepartition on, and give every write of a "
    "batch its own option 'sinkName'. To write the batch anyway, possibly with duplicate rows, set the option "
    "deliveryGuarantee to 'at-least-once' until the batch is written"
)


class NotDeterministicError(Exception):
    """A replayed batch has other rows than before, so it is unknown which of them are already written."""


class Marker(NamedTuple):
    """The last batch that a task wrote, with the number of its rows and their digest."""

    batch_id: int
    rows: int
    digest: str

    def as_offset(self) -> OffsetAndMetadata:
        return OffsetAndMetadata(self.batch_id, json.dumps({"rows": self.rows, "digest": self.digest}))

    @classmethod
    def latest(cls, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> "Marker | None":
        """Returns the marker of the last batch among a group's offsets. Earlier markers may be on other topics."""
        markers = [cls._parse(offset) for offset in offsets.values()]
        return max(markers, key=lambda marker: marker.batch_id, default=None)

    @classmethod
    def _parse(cls, offset: OffsetAndMetadata) -> "Marker":
        try:
            content = json.loads(offset.metadata)
            return cls(offset.offset, int(content["rows"]), str(content["digest"]))
        except (ValueError, KeyError, TypeError):
            return cls(offset.offset, -1, "")  # not written by this sink: only the batch id is known


def names_prefix(query: str, sink: str) -> str:
    """Returns the prefix of all task names, with special characters of query and sink quoted, so that it is unique."""
    return f"{_PREFIX}-{quote(query, safe='')}/{quote(sink, safe='')}/"


def task_name(query: str, sink: str, partition: int) -> str:
    """Returns the transactional id of a task, which is also its group id."""
    return f"{names_prefix(query, sink)}{partition}"


def read(admin: "Admin", name: str, *, is_owner: bool) -> Marker | None:
    """Returns the marker of a task.

    The owner of the transactional id waits until no transaction of the id is pending, because the commit of the
    previous owner may still be in progress. Other callers do not wait.
    """
    group = admin.list_group_offsets([name], require_stable=is_owner)[name]
    for error in group.errors.values():
        raise error
    return Marker.latest(group.offsets)


def check_replay(marker: Marker, batch_id: int, rows: int, digest: str, where: str) -> None:
    """Raises if a batch is already written with other rows, or if a later batch is written. A query replays only its
    last batch, so an earlier batch belongs to another query."""
    if marker.batch_id > batch_id:
        raise NotDeterministicError(
            f"{where}: batch {batch_id} is older than batch {marker.batch_id}, which is already written. The "
            "checkpoint is new or was restored, or two queries write under the same name. Set another option 'queryId' "
            "or 'sinkName' for a foreachBatch, or use a new checkpoint for a stream"
        )
    if marker.batch_id < batch_id or marker.rows < 0 or (marker.rows, marker.digest) == (rows, digest):
        return
    raise NotDeterministicError(
        f"{where}: batch {batch_id} was written before with {marker.rows} rows (digest {marker.digest}) and now "
        f"has {rows} rows (digest {digest}). {_WHAT_TO_DO}"
    )


def check_tasks(admin: "Admin", prefix: str, task_count: int, batch_id: int) -> None:
    """Raises if the batch had more tasks in an earlier run, and one of these has written its part."""
    groups = {group.group_id for group in admin.list_groups()}
    obsolete = [name for name in groups if _is_beyond(name, prefix, task_count)]
    groups_offsets = admin.list_group_offsets(obsolete) if obsolete else {}
    written = sorted(name for name in obsolete if _has_written(groups_offsets[name].offsets.values(), batch_id))
    if written:
        raise NotDeterministicError(
            f"batch {batch_id} now has {task_count} tasks, but had more in an earlier run: the rows of "
            f"{', '.join(written)} are written twice. {_WHAT_TO_DO}"
        )


def _is_beyond(name: str, prefix: str, task_count: int) -> bool:
    number = name.removeprefix(prefix)
    return number != name and number.isdigit() and int(number) >= task_count


def _has_written(offsets: Iterable[OffsetAndMetadata], batch_id: int) -> bool:
    return any(offset.offset == batch_id for offset in offsets)
