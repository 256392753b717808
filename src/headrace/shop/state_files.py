"""The state directory of a flow: whole files of bytes, by their names. Runs in the driver.

Goes through the JVM's file systems as everything of the runner does, so that the directory may be on HDFS or in an
object store.
"""

from typing import TYPE_CHECKING

from headrace.pipelines.files import UNFINISHED, FileTree

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class StateFiles(FileTree):
    """One directory, which is made when it is not there."""

    def __init__(self, spark: "SparkSession", directory: str) -> None:
        super().__init__(spark, directory)
        self.make_directory(self.root)

    def _place(self, name: str) -> str:
        return f"{self.root}/{name}"

    def list(self) -> list[str]:
        return [name for name in self.names(self.root) if not name.endswith(UNFINISHED)]

    def load(self, name: str) -> bytes:
        return self.read(self._place(name))

    def store(self, name: str, content: bytes) -> None:
        self.write(self._place(name), content)

    def remove(self, name: str) -> None:
        self.delete(self._place(name))
