"""How a task writes its rows: in a transaction with a marker (exactly once), or just so (at least once).

Runs in tasks. The producer, with its connections, is kept for the process's next tasks; each takes the transactional id
of its part of the query, whichever process had it before.

    first rows ─▶ get the transactional id (fences, aborts) ─▶ read the marker ─┬─▶ of a later batch: refuse
                                                                                ├─▶ of this one: count, compare, skip
                                                                                └─▶ older, or none
                                                      ─▶ begin ─▶ rows, marker ─▶ was that all? ─▶ commit

Invariants: a transaction is committed only if Spark's input came to its end (`worker_input`), and only by who has read
an older marker after getting the id. After any error the producer is closed, which aborts, and never used again.
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

__all__ = ["TaskPart", "Written", "sink_admin", "write_at_least_once", "write_exactly_once"]

_CLOSE_SECONDS = 5.0
"""How long a task that has failed may take to abort; brokers end by themselves what is left open."""

Rows = Iterator[pa.RecordBatch]


@dataclass(frozen=True)
class TaskPart:
    """Which part of which batch a task writes."""

    query: str
    sink: str
    batch_id: int
    partition: int

    @property
    def name(self) -> str:
        return markers.task_name(self.query, self.sink, self.partition)


@dataclass(frozen=True)
class Written:
    rows: int
    skipped: bool = False
    """Whether an earlier attempt had written them."""


class _Sender:
    """A producer that is closed quickly."""

    def __init__(self, settings: dict[str, str]):
        self.producer = Producer(settings)

    def close(self) -> None:
        self.producer.close(_CLOSE_SECONDS)


class _Borrowed(AbstractContextManager["_Borrowed"]):
    """The process's producer of some settings. Who leaves with an error closes it."""

    def __init__(self, settings: dict[str, str], transactional_id: str | None = None):
        self._key = clients.settings_key("sink", settings, transactional_id is not None)
        if transactional_id is not None:
            settings = {**settings, "transactional.id": transactional_id}
        self.producer = clients.cached(self._key, lambda: _Sender(settings)).producer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            clients.discard(self._key)


def write_exactly_once(options: SinkOptions, part: TaskPart, rows: Rows, check_end: Callable[[], None]) -> Written:
    """`check_end` raises if the rows were not all of them."""
    digest = RowDigest()
    batches = (normalize(batch, options.topic is None) for batch in rows if batch.num_rows)
    first = next(batches, None)
    if first is None:
        check_end()
        marker = markers.read(sink_admin(options), part.name, is_owner=False)
        if marker is not None:
            markers.check_replay(marker, part.batch_id, 0, str(digest), part.name)
        return Written(0)
    with _Borrowed(dict(options.settings), part.name) as borrowed:
        producer = borrowed.producer
        _get_id(producer, part.name)
        marker = markers.read(sink_admin(options), part.name, is_owner=True)
        if marker is not None and marker.batch_id >= part.batch_id:
            for batch in _chain(first, batches):
                digest.update(batch)
            check_end()
            markers.check_replay(marker, part.batch_id, digest.rows, str(digest), part.name)
            return Written(digest.rows, skipped=True)
        producer.begin_transaction()
        home: str | None = None
        for batch in _chain(first, batches):
            digest.update(batch)
            for topic, share in by_topic(batch, options.topic):
                home = home or topic
                producer.send_arrow(topic, share)
        check_end()
        assert home is not None
        offset: OffsetAndMetadata = Marker(part.batch_id, digest.rows, str(digest)).as_offset()
        producer.send_offsets_to_transaction({TopicPartition(home, 0): offset}, part.name)
        producer.commit_transaction()
    return Written(digest.rows)


def _get_id(producer: Producer, name: str) -> None:
    try:
        producer.init_transactions(name)
    except InvalidTransactionTimeoutError as error:
        raise ConfigError(
            f"{error}: expected the option kafka.transaction.timeout.ms to be at most the brokers' "
            "transaction.max.timeout.ms"
        ) from error
    except KafkaTimeoutError as error:
        raise KafkaTimeoutError(
            f"{error}. Exactly once needs brokers that offer transactions; the option deliveryGuarantee "
            "'at-least-once' does without"
        ) from error


def write_at_least_once(options: SinkOptions, rows: Rows) -> Written:
    count = 0
    with _Borrowed(dict(options.settings)) as borrowed:
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
                    future.get(0)
        for future in futures:
            future.get()
    return Written(count)


def sink_admin(options: SinkOptions) -> Admin:
    """The process's admin client, for markers."""
    settings = dict(options.admin_settings)
    return clients.cached(clients.settings_key("admin", settings), lambda: Admin(settings))


def _chain(first: pa.RecordBatch, others: Rows) -> Rows:
    yield first
    yield from others
