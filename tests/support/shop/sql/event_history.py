"""The events of the deduplication window and the first day of every device, kept from batch to batch.

Spark's own deduplication shuffles the events and scans its whole state in every batch to find expired events. Here the
events stay in their partitions. Only hashes travel to the driver, whose compiled hash table needs a fraction of a
microsecond per lookup. Memory use: 21 to 43 bytes per event of the window, 16 to 32 bytes per device.

Files in the flow's state directory:

    batch-<id>       the events and devices that the batch added; written before the batch's rows, never changed
    devices-<id>     a snapshot: the first day of every device after that batch; replaces devices in older files

    header           struct <QqqqQQ: format, time, generation, length of a generation in ms, events, devices
    events           64-bit integers: the low halves of all ids, then the high halves
    devices, days    64-bit integers, then 32-bit integers
    checksum         CRC-32 of everything before it

Invariants:
- A batch is compared only with the files of earlier batches, so a replay returns the same result.
- Time is log time: the newest timestamp of all records so far. It never goes back and never passes the wall clock, so a
  record from the future cannot expire all other events. The file of a batch stores it for a replay.
- An id belongs to the generation of its batch, which is a quarter of the window. A generation expires as a whole,
  once all of it is older than the window at the time of a completed batch. The next batch is therefore compared with
  the whole window before it, however much time it spans and however long the pipeline was down.

Runs in the driver, in the thread of the flow's query.
"""

import struct
import zlib
from dataclasses import dataclass, replace

from headrace.common.clock import Clock
from headrace.common.types import Buffer
from headrace.shop._hash_tables import DUPLICATE, KNOWN_DEVICE, FirstDays, IdSet
from headrace.shop.state_store import StateStore, batch_ids, file_name

__all__ = ["DUPLICATE", "KNOWN_DEVICE", "EventColumns", "EventHistory"]

_FORMAT = 1
_HEADER = struct.Struct("<QqqqQQ")
_CHECKSUM = struct.Struct("<I")
_GENERATIONS_PER_WINDOW = 4
_FILES_BEFORE_SNAPSHOT = 500
_DEVICES_BEFORE_SNAPSHOT = 50_000


@dataclass(frozen=True)
class EventColumns:
    """The events of a batch in log order, as columns: buffers of 64-bit integers with one entry per event.

    Without the three device columns (`ods_db` has no devices) only duplicates are marked.
    """

    id_lows: Buffer
    id_highs: Buffer
    devices: Buffer | None = None
    days: Buffer | None = None
    new_flags: Buffer | None = None
    """1 if the device claims to be new."""
    newest_ms: int | None = None
    """The newest timestamp of the batch's records; None if they have no timestamps."""


@dataclass(frozen=True)
class _StateFile:
    """The content of a state file."""

    time_ms: int
    generation: int
    generation_ms: int
    id_lows: bytes = b""
    id_highs: bytes = b""
    devices: bytes = b""
    days: bytes = b""

    def pack(self) -> bytes:
        times = (self.time_ms, self.generation, self.generation_ms)
        header = _HEADER.pack(_FORMAT, *times, len(self.id_lows) // 8, len(self.devices) // 8)
        content = b"".join((header, self.id_lows, self.id_highs, self.devices, self.days))
        return content + _CHECKSUM.pack(zlib.crc32(content))

    @classmethod
    def unpack(cls, name: str, content: bytes) -> "_StateFile":
        view = memoryview(content)
        if len(view) < _HEADER.size + _CHECKSUM.size or zlib.crc32(view[:-4]) != _CHECKSUM.unpack(view[-4:])[0]:
            raise ValueError(f"state file {name} is damaged: its checksum does not match its content")
        file_format, time_ms, generation, generation_ms, events, devices = _HEADER.unpack_from(content)
        if file_format != _FORMAT:
            raise ValueError(f"state file {name} has format {file_format}; expected {_FORMAT}")
        parts = []
        position = _HEADER.size
        for size in (events * 8, events * 8, devices * 8, devices * 4):
            parts.append(bytes(view[position : position + size]))
            position += size
        return cls(time_ms, generation, generation_ms, *parts)


class EventHistory:
    """The history of one flow. Call `mark_batch` once per batch, with ascending ids or to replay the last batch."""

    def __init__(self, files: StateStore, window_ms: int, clock: Clock) -> None:
        if window_ms < _GENERATIONS_PER_WINDOW:
            raise ValueError(f"window of {window_ms} ms is too short; expected at least {_GENERATIONS_PER_WINDOW} ms")
        self._files = files
        self._clock = clock
        self._generation_ms = window_ms // _GENERATIONS_PER_WINDOW
        self._next_batch: int | None = None
        self.new_devices = 0
        """The number of devices that the last batch added."""
        self._clear()

    def _clear(self) -> None:
        self._time_ms = 0
        self._generation = 0
        self._ids: dict[int, IdSet] = {}
        self._first_days = FirstDays()
        self._batch_generations: dict[int, int] = {}
        """The generation of each batch file that exists."""
        self._snapshot_batch = -1
        """The last batch whose devices are in the snapshot."""
        self._devices_since_snapshot = 0

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

    def mark_batch(self, batch_id: int, events: EventColumns) -> bytearray:
        """Adds a batch and returns one byte per event: `DUPLICATE` if the event is in the window already,
        `KNOWN_DEVICE` if its device claims to be new but was seen on an earlier day, otherwise 0."""
        name = file_name("batch", batch_id)
        replayed = None
        if self._next_batch == batch_id:
            self._delete_old_files()
        elif name in self._load(batch_id):
            replayed = self._read(name)
        self._next_batch = None  # a failure below makes the next call reload the files
        time_ms = self._time_after(events) if replayed is None else replayed.time_ms
        generation = max(self._generation, time_ms // self._generation_ms)
        id_lows, id_highs = _int64_view(events.id_lows), _int64_view(events.id_highs)
        marks = bytearray(len(id_lows))
        for ids in self._ids.values():
            ids.mark_duplicates(id_lows, id_highs, marks)
        self._ids.setdefault(generation, IdSet()).add(id_lows, id_highs, marks)
        devices = days = b""
        devices_before = self.devices
        if events.devices is not None and events.days is not None and events.new_flags is not None:
            devices, days = self._first_days.mark_known_devices(
                _int64_view(events.devices), _int64_view(events.days), _int64_view(events.new_flags), marks
            )
        if replayed is None:
            new_lows, new_highs = _without_duplicates(id_lows, marks), _without_duplicates(id_highs, marks)
            added = _StateFile(time_ms, generation, self._generation_ms, new_lows, new_highs, devices, days)
            self._files.store(name, added.pack())
        self._advance(time_ms, generation)
        self._batch_generations[batch_id] = generation
        self._devices_since_snapshot += len(devices) // 8
        self.new_devices = self.devices - devices_before
        self._next_batch = batch_id + 1
        return marks

    def _time_after(self, events: EventColumns) -> int:
        """Returns the log time after a batch. Records without timestamps count as written now."""
        now_ms = self._clock.time_ms()
        if events.newest_ms is not None and events.newest_ms > 0:
            return max(self._time_ms, min(events.newest_ms, now_ms))
        return max(self._time_ms, now_ms) if len(memoryview(events.id_lows)) else self._time_ms

    def _delete_old_files(self) -> None:
        """Deletes expired batch files, after a snapshot of the devices if one is due. Called when the next batch
        arrives, because only then is the last batch known to be committed."""
        is_due = self._devices_since_snapshot > max(_DEVICES_BEFORE_SNAPSHOT, self.devices // 2)
        batches_since_snapshot = sum(1 for batch_id in self._batch_generations if batch_id > self._snapshot_batch)
        if is_due or (self._devices_since_snapshot and batches_since_snapshot > _FILES_BEFORE_SNAPSHOT):
            self._write_snapshot()
        for batch_id, generation in list(self._batch_generations.items()):
            has_only_old_devices = batch_id <= self._snapshot_batch or not self._devices_since_snapshot
            if generation < self._oldest_generation and has_only_old_devices:
                self._files.remove(file_name("batch", batch_id))
                del self._batch_generations[batch_id]

    def _write_snapshot(self) -> None:
        devices, days = self._first_days.items()
        last_batch = max(self._batch_generations)
        snapshot = _StateFile(0, self._generation, self._generation_ms, b"", b"", devices, days)
        self._files.store(file_name("devices", last_batch), snapshot.pack())
        if self._snapshot_batch >= 0:
            self._files.remove(file_name("devices", self._snapshot_batch))
        self._snapshot_batch, self._devices_since_snapshot = last_batch, 0

    def _load(self, batch_id: int) -> list[str]:
        """Loads the state that earlier batches stored. Returns the names of all files."""
        self._clear()
        names = self._files.list()
        snapshots = [snapshot for snapshot in batch_ids(names, "devices") if snapshot < batch_id]
        if snapshots:
            self._snapshot_batch = max(snapshots)
            self._restore(self._read(file_name("devices", self._snapshot_batch)), with_devices=True)
            self._devices_since_snapshot = 0
        for earlier in batch_ids(names, "batch"):
            if earlier >= batch_id:
                continue
            file = self._read(file_name("batch", earlier))
            self._advance(file.time_ms, file.generation)
            self._restore(file, with_devices=earlier > self._snapshot_batch)
            self._batch_generations[earlier] = file.generation
        return names

    def _restore(self, file: _StateFile, *, with_devices: bool) -> None:
        if file.id_lows and file.generation >= self._oldest_generation:
            ids = self._ids.setdefault(file.generation, IdSet())
            ids.add(_int64_view(file.id_lows), _int64_view(file.id_highs), bytearray(len(file.id_lows) // 8))
        if with_devices and file.devices:
            self._first_days.restore(_int64_view(file.devices), memoryview(file.days).cast("i"))
            self._devices_since_snapshot += len(file.devices) // 8

    def _read(self, name: str) -> _StateFile:
        file = _StateFile.unpack(name, self._files.load(name))
        if file.generation_ms != self._generation_ms:  # written with another window
            file = replace(file, generation=file.time_ms // self._generation_ms)
        return file

    def _advance(self, time_ms: int, generation: int) -> None:
        """Moves time forward and drops generations older than the window."""
        self._time_ms = max(self._time_ms, time_ms)
        self._generation = max(self._generation, generation)
        for expired in [number for number in self._ids if number < self._oldest_generation]:
            del self._ids[expired]

    @property
    def _oldest_generation(self) -> int:
        """The oldest generation that is not older than the window."""
        return self._generation - _GENERATIONS_PER_WINDOW


def _int64_view(buffer: Buffer) -> memoryview:
    view = memoryview(buffer)
    return view if view.format == "q" else view.cast("B").cast("q")


def _without_duplicates(numbers: memoryview, marks: bytearray) -> bytes:
    """Returns the numbers of all events that are not marked as duplicates."""
    runs = []
    begin, duplicate = 0, marks.find(DUPLICATE)
    while duplicate >= 0:  # a duplicate carries no other mark, so its byte equals DUPLICATE
        runs.append(numbers[begin:duplicate])
        begin, duplicate = duplicate + 1, marks.find(DUPLICATE, duplicate + 1)
    runs.append(numbers[begin:])
    return b"".join(runs)
