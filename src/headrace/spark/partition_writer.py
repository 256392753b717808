"""Writes the rows that one source partition gives in a batch: in a transaction with a marker, exactly once.

Runs in tasks. The transactional id belongs to the source partition, so the order of its batches holds:

    headrace-spark-<query>/<flow>/<topic>-<partition>

A worker process keeps a few producers, each with the last transactional id that it acquired. The process that wrote the
previous batch of a partition still owns the id: nobody else can have written this batch, so it begins at once. Every
other process first acquires the id, which fences the previous owner, and reads the marker (see `markers`).

Invariants:
- A transaction commits only if the marker is older than the batch, or missing.
- After any error the producer is closed, which aborts its transaction, and is never used again.
- A process that wrongly believes to own an id is fenced. `WriterFencedError` then asks for a second attempt.
"""

from dataclasses import dataclass
from types import TracebackType
from typing import Self

import pyarrow as pa

from headrace.client.producer.producer import Producer
from headrace.common.errors import KafkaError
from headrace.common.types import TopicPartition
from headrace.spark import clients, markers
from headrace.spark.columns import by_topic, normalize
from headrace.spark.digest import RowDigest
from headrace.spark.markers import Marker
from headrace.spark.schema import repeat
from headrace.spark.sink_options import SinkOptions
from headrace.spark.writing import acquire_transactional_id, sink_admin

__all__ = ["PartitionWriter", "WriterFencedError"]

_MAX_PRODUCERS = 8
"""The maximum number of producers per process and configuration."""
_CLOSE_SECONDS = 5.0
"""The time limit for a failed task to abort. Brokers abort open transactions themselves after their timeout."""


class WriterFencedError(Exception):
    """The process did not own the transactional id any more. Nothing of the batch was written by this attempt."""


@dataclass
class _OwnedProducer:
    producer: Producer
    batch_id: int | None = None
    """The last batch that this producer completed under its transactional id, or None if it completed none."""


class _ProducerPool:
    """The producers of this process, by transactional id; the least recently used first."""

    def __init__(self, config: dict[str, str]) -> None:
        self._config = config
        self._producers: dict[str, _OwnedProducer] = {}

    def take(self, name: str) -> _OwnedProducer:
        """Removes and returns the producer that had this id last, or else a producer for any id."""
        owned = self._producers.pop(name, None)
        if owned is None and len(self._producers) >= _MAX_PRODUCERS:
            owned = self._producers.pop(next(iter(self._producers)))
            owned.batch_id = None
        return owned or _OwnedProducer(Producer({**self._config, "transactional.id": name}))

    def put_back(self, name: str, owned: _OwnedProducer) -> None:
        self._producers[name] = owned

    def close(self) -> None:
        producers, self._producers = list(self._producers.values()), {}
        for owned in producers:
            owned.producer.close(timeout_ms=_CLOSE_SECONDS * 1000)


class PartitionWriter:
    """The transaction of one source partition and batch. Use it as a context manager; `commit` ends it."""

    def __init__(self, options: SinkOptions, query: str, flow: str, tp: TopicPartition, batch_id: int) -> None:
        self.name = f"{markers.names_prefix(query, flow)}{tp.topic}-{tp.partition}"
        self.rows_by_topic: dict[str, int] = {}
        self._options = options
        self._batch_id = batch_id
        self._digest = RowDigest()
        self._marker: Marker | None = None
        self._marker_topic: str | None = None
        self._is_complete = False
        config = dict(options.producer_config)
        self._pool = clients.cached(clients.config_key("partition-writers", config), lambda: _ProducerPool(config))
        self._owned = self._pool.take(self.name)
        self._is_owner = self._owned.batch_id == batch_id - 1

    def __enter__(self) -> Self:
        try:
            if not self._is_owner:
                acquire_transactional_id(self._owned.producer, self.name)
                self._marker = markers.read(sink_admin(self._options), self.name, is_owner=True)
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_complete:
            self._owned.batch_id = self._batch_id
            self._pool.put_back(self.name, self._owned)
            return
        self._close()
        if self._is_owner and isinstance(error, KafkaError):
            raise WriterFencedError(f"{self.name}: {error}") from error

    def _close(self) -> None:
        self._owned.producer.close(timeout_ms=_CLOSE_SECONDS * 1000)

    @property
    def is_replay(self) -> bool:
        """True if an earlier attempt has written the rows. They are then compared, and not written again."""
        return self._marker is not None and self._marker.batch_id >= self._batch_id

    def send(self, rows: pa.RecordBatch, topic: str | None) -> None:
        """Sends rows to a topic, or to the topic in the column `topic` of each row."""
        if not rows.num_rows:
            return
        rows = normalize(rows, topic is None)
        for name, share in by_topic(rows, topic):
            self._digest.update(_with_topic(name, share))
            self.rows_by_topic[name] = self.rows_by_topic.get(name, 0) + share.num_rows
            if self.is_replay:
                continue
            if self._marker_topic is None:
                self._owned.producer.begin_transaction()
                self._marker_topic = name
            self._owned.producer.send_arrow(name, share)

    def commit(self) -> None:
        """Commits the rows with the marker, or checks that an earlier attempt wrote the same rows."""
        rows, digest = self._digest.rows, str(self._digest)
        if self._marker is not None:
            markers.check_replay(self._marker, self._batch_id, rows, digest, self.name)
        if self._marker_topic is not None:
            offset = Marker(self._batch_id, rows, digest).as_offset()
            producer = self._owned.producer
            producer.send_offsets_to_transaction({TopicPartition(self._marker_topic, 0): offset}, self.name)
            producer.commit_transaction()
        self._is_complete = True


def _with_topic(topic: str, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Returns the rows with their topic, so that the digest covers it."""
    return rows.append_column("topic", repeat(topic, pa.string(), rows.num_rows))
