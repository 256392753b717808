"""The state directory of a flow: whole files of bytes, by their names. Runs in the driver.

Goes through the JVM's file systems as everything of the runner does, so that the directory may be on HDFS or in an
object store. A file appears whole or not at all: it is written under another name first.
"""

from typing import TYPE_CHECKING

from headrace.pipelines.files import Files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_UNFINISHED = ".tmp"


class StateFiles(Files):
    """One directory, which is made when it is not there."""

    def __init__(self, spark: "SparkSession", directory: str) -> None:
        super().__init__(spark, directory)
        self.make_directory(self.root)

    def _place(self, name: str) -> str:
        return f"{self.root}/{name}"

    def list(self) -> list[str]:
        return [name for name in self.names(self.root) if not name.endswith(_UNFINISHED)]

    def load(self, name: str) -> bytes:
        stream = self._fs.open(self._path(self._place(name)))
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def store(self, name: str, content: bytes) -> None:
        """A new file; one of that name must not be there."""
        unfinished = self._place(name + _UNFINISHED)
        stream = self._fs.create(self._path(unfinished), True)
        try:
            stream.write(bytearray(content))
        finally:
            stream.close()
        self.rename(unfinished, self._place(name))

    def remove(self, name: str) -> None:
        self.delete(self._place(name))
