"""A log directory: one of the directories in `log.dirs`. One process at a time owns it.

.lock                              locked by the owner
meta.properties                    the cluster and node that the directory belongs to
.kafka_cleanshutdown               exists after a clean shutdown, until the next process opens the directory
recovery-point-offset-checkpoint   the recovery point of each log
log-start-offset-checkpoint        the log start offset of each log, unless it is 0
cleaner-offset-checkpoint          the offset up to which each log is compacted
replication-offset-checkpoint      the high watermark of each log
<topic>-<partition>/               a log
<topic>-<partition>.<id>-delete/   a deleted log, whose files are about to be removed
<topic>-<partition>.<id>-stray/    the log of a partition that is not in the cluster metadata; its files are kept
<topic>-<partition>.<id>-future/   a copy of a log in another directory, which will replace it: see `future_logs`
__cluster_metadata-0/              the log of Kafka's controllers, in a directory that Kafka wrote; ignored
"""

import fcntl
import json
import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from headrace.common.errors import InvalidTopicError, KafkaStorageError
from headrace.common.ids import Uuid
from headrace.common.types import TopicPartition
from headrace.storage.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    MetaProperties,
    OffsetCheckpoint,
)
from headrace.storage.files import FileSystem, storage_error

_logger = logging.getLogger(__name__)

LOCK_FILE = ".lock"
NO_BROKER_EPOCH = -1
DELETE_DIRECTORY_SUFFIX = "-delete"
STRAY_DIRECTORY_SUFFIX = "-stray"
FUTURE_DIRECTORY_SUFFIX = "-future"
_METADATA_TOPIC = "__cluster_metadata"
_PARTITION = re.compile(r"([A-Za-z0-9._-]+)-(0|[1-9][0-9]*)")
_FUTURE = re.compile(_PARTITION.pattern + r"\.[A-Za-z0-9]+" + FUTURE_DIRECTORY_SUFFIX)
_TOPIC = re.compile(r"[A-Za-z0-9._-]+")
_LONGEST_TOPIC = 249
_LONGEST_NAME = 255

_owned: set[Path] = set()
"""Directories that this process has locked: a POSIX lock does not exclude the process that holds it."""


class StoredLog(NamedTuple):
    """A log that was found in a log directory."""

    tp: TopicPartition
    path: Path
    is_future: bool = False


def parse_directory_name(name: str) -> TopicPartition | None:
    """Returns the partition whose log is in a directory of this name; None if it is not a log."""
    matched = _PARTITION.fullmatch(name)
    if matched is None or name.endswith((DELETE_DIRECTORY_SUFFIX, FUTURE_DIRECTORY_SUFFIX, STRAY_DIRECTORY_SUFFIX)):
        return None
    return TopicPartition(matched[1], int(matched[2]))


def parse_future_name(name: str) -> TopicPartition | None:
    """Returns the partition whose future log is in a directory of this name; None if it is not a future log."""
    matched = _FUTURE.fullmatch(name)
    return TopicPartition(matched[1], int(matched[2])) if matched is not None else None


def future_directory_name(tp: TopicPartition, unique_id: Uuid) -> str:
    """Returns the directory name of a new future log."""
    return f"{tp}.{unique_id.hex}{FUTURE_DIRECTORY_SUFFIX}"


def check_partition_name(tp: TopicPartition) -> None:
    """Raises InvalidTopicError if the partition cannot have a directory that the next start finds again."""
    if (
        not isinstance(tp.topic, str)
        or not _TOPIC.fullmatch(tp.topic)
        or tp.topic in (".", "..")
        or len(tp.topic) > _LONGEST_TOPIC
    ):
        raise InvalidTopicError(
            f"Topic name {tp.topic!r} is invalid: expected 1 to {_LONGEST_TOPIC} letters, digits, dots, dashes and "
            "underscores, and not '.' or '..'"
        )
    if tp.topic == _METADATA_TOPIC:
        raise InvalidTopicError(f"Topic name {_METADATA_TOPIC!r} is reserved for Kafka's metadata log")
    if type(tp.partition) is not int or not 0 <= tp.partition < 2**31:
        raise InvalidTopicError(
            f"Partition {tp.partition!r} of topic {tp.topic!r} is invalid: expected a number from 0 to 2^31 - 1"
        )


def suffixed_directory_name(tp: TopicPartition, unique_id: Uuid, directory_suffix: str) -> str:
    """Returns the directory name of a deleted or stray log, shortened to the longest allowed file name."""
    suffix = f"-{tp.partition}.{unique_id.hex}{directory_suffix}"
    return tp.topic[: _LONGEST_NAME - len(suffix)] + suffix


class LogDirectory:
    """A directory of logs with its lock and checkpoints. `failure` is the reason why it is offline, or None."""

    def __init__(self, path: Path, files: FileSystem):
        self.path = path.absolute()
        self.files = files
        self.failure: str | None = None
        self.meta: MetaProperties | None = None
        self.was_clean = False
        self.broker_epoch = NO_BROKER_EPOCH
        """The epoch of the broker that shut down cleanly. To Kafka's controllers, any other epoch means unclean."""
        self.recovery_point_checkpoint = OffsetCheckpoint(self.path / RECOVERY_POINT_CHECKPOINT, files)
        self.log_start_checkpoint = OffsetCheckpoint(self.path / LOG_START_CHECKPOINT, files)
        self.cleaner_checkpoint = OffsetCheckpoint(self.path / CLEANER_CHECKPOINT, files)
        self.high_watermark_checkpoint = OffsetCheckpoint(self.path / HIGH_WATERMARK_CHECKPOINT, files)
        self.partitions = 0
        """The number of logs that the log manager has in this directory."""
        self._lock_fd: int | None = None

    def __str__(self) -> str:
        return str(self.path)

    @property
    def online(self) -> bool:
        return self.failure is None

    @property
    def _checkpoints(self) -> tuple[OffsetCheckpoint, ...]:
        return (
            self.recovery_point_checkpoint,
            self.log_start_checkpoint,
            self.cleaner_checkpoint,
            self.high_watermark_checkpoint,
        )

    @property
    def high_watermarks(self) -> Mapping[TopicPartition, int]:
        """The high watermarks in the checkpoint file."""
        return self.high_watermark_checkpoint.offsets

    # ---- opening

    def open(self, cluster_id: str, node_id: int, new_id: Uuid | None) -> None:
        """Locks the directory and reads its checkpoints. Assigns a new directory to this node, with `new_id` if
        directories have ids.

        Raises KafkaStorageError if that is not possible. The directory of another node or cluster stays untouched.
        """
        try:
            self.files.make_directory(self.path)
            self.meta = MetaProperties.read(self.path, self.files)
            if self.meta is not None:
                self.meta.check_owner(self.path, cluster_id, node_id)
            self._lock()
            self.was_clean = self.files.exists(self.path / CLEAN_SHUTDOWN_FILE)
            for checkpoint in self._checkpoints:
                self._read_checkpoint(checkpoint)
            if self.was_clean:
                self.broker_epoch = self._read_broker_epoch()
                # Removed before anything is written: from now on, a crash requires recovery.
                self.files.remove(self.path / CLEAN_SHUTDOWN_FILE)
                self.files.sync_directory(self.path)
            if self.meta is None:
                self.meta = MetaProperties(cluster_id, node_id, new_id, version=0 if new_id is None else 1)
                self.meta.write(self.path, self.files)
        except OSError as error:
            raise storage_error("open log directory", self.path, error) from error

    def _lock(self) -> None:
        resolved = self.path.resolve()
        if resolved in _owned:
            raise KafkaStorageError(f"Log directory {self.path} is already in use by this process")
        fd = os.open(self.path / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise KafkaStorageError(
                f"Log directory {self.path} is in use by another process: failed to acquire lock on its {LOCK_FILE} "
                "file. Stop the other process or configure another directory in log.dirs"
            ) from None
        self._lock_fd = fd
        _owned.add(resolved)

    def unlock(self) -> None:
        for checkpoint in self._checkpoints:
            checkpoint.close()
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None
            _owned.discard(self.path.resolve())

    def _read_checkpoint(self, checkpoint: OffsetCheckpoint) -> None:
        """Reads a checkpoint. Damage costs time, not data: recovery scans the log, compaction starts over."""
        try:
            checkpoint.read()
        except KafkaStorageError as error:
            _logger.warning(
                "Log directory %s: ignoring a damaged checkpoint; recovery may take longer: %s", self.path, error
            )

    def _read_broker_epoch(self) -> int:
        try:
            broker_epoch = json.loads(self.files.read(self.path / CLEAN_SHUTDOWN_FILE))["brokerEpoch"]
        except (ValueError, KeyError, TypeError):
            return NO_BROKER_EPOCH  # older versions of Kafka leave the file empty
        return broker_epoch if isinstance(broker_epoch, int) else NO_BROKER_EPOCH

    def list(self) -> tuple[list[StoredLog], list[Path]]:
        """Returns the logs and future logs, and the directories of deleted logs that still exist."""
        stored: list[StoredLog] = []
        leftovers: list[Path] = []
        for name, info in sorted(self.files.list(self.path).items()):
            if not info.is_directory:
                continue
            if name.endswith(DELETE_DIRECTORY_SUFFIX):
                leftovers.append(self.path / name)
                continue
            future_tp = parse_future_name(name)
            tp = future_tp or parse_directory_name(name)
            if tp is None:
                _logger.warning("Log directory %s: ignoring %s, which is not a partition directory", self.path, name)
            elif tp.topic != _METADATA_TOPIC:
                stored.append(StoredLog(tp, self.path / name, future_tp is not None))
        return stored, leftovers

    # ---- checkpoints

    def is_checkpointed(self, tp: TopicPartition) -> bool:
        """Returns True if any checkpoint contains the partition."""
        checkpoints = (self.recovery_point_checkpoint, self.log_start_checkpoint, self.cleaner_checkpoint)
        return any(tp in checkpoint.offsets for checkpoint in checkpoints)

    def write_high_watermarks(self, offsets: dict[TopicPartition, int]) -> None:
        self.high_watermark_checkpoint.write(offsets)

    def write_clean_shutdown(self) -> None:
        marker = json.dumps({"version": 0, "brokerEpoch": self.broker_epoch}, separators=(",", ":"))
        self.files.write_atomically(self.path / CLEAN_SHUTDOWN_FILE, marker.encode())
