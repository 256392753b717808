"""The files of the state of one source partition. Runs in Spark's Python workers.

    <checkpoint>/<pipeline>/<flow>/state/<topic>-<partition>/delta-0000000007       the changes of batch 7
    <checkpoint>/<pipeline>/<flow>/state/<topic>-<partition>/snapshot-0000000012    the whole state after batch 12

A file is one line of JSON, followed by the bytes of the state:

    {"format": 1, "previous": 5, "bytes": 18034, "crc32": 2774551312}

`previous` is the batch of the partition's file before this one, or -1. It proves that no delta is missing.

Invariants:
- A file appears with its whole content or not at all.
- The state before batch N depends only on files of earlier batches. A replay of batch N overwrites the files of N.
"""

import json
import uuid
import zlib
from typing import TYPE_CHECKING, NamedTuple

from headrace.common.errors import HeadraceError
from headrace.pipelines.worker_files import open_directory

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

__all__ = ["DELTA", "NO_BATCH", "SNAPSHOT", "StateFile", "StateFileError", "StateFiles"]

DELTA, SNAPSHOT = "delta", "snapshot"
NO_BATCH = -1
_FORMAT = 1


class StateFileError(HeadraceError):
    """A state file is damaged or missing. The message names the file."""


class StateFile(NamedTuple):
    """The name of a state file: its batch and its kind."""

    batch_id: int
    kind: str

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.batch_id:010}"


class StateFiles:
    """The state files of one source partition."""

    def __init__(self, directory: str, topic: str, partition: int) -> None:
        self._fs: FileSystem
        self._fs, root = open_directory(directory)
        self._directory = f"{root}/{topic}-{partition}"

    def path(self, file: StateFile) -> str:
        return f"{self._directory}/{file.name}"

    def files_before(self, batch_id: int) -> list[StateFile]:
        """Returns the files of earlier batches, the oldest first."""
        return sorted(file for _, file in self._entries() if file is not None and file.batch_id < batch_id)

    def _entries(self) -> list[tuple[str, StateFile | None]]:
        from pyarrow.fs import FileSelector

        entries: list[tuple[str, StateFile | None]] = []
        for info in self._fs.get_file_info(FileSelector(self._directory, allow_not_found=True)):
            kind, _, number = info.base_name.partition("-")
            is_state = kind in (DELTA, SNAPSHOT) and number.isdigit()
            entries.append((info.path, StateFile(int(number), kind) if is_state else None))
        return entries

    def read(self, file: StateFile) -> tuple[int, bytes]:
        """Returns the batch of the previous file, and the content. Raises `StateFileError` if the file is damaged."""
        path = self.path(file)
        try:
            with self._fs.open_input_file(path) as stream:
                line, _, content = stream.read().partition(b"\n")
        except FileNotFoundError as error:
            raise StateFileError(f"state file {path} is missing") from error
        try:
            header = json.loads(line)
            version, previous = int(header["format"]), int(header["previous"])
            expected = (int(header["bytes"]), int(header["crc32"]))
        except (ValueError, KeyError, TypeError) as error:
            raise StateFileError(f"state file {path} is damaged: its first line is not a header") from error
        if version != _FORMAT:
            raise StateFileError(f"state file {path} has format {version}; this version reads format {_FORMAT}")
        if expected != (len(content), zlib.crc32(content)):
            raise StateFileError(
                f"state file {path} is damaged: expected {expected[0]} bytes with checksum {expected[1]}, found "
                f"{len(content)} bytes with checksum {zlib.crc32(content)}"
            )
        return previous, content

    def write(self, file: StateFile, previous: int, content: bytes) -> None:
        """Creates or replaces a file."""
        header = {"format": _FORMAT, "previous": previous, "bytes": len(content), "crc32": zlib.crc32(content)}
        unfinished = f"{self._directory}/.{file.name}-{uuid.uuid4().hex}"
        self._fs.create_dir(self._directory)
        with self._fs.open_output_stream(unfinished) as stream:
            stream.write(json.dumps(header).encode() + b"\n")
            stream.write(content)
        self._fs.move(unfinished, self.path(file))

    def delete_before(self, batch_id: int) -> None:
        """Deletes the files of earlier batches, and unfinished files of failed attempts."""
        for path, _ in self._entries():
            number = path.rpartition("/")[2].partition("-")[2].partition("-")[0]
            if number.isdigit() and int(number) < batch_id:
                self._fs.delete_file(path)
