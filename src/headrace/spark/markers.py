"""What a task leaves behind with its rows, so that the same batch is never written twice.

    transactional id = group id   headrace-spark-<query>/<sink>/<task's partition>
    committed offset              the id of the batch that was written last
    its metadata                  {"rows": 20000, "digest": "9f1c..."}

A task's rows and its marker, an offset of a consumer group that nobody joins, are one transaction: both are there or
none. The partition that the offset is committed for only has to exist: it is the first of a topic that was written to.
A task that runs again first gets the transactional id for itself, which ends what an earlier attempt left open; what
the marker says after that, stays.

Pure but for `read` and `check_tasks`, which ask a broker. Runs in tasks; `check_tasks` in the driver.
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
    "Exactly once needs a batch that runs again to give the same rows to the same tasks. Run it with the settings of "
    "the run before (spark.sql.shuffle.partitions, spark.sql.adaptive.*, options of the source) and without rand(), "
    "uuid() and the like, leave spark.sql.execution.sortBeforeRepartition on, and give each of several writes of one "
    "batch its own option 'sinkName'. To write the batch all the same, with rows that may be doubled, set the option "
    "deliveryGuarantee to 'at-least-once' until it is through"
)


class NotDeterministicError(Exception):
    """A batch was run again and has other rows than before; it is not known which of them are written already."""


class Marker(NamedTuple):
    batch_id: int
    rows: int
    digest: str

    def as_offset(self) -> OffsetAndMetadata:
        return OffsetAndMetadata(self.batch_id, json.dumps({"rows": self.rows, "digest": self.digest}))

    @classmethod
    def latest(cls, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> "Marker | None":
        """Of a group's offsets, the marker of the last batch. A task may have written to other topics before."""
        found = [cls._parse(each) for each in offsets.values()]
        return max(found, key=lambda marker: marker.batch_id, default=None)

    @classmethod
    def _parse(cls, offset: OffsetAndMetadata) -> "Marker":
        try:
            content = json.loads(offset.metadata)
            return cls(offset.offset, int(content["rows"]), str(content["digest"]))
        except (ValueError, KeyError, TypeError):
            return cls(offset.offset, -1, "")  # somebody's own: it says at least which batch


def names_prefix(query: str, sink: str) -> str:
    """Query and sink with their special characters quoted, so that no two of them have the same names."""
    return f"{_PREFIX}-{quote(query, safe='')}/{quote(sink, safe='')}/"


def task_name(query: str, sink: str, partition: int) -> str:
    """The transactional id and the group id of a task."""
    return f"{names_prefix(query, sink)}{partition}"


def read(admin: "Admin", name: str, *, is_owner: bool) -> Marker | None:
    """The marker of a task. Who owns its transactional id waits until nothing of it is undecided: what the owner before
    had committed may be on its way. Nobody else can wait for that."""
    found = admin.list_group_offsets([name], require_stable=is_owner)[name]
    for error in found.errors.values():
        raise error
    return Marker.latest(found.offsets)


def check_replay(marker: Marker, batch_id: int, rows: int, digest: str, where: str) -> None:
    """Whether the rows of a batch are those that were written of it, if it is written already. A query repeats no batch
    but its last: one that comes after a later one is another query's."""
    if marker.batch_id > batch_id:
        raise NotDeterministicError(
            f"{where}: batch {batch_id} comes after batch {marker.batch_id} was written. Either the checkpoint is new, "
            "or older than what was written with it, or two queries write under one name: expected another option "
            "'queryId' or 'sinkName' for a foreachBatch, or a new checkpoint for a stream"
        )
    if marker.batch_id < batch_id or marker.rows < 0 or (marker.rows, marker.digest) == (rows, digest):
        return
    raise NotDeterministicError(
        f"{where}: batch {batch_id} was written before with {marker.rows} rows (digest {marker.digest}) and has "
        f"{rows} now (digest {digest}). {_WHAT_TO_DO}"
    )


def check_tasks(admin: "Admin", prefix: str, task_count: int, batch_id: int) -> None:
    """Raises if a task of an earlier run, which this run has no more, has written its part of the batch."""
    groups = {each.group_id for each in admin.list_groups()}
    gone = [name for name in groups if _is_beyond(name, prefix, task_count)]
    found = admin.list_group_offsets(gone) if gone else {}
    written = sorted(name for name in gone if _wrote(found[name].offsets.values(), batch_id))
    if written:
        raise NotDeterministicError(
            f"batch {batch_id} has {task_count} tasks now, and had more when it was run before: what "
            f"{', '.join(written)} wrote then is written twice. {_WHAT_TO_DO}"
        )


def _is_beyond(name: str, prefix: str, task_count: int) -> bool:
    number = name.removeprefix(prefix)
    return number != name and number.isdigit() and int(number) >= task_count


def _wrote(offsets: Iterable[OffsetAndMetadata], batch_id: int) -> bool:
    return any(each.offset == batch_id for each in offsets)
