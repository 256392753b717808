"""Producer state snapshots: `<offset>.snapshot` holds the producer state of the log up to that offset.

    version   int16   1
    crc       uint32  CRC-32C of everything after it
    count     int32
    entries   46 bytes each: producer id int64, epoch int16, last sequence int32, last offset int64, offset delta int32,
              timestamp int64, coordinator epoch int32, first offset of the open transaction int64 (-1 without one)

As in Kafka, a snapshot contains only the last batch of each producer.
"""

import struct
from pathlib import Path

from headrace.common.errors import KafkaStorageError
from headrace.records import NO_SEQUENCE, crc32c
from headrace.storage.files import DataFile, FileSystem
from headrace.storage.producer_state import BatchMetadata, ProducerStateEntry, ProducerStateManager

SNAPSHOT_SUFFIX = ".snapshot"
_HEAD = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")
_VERSION = 1


def snapshot_name(offset: int) -> str:
    return f"{offset:020d}{SNAPSHOT_SUFFIX}"


def encode_snapshot(states: ProducerStateManager) -> bytes:
    packed = [_COUNT.pack(len(states.entries))]
    for entry in states.entries.values():
        last_batch = (
            entry.batches[-1] if entry.batches else BatchMetadata(NO_SEQUENCE, NO_SEQUENCE, -1, 0, entry.last_timestamp)
        )
        transaction_first_offset = -1 if entry.transaction_first_offset is None else entry.transaction_first_offset
        packed.append(
            _ENTRY.pack(
                entry.producer_id,
                entry.epoch,
                last_batch.last_sequence,
                last_batch.last_offset,
                last_batch.offset_delta,
                entry.last_timestamp,
                entry.coordinator_epoch,
                transaction_first_offset,
            )
        )
    body = b"".join(packed)
    return _HEAD.pack(_VERSION, crc32c(body)) + body


def decode_snapshot(path: Path, data: bytes) -> list[ProducerStateEntry]:
    """Decodes the producers of a snapshot. Raises KafkaStorageError if the file is damaged."""
    if len(data) < _HEAD.size + _COUNT.size:
        raise KafkaStorageError(f"{path} is truncated: it has only {len(data)} bytes")
    version, crc = _HEAD.unpack_from(data)
    body = data[_HEAD.size :]
    if version != _VERSION:
        raise KafkaStorageError(f"{path} has unsupported version {version}; expected {_VERSION}")
    if crc32c(body) != crc:
        raise KafkaStorageError(f"{path} is corrupt: its CRC does not match")
    count = _COUNT.unpack_from(body)[0]
    if len(body) != _COUNT.size + count * _ENTRY.size:
        raise KafkaStorageError(f"{path} is damaged: {len(data)} bytes do not match {count} producers")
    entries: list[ProducerStateEntry] = []
    for packed in _ENTRY.iter_unpack(body[_COUNT.size :]):
        producer_id, epoch, last_sequence, last_offset, offset_delta, timestamp, coordinator_epoch, txn_offset = packed
        transaction_first_offset = txn_offset if txn_offset >= 0 else None
        entry = ProducerStateEntry(producer_id, epoch, coordinator_epoch, timestamp, transaction_first_offset)
        if last_offset >= 0 and last_sequence >= 0:
            base_sequence = (last_sequence - offset_delta) % 2**31
            entry.batches.append(BatchMetadata(base_sequence, last_sequence, last_offset, offset_delta, timestamp))
        entries.append(entry)
    return entries


class ProducerSnapshots:
    """The producer state snapshots in a log's directory."""

    def __init__(self, directory: Path, files: FileSystem):
        self.directory = directory
        self._files = files
        self._offsets: set[int] = set()

    def set_offsets(self, offsets: set[int]) -> None:
        """Sets the offsets of the existing snapshots, from the loader's directory listing."""
        self._offsets = offsets

    @property
    def offsets(self) -> list[int]:
        return sorted(self._offsets)

    def _path(self, offset: int) -> Path:
        return self.directory / snapshot_name(offset)

    def take(self, states: ProducerStateManager, sync: bool = True) -> None:
        """Writes a snapshot of the current state, unless it exists already."""
        if states.end_offset not in self._offsets:
            self._files.write_atomically(self._path(states.end_offset), encode_snapshot(states), sync=sync)
            self._offsets.add(states.end_offset)

    def open_for_sync(self, above: int, up_to: int) -> list[DataFile]:
        """Opens the snapshots in `(above, up_to]`, to be synced together with the log."""
        return [self._files.open(self._path(offset)) for offset in self._offsets if above < offset <= up_to]

    def load_latest(self, states: ProducerStateManager, lowest: int, highest: int) -> None:
        """Loads the newest valid snapshot in `[lowest, highest]`. If there is none, empties the state at `lowest`.

        Removes damaged snapshots, since they can be rebuilt from the log.
        """
        for offset in sorted((offset for offset in self._offsets if lowest <= offset <= highest), reverse=True):
            try:
                states.reset(offset, decode_snapshot(self._path(offset), self._files.read(self._path(offset))))
            except KafkaStorageError:
                self._drop(offset)
            else:
                return
        states.reset(lowest)

    def _drop(self, offset: int) -> None:
        self._files.remove(self._path(offset))
        self._offsets.discard(offset)

    def keep_only(self, retained: set[int]) -> None:
        for offset in self._offsets - retained:
            self._drop(offset)

    def drop_beyond(self, offset: int) -> None:
        """Removes the snapshots above a truncation offset."""
        for snapshot_offset in [existing for existing in self._offsets if existing > offset]:
            self._drop(snapshot_offset)
