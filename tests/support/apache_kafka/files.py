"""Log directories that only Apache Kafka has written, and its own lookups of offsets in them."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec  # type: ignore[attr-defined]
from tests.support.apache_kafka.broker import KafkaBroker, SampleData, sample_topic_configs, write_sample_data

Partition = tuple[str, int]

BROKER_PROPERTIES = {
    # Index files have this size until the broker stops; Kafka's 10 MiB would take long to copy.
    "log.index.size.max.bytes": 64 * 1024,
    "log.initial.task.delay.ms": 100,
    "log.flush.start.offset.checkpoint.interval.ms": 500,
    # Not before the broker stops, even on a slow machine: the recovery after a kill must not depend on it.
    "log.flush.offset.checkpoint.interval.ms": 3_600_000,
}

_COMPACTED = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "4096",
    "index.interval.bytes": "300",
    "min.cleanable.dirty.ratio": "0.01",
}
HEADRACE_TOPICS: dict[str, dict[str, str]] = {
    "headrace-plain": {"internal.segment.bytes": "65536", "index.interval.bytes": "1024"},
    "headrace-txn": {"internal.segment.bytes": "2048", "index.interval.bytes": "300"},
    "headrace-appendtime": {"message.timestamp.type": "LogAppendTime"},
    **{
        f"{cleaning}-by-{who}": {**_COMPACTED, "delete.retention.ms": retention_ms}
        for cleaning, retention_ms in (("first", "86400000"), ("second", "86400000"), ("second-deletes", "0"))
        for who in ("headrace", "kafka")
    },
}
"""Topics that Kafka creates and leaves empty, for Headrace to write to."""


def topic_configs() -> dict[str, dict[str, str]]:
    """The configs of all topics except internal ones."""
    return {**sample_topic_configs(), **HEADRACE_TOPICS}


@dataclass(frozen=True)
class FoundOffset:
    """The result of Kafka's offset lookup; (-1, -1) if there is none."""

    timestamp: int
    offset: int


@dataclass(frozen=True)
class KafkaFiles:
    """Directories that only Kafka has written, with the sample data in them.

    *killed* is the directory after kill -9. *clean* is the same directory after Kafka has recovered it and shut down
    cleanly.
    """

    clean: Path
    killed: Path
    sample: SampleData
    by_timestamp: dict[Partition, dict[int, FoundOffset]]
    newest: dict[Partition, FoundOffset]


def write_kafka_files(root: Path) -> KafkaFiles:
    """Runs a broker twice on one directory: writes and kills it, then lets it recover and stops it."""
    broker = KafkaBroker(root / "clean", BROKER_PROPERTIES)
    broker.start()
    try:
        sample = write_sample_data(broker.bootstrap)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        topics = [NewTopic(name, 1, 1, config=config) for name, config in HEADRACE_TOPICS.items()]
        for future in admin.create_topics(topics).values():
            future.result(60)
        # Kafka responds when the controller knows the topics; the broker creates their logs shortly after.
        wait_for(lambda: all(_has_log(broker.data_dir / f"{name}-0") for name in HEADRACE_TOPICS), "the logs to exist")
        by_timestamp = {
            partition: {at: ask_kafka(admin, partition, at) for at in _timestamps_to_ask(sample, partition)}
            for partition in sample.records
        }
        newest = {partition: ask_kafka(admin, partition, None) for partition in sample.records}
        starts = broker.data_dir / "log-start-offset-checkpoint"
        wait_for(lambda: "trimmed 0 " in starts.read_text(), "the start of the trimmed log to be written down")
        broker.kill()
        shutil.copytree(broker.data_dir, root / "killed")
        broker.start()
    except BaseException:
        broker.kill()
        raise
    broker.stop()
    return KafkaFiles(broker.data_dir, root / "killed", sample, by_timestamp, newest)


def _has_log(directory: Path) -> bool:
    """Returns True if Kafka has created all files of an empty log."""
    first = f"{0:020d}"
    names = [f"{first}.log", f"{first}.index", f"{first}.timeindex", "leader-epoch-checkpoint", "partition.metadata"]
    return all((directory / name).exists() for name in names)


def _timestamps_to_ask(sample: SampleData, partition: Partition) -> list[int]:
    """Returns timestamps of some records, and those around them."""
    found = sorted({record.timestamp for record in sample.records[partition]})
    some = found[:: max(1, len(found) // 12)]
    return sorted({0, *(timestamp + step for timestamp in (*some, found[-1]) for step in (-1, 0, 1))})


def ask_kafka(admin: AdminClient, partition: Partition, timestamp: int | None) -> FoundOffset:
    """Returns the first record at or after a timestamp; without a timestamp, the one with the maximum timestamp."""
    spec = OffsetSpec.max_timestamp() if timestamp is None else OffsetSpec.for_timestamp(timestamp)
    [future] = admin.list_offsets({TopicPartition(*partition): spec}).values()
    answer = future.result(60)
    return FoundOffset(answer.timestamp, answer.offset)


def wait_for(condition: Callable[[], bool], what: str, timeout: float = 60.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout:.0f} s for {what}")
        time.sleep(0.02)
