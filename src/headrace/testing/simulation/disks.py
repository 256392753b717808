"""The disk of a simulated broker: faults and power loss of `testing.disks`, without anything that differs between runs.

The files are real, so put them in memory (`/dev/shm`). Modification times are constant.
"""

import tempfile
from pathlib import Path

from headrace.common.ids import Random
from headrace.storage.files import FileInfo
from headrace.testing.disks import PowerLossFileSystem
from headrace.testing.simulation.loop import START_MS

_IN_MEMORY = Path("/dev/shm")


class SimulatedDisk(PowerLossFileSystem):
    """The disk of one broker, which survives its processes."""

    def list(self, path: Path) -> dict[str, FileInfo]:
        entries = sorted(super().list(path).items())
        return {name: FileInfo(info.size, START_MS, info.is_directory) for name, info in entries}

    def process_ended(self, random: Random | None = None) -> None:
        """Forgets the open files of a process. With `random`, also what a power loss destroys."""
        self.__dict__.pop("open_files", None)
        if random is not None:
            self.crash(random)


def make_directory() -> "tempfile.TemporaryDirectory[str]":
    """Returns a directory for the disks of one run, in memory where possible."""
    where = _IN_MEMORY if _IN_MEMORY.is_dir() else None
    return tempfile.TemporaryDirectory(prefix="headrace-simulation-", dir=where)
