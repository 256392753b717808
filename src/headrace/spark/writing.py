"""Writes a task's rows: in a transaction with a marker (exactly once), or without one (at least once).

Runs in tasks. The producer and its connections are cached for later tasks of the process. Each task acquires the
transactional id of its part of the query from the process that had it before.

    first rows ─▶ acquire the transactional id (fences, aborts) ─▶ read the marker ─┬─▶ later batch: raise
                                                                                    ├─▶ this batch: compare, skip
                                                                                    └─▶ older or none
                                                      ─▶ begin ─▶ rows, marker ─▶ input complete? ─▶ commit

Invariants:
- A task commits a transaction only after a complete input (`worker_input`).
- A task commits a transaction only if the marker that it read after acquiring the id is older, or missing.
- After any error the producer is closed, which aborts the transaction, and is never used again.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from headrace.client.admin.admin import Admin
from headrace.client.errors import KafkaTimeoutError
from headrace.client.producer.producer import Producer
from headrace.client.types import OffsetAndMetadata
from headrace.common.errors import ConfigError, InvalidTransactionTimeoutError
from headrace.common.types import TopicPartition
from headrace.spark import clients, markers
from headrace.spark.columns import by_topic, normalize
from headrace.spark.digest import RowDigest
from headrace.spark.markers import Marker
from headrace.spark.sink_options import SinkOptions

__all__ = [
    "TaskPart",
    "WriteResult",
    "acquire_transactional_id",
    "sink_admin",
    "write_at_least_once",
    "write_exactly_once",
]

_CLOSE_SECONDS = 5.0
"""The time limit for a failed task to abort. Brokers abort open transactions themselves after their timeout."""

Rows = Iterator[pa.RecordBatch]


@dataclass(frozen=True)
class TaskPart:
    """The part of a batch that a task writes."""

    query: str
    sink: str
    batch_id: int
    partition: int

    @property
    def name(self) -> str:
        return markers.task_name(self.query, self.sink, self.partition)


@dataclass(frozen=True)
class WriteResult:
    """The rows of a task that are written."""

    rows: int
    skipped: bool = False
    """True if an earlier attempt has written the rows."""


class _ClosableProducer:
    """A producer with a short timeout for its close."""

    def __init__(self, config: dict[str, str]):
        self.producer = Producer(config)

    def close(self) -> None:
        self.producer.close(timeout_ms=_CLOSE_SECONDS * 1000)


class _CachedProducer(AbstractContextManager["_CachedProducer"]):
    """The cached producer for some configs. It is closed if the block raises."""

    def __init__(self, config: dict[str, str], transactional_id: str | None = None):
        self._key = clients.config_key("sink", config, transactional_id is not None)
        if transactional_id is not None:
            config = {**config, "transactional.id": transactional_id}
        self.producer = clients.cached(self._key, lambda: _ClosableProducer(config)).producer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            clients.discard(self._key)


def write_exactly_once(options: SinkOptions, part: TaskPart, rows: Rows, check_end: Callable[[], None]) -> WriteResult:
    """Writes rows in a transaction, unless an earlier attempt has written them. `check_end` raises if rows are
    missing."""
    digest = RowDigest()
    batches = (normalize(batch, options.topic is None) for batch in rows if batch.num_rows)
    first = next(batches, None)
    if first is None:
        check_end()
        marker = markers.read(sink_admin(options), part.name, is_owner=False)
        if marker is not None:
            markers.check_replay(marker, part.batch_id, 0, str(digest), part.name)
        return WriteResult(0)
    with _CachedProducer(dict(options.producer_config), part.name) as borrowed:
        producer = borrowed.producer
        acquire_transactional_id(producer, part.name)
        marker = markers.read(sink_admin(options), part.name, is_owner=True)
        if marker is not None and marker.batch_id >= part.batch_id:
            for batch in _chain(first, batches):
                digest.update(batch)
            check_end()
            markers.check_replay(marker, part.batch_id, digest.rows, str(digest), part.name)
            return WriteResult(digest.rows, skipped=True)
        producer.begin_transaction()
        marker_topic: str | None = None
        for batch in _chain(first, batches):
            digest.update(batch)
            for topic, share in by_topic(batch, options.topic):
                marker_topic = marker_topic or topic
                producer.send_arrow(topic, share)
        check_end()
        assert marker_topic is not None
        offset: OffsetAndMetadata = Marker(part.batch_id, digest.rows, str(digest)).as_offset()
        producer.send_offsets_to_transaction({TopicPartition(marker_topic, 0): offset}, part.name)
        producer.commit_transaction()
    return WriteResult(digest.rows)


def acquire_transactional_id(producer: Producer, name: str) -> None:
    """Fences the previous owner of the transactional id and completes its transaction."""
    try:
        producer.init_transactions(name)
    except InvalidTransactionTimeoutError as error:
        raise ConfigError(
            f"{error}: set the option kafka.transaction.timeout.ms to at most the brokers' transaction.max.timeout.ms"
        ) from error
    except KafkaTimeoutError as error:
        raise KafkaTimeoutError(
            f"{error}. Exactly-once delivery needs brokers with transactions; set the option deliveryGuarantee "
            "to 'at-least-once' to write without them"
        ) from error


def write_at_least_once(options: SinkOptions, rows: Rows) -> WriteResult:
    """Writes rows without a transaction."""
    count = 0
    with _CachedProducer(dict(options.producer_config)) as borrowed:
        futures: list[Any] = []
        for batch in rows:
            if not batch.num_rows:
                continue
            count += batch.num_rows
            for topic, share in by_topic(normalize(batch, options.topic is None), options.topic):
                futures.append(borrowed.producer.send_arrow(topic, share))
            futures = [future for future in futures if not future.succeeded()]
            for future in futures:
                if future.failed():
                    future.get(timeout_ms=0)
        for future in futures:
            future.get()
    return WriteResult(count)


def sink_admin(options: SinkOptions) -> Admin:
    """Returns the cached admin client, which reads markers."""
    config = dict(options.admin_config)
    return clients.cached(clients.config_key("admin", config), lambda: Admin(config))


def _chain(first: pa.RecordBatch, following: Rows) -> Rows:
    yield first
    yield from following
