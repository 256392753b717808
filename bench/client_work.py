"""Runs one task with one client, in its own process, so that clients share neither memory nor the GIL.

    python -m bench.client_work CLIENT WORK BOOTSTRAP TOPIC COUNT SIZE [RATE]

Prints a line of JSON: seconds, CPU seconds of the process, its peak memory in MB, and for the task `latency` the
latencies. Each client has its default configuration, except that consumers start at the beginning of the topic, and
that all producers have the same `linger.ms` in the task `latency`. The warm-up records, which open connections and
fetch metadata and a producer id, are not timed.
"""

import asyncio
import gc
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

WARM_RECORDS = 100
LATENCY_WARM_SECONDS = 1.0


class Clocked:
    """The time, CPU time and latencies of a task."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.cpu_seconds = 0.0
        self.latencies: list[float] = []

    @contextmanager
    def timing(self) -> Iterator[None]:
        gc.collect()
        started, cpu = time.perf_counter(), time.process_time()
        yield
        self.seconds = time.perf_counter() - started
        self.cpu_seconds = time.process_time() - cpu


Work = Callable[[Clocked, str, str, int, int], None]
WORKS: dict[tuple[str, str], Work] = {}


def work(client: str, name: str) -> Callable[[Work], Work]:
    def register(function: Work) -> Work:
        WORKS[client, name] = function
        return function

    return register


def values(count: int, size: int) -> list[bytes]:
    """Returns up to a thousand distinct values, which the task sends repeatedly."""
    return [(b"%09d" % number).ljust(size, b"v") for number in range(min(count, 1000))]


# ---- producing row by row


@work("headrace", "produce")
def _(clocked: Clocked, bootstrap: str, topic: str, count: int, size: int) -> None:
    import headrace

    with headrace.Producer(bootstrap_servers=bootstrap) as producer:
        rows = values(count, size)
        for row in rows[:WARM_RECORDS]:
            producer.send(topic, row)
        producer.flush()
        with clocked.timing():
            send = producer.send
            for _ in range(count // len(rows)):
                for row in rows:
                    send(topic, row)
            producer.flush()


@work("confluent-kafka", "produce")
def _(clocked: Clocked, bootstrap: str, topic: str, count: int, size: int) -> None:
    import confluent_kafka

    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    rows = values(count, size)
    for row in rows[:WARM_RECORDS]:
        producer.produce(topic, row)
    producer.flush()
    with clocked.timing():
        produce = producer.produce
        for _ in range(count // len(rows)):
            for row in rows:
                while True:
                    try:
                        produce(topic, row)
                        break
                    except BufferError:  # the queue is full: polling is the usual way to wait
                        producer.poll(0.01)
            producer.poll(0)
        producer.flush()


@work("kafka-python", "produce")
def _(clocked: Clocked, bootstrap: str, topic: str, count: int, size: int) -> None:
    import kafka

    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap)
    rows = values(count, size)
    for row in rows[:WARM_RECORDS]:
        producer.send(topic, row)
    producer.flush()
    with clocked.timing():
        for _ in range(count // len(rows)):
            for row in rows:
                producer.send(topic, row)
        producer.flush()
    producer.close()


@work("aiokafka", "produce")
def _(clocked: Clocked, bootstrap: str, topic: str, count: int, size: int) -> None:
    import aiokafka

    async def go() -> None:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap)
        await producer.start()
        rows = values(count, size)
        for row in rows[:WARM_RECORDS]:
            await producer.send(topic, row)
        await producer.flush()
        with clocked.timing():
            for _ in range(count // len(rows)):
                for row in rows:
                    await producer.send(topic, row)
            await producer.flush()
        await producer.stop()

    asyncio.run(go())


@work("headrace.aio", "produce")
def _(clocked: Clocked, bootstrap: str, topic: str, count: int, size: int) -> None:
    import headrace.aio

    async def go() -> None:
        async with headrace.aio.Producer(bootstrap_servers=bootstrap) as producer:
            rows = values(count, size)
            for row in rows[:WARM_RECORDS]:
                await producer.send(topic, row)
            await producer.flush()
            with clocked.timing():
                for _ in range(count // len(rows)):
                    for row in rows:
                        await producer.send(topic, row)
                await producer.flush()

    asyncio.run(go())


@work("headrace", "send_arrow")
def _(clocked: Clocked, bootstrap: str, topic: str, count: int, size: int) -> None:
    import pyarrow as pa

    import headrace

    table = pa.table({"value": pa.array(values(count, size) * max(1, count // 1000), pa.binary())})
    with headrace.Producer(bootstrap_servers=bootstrap) as producer:
        producer.send_arrow(topic, table.slice(0, WARM_RECORDS)).get(timeout_ms=60_000)
        with clocked.timing():
            producer.send_arrow(topic, table).get(timeout_ms=300_000)


# ---- consuming: every client sums up the lengths of all values


def _check_total(total: int, got: int, size: int) -> None:
    if total != got * size:
        raise RuntimeError(f"{got} values have {total} bytes in total: expected {got * size}")


@work("headrace", "consume")
def _(clocked: Clocked, bootstrap: str, topic: str, count: int, size: int) -> None:
    import headrace

    with headrace.Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([headrace.TopicPartition(topic, p) for p in sorted(consumer.partitions_for_topic(topic))])
        got, total = 0, 0
        with clocked.timing():
            while got < count:
                for records in consumer.poll(timeout_ms=1000, max_records=10_000).values():
                    got += len(records)
                    for record in records:
                        total += len(record.value)
        _check_total(total, got, size)


@work("confluent-kafka", "consume")
def _(clocked: Clocked, bootstrap: str, topic: str, count: int, size: int) -> None:
    _consume_with_confluent(clocked, bootstrap, topic, count, size, {})


@work("confluent-kafka tuned", "consume")
def _(clocked: Clocked, bootstrap: str, topic: str, count: int, size: int) -> None:
    """By default librdkafka stops fetching for a second whenever 100,000 messages are queued."""
    tuned = {"queued.min.messages": 1_000_000, "fetch.queue.backoff.ms": 1}
    _consume_with_confluent(clocked, bootstrap, topic, count, size, tuned)


def _consume_with_confluent(
    clocked: Clocked, bootstrap: str, topic: str, count: int, size: int, config: dict[str, Any]
) -> None:
    import confluent_kafka

    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False, **config}
    )
    partitions = consumer.list_topics(topic).topics[topic].partitions
    consumer.assign([confluent_kafka.TopicPartition(topic, p, confluent_kafka.OFFSET_BEGINNING) for p in partitions])
    got, total = 0, 0
    with clocked.timing():
        while got < count:
            for message in consumer.consume(10_000, 1.0):
                got += 1
                total += len(message.value())
    _check_total(total, got, size)
    consumer.close()


@work("kafka-python", "consume")
def _(clocked: Clocked, bootstrap: str, topic: str, count: int, size: int) -> None:
    import kafka

    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    consumer.assign([kafka.TopicPartition(topic, p) for p in sorted(consumer.partitions_for_topic(topic) or ())])
    got, total = 0, 0
    with clocked.timing():
        while got < count:
            for records in consumer.poll(timeout_ms=1000, max_records=10_000).values():
                got += len(records)
                for record in records:
                    total += len(record.value)
    _check_total(total, got, size)
    consumer.close()


@work("aiokafka", "consume")
def _(clocked: Clocked, bootstrap: str, topic: str, count: int, size: int) -> None:
    import aiokafka

    async def go() -> None:
        consumer = aiokafka.AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest")
        await consumer.start()
        got, total = 0, 0
        with clocked.timing():
            while got < count:
                for records in (await consumer.getmany(timeout_ms=1000, max_records=10_000)).values():
                    got += len(records)
                    for record in records:
                        total += len(record.value)
        _check_total(total, got, size)
        await consumer.stop()

    asyncio.run(go())


@work("headrace", "poll_arrow")
def _(clocked: Clocked, bootstrap: str, topic: str, count: int, size: int) -> None:
    import pyarrow.compute as pc

    import headrace

    with headrace.Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([headrace.TopicPartition(topic, p) for p in sorted(consumer.partitions_for_topic(topic))])
        got, total = 0, 0
        with clocked.timing():
            while got < count:
                table = consumer.poll_arrow(timeout_ms=1000)
                got += table.num_rows
                total += pc.sum(pc.binary_length(table["value"])).as_py() or 0
        _check_total(total, got, size)


# ---- latency: one producer and one consumer in a process, at a fixed rate


def _linger_ms() -> int:
    """Returns the `linger.ms` in the name of the task: the clients have different defaults."""
    return int(sys.argv[2].rpartition(" ")[2])


def _paced(count: int, rate: float, send: Callable[[bytes], object]) -> None:
    started = time.perf_counter()
    for number in range(count):
        due = started + number / rate
        while (left := due - time.perf_counter()) > 0:
            time.sleep(left)
        send(b"%.9f" % time.perf_counter())


def _latency(clocked: Clocked, count: int, send: Callable[[bytes], object], receive: Callable[[], list[bytes]]) -> None:
    rate = float(sys.argv[7])
    skipped = int(rate * LATENCY_WARM_SECONDS)
    sender = threading.Thread(target=_paced, args=(count + skipped, rate, send))
    taken: list[float] = []
    with clocked.timing():
        sender.start()
        while len(taken) < count + skipped:
            for value in receive():
                taken.append(time.perf_counter() - float(value.rstrip(b"v")))
        sender.join()
    clocked.latencies = taken[skipped:]


@work("headrace", "latency linger 0")
@work("headrace", "latency linger 5")
def _(clocked: Clocked, bootstrap: str, topic: str, count: int, size: int) -> None:
    import headrace

    with (
        headrace.Producer(bootstrap_servers=bootstrap, linger_ms=_linger_ms()) as producer,
        headrace.Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer,
    ):
        consumer.assign([headrace.TopicPartition(topic, p) for p in sorted(consumer.partitions_for_topic(topic))])

        def receive() -> list[bytes]:
            return [record.value for records in consumer.poll(timeout_ms=1000).values() for record in records]

        _latency(clocked, count, lambda value: producer.send(topic, value.ljust(size, b"v")), receive)


@work("confluent-kafka", "latency linger 0")
@work("confluent-kafka", "latency linger 5")
def _(clocked: Clocked, bootstrap: str, topic: str, count: int, size: int) -> None:
    import confluent_kafka

    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": _linger_ms()})
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False}
    )
    partitions = consumer.list_topics(topic).topics[topic].partitions
    consumer.assign([confluent_kafka.TopicPartition(topic, p, confluent_kafka.OFFSET_BEGINNING) for p in partitions])

    def send(value: bytes) -> None:
        producer.produce(topic, value.ljust(size, b"v"))
        producer.poll(0)

    def receive() -> list[bytes]:
        message: Any = consumer.poll(1.0)
        return [] if message is None else [message.value()]

    _latency(clocked, count, send, receive)
    producer.flush()
    consumer.close()


def peak_memory_mb() -> float:
    """Returns the peak memory of this program. The peak of getrusage includes the parent process before exec."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("/proc/self/status has no line VmHWM")


def main() -> None:
    client, name, bootstrap, topic, count, size = sys.argv[1:7]
    clocked = Clocked()
    WORKS[client, name](clocked, bootstrap, topic, int(count), int(size))
    latencies = sorted(clocked.latencies)
    result = {
        "seconds": clocked.seconds,
        "cpu_seconds": clocked.cpu_seconds,
        "memory_mb": peak_memory_mb(),
        "p50_ms": latencies[len(latencies) // 2] * 1000 if latencies else None,
        "p99_ms": latencies[int(len(latencies) * 0.99)] * 1000 if latencies else None,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
