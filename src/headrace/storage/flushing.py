"""One flush of a log: what is collected on the owner's thread and synced on any."""

from dataclasses import dataclass
from pathlib import Path

from headrace.storage.files import DataFile, FileSystem
from headrace.storage.segment import LogSegment
from headrace.storage.txn_index import TransactionIndex


@dataclass(frozen=True, slots=True)
class FlushTask:
    """What must be synced to move the recovery point up to `offset`, unless the log is truncated meanwhile."""

    offset: int
    opened: list[DataFile]
    changes: list[tuple[LogSegment | TransactionIndex, int]]
    truncations: int
    directory: Path
    files: FileSystem

    def run(self) -> None:
        for file in self.opened:
            file.sync()
        self.files.sync_directory(self.directory)
