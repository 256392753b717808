"""Opens the file systems of checkpoints and warehouses in Spark's Python workers, which have no access to the JVM.

The driver names directories as Hadoop does (`file:/data/x`, `hdfs://host/x`, `s3a://bucket/x`). Paths are strings.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

__all__ = ["open_directory"]


def open_directory(uri: str) -> tuple["FileSystem", str]:
    """Returns the file system of a directory, and the directory's path on it."""
    from pyarrow.fs import FileSystem, LocalFileSystem

    if uri.startswith("file:"):
        return LocalFileSystem(), "/" + uri.removeprefix("file:").lstrip("/")
    if "://" not in uri:
        return LocalFileSystem(), uri
    fs, path = FileSystem.from_uri("s3://" + uri.removeprefix("s3a://") if uri.startswith("s3a://") else uri)
    return fs, str(path)
