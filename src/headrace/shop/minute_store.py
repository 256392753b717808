"""The traffic numbers of every minute that can still change (`dws-traffic`). Runs in the driver.

A minute is a row of sums and a sketch of its visitors (HyperLogLog: a few KB for any number of visitors). Rows arrive
in any order. A row is added to its minute if the minute is within the allowed lateness. The caller sends rows of older
minutes to the dead letters.

Arrow files in the flow's state directory:

    batch-<id>      the minutes that the batch changed, as they are after it
    minutes-<id>    a snapshot: all minutes after that batch; replaces older files

Invariant: a batch is added to the minutes that earlier batches stored, so a replay returns the same minutes.
The files also store the newest minute, and the version that a batch gives to the minutes it changes.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.common.clock import Clock
from headrace.shop.state_store import StateStore, batch_ids, file_name

MINUTE_MS = 60_000
_FILES_BEFORE_SNAPSHOT = 100
_NEWEST = b"headrace.newest"
_VERSION = b"headrace.version"


@dataclass(frozen=True)
class Minute:
    """The numbers of one minute, which begins at `start_ms`. `revenue` is in hundredths."""

    start_ms: int
    page_views: int = 0
    orders: int = 0
    revenue: int = 0
    visitors: bytes | None = None
    """A HyperLogLog sketch; None without visitors."""


@dataclass(frozen=True)
class ChangedMinutes:
    """The minutes that a batch changed, as they are after it, in ascending order."""

    minutes: list[Minute]
    version: int
    """Increases with every batch, also when the pipeline restarts from scratch: the time of the batch's first attempt
    in milliseconds."""


@dataclass(frozen=True)
class _StateFile:
    minutes: list[Minute]
    newest_ms: int
    version: int


MergeSketches = Callable[[list[tuple[bytes, bytes]]], list[bytes]]
"""Returns the union of each pair of sketches."""


class MinuteStore:
    """The minutes of one flow. Call `add` once per batch, with ascending ids or to replay the last batch."""

    def __init__(self, files: StateStore, lateness_ms: int, clock: Clock, merge_sketches: MergeSketches) -> None:
        self._files = files
        self._lateness_ms = lateness_ms
        self._clock = clock
        self._merge_sketches = merge_sketches
        self._next_batch: int | None = None
        self._minutes: dict[int, Minute] = {}
        self._newest_ms = 0
        self._version = 0
        self._batch_files: list[int] = []
        self._snapshot_batch: int | None = None
        self._is_replay = False

    def horizon_ms(self, batch_id: int) -> int:
        """Returns the start time before which minutes of this batch are too late."""
        if self._next_batch != batch_id:
            self._load(batch_id)
        return self._newest_ms - self._lateness_ms

    def add(self, batch_id: int, added: Iterable[Minute]) -> ChangedMinutes:
        """Adds the numbers of a batch and returns the minutes that changed."""
        horizon_ms = self.horizon_ms(batch_id)
        if self._next_batch is not None:
            self._write_snapshot_if_due(batch_id)
        self._next_batch = None  # a failure below makes the next call reload the files
        added = [minute for minute in added if minute.start_ms >= horizon_ms]
        changed = self._sums(added)
        name = file_name("batch", batch_id)
        if self._is_replay:
            replayed = _unpack(name, self._files.load(name))
            self._newest_ms, self._version = replayed.newest_ms, replayed.version
        else:
            now_ms = self._clock.time_ms()
            self._version = max(self._version + 1, now_ms)
            last_ms = max((minute.start_ms for minute in added), default=0)
            # An event from the future must not make all other events late.
            self._newest_ms = max(self._newest_ms, min(last_ms, now_ms))
            self._files.store(name, _pack(changed, self._newest_ms, self._version))
        self._minutes.update((minute.start_ms, minute) for minute in changed)
        self._drop_old_minutes()
        self._batch_files.append(batch_id)
        self._next_batch = batch_id + 1
        self._is_replay = False
        return ChangedMinutes(changed, self._version)

    def _sums(self, added: list[Minute]) -> list[Minute]:
        pairs = [(minute, self._minutes.get(minute.start_ms, Minute(minute.start_ms))) for minute in added]
        sketches = [
            (added_minute.visitors, stored_minute.visitors)
            for added_minute, stored_minute in pairs
            if added_minute.visitors and stored_minute.visitors
        ]
        merged = iter(self._merge_sketches(sketches) if sketches else ())
        sums = [
            Minute(
                added_minute.start_ms,
                added_minute.page_views + stored_minute.page_views,
                added_minute.orders + stored_minute.orders,
                added_minute.revenue + stored_minute.revenue,
                next(merged)
                if added_minute.visitors and stored_minute.visitors
                else added_minute.visitors or stored_minute.visitors,
            )
            for added_minute, stored_minute in pairs
        ]
        return sorted(sums, key=lambda minute: minute.start_ms)

    def _drop_old_minutes(self) -> None:
        horizon_ms = self._newest_ms - self._lateness_ms
        for start_ms in [start for start in self._minutes if start < horizon_ms]:
            del self._minutes[start_ms]

    def _write_snapshot_if_due(self, batch_id: int) -> None:
        """Replaces batch files by a snapshot. All batches before this one are committed, because it has arrived."""
        if len(self._batch_files) < _FILES_BEFORE_SNAPSHOT:
            return
        last = batch_id - 1
        self._files.store(file_name("minutes", last), _pack(self._minutes.values(), self._newest_ms, self._version))
        for batch in self._batch_files:
            self._files.remove(file_name("batch", batch))
        if self._snapshot_batch is not None:
            self._files.remove(file_name("minutes", self._snapshot_batch))
        self._snapshot_batch, self._batch_files = last, []

    def _load(self, batch_id: int) -> None:
        """Loads the state that batches before this one stored."""
        self._next_batch, self._minutes, self._newest_ms, self._version, self._snapshot_batch = None, {}, 0, 0, None
        names = self._files.list()
        snapshots = [snapshot for snapshot in batch_ids(names, "minutes") if snapshot < batch_id]
        batches = [batch for batch in batch_ids(names, "batch") if batch < batch_id]
        to_load = [file_name("batch", batch) for batch in batches]
        if snapshots:
            self._snapshot_batch = max(snapshots)
            to_load = [file_name("minutes", self._snapshot_batch)]
            to_load += [file_name("batch", batch) for batch in batches if batch > self._snapshot_batch]
        for name in to_load:
            file = _unpack(name, self._files.load(name))
            self._minutes.update((minute.start_ms, minute) for minute in file.minutes)
            self._newest_ms, self._version = max(self._newest_ms, file.newest_ms), max(self._version, file.version)
        self._batch_files = batches
        self._is_replay = file_name("batch", batch_id) in names
        self._drop_old_minutes()


def _schema(metadata: Mapping[bytes, bytes] | None = None) -> Any:
    import pyarrow as pa

    return pa.schema(
        {
            "start_ms": pa.int64(),
            "page_views": pa.int64(),
            "orders": pa.int64(),
            "revenue": pa.int64(),
            "visitors": pa.binary(),
        },
        metadata,
    )


def _pack(minutes: Iterable[Minute], newest_ms: int, version: int) -> bytes:
    import pyarrow as pa

    metadata = {_NEWEST: str(newest_ms).encode(), _VERSION: str(version).encode()}
    table = pa.Table.from_pylist([vars(minute) for minute in minutes], _schema(metadata))
    target = pa.BufferOutputStream()
    with pa.ipc.new_file(target, table.schema) as writer:
        writer.write_table(table)
    return bytes(target.getvalue())


def _unpack(name: str, content: bytes) -> _StateFile:
    import pyarrow as pa

    try:
        table = pa.ipc.open_file(content).read_all()
        newest_ms, version = (int(table.schema.metadata[name]) for name in (_NEWEST, _VERSION))
    except (pa.ArrowException, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"state file {name} is damaged: {error}") from error
    return _StateFile([Minute(**row) for row in table.to_pylist()], newest_ms, version)
