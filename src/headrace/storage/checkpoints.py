"""Small text files next to the logs: checkpoints, partition metadata and `meta.properties`.

An offset checkpoint (`recovery-point-offset-checkpoint`, `log-start-offset-checkpoint`, `cleaner-offset-checkpoint`):

    0                        version
    2                        number of entries
    orders 0 1234            topic, partition, offset
    orders 1 99

Other files:

    leader-epoch-checkpoint   in a partition's directory: the same first two lines, then lines of `epoch start-offset`
    partition.metadata        in a partition's directory: `version: 0` and `topic_id: <id>`
    meta.properties           in a log directory: the node that owns it
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from headrace.common.errors import HeadraceError, KafkaStorageError
from headrace.common.ids import Uuid
from headrace.common.types import TopicPartition
from headrace.storage.files import FileSystem

RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_CHECKPOINT = "log-start-offset-checkpoint"
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
PARTITION_METADATA_FILE = "partition.metadata"
META_PROPERTIES_FILE = "meta.properties"


def format_checkpoint(lines: Iterable[str]) -> bytes:
    entry_lines = list(lines)
    return "\n".join(["0", str(len(entry_lines)), *entry_lines, ""]).encode()


def parse_checkpoint(path: Path, data: bytes) -> list[list[str]]:
    """Returns the fields of each entry. Kafka creates checkpoints empty, so an empty file has no entries.

    Raises KafkaStorageError if the file is malformed.
    """
    if not data:
        return []
    if not data.endswith(b"\n"):
        raise KafkaStorageError(f"{path} is truncated: its last line has no line end")
    try:
        lines = data.decode().splitlines()
        if lines[0].strip() != "0":
            raise KafkaStorageError(f"{path} has unsupported version {lines[0]!r}; expected 0")
        count = int(lines[1])
    except (IndexError, ValueError):
        raise KafkaStorageError(
            f"{path} is not a checkpoint: expected a version and an entry count in its first two lines"
        ) from None
    entries = [line.split() for line in lines[2:] if line.strip()]
    if len(entries) != count:
        raise KafkaStorageError(f"{path} is damaged: expected {count} entries, found {len(entries)}")
    return entries


class OffsetCheckpoint:
    """A checkpoint file with one offset for each partition of a log directory.

    The owner's thread prepares a write, and any thread executes it. A write does nothing if a later one was executed
    before it, so the file never goes back to older offsets.
    """

    def __init__(self, path: Path, files: FileSystem):
        self.offsets: Mapping[TopicPartition, int] = {}
        """The content of the file, as it was last read or written."""
        self._path = path
        self._files = files
        self._lock = threading.Lock()
        self._last_prepared = 0
        self._last_written = 0
        self._closed = False

    def prepare(self, offsets: Mapping[TopicPartition, int]) -> Callable[[], None]:
        """Returns a function that writes the offsets."""
        self._last_prepared += 1
        return partial(self._write, self._last_prepared, offsets)

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.prepare(offsets)()

    def _write(self, number: int, offsets: Mapping[TopicPartition, int]) -> None:
        lines = (f"{tp.topic} {tp.partition} {offset}" for tp, offset in sorted(offsets.items()))
        with self._lock:  # writes use the same temporary file
            if number < self._last_written or self._closed:
                return
            self._files.write_atomically(self._path, format_checkpoint(lines))
            self._last_written = number
            self.offsets = offsets

    def close(self) -> None:
        """Waits for a write in progress. Later ones do nothing: another process may own the directory."""
        with self._lock:
            self._closed = True

    def read(self) -> dict[TopicPartition, int]:
        self.offsets = {}
        if not self._files.exists(self._path):
            return {}
        offsets: dict[TopicPartition, int] = {}
        for entry in parse_checkpoint(self._path, self._files.read(self._path)):
            try:
                topic, partition, offset = entry
                offsets[TopicPartition(topic, int(partition))] = int(offset)
            except ValueError:
                raise KafkaStorageError(
                    f"{self._path} is damaged: expected a line of topic, partition and offset, found "
                    f"{' '.join(entry)!r}"
                ) from None
        self.offsets = offsets
        return offsets


def write_partition_metadata(directory: Path, topic_id: Uuid, files: FileSystem) -> None:
    files.write_atomically(directory / PARTITION_METADATA_FILE, _format_partition_metadata(topic_id))


def create_partition_metadata(directory: Path, topic_id: Uuid, files: FileSystem) -> None:
    """Writes the topic id of a new log without a sync. The first flush of the log syncs it."""
    file = files.open(directory / PARTITION_METADATA_FILE, create=True)
    try:
        file.write_at(_format_partition_metadata(topic_id), 0)
    finally:
        file.close()


def _format_partition_metadata(topic_id: Uuid) -> bytes:
    return f"version: 0\ntopic_id: {topic_id}".encode()


def read_partition_metadata(directory: Path, files: FileSystem) -> Uuid:
    """Returns the topic id from the file, which must exist. Raises KafkaStorageError if it is damaged."""
    path = directory / PARTITION_METADATA_FILE
    fields = dict(line.split(": ", 1) for line in _read_lines(path, files) if ": " in line)
    if fields.get("version") != "0" or "topic_id" not in fields:
        raise KafkaStorageError(f"{path} is damaged: expected 'version: 0' and 'topic_id: <id>'")
    return _parse_id(path, fields["topic_id"])


def _read_lines(path: Path, files: FileSystem) -> list[str]:
    try:
        return files.read(path).decode().splitlines()
    except UnicodeDecodeError as error:
        raise KafkaStorageError(f"{path} is damaged: {error}") from error


def _parse_id(path: Path, text: str) -> Uuid:
    try:
        return Uuid.parse(text)
    except HeadraceError as error:
        raise KafkaStorageError(f"{path} is damaged: {error}") from error


_NODE_KEYS = ("broker.id", "node.id")
"""The key of the node's id in each version of the file."""


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The cluster and node that own a log directory. `directory_id` identifies the directory itself (KIP-858).

    Version 0 is that of brokers with ZooKeeper, which the older ones of Apache Kafka require.
    """

    cluster_id: str
    node_id: int
    directory_id: Uuid | None = None
    version: int = 1

    def check_owner(self, directory: Path, cluster_id: str | None, node_id: int) -> None:
        """Raises KafkaStorageError if another node owns the directory, or another cluster if `cluster_id` is given."""
        if self.node_id != node_id or cluster_id not in (None, self.cluster_id):
            raise KafkaStorageError(
                f"Log directory {directory} belongs to node {self.node_id} of cluster {self.cluster_id}, not to node "
                f"{node_id} of cluster {cluster_id or self.cluster_id}. Check node.id, cluster.id and log.dirs"
            )

    def write(self, directory: Path, files: FileSystem) -> None:
        properties = {
            "cluster.id": self.cluster_id,
            _NODE_KEYS[self.version]: str(self.node_id),
            "version": str(self.version),
        }
        if self.directory_id is not None:
            properties["directory.id"] = str(self.directory_id)
        text = "".join(f"{key}={value}\n" for key, value in sorted(properties.items()))
        files.write_atomically(directory / META_PROPERTIES_FILE, text.encode())

    @classmethod
    def read(cls, directory: Path, files: FileSystem) -> "MetaProperties | None":
        """Reads version 1 (KRaft) or version 0 (ZooKeeper brokers). Returns None if there is no file."""
        path = directory / META_PROPERTIES_FILE
        if not files.exists(path):
            return None
        lines = _read_lines(path, files)
        properties = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
        version = properties.get("version")
        node = properties.get(_NODE_KEYS[int(version)]) if version in ("0", "1") else None
        if version is None or node is None or not node.isdecimal() or "cluster.id" not in properties:
            raise KafkaStorageError(f"{path} is damaged: expected version 0 or 1, a cluster.id and a node.id")
        # Java's Properties escapes these characters.
        cluster_id = properties["cluster.id"].replace("\\=", "=").replace("\\:", ":")
        directory_id = _parse_id(path, properties["directory.id"]) if "directory.id" in properties else None
        return cls(cluster_id, int(node), directory_id, int(version))
