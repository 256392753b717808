"""Writers and readers that keep a broker busy from separate threads, while it is killed and restarted.

A writer sends numbered records in turn to all partitions, with acks=all, and remembers the acknowledged ones. Retries
may write a record twice (the producers are not idempotent), but with one request in flight they do not change the
order. A reader reads all partitions from the beginning and keeps all records.
"""

import asyncio
import threading
import time
from typing import Any

import aiokafka
import confluent_kafka as confluent
from tests.support.broker.clients import Aiokafka, Confluent, KafkaPython
from tests.support.records.other_clients import kafka

ON_THE_WAY = 60
VALUE_BYTES = 100
GIVE_UP_SECONDS = 180
RECONNECT_MS = 300  # the maximum, so that clients reconnect quickly
DOTTED = {"reconnect_backoff_max_ms": RECONNECT_MS, "reconnect_backoff_ms": 50}

Value = bytes  # writer:number, padded


class Worker(threading.Thread):
    """A thread that works until `finish`, which raises its error."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__(daemon=True)
        self.bootstrap, self.topic, self.partitions = bootstrap, topic, partitions
        self.enough = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.work()
        except BaseException as error:  # noqa: BLE001 - raised where the thread is joined
            self.error = error

    def work(self) -> None:
        raise NotImplementedError

    def finish(self) -> None:
        self.enough.set()
        self.join(GIVE_UP_SECONDS)
        assert not self.is_alive(), f"{self.name} does not come to its end"
        if self.error is not None:
            raise self.error


class Writer(Worker):
    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__(bootstrap, topic, partitions)
        self.name = type(self).__name__
        self.sent = 0
        self.acknowledged: dict[int, list[tuple[int, int]]] = {number: [] for number in range(partitions)}
        self.failures: list[str] = []

    def next(self) -> tuple[int, int, bytes]:
        """Returns number, partition and value of the next record."""
        number = self.sent
        self.sent += 1
        return number, number % self.partitions, f"{self.name}:{number}".encode().ljust(VALUE_BYTES, b".")

    def count(self) -> int:
        return sum(map(len, self.acknowledged.values()))


class ConfluentWriter(Writer):
    def work(self) -> None:
        settings = {"compression_type": "zstd", "linger_ms": 5, "message_timeout_ms": GIVE_UP_SECONDS * 1000}
        producer = Confluent(self.bootstrap).producer(**settings, **DOTTED)
        free = ON_THE_WAY

        def report(number: int, error: confluent.KafkaError | None, message: confluent.Message) -> None:
            nonlocal free
            free += 1
            if error is None:
                self.acknowledged[message.partition() or 0].append((number, message.offset() or 0))
            else:
                self.failures.append(f"{number}: {error}")

        while not self.enough.is_set():
            if free:
                free -= 1
                number, partition, value = self.next()
                producer.produce(
                    self.topic,
                    value,
                    partition=partition,
                    on_delivery=lambda error, message, number=number: report(number, error, message),
                )
            producer.poll(0 if free else 0.1)
        assert producer.flush(GIVE_UP_SECONDS) == 0


class KafkaPythonWriter(Writer):
    def work(self) -> None:
        settings = {"compression_type": "gzip", "linger_ms": 5, "delivery_timeout_ms": GIVE_UP_SECONDS * 1000}
        producer = KafkaPython(self.bootstrap).producer(**settings, **DOTTED)
        free = threading.Semaphore(ON_THE_WAY)

        def done(number: int, metadata: Any) -> None:
            self.acknowledged[metadata.partition].append((number, metadata.offset))
            free.release()

        def failed(number: int, error: BaseException) -> None:
            self.failures.append(f"{number}: {error!r}")
            free.release()

        try:
            while not self.enough.is_set():
                if free.acquire(timeout=0.1):
                    number, partition, value = self.next()
                    future = producer.send(self.topic, value, partition=partition)
                    future.add_callback(done, number)
                    future.add_errback(failed, number)
            producer.flush(GIVE_UP_SECONDS)
        finally:
            producer.close()


class AiokafkaWriter(Writer):
    def work(self) -> None:
        asyncio.run(self._work())

    async def _work(self) -> None:
        settings = {"compression_type": "lz4", "linger_ms": 5, "request_timeout_ms": GIVE_UP_SECONDS * 1000}
        free = asyncio.Semaphore(ON_THE_WAY)

        def done(number: int, future: asyncio.Future[Any]) -> None:
            free.release()
            if future.exception() is None:
                metadata = future.result()
                self.acknowledged[metadata.partition].append((number, metadata.offset))
            else:
                self.failures.append(f"{number}: {future.exception()!r}")

        async with Aiokafka(self.bootstrap).producer(**settings) as producer:
            while not self.enough.is_set():
                await free.acquire()
                number, partition, value = self.next()
                future = await producer.send(self.topic, value, partition=partition)
                future.add_done_callback(lambda future, number=number: done(number, future))
            await asyncio.wait_for(producer.flush(), GIVE_UP_SECONDS)


class Reader(Worker):
    """*found* has offset and value by partition. It finishes when it has reached the given end offsets."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__(bootstrap, topic, partitions)
        self.name = type(self).__name__
        self.found: dict[int, list[tuple[int, Value]]] = {number: [] for number in range(partitions)}
        self.ends: dict[int, int] | None = None

    def is_done(self) -> bool:
        if self.ends is None or self.enough.is_set():
            return self.enough.is_set()
        return all(end == 0 or (rows and rows[-1][0] >= end - 1) for end, rows in self._rows(self.ends))

    def _rows(self, ends: dict[int, int]) -> list[tuple[int, list[tuple[int, Value]]]]:
        return [(end, self.found[partition]) for partition, end in ends.items()]

    def finish_at(self, ends: dict[int, int]) -> None:
        self.ends = ends
        deadline = time.monotonic() + GIVE_UP_SECONDS
        while self.is_alive() and time.monotonic() < deadline:
            self.join(0.1)
        self.finish()


class ConfluentReader(Reader):
    def work(self) -> None:
        consumer = Confluent(self.bootstrap).consumer(enable_partition_eof=False, auto_offset_reset="error", **DOTTED)
        try:
            consumer.assign([confluent.TopicPartition(self.topic, number, 0) for number in range(self.partitions)])
            while not self.is_done():
                for message in consumer.consume(500, 0.2):
                    error = message.error()
                    if error is None:
                        self.found[message.partition() or 0].append((message.offset() or 0, message.value() or b""))
                    else:
                        assert error.retriable() or error.code() == confluent.KafkaError._ALL_BROKERS_DOWN, error
        finally:
            consumer.close()


class KafkaPythonReader(Reader):
    def work(self) -> None:
        with KafkaPython(self.bootstrap).consumer(auto_offset_reset="none", **DOTTED) as consumer:
            tps = [kafka.TopicPartition(self.topic, number) for number in range(self.partitions)]
            consumer.assign(tps)
            for tp in tps:
                consumer.seek(tp, 0)
            while not self.is_done():
                for tp, rows in consumer.poll(timeout_ms=200).items():
                    self.found[tp.partition] += [(row.offset, row.value) for row in rows]


class AiokafkaReader(Reader):
    def work(self) -> None:
        asyncio.run(self._work())

    async def _work(self) -> None:
        async with Aiokafka(self.bootstrap).consumer(auto_offset_reset="none") as consumer:
            tps = [aiokafka.TopicPartition(self.topic, number) for number in range(self.partitions)]
            consumer.assign(tps)
            for tp in tps:
                consumer.seek(tp, 0)
            while not self.is_done():
                for tp, rows in (await consumer.getmany(timeout_ms=200)).items():
                    self.found[tp.partition] += [(row.offset, row.value or b"") for row in rows]


WRITERS = (ConfluentWriter, KafkaPythonWriter, AiokafkaWriter)
READERS = (ConfluentReader, KafkaPythonReader, AiokafkaReader)
