"""What the shop's flows remember from batch to batch: events seen within the window, and each device's first day.

Spark's own deduplication goes through its whole state in every batch to find what has expired, and shuffles the events.
Here only hashes travel: the driver keeps them in a compiled table and answers for each event in a fraction of a
microsecond, and the events stay where they were read. Memory: 21 to 43 bytes for each event of the window, 16 to 32 for
each device.

Durable, in the flow's state directory:

    batch-<id>       what the batch has added; written before the batch is, never changed after
    devices-<id>     all first days after that batch; takes the place of those in older files

    header           struct <QqqqQQ: format, time, generation, its length in ms, events, devices
    events           64-bit numbers: the low halves of all ids, then the high ones
    devices, days    64-bit numbers, then 32-bit ones
    check            CRC-32 of all before

Invariants:
- A batch is judged by what batches before it have left in files, so a replay gives the same answers.
- Time is that of the log: the newest timestamp of all records so far. It never goes back, and no further than the
  clock: a record from the future must not make all others forgotten. It is in the file of a batch, for a replay.
- An id is remembered in the generation of its batch: a quarter of the window. A generation is forgotten as a whole,
  when all of it is older than the window by the time of a batch that was judged. So the next batch is compared with
  all that is within the window before it, however much time it spans itself, and however long the pipeline was down.

Runs in the driver, in the thread of the flow's query.
"""

import struct
import zlib
from dataclasses import dataclass, replace
from typing import Protocol

from headrace.common.clock import Clock
from headrace.common.types import Buffer
from headrace.shop._seen import DUPLICATE, KNOWN, FirstDays, IdSet

__all__ = ["DUPLICATE", "KNOWN", "Memory", "Sightings", "StateStore"]

_FORMAT = 1
_HEADER = struct.Struct("<QqqqQQ")
_CHECK = struct.Struct("<I")
_QUARTERS = 4
_FILES_BEFORE_SNAPSHOT = 500
_DEVICES_BEFORE_SNAPSHOT = 50_000


class StateStore(Protocol):
    """The state directory: whole files by name."""

    def list(self) -> list[str]: ...
    def load(self, name: str) -> bytes: ...
    def store(self, name: str, content: bytes) -> None: ...
    def remove(self, name: str) -> None: ...


@dataclass(frozen=True)
class Sightings:
    """The events of a batch in the order of the log: buffers of 64-bit numbers, one for each event.

    Without devices (`ods_db` has none) only duplicates are looked for.
    """

    lows: Buffer
    highs: Buffer
    devices: Buffer | None = None
    days: Buffer | None = None
    claims: Buffer | None = None
    """1 if the device says that it is new."""
    newest_ms: int | None = None
    """The newest timestamp of the batch's records; None if they have none."""


@dataclass(frozen=True)
class _Added:
    """The content of a file."""

    time_ms: int
    generation: int
    quarter_ms: int
    lows: bytes = b""
    highs: bytes = b""
    devices: bytes = b""
    days: bytes = b""

    def pack(self) -> bytes:
        times = (self.time_ms, self.generation, self.quarter_ms)
        header = _HEADER.pack(_FORMAT, *times, len(self.lows) // 8, len(self.devices) // 8)
        content = b"".join((header, self.lows, self.highs, self.devices, self.days))
        return content + _CHECK.pack(zlib.crc32(content))

    @classmethod
    def unpack(cls, name: str, content: bytes) -> "_Added":
        whole = memoryview(content)
        if len(whole) < _HEADER.size + _CHECK.size or zlib.crc32(whole[:-4]) != _CHECK.unpack(whole[-4:])[0]:
            raise ValueError(f"state file {name} is damaged: its check sum is not that of its content")
        form, time_ms, generation, quarter_ms, events, devices = _HEADER.unpack_from(content)
        if form != _FORMAT:
            raise ValueError(f"state file {name} has format {form}; expected {_FORMAT}")
        parts = []
        at = _HEADER.size
        for size in (events * 8, events * 8, devices * 8, devices * 4):
            parts.append(bytes(whole[at : at + size]))
            at += size
        return cls(time_ms, generation, quarter_ms, *parts)


class Memory:
    """What one flow remembers. `judge` is called once for each batch, with ascending ids or a replay of the last."""

    def __init__(self, files: StateStore, window_ms: int, clock: Clock) -> None:
        if window_ms < _QUARTERS:
            raise ValueError(f"a window of {window_ms} ms; expected at least {_QUARTERS}")
        self._files = files
        self._clock = clock
        self._quarter_ms = window_ms // _QUARTERS
        self._next: int | None = None
        self.new_devices = 0
        """Those that the last batch has seen first."""
        self._forget_all()

    def _forget_all(self) -> None:
        self._time_ms = 0
        self._generation = 0
        self._ids: dict[int, IdSet] = {}
        self._first_days = FirstDays()
        self._kept: dict[int, int] = {}
        """Files of batches that are there: the generation of each."""
        self._covered = -1
        """The last batch whose devices are in a file of all devices."""
        self._loose = 0
        """Devices that are only in files of batches."""

    @property
    def events(self) -> int:
        """How many ids are remembered."""
        return sum(map(len, self._ids.values()))

    @property
    def devices(self) -> int:
        return len(self._first_days)

    @property
    def size_bytes(self) -> int:
        return self._first_days.size_bytes + sum(ids.size_bytes for ids in self._ids.values())

    def judge(self, batch_id: int, seen: Sightings) -> bytearray:
        """A byte for each event: `DUPLICATE` if it was there before, `KNOWN` if its device wrongly says it is new."""
        name = _batch_name(batch_id)
        replayed = None
        if self._next == batch_id:
            self._tidy()
        elif name in self._load(batch_id):
            replayed = self._read(name)
        self._next = None  # until this one is whole
        time_ms = self._time_after(seen) if replayed is None else replayed.time_ms
        generation = max(self._generation, time_ms // self._quarter_ms)
        lows, highs = _longs(seen.lows), _longs(seen.highs)
        marks = bytearray(len(lows))
        for before in self._ids.values():
            before.mark_known(lows, highs, marks)
        self._ids.setdefault(generation, IdSet()).add(lows, highs, marks)
        devices = days = b""
        devices_before = self.devices
        if seen.devices is not None and seen.days is not None and seen.claims is not None:
            devices, days = self._first_days.judge(_longs(seen.devices), _longs(seen.days), _longs(seen.claims), marks)
        if replayed is None:
            new_lows, new_highs = _unmarked(lows, marks), _unmarked(highs, marks)
            added = _Added(time_ms, generation, self._quarter_ms, new_lows, new_highs, devices, days)
            self._files.store(name, added.pack())
        self._advance(time_ms, generation)
        self._kept[batch_id] = generation
        self._loose += len(devices) // 8
        self.new_devices = self.devices - devices_before
        self._next = batch_id + 1
        return marks

    def _time_after(self, seen: Sightings) -> int:
        """The time of the log after a batch. Records without timestamps are of now."""
        now_ms = self._clock.time_ms()
        if seen.newest_ms is not None and seen.newest_ms > 0:
            return max(self._time_ms, min(seen.newest_ms, now_ms))
        return max(self._time_ms, now_ms) if len(memoryview(seen.lows)) else self._time_ms

    def _tidy(self) -> None:
        """Deletes files that are needed no more. The last batch is committed, for the next one has come."""
        due = self._loose > max(_DEVICES_BEFORE_SNAPSHOT, self.devices // 2)
        uncovered = sum(1 for batch_id in self._kept if batch_id > self._covered)
        if due or (self._loose and uncovered > _FILES_BEFORE_SNAPSHOT):
            self._write_all_devices()
        for batch_id, generation in list(self._kept.items()):
            if generation < self._generation - _QUARTERS and (batch_id <= self._covered or not self._loose):
                self._files.remove(_batch_name(batch_id))
                del self._kept[batch_id]

    def _write_all_devices(self) -> None:
        devices, days = self._first_days.items()
        covered = max(self._kept)
        self._files.store(
            _devices_name(covered), _Added(0, self._generation, self._quarter_ms, b"", b"", devices, days).pack()
        )
        if self._covered >= 0:
            self._files.remove(_devices_name(self._covered))
        self._covered, self._loose = covered, 0

    def _load(self, batch_id: int) -> list[str]:
        """All that batches before this one have left; returns the names of all files."""
        self._forget_all()
        names = self._files.list()
        snapshots = [each for each in _numbers(names, "devices-") if each < batch_id]
        if snapshots:
            self._covered = max(snapshots)
            self._take(self._read(_devices_name(self._covered)), with_devices=True)
            self._loose = 0
        for each in _numbers(names, "batch-"):
            if each >= batch_id:
                continue
            added = self._read(_batch_name(each))
            self._advance(added.time_ms, added.generation)
            self._take(added, with_devices=each > self._covered)
            self._kept[each] = added.generation
        return names

    def _take(self, added: _Added, *, with_devices: bool) -> None:
        if added.lows and added.generation >= self._generation - _QUARTERS:
            ids = self._ids.setdefault(added.generation, IdSet())
            ids.add(_longs(added.lows), _longs(added.highs), bytearray(len(added.lows) // 8))
        if with_devices and added.devices:
            self._first_days.put(_longs(added.devices), memoryview(added.days).cast("i"))
            self._loose += len(added.devices) // 8

    def _read(self, name: str) -> _Added:
        added = _Added.unpack(name, self._files.load(name))
        if added.quarter_ms != self._quarter_ms:  # the window was another one then
            added = replace(added, generation=added.time_ms // self._quarter_ms)
        return added

    def _advance(self, time_ms: int, generation: int) -> None:
        """Forgets generations that are older than the window, seen from this one."""
        self._time_ms = max(self._time_ms, time_ms)
        self._generation = max(self._generation, generation)
        for each in [each for each in self._ids if each < self._generation - _QUARTERS]:
            del self._ids[each]


def _batch_name(batch_id: int) -> str:
    return f"batch-{batch_id:012d}"


def _devices_name(batch_id: int) -> str:
    return f"devices-{batch_id:012d}"


def _numbers(names: list[str], prefix: str) -> list[int]:
    found = (name.removeprefix(prefix) for name in names if name.startswith(prefix))
    return sorted(int(number) for number in found if number.isdecimal())


def _longs(buffer: Buffer) -> memoryview:
    view = memoryview(buffer)
    return view if view.format == "q" else view.cast("B").cast("q")


def _unmarked(numbers: memoryview, marks: bytearray) -> bytes:
    """The numbers of rows that are no duplicates."""
    runs = []
    begin, at = 0, marks.find(DUPLICATE)
    while at >= 0:  # a duplicate has no other mark
        runs.append(numbers[begin:at])
        begin, at = at + 1, marks.find(DUPLICATE, at + 1)
    runs.append(numbers[begin:])
    return b"".join(runs)
