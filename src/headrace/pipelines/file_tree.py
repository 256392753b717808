"""Files and directories on any file system that Spark supports: a local disk, HDFS, an object store. Runs in the
driver.

Uses the JVM's file systems, so a path means the same here as it does to Spark's tasks. Paths are strings.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UNFINISHED = ".tmp"
"""The suffix of files that are being written."""


class FileTree:
    """A directory tree on the file system that its root names."""

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
        """Deletes a file, or a directory with its content, if it exists."""
        self._fs.delete(self._path(name), True)

    def make_directory(self, name: str) -> None:
        self._fs.mkdirs(self._path(name))

    def rename(self, old: str, new: str) -> None:
        if not self._fs.rename(self._path(old), self._path(new)):
            raise OSError(f"cannot rename {old} to {new}")

    def names(self, directory: str) -> list[str]:
        """Returns the sorted names in a directory, or an empty list if it does not exist."""
        if not self.exists(directory):
            return []
        return sorted(str(status.getPath().getName()) for status in self._fs.listStatus(self._path(directory)))

    def tree(self, directory: str) -> list[str]:
        """Returns the sorted paths of all files beneath a directory, relative to it."""
        if not self.exists(directory):
            return []
        prefix_length = len(str(self._fs.makeQualified(self._path(directory)).toUri().getPath()).rstrip("/")) + 1
        paths = []
        statuses = self._fs.listFiles(self._path(directory), True)
        while statuses.hasNext():
            paths.append(str(statuses.next().getPath().toUri().getPath())[prefix_length:])
        return sorted(paths)

    def read(self, name: str) -> bytes:
        stream = self._fs.open(self._path(name))
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def write(self, name: str, content: bytes) -> None:
        """Creates a file atomically: it appears with its whole content or not at all. The file must not exist yet."""
        unfinished = name + UNFINISHED
        stream = self._fs.create(self._path(unfinished), True)
        try:
            stream.write(bytearray(content))
        finally:
            stream.close()
        self.rename(unfinished, name)
