"""Sends the stream of events to the topics: a block of events becomes an Arrow table per topic.

With a rate, a block covers a twentieth of a second, and the next block waits for its time. A generator that falls
behind catches up. Without a rate, blocks are sent as fast as the producer accepts them. Events of a key keep their
order, because they go to one partition.

Belongs to the thread that calls it.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from headrace.admin import Admin, NewTopic
from headrace.client.producer.arrow import ArrowFuture
from headrace.client.producer.producer import Producer
from headrace.common.clock import Clock, SystemClock
from headrace.common.extras import requires_extra
from headrace.errors import TopicAlreadyExistsError
from headrace.pipelines.columns import binary_column
from headrace.shop.datagen.stream import Block, EventStream, GeneratedEvents, StreamSettings
from headrace.shop.datagen.visits import DB, LOG
from headrace.shop.schemas import ODS_DB, ODS_LOG

with requires_extra("arrow"):
    import pyarrow as pa


TOPICS = {LOG: ODS_LOG, DB: ODS_DB}

_BLOCK = 4000
_BLOCKS_PER_SECOND = 20
_SCHEMA = pa.schema([("key", pa.binary()), ("value", pa.binary())])


def create_topics(
    bootstrap_servers: str,
    partitions: int,
    topics: Mapping[int, str] = TOPICS,
    client: Mapping[str, Any] | None = None,
) -> None:
    """Creates missing topics and waits for their leaders. `client` are additional configs of the admin client."""
    with Admin({**(client or {}), "bootstrap.servers": bootstrap_servers}) as admin:
        new_topics = [NewTopic(name, num_partitions=partitions) for name in topics.values()]
        for created in admin.create_topics(new_topics, raise_errors=False).values():
            if created.error is not None and not isinstance(created.error, TopicAlreadyExistsError):
                raise created.error
        admin.wait_for_topics(list(topics.values()))


def generate(
    bootstrap_servers: str,
    settings: StreamSettings,
    *,
    rate: float | None = None,
    start_ms: int | None = None,
    topics: Mapping[int, str] = TOPICS,
    producer_settings: Mapping[str, Any] | None = None,
    report: Callable[[GeneratedEvents, int], object] = lambda _generated, _bytes: None,
    stopped: Callable[[], bool] = lambda: False,
    clock: Clock | None = None,
) -> GeneratedEvents:
    """Generates and sends events, `rate` per second, until all are generated or `stopped` returns True. Returns when
    all are acknowledged. Calls `report` at the start and after each block, with the events generated so far and their
    bytes.

    The first event has the time `start_ms`. By default, events with a time span end now, others begin now.
    """
    clock = clock or SystemClock()
    if start_ms is None:
        start_ms = clock.time_ms() - (settings.span_ms or 0)
    stream = EventStream(settings, start_ms)
    size = _BLOCK if rate is None else max(1, min(_BLOCK, round(rate / _BLOCKS_PER_SECOND)))
    sent_bytes = 0
    with Producer({"linger.ms": 5, **(producer_settings or {})}, bootstrap_servers=bootstrap_servers) as producer:
        pending: deque[ArrowFuture] = deque()
        began = clock.monotonic()
        report(stream.generated, 0)
        for block in stream.blocks(size):
            for topic, table in tables(block).items():
                pending.append(producer.send_arrow(topics[topic], table))
                sent_bytes += table.nbytes
            while pending and pending[0].is_done:
                pending.popleft().get()  # raises if the send failed
            report(stream.generated, sent_bytes)
            if stopped():
                break
            if rate is not None:
                wait_seconds = began + stream.generated.events / rate - clock.monotonic()
                if wait_seconds > 0:
                    clock.sleep(wait_seconds)
        producer.flush()
        for future in pending:
            future.get()
    return stream.generated


def tables(block: Block) -> dict[int, pa.RecordBatch]:
    """Returns the keys and values of each topic that has events in the block."""
    found = {}
    for topic in TOPICS:
        columns = [binary_column(block.keys[topic]), binary_column(block.values[topic])]
        if len(columns[0]):
            found[topic] = pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)
    return found
