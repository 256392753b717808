"""From the stream of events to the topics: a block of events becomes a table for each topic, and goes out as a whole.

With a rate, blocks are a twentieth of a second long, and the next waits for its time; who falls behind catches up.
Without one, blocks go out as fast as the producer takes them. Events of one key keep their order: they are in one
topic, and go to one partition.

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
from headrace.shop.datagen.stream import Block, EventStream, Made, StreamSettings
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
    """Makes the topics that there are not yet, and waits for their leaders. `client` has more settings of the admin
    client."""
    with Admin({**(client or {}), "bootstrap.servers": bootstrap_servers}) as admin:
        wanted = [NewTopic(name, num_partitions=partitions) for name in topics.values()]
        for created in admin.create_topics(wanted, raise_errors=False).values():
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
    report: Callable[[Made, int], object] = lambda _made, _bytes: None,
    stopped: Callable[[], bool] = lambda: False,
    clock: Clock | None = None,
) -> Made:
    """Makes events and sends them, `rate` a second, until all are made or `stopped` says so; returns when they are
    acknowledged. `report` is called at the start and after each block, with what was made and its bytes.

    The time of the first event is `start_ms`. By default events that span a time end now, others begin now.
    """
    clock = clock or SystemClock()
    if start_ms is None:
        start_ms = clock.time_ms() - (settings.span_ms or 0)
    stream = EventStream(settings, start_ms)
    size = _BLOCK if rate is None else max(1, min(_BLOCK, round(rate / _BLOCKS_PER_SECOND)))
    sent_bytes = 0
    with Producer({"linger.ms": 5, **(producer_settings or {})}, bootstrap_servers=bootstrap_servers) as producer:
        waiting: deque[ArrowFuture] = deque()
        began = clock.monotonic()
        report(stream.made, 0)
        for block in stream.blocks(size):
            for topic, table in tables(block).items():
                waiting.append(producer.send_arrow(topics[topic], table))
                sent_bytes += table.nbytes
            while waiting and waiting[0].is_done:
                waiting.popleft().get()  # raises what went wrong
            report(stream.made, sent_bytes)
            if stopped():
                break
            if rate is not None:
                ahead = began + stream.made.events / rate - clock.monotonic()
                if ahead > 0:
                    clock.sleep(ahead)
        producer.flush()
        for future in waiting:
            future.get()
    return stream.made


def tables(block: Block) -> dict[int, pa.RecordBatch]:
    """Keys and values of each topic that has any."""
    return {
        topic: pa.record_batch([pa.array(block.keys[topic], pa.binary()), values], schema=_SCHEMA)
        for topic in TOPICS
        if len(values := pa.array(block.values[topic], pa.binary()))
    }
