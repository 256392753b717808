"""The leader epochs of a partition: which leader wrote which offsets, in memory and in a checkpoint file.

An entry has an epoch and a start offset. The leader of that epoch wrote the offsets from its start offset to the start
offset of the next entry. To find where the logs diverge, a follower requests the end offset of its last epoch from the
leader (KIP-101).
"""

import bisect
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from headrace.common.errors import KafkaStorageError
from headrace.storage.checkpoints import format_checkpoint, parse_checkpoint
from headrace.storage.files import FileSystem

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class EpochEntry(NamedTuple):
    """A leader epoch and the first offset that its leader wrote."""

    epoch: int
    start_offset: int


class LeaderEpochFileCache:
    """The leader epochs of one log, ordered by epoch.

    The checkpoint file is written when the log is flushed, so appends do not wait for it. Recovery rebuilds the entries
    beyond the recovery point from the record batches. Any thread may execute a prepared write.
    """

    file_name = "leader-epoch-checkpoint"

    def __init__(self, directory: Path, files: FileSystem):
        self._path = directory / self.file_name
        self._files = files
        self._saved: list[EpochEntry] | None = []
        """The entries of the checkpoint file; None if they are not known."""
        self._entries: list[EpochEntry] = []
        self._lock = threading.Lock()
        self._last_prepared = 0
        self._last_written = 0

    def load(self) -> None:
        """Reads the checkpoint, which must exist. Raises KafkaStorageError if it is damaged."""
        self._entries = []
        self._saved = None
        for fields in parse_checkpoint(self._path, self._files.read(self._path)):
            try:
                entry = EpochEntry(*map(int, fields))
            except (TypeError, ValueError):
                raise KafkaStorageError(
                    f"{self._path} is damaged: expected an epoch and an offset, found {' '.join(fields)!r}"
                ) from None
            if self._entries and not (
                entry.epoch > self._entries[-1].epoch and entry.start_offset >= self._entries[-1].start_offset
            ):
                raise KafkaStorageError(
                    f"{self._path} is damaged: epoch {entry.epoch} with start offset {entry.start_offset} is out of "
                    "order"
                )
            self._entries.append(entry)
        self._saved = self._entries

    def rename_directory(self, source: Path, target: Path) -> None:
        """Renames the log's directory. A write in another thread must not reach a new log with the old name."""
        with self._lock:
            self._files.rename(source, target)
            self._path = target / self.file_name

    @property
    def entries(self) -> list[EpochEntry]:
        return list(self._entries)

    @property
    def latest_epoch(self) -> int:
        return self._entries[-1].epoch if self._entries else UNDEFINED_EPOCH

    def assign(self, epoch: int, start_offset: int) -> None:
        """Records that the leader of `epoch` writes from `start_offset` on. Removes entries that contradict this."""
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"epoch {epoch} and start offset {start_offset} must not be negative")
        if self._entries and self._entries[-1].epoch == epoch and self._entries[-1].start_offset <= start_offset:
            return
        earlier_entries = [
            entry for entry in self._entries if entry.epoch < epoch and entry.start_offset < start_offset
        ]
        self._entries = [*earlier_entries, EpochEntry(epoch, start_offset)]

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Returns the largest epoch not above the requested one, and its end offset.

        Returns (-1, -1) if there are no entries or the requested epoch is later than all of them.
        """
        if epoch == UNDEFINED_EPOCH or not self._entries or epoch > self.latest_epoch:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self.latest_epoch:
            return epoch, log_end_offset
        next_index = bisect.bisect_right(self._entries, epoch, key=lambda entry: entry.epoch)
        end_offset = self._entries[next_index].start_offset
        if next_index == 0:
            # Older than all known epochs: its records ended where the first known epoch starts.
            return epoch, end_offset
        return self._entries[next_index - 1].epoch, end_offset

    def epoch_for_offset(self, offset: int) -> int | None:
        """Returns the epoch of the leader that wrote an offset; None if it is not known."""
        index = bisect.bisect_right(self._entries, offset, key=lambda entry: entry.start_offset) - 1
        return self._entries[index].epoch if index >= 0 else None

    def truncate_from_end(self, end_offset: int) -> None:
        """Removes epochs that start at or after the new log end offset."""
        remaining_entries = [entry for entry in self._entries if entry.start_offset < end_offset]
        if len(remaining_entries) != len(self._entries):
            self._entries = remaining_entries

    def truncate_from_start(self, start_offset: int) -> None:
        """Removes epochs that end before the new log start offset. The epoch that contains it then starts there."""
        below = [entry for entry in self._entries if entry.start_offset <= start_offset]
        if not below or below == [EpochEntry(below[-1].epoch, start_offset)]:
            return
        above = self._entries[len(below) :]
        self._entries = [EpochEntry(below[-1].epoch, start_offset), *above]

    def clear(self) -> None:
        self._entries = []

    def replace(self, entries: list[EpochEntry]) -> None:
        """Takes over the entries of another log with the same records."""
        self._entries = list(entries)

    def prepare_sync(self, end_offset: int) -> Callable[[], None] | None:
        """Returns a function that writes the checkpoint; None if the epochs of the records below `end_offset` have not
        changed since the last write.

        The epoch of a leader that has not written a record yet is not needed: opening the log would drop it.
        """
        entries = [entry for entry in self._entries if entry.start_offset < end_offset]
        if entries == self._saved:
            return None
        self._last_prepared += 1
        return partial(self._write, self._last_prepared, entries)

    def _write(self, number: int, entries: list[EpochEntry]) -> None:
        lines = (f"{entry.epoch} {entry.start_offset}" for entry in entries)
        with self._lock:  # writes use the same temporary file
            if number >= self._last_written:  # else a later write overtook this one
                self._files.write_atomically(self._path, format_checkpoint(lines))
                self._last_written = number
                self._saved = entries
