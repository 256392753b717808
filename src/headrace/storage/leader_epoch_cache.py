"""Which leader wrote which offsets: the leader-epoch cache of a partition and its checkpoint file.

An entry (epoch, start offset) says that the leader of that epoch wrote from that offset on, until the next entry's. A
follower asks a leader for the end of its own last epoch to find where their logs part (KIP-101).
"""

import bisect
from pathlib import Path
from typing import NamedTuple

from headrace.common.errors import KafkaStorageError
from headrace.storage.checkpoints import format_checkpoint, parse_checkpoint
from headrace.storage.files import FileSystem

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class EpochEntry(NamedTuple):
    epoch: int
    start_offset: int


class LeaderEpochFileCache:
    """Kept in memory, and written with the log's flush: recovery makes entries beyond the recovery point again from the
    batches. So an append does not wait for it, and the file is always whole."""

    file_name = "leader-epoch-checkpoint"

    def __init__(self, directory: Path, files: FileSystem):
        self._path = directory / self.file_name
        self._files = files
        self._dirty = False
        self._entries: list[EpochEntry] = []

    def load(self) -> None:
        """Reads the checkpoint. A damaged one raises KafkaStorageError."""
        self._entries = []
        if not self._files.exists(self._path):
            return
        for fields in parse_checkpoint(self._path, self._files.read(self._path)):
            try:
                entry = EpochEntry(*map(int, fields))
            except (TypeError, ValueError):
                raise KafkaStorageError(f"{self._path}: {' '.join(fields)!r} is not an epoch and an offset") from None
            if self._entries and not (
                entry.epoch > self._entries[-1].epoch and entry.start_offset >= self._entries[-1].start_offset
            ):
                raise KafkaStorageError(f"{self._path}: epoch {entry.epoch} at {entry.start_offset} is out of order")
            self._entries.append(entry)

    def move_to(self, directory: Path) -> None:
        """The log's directory was renamed."""
        self._path = directory / self.file_name

    @property
    def entries(self) -> list[EpochEntry]:
        return list(self._entries)

    @property
    def latest_epoch(self) -> int:
        return self._entries[-1].epoch if self._entries else UNDEFINED_EPOCH

    def assign(self, epoch: int, start_offset: int) -> None:
        """The leader of `epoch` begins to write at `start_offset`. Entries that this contradicts are dropped."""
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"an epoch and its start offset are at least 0, not {epoch} and {start_offset}")
        if self._entries and self._entries[-1].epoch == epoch and self._entries[-1].start_offset <= start_offset:
            return
        kept = [entry for entry in self._entries if entry.epoch < epoch and entry.start_offset < start_offset]
        self._replace([*kept, EpochEntry(epoch, start_offset)])

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest epoch that is not above the one asked for, and where it ended.

        (-1, -1) if nothing is known: no epochs, or one asked for that is yet to come.
        """
        if epoch == UNDEFINED_EPOCH or not self._entries or epoch > self.latest_epoch:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self.latest_epoch:
            return epoch, log_end_offset
        above = bisect.bisect_right(self._entries, epoch, key=lambda entry: entry.epoch)
        end_offset = self._entries[above].start_offset
        if above == 0:
            # Older than all that is known: whatever it wrote ended where the first known epoch began.
            return epoch, end_offset
        return self._entries[above - 1].epoch, end_offset

    def epoch_for_offset(self, offset: int) -> int | None:
        """The epoch of the leader that wrote an offset."""
        at = bisect.bisect_right(self._entries, offset, key=lambda entry: entry.start_offset) - 1
        return self._entries[at].epoch if at >= 0 else None

    def truncate_from_end(self, end_offset: int) -> None:
        """Forgets epochs that began at or beyond the log's new end."""
        kept = [entry for entry in self._entries if entry.start_offset < end_offset]
        if len(kept) != len(self._entries):
            self._replace(kept)

    def truncate_from_start(self, start_offset: int) -> None:
        """Forgets epochs that ended before the log's new start; the one it lies in now starts there."""
        below = [entry for entry in self._entries if entry.start_offset <= start_offset]
        if not below or below == [EpochEntry(below[-1].epoch, start_offset)]:
            return
        above = self._entries[len(below) :]
        self._replace([EpochEntry(below[-1].epoch, start_offset), *above])

    def clear(self) -> None:
        self._replace([])

    def _replace(self, entries: list[EpochEntry]) -> None:
        self._entries = entries
        self._dirty = True

    def sync(self) -> None:
        """Writes the checkpoint, if the cache has changed since it last was."""
        if self._dirty:
            lines = (f"{entry.epoch} {entry.start_offset}" for entry in self._entries)
            self._files.write_atomically(self._path, format_checkpoint(lines))
            self._dirty = False
