"""Files and directories wherever Spark can have them: a local disk, HDFS, an object store. Runs in the driver.

Paths are strings as Spark takes them. Goes through the JVM's file systems, so that a path means here what it means to
the tasks.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UNFINISHED = ".tmp"
"""How the names of files end that are being written."""


class FileTree:
    """What a directory tree is asked for, on the file system that the tree is on."""

    def __init__(self, spark: "SparkSession", root: str) -> None:
        jvm: Any = spark._jvm
        self._jvm = jvm
        configuration = spark._jsparkSession.sessionState().newHadoopConf()
        path: Any = self._jvm.org.apache.hadoop.fs.Path(root)
        self._fs: Any = path.getFileSystem(configuration)
        self.root = str(self._fs.makeQualified(path).toString())

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(name)

    def exists(self, name: str) -> bool:
        return bool(self._fs.exists(self._path(name)))

    def delete(self, name: str) -> None:
        """A file, or a directory with all that is in it; nothing happens if there is none."""
        self._fs.delete(self._path(name), True)

    def make_directory(self, name: str) -> None:
        self._fs.mkdirs(self._path(name))

    def rename(self, old: str, new: str) -> None:
        if not self._fs.rename(self._path(old), self._path(new)):
            raise OSError(f"cannot rename {old} to {new}")

    def names(self, directory: str) -> list[str]:
        """The names in a directory, in order; none if it is not there."""
        if not self.exists(directory):
            return []
        return sorted(str(status.getPath().getName()) for status in self._fs.listStatus(self._path(directory)))

    def tree(self, directory: str) -> list[str]:
        """The files beneath a directory, by their paths within it, in order."""
        if not self.exists(directory):
            return []
        whole = len(str(self._fs.makeQualified(self._path(directory)).toUri().getPath()).rstrip("/")) + 1
        found = []
        each = self._fs.listFiles(self._path(directory), True)
        while each.hasNext():
            found.append(str(each.next().getPath().toUri().getPath())[whole:])
        return sorted(found)

    def read(self, name: str) -> bytes:
        stream = self._fs.open(self._path(name))
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def write(self, name: str, content: bytes) -> None:
        """A new file, there whole or not at all; one of that name must not be there."""
        unfinished = name + UNFINISHED
        stream = self._fs.create(self._path(unfinished), True)
        try:
            stream.write(bytearray(content))
        finally:
            stream.close()
        self.rename(unfinished, name)
