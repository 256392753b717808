"""The state directory of a flow: named files that are written whole. Runs in the driver.

`StateDirectory` uses the JVM's file systems, as the pipeline runner does, so that the directory may be on HDFS or in an
object store. A flow writes one file per batch and, from time to time, a snapshot that replaces older files. The names
of both end with the batch id: `batch-000000000042`.
"""

from typing import TYPE_CHECKING, Protocol

from headrace.pipelines.file_tree import UNFINISHED, FileTree

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class StateStore(Protocol):
    """A flat directory of whole files, addressed by name."""

    def list(self) -> list[str]: ...
    def load(self, name: str) -> bytes: ...
    def store(self, name: str, content: bytes) -> None: ...
    def remove(self, name: str) -> None: ...


class StateDirectory(FileTree):
    """A `StateStore` in a directory of any file system that Spark supports. Creates the directory if it is missing."""

    def __init__(self, spark: "SparkSession", directory: str) -> None:
        super().__init__(spark, directory)
        self.make_directory(self.root)

    def _path_of(self, name: str) -> str:
        return f"{self.root}/{name}"

    def list(self) -> list[str]:
        """Returns the names of all finished files."""
        return [name for name in self.names(self.root) if not name.endswith(UNFINISHED)]

    def load(self, name: str) -> bytes:
        return self.read(self._path_of(name))

    def store(self, name: str, content: bytes) -> None:
        self.write(self._path_of(name), content)

    def remove(self, name: str) -> None:
        self.delete(self._path_of(name))


def file_name(kind: str, batch_id: int) -> str:
    """Returns the name of the file of this kind (`batch`, `devices`, `minutes`) for a batch."""
    return f"{kind}-{batch_id:012d}"


def batch_ids(names: list[str], kind: str) -> list[int]:
    """Returns the batch ids of all files of this kind, in ascending order."""
    numbers = (name.removeprefix(f"{kind}-") for name in names if name.startswith(f"{kind}-"))
    return sorted(int(number) for number in numbers if number.isdecimal())
