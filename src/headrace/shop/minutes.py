"""What `dws-traffic` remembers: the numbers of each minute that can still change. Runs in the driver.

A minute is a row of sums and a sketch of its visitors (HyperLogLog: some KB, whatever their number). Rows of any order
and age are added to their minute, as long as it is not older than the lateness; later ones are refused, and the caller
makes dead letters of them.

Durable, in the flow's state directory, as Arrow files:

    batch-<id>      minutes as they are after the batch, those that it has changed
    minutes-<id>    all minutes after that batch; takes the place of older files

Invariant: a batch is added to what batches before it have left in files, so a replay gives the same minutes. How far
time has come is in the files, and so is the version that a batch gives to the minutes that it changes.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.common.clock import Clock
from headrace.shop.memory import StateStore

MINUTE_MS = 60_000
_FILES_BEFORE_SNAPSHOT = 100
_NEWEST = b"headrace.newest"
_VERSION = b"headrace.version"


@dataclass(frozen=True)
class Minute:
    """The numbers of a minute. `start_ms` is when it begins, `revenue` is in hundredths."""

    start_ms: int
    page_views: int = 0
    orders: int = 0
    revenue: int = 0
    visitors: bytes | None = None
    """A sketch; None if nobody was there."""


@dataclass(frozen=True)
class Changed:
    """The minutes that a batch has changed as they are after it, in their order."""

    minutes: list[Minute]
    version: int
    """Rises with each batch, also if the pipeline begins anew: when the batch first came, in milliseconds."""


@dataclass(frozen=True)
class _File:
    minutes: list[Minute]
    newest_ms: int
    version: int


Unite = Callable[[list[tuple[bytes, bytes]]], list[bytes]]
"""Unites pairs of sketches."""


class Minutes:
    """The minutes of one flow. `add` is called once for each batch, with ascending ids or a replay of the last."""

    def __init__(self, files: StateStore, lateness_ms: int, clock: Clock, unite: Unite) -> None:
        self._files = files
        self._lateness_ms = lateness_ms
        self._clock = clock
        self._unite = unite
        self._next: int | None = None
        self._minutes: dict[int, Minute] = {}
        self._newest_ms = 0
        self._version = 0
        self._kept: list[int] = []
        self._snapshot: int | None = None
        self._is_replay = False

    def horizon_ms(self, batch_id: int) -> int:
        """Minutes of this batch that begin before it are too late."""
        if self._next != batch_id:
            self._load(batch_id)
        return self._newest_ms - self._lateness_ms

    def add(self, batch_id: int, found: Iterable[Minute]) -> Changed:
        """Adds what a batch has found."""
        horizon_ms = self.horizon_ms(batch_id)
        if self._next is not None:
            self._tidy(batch_id)
        self._next = None  # until this one is whole
        found = [minute for minute in found if minute.start_ms >= horizon_ms]
        changed = self._sums(found)
        name = _name("batch", batch_id)
        if self._is_replay:
            before = _unpack(name, self._files.load(name))
            self._newest_ms, self._version = before.newest_ms, before.version
        else:
            now_ms = self._clock.time_ms()
            self._version = max(self._version + 1, now_ms)
            last_ms = max((minute.start_ms for minute in found), default=0)
            # An event from the future must not make everything else late.
            self._newest_ms = max(self._newest_ms, min(last_ms, now_ms))
            self._files.store(name, _pack(changed, self._newest_ms, self._version))
        self._minutes.update((minute.start_ms, minute) for minute in changed)
        self._forget_old()
        self._kept.append(batch_id)
        self._next = batch_id + 1
        self._is_replay = False
        return Changed(changed, self._version)

    def _sums(self, found: list[Minute]) -> list[Minute]:
        pairs = [(minute, self._minutes.get(minute.start_ms, Minute(minute.start_ms))) for minute in found]
        both = [(one.visitors, other.visitors) for one, other in pairs if one.visitors and other.visitors]
        united = iter(self._unite([(one, other) for one, other in both if one and other]) if both else ())
        sums = [
            Minute(
                new.start_ms,
                new.page_views + old.page_views,
                new.orders + old.orders,
                new.revenue + old.revenue,
                next(united) if new.visitors and old.visitors else new.visitors or old.visitors,
            )
            for new, old in pairs
        ]
        return sorted(sums, key=lambda minute: minute.start_ms)

    def _forget_old(self) -> None:
        horizon_ms = self._newest_ms - self._lateness_ms
        for start_ms in [each for each in self._minutes if each < horizon_ms]:
            del self._minutes[start_ms]

    def _tidy(self, batch_id: int) -> None:
        """One file for all minutes in place of many. Batches before this one are committed, for it has come."""
        if len(self._kept) < _FILES_BEFORE_SNAPSHOT:
            return
        last = batch_id - 1
        self._files.store(_name("minutes", last), _pack(self._minutes.values(), self._newest_ms, self._version))
        for each in self._kept:
            self._files.remove(_name("batch", each))
        if self._snapshot is not None:
            self._files.remove(_name("minutes", self._snapshot))
        self._snapshot, self._kept = last, []

    def _load(self, batch_id: int) -> None:
        """All that batches before this one have left."""
        self._next, self._minutes, self._newest_ms, self._version, self._snapshot = None, {}, 0, 0, None
        names = self._files.list()
        snapshots = [each for each in _numbers(names, "minutes") if each < batch_id]
        batches = [each for each in _numbers(names, "batch") if each < batch_id]
        wanted = [_name("batch", each) for each in batches]
        if snapshots:
            self._snapshot = max(snapshots)
            wanted = [_name("minutes", self._snapshot)]
            wanted += [_name("batch", each) for each in batches if each > self._snapshot]
        for name in wanted:
            file = _unpack(name, self._files.load(name))
            self._minutes.update((minute.start_ms, minute) for minute in file.minutes)
            self._newest_ms, self._version = max(self._newest_ms, file.newest_ms), max(self._version, file.version)
        self._kept = batches
        self._is_replay = _name("batch", batch_id) in names
        self._forget_old()


def _name(kind: str, batch_id: int) -> str:
    return f"{kind}-{batch_id:012d}"


def _numbers(names: list[str], kind: str) -> list[int]:
    return sorted(int(name.partition("-")[2]) for name in names if name.startswith(f"{kind}-"))


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


def _unpack(name: str, content: bytes) -> _File:
    import pyarrow as pa

    try:
        table = pa.ipc.open_file(content).read_all()
        newest_ms, version = (int(table.schema.metadata[name]) for name in (_NEWEST, _VERSION))
    except (pa.ArrowException, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"state file {name} is damaged: {error}") from error
    return _File([Minute(**row) for row in table.to_pylist()], newest_ms, version)
