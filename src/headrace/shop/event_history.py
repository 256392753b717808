"""The events of the deduplication window and the first day of every device, of one source partition.

All copies of an event have its key, so they are in its partition. The history lives in the task of the partition and is
stored in the checkpoint (see `headrace.pipelines.arrow_flow`). Hashes of ids are kept in compiled hash tables. Memory
use: 21 to 43 bytes per event of the window, 16 to 32 bytes per device.

Deltas and snapshots have one format:

    header           struct <QqqQQQ: format, generation, its first moment, timestamps, generations, devices
    timestamps       64-bit integers: the last timestamps, for the log time
    generations      for each: its number and its count of ids, then the low halves of its ids, then the high halves
    devices, days    64-bit integers, then 32-bit integers
    checksum         CRC-32 of everything before it

Invariants:
- The result depends only on the records and their order, not on how they are divided into chunks, nor on the clock.
- Time is log time, see `LogTime`. An id belongs to the generation of its record, which is a quarter of the window. It
  is forgotten when the fifth generation after it begins, so it is remembered for at least the window.
- A delta is applied to the state that it was taken from. Then both states give the same results.

A history belongs to one thread.
"""

import struct
import zlib
from dataclasses import dataclass, field
from itertools import pairwise

from headrace.common.types import Buffer
from headrace.pipelines.arrow_flow import PartitionState
from headrace.shop._event_keys import LogTime
from headrace.shop._hash_tables import DUPLICATE, KNOWN_DEVICE, FirstDays, IdSet

__all__ = ["DUPLICATE", "KNOWN_DEVICE", "Devices", "EventHistory"]

_FORMAT = 2
_HEADER = struct.Struct("<QqqQQQ")
_GENERATION = struct.Struct("<qQ")
_CHECKSUM = struct.Struct("<I")
_GENERATIONS_PER_WINDOW = 4
_NO_TIME = -1


@dataclass(frozen=True)
class Devices:
    """The devices of events, as buffers of 64-bit integers with one entry per event."""

    ids: Buffer
    days: Buffer
    new_flags: Buffer
    """1 if the device claims to be new."""


@dataclass
class _Content:
    """The content of a delta or snapshot."""

    time: tuple[int, int, list[int]] = (0, _NO_TIME, [])
    """What `LogTime.save` returned."""
    ids: list[tuple[int, bytes, bytes]] = field(default_factory=list)
    """Generation, low halves, high halves."""
    devices: list[bytes] = field(default_factory=list)
    days: list[bytes] = field(default_factory=list)

    def pack(self) -> bytes:
        generation, begin_ms, timestamps = self.time
        devices, days = b"".join(self.devices), b"".join(self.days)
        parts = [
            _HEADER.pack(_FORMAT, generation, begin_ms, len(timestamps), len(self.ids), len(devices) // 8),
            struct.pack(f"<{len(timestamps)}q", *timestamps),
        ]
        for number, lows, highs in self.ids:
            parts += [_GENERATION.pack(number, len(lows) // 8), lows, highs]
        content = b"".join([*parts, devices, days])
        return content + _CHECKSUM.pack(zlib.crc32(content))

    @classmethod
    def unpack(cls, packed: bytes) -> "_Content":
        view = memoryview(packed)
        if len(view) < _HEADER.size + 4 or zlib.crc32(view[:-4]) != _CHECKSUM.unpack(view[-4:])[0]:
            raise ValueError("the state of a partition is damaged: its checksum does not match its content")
        state_format, generation, begin_ms, timestamps, generations, devices = _HEADER.unpack_from(view)
        if state_format != _FORMAT:
            raise ValueError(f"the state of a partition has format {state_format}; expected {_FORMAT}")
        at = _HEADER.size

        def take(size: int) -> bytes:
            nonlocal at
            at += size
            return bytes(view[at - size : at])

        content = cls((generation, begin_ms, list(struct.unpack(f"<{timestamps}q", take(timestamps * 8)))))
        for _ in range(generations):
            number, count = _GENERATION.unpack(take(_GENERATION.size))
            content.ids.append((number, take(count * 8), take(count * 8)))
        content.devices.append(take(devices * 8))
        content.days.append(take(devices * 4))
        return content


class EventHistory:
    """The history of one source partition. A `PartitionState` of an Arrow flow."""

    def __init__(self, window_ms: int) -> None:
        if window_ms < _GENERATIONS_PER_WINDOW:
            raise ValueError(f"window of {window_ms} ms is too short; expected at least {_GENERATIONS_PER_WINDOW} ms")
        self._time = LogTime(window_ms // _GENERATIONS_PER_WINDOW, window_ms)
        self._ids: dict[int, IdSet] = {}
        self._first_days = FirstDays()
        self._delta = _Content(self._time.save())

    @property
    def events(self) -> int:
        """The number of event ids in memory."""
        return sum(map(len, self._ids.values()))

    @property
    def devices(self) -> int:
        return len(self._first_days)

    @property
    def size_bytes(self) -> int:
        return self._first_days.size_bytes + sum(ids.size_bytes for ids in self._ids.values())

    def advance(self, timestamps_ms: Buffer) -> memoryview:
        """Adds the timestamps of all records of a chunk, in log order. Returns the generation of each record."""
        return memoryview(self._time.advance(_int64_view(timestamps_ms))).cast("q")

    def mark(self, id_lows: Buffer, id_highs: Buffer, generations: Buffer, devices: Devices | None = None) -> bytearray:
        """Adds the valid events of a chunk, in log order, and returns one byte per event: `DUPLICATE` if the event is
        in the window already, `KNOWN_DEVICE` if its device claims to be new but was seen on an earlier day, else 0."""
        lows, highs, numbers = _int64_view(id_lows), _int64_view(id_highs), _int64_view(generations)
        marks = bytearray(len(lows))
        for begin, end in pairwise(_run_limits(numbers)):
            self._mark_run(numbers[begin], lows[begin:end], highs[begin:end], memoryview(marks)[begin:end])
        self._forget(self._time.generation)
        if devices is not None:
            changed, days = self._first_days.mark_known_devices(
                _int64_view(devices.ids), _int64_view(devices.days), _int64_view(devices.new_flags), marks
            )
            self._delta.devices.append(changed)
            self._delta.days.append(days)
        return marks

    def _mark_run(self, generation: int, lows: memoryview, highs: memoryview, marks: memoryview) -> None:
        """Marks and adds events of one generation."""
        self._forget(generation)
        for number, ids in self._ids.items():
            if number != generation:
                ids.mark_duplicates(lows, highs, marks)
        self._ids.setdefault(generation, IdSet()).add(lows, highs, marks)
        self._delta.ids.append((generation, _without_duplicates(lows, marks), _without_duplicates(highs, marks)))

    def _forget(self, generation: int) -> None:
        """Removes the generations that are older than the window when this generation begins."""
        for number in [number for number in self._ids if number < generation - _GENERATIONS_PER_WINDOW]:
            del self._ids[number]

    # ---- the state in checkpoints

    def take_delta(self) -> bytes:
        delta, before = self._delta, self._delta.time
        self._delta = _Content(self._time.save())
        delta.time = self._delta.time
        if delta.time == before and not any(delta.devices) and not any(lows for _, lows, _ in delta.ids):
            return b""
        return delta.pack()

    def apply_delta(self, delta: bytes) -> None:
        if delta:
            self._add(_Content.unpack(delta))
            self._delta = _Content(self._time.save())

    def snapshot(self) -> bytes:
        devices, days = self._first_days.items()
        ids = [(number, *self._ids[number].items()) for number in sorted(self._ids)]
        return _Content(self._time.save(), ids, [devices], [days]).pack()

    def restore(self, snapshot: bytes) -> None:
        if self._ids or self.devices:
            raise ValueError("a snapshot can only be restored into an empty history")
        self.apply_delta(snapshot)

    def merge(self, other: PartitionState) -> None:
        """Adds the history of another partition. Its generations keep their age; the later log time counts."""
        assert isinstance(other, EventHistory)
        mine, others = self._time.save(), other._time.save()
        shift = mine[0] - others[0]
        latest = max(mine, (mine[0], *others[1:]), key=lambda time: time[1])
        devices, days = other._first_days.items()
        ids = [(number + shift, *other._ids[number].items()) for number in sorted(other._ids)]
        self._add(_Content(latest, ids, [devices], [days]))
        self._delta = _Content(self._time.save())

    def _add(self, content: _Content) -> None:
        self._time.load(*content.time)
        for number, lows, highs in content.ids:
            marks = bytearray(len(lows) // 8)
            self._ids.setdefault(number, IdSet()).add(_int64_view(lows), _int64_view(highs), marks)
        self._forget(self._time.generation)
        for devices, days in zip(content.devices, content.days, strict=True):
            self._first_days.restore(_int64_view(devices), memoryview(days).cast("i"))


def _int64_view(buffer: Buffer) -> memoryview:
    view = memoryview(buffer)
    return view if view.format == "q" else view.cast("B").cast("q")


def _run_limits(numbers: memoryview) -> list[int]:
    """Returns where runs of equal numbers begin, and the end of the last one."""
    limits = [0]
    while limits[-1] < len(numbers):
        begin = limits[-1]
        limits.append(_run_end(numbers, begin))
    return limits


def _run_end(numbers: memoryview, begin: int) -> int:
    """Returns the end of a run in numbers that never decrease."""
    low, high = begin + 1, len(numbers)
    while low < high:
        middle = (low + high) // 2
        if numbers[middle] == numbers[begin]:
            low = middle + 1
        else:
            high = middle
    return low


def _without_duplicates(numbers: memoryview, marks: memoryview) -> bytes:
    """Returns the numbers of all events that are not marked as duplicates."""
    flags = marks.tobytes()
    runs = []
    begin, duplicate = 0, flags.find(DUPLICATE)
    while duplicate >= 0:
        runs.append(numbers[begin:duplicate])
        begin, duplicate = duplicate + 1, flags.find(DUPLICATE, duplicate + 1)
    runs.append(numbers[begin:])
    return b"".join(runs)
