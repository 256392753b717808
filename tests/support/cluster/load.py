"""Idempotent and transactional writers and a consumer group that keep a cluster busy, and checks of what they saw.

A writer sends numbered records in turn to all partitions, with acks=all and idempotence: each record must be in the log
once, and in order. A transactional writer aborts some transactions on purpose, and others after errors: consumers must
not see their records. Its records count as acknowledged when their transaction is committed.
`longest_pause` is the longest time between two acknowledgements of one partition.
"""

import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import IO, Any, ClassVar

import confluent_kafka as confluent
from tests.support.apache_kafka.jvm import TOOL_JVM_ARGS, start_java
from tests.support.broker.clients import Confluent, KafkaPython
from tests.support.broker.load import DOTTED, GIVE_UP_SECONDS, RECONNECT_MS, VALUE_BYTES, Worker, Writer
from tests.support.broker.process import eventually

JAVA_WRITER = Path(__file__).parents[1] / "java" / "LoadWriter.java"

MAX_IN_FLIGHT = 5
ON_THE_WAY = 60
NO_OFFSET = -1
"""librdkafka reports a record without an offset if it lost the response, but a later request shows it was written."""
PATIENCE_SECONDS = 240.0
RECORDS_OF_PROGRESS = 100
PER_TRANSACTION = 30
ABORT_EVERY = 5
TRANSACTION_TIMEOUT_MS = 300_000
REQUEST_TIMEOUT_MS = 5_000
"""A client notices only by this timeout that a broker is stopped: its connections stay open."""


class IdempotentWriter(Writer):
    """Counts acknowledgements, and measures the time between them."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__(bootstrap, topic, partitions)
        self.longest_pause = 0.0
        self.aborted: set[int] = set()
        self._last: dict[int, float] = {}

    def acknowledge(self, number: int, partition: int, offset: int) -> None:
        now = time.monotonic()
        self.longest_pause = max(self.longest_pause, now - self._last.get(partition, now))
        self._last[partition] = now
        self.acknowledged[partition].append((number, offset))


def _offset(message: confluent.Message) -> int:
    offset = message.offset()
    return NO_OFFSET if offset is None else offset


class IdempotentConfluent(IdempotentWriter):
    def work(self) -> None:
        producer = Confluent(self.bootstrap).producer(
            enable_idempotence=True,
            max_in_flight_requests_per_connection=MAX_IN_FLIGHT,
            linger_ms=5,
            message_timeout_ms=GIVE_UP_SECONDS * 1000,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            socket_timeout_ms=REQUEST_TIMEOUT_MS + 1000,
            **DOTTED,
        )
        free = dict.fromkeys(range(self.partitions), ON_THE_WAY)

        def report(number: int, error: confluent.KafkaError | None, message: confluent.Message) -> None:
            partition = message.partition() or 0
            free[partition] += 1
            if error is None:
                self.acknowledge(number, partition, _offset(message))
            else:
                self.failures.append(f"{number}: {error}")

        while not self.enough.is_set():
            # In order, so one partition without a leader holds back the others: their pauses count, too.
            if free[self.sent % self.partitions]:
                number, partition, value = self.next()
                free[partition] -= 1
                producer.produce(
                    self.topic,
                    value,
                    partition=partition,
                    on_delivery=lambda error, message, number=number: report(number, error, message),
                )
                producer.poll(0)
            else:
                producer.poll(0.05)
        assert producer.flush(GIVE_UP_SECONDS) == 0


class IdempotentKafkaPython(IdempotentWriter):
    def work(self) -> None:
        producer = KafkaPython(self.bootstrap).producer(
            enable_idempotence=True,
            max_in_flight_requests_per_connection=MAX_IN_FLIGHT,
            linger_ms=5,
            delivery_timeout_ms=GIVE_UP_SECONDS * 1000,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            **DOTTED,
        )
        free = threading.Semaphore(ON_THE_WAY)

        def done(number: int, metadata: Any) -> None:
            self.acknowledge(number, metadata.partition, metadata.offset)
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


class TransactionalConfluent(IdempotentWriter):
    def work(self) -> None:
        producer = Confluent(self.bootstrap).producer(
            transactional_id=self.name,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            enable_idempotence=True,
            max_in_flight_requests_per_connection=MAX_IN_FLIGHT,
            linger_ms=5,
            message_timeout_ms=GIVE_UP_SECONDS * 1000,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            socket_timeout_ms=REQUEST_TIMEOUT_MS + 1000,
            **DOTTED,
        )
        self._end(producer.init_transactions)
        transactions = 0
        while not self.enough.is_set():
            transactions += 1
            self._write_transaction(producer, is_wanted=transactions % ABORT_EVERY != 0)

    def _write_transaction(self, producer: confluent.Producer, is_wanted: bool) -> None:
        written: list[tuple[int, int, int]] = []
        numbers: list[int] = []

        def report(number: int, error: confluent.KafkaError | None, message: confluent.Message) -> None:
            if error is None:
                written.append((number, message.partition() or 0, _offset(message)))

        committed = False
        try:
            producer.begin_transaction()
            for _ in range(PER_TRANSACTION):
                number, partition, value = self.next()
                numbers.append(number)
                producer.produce(
                    self.topic,
                    value,
                    partition=partition,
                    on_delivery=lambda error, message, number=number: report(number, error, message),
                )
            assert producer.flush(GIVE_UP_SECONDS) == 0
            self._end(producer.commit_transaction if is_wanted else producer.abort_transaction)
            committed = is_wanted
        except confluent.KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self._end(producer.abort_transaction)
        if committed:
            assert len(written) == PER_TRANSACTION, "a committed transaction has failed records"
            for number, partition, offset in written:
                self.acknowledge(number, partition, offset)
        else:
            self.aborted.update(numbers)

    @staticmethod
    def _end(call: Callable[[float], Any]) -> None:
        """Repeats a call whose outcome is unknown."""
        while True:
            try:
                call(REQUEST_TIMEOUT_MS / 1000)
            except confluent.KafkaException as error:
                if not error.args[0].retriable():
                    raise
            else:
                return


class IdempotentJava(IdempotentWriter):
    """Kafka's Java client in its own process; see `java/LoadWriter.java`."""

    at_once, abort_every = ON_THE_WAY, 0
    settings: ClassVar[dict[str, object]] = {}

    def work(self) -> None:
        settings = {
            "bootstrap.servers": self.bootstrap,
            "acks": "all",
            "enable.idempotence": "true",
            "max.in.flight.requests.per.connection": MAX_IN_FLIGHT,
            "linger.ms": 5,
            "delivery.timeout.ms": GIVE_UP_SECONDS * 1000,
            "max.block.ms": GIVE_UP_SECONDS * 1000,
            "request.timeout.ms": REQUEST_TIMEOUT_MS,
            "reconnect.backoff.max.ms": RECONNECT_MS,
            **self.settings,
        }
        arguments = [self.name, self.topic, self.partitions, VALUE_BYTES, self.at_once, self.abort_every]
        with tempfile.TemporaryDirectory(prefix="headrace-java-") as temporary:
            process = start_java(
                JAVA_WRITER,
                [*map(str, arguments), *(f"{key}={value}" for key, value in settings.items())],
                jvm_args=[*TOOL_JVM_ARGS, f"-Djava.io.tmpdir={temporary}"],
                log_level="OFF",
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            assert process.stdin is not None
            assert process.stdout is not None
            with process:
                try:
                    threading.Thread(target=self._end, args=(process.stdin,), daemon=True).start()
                    self._read(process.stdout)
                    assert process.wait(GIVE_UP_SECONDS) == 0, "the Java writer failed"
                finally:
                    process.kill()

    def _end(self, stdin: IO[bytes]) -> None:
        """Closes the writer's standard input, which ends it."""
        self.enough.wait()
        stdin.close()

    def _read(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            kind, number_text, *rest = line.decode().split(maxsplit=2)
            number = int(number_text)
            self.sent = max(self.sent, number)
            if kind == "ack":
                self.acknowledge(number, number % self.partitions, int(rest[0]))
            elif kind == "aborted":
                self.aborted.add(number)
            elif kind == "failed":
                self.failures.append(f"{number}: {rest[0]}")


class TransactionalJava(IdempotentJava):
    at_once, abort_every = PER_TRANSACTION, ABORT_EVERY
    settings: ClassVar[dict[str, object]] = {
        "transactional.id": "TransactionalJava",
        "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
    }


class GroupMember(Worker):
    """A consumer of a group, which commits its offsets. `found` counts how often it got a record."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, group: str = "readers") -> None:
        super().__init__(bootstrap, topic, partitions)
        self.group = group
        self.found: Counter[tuple[int, int]] = Counter()

    def work(self) -> None:
        consumer = confluent.Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": self.group,
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 500,
                "session.timeout.ms": 10_000,
                "reconnect.backoff.max.ms": 300,
                "log_level": 0,
            }
        )
        try:
            consumer.subscribe([self.topic])
            while not self.enough.is_set():
                for message in consumer.consume(500, 0.1):
                    if message.error() is None:
                        self.found[message.partition() or 0, message.offset() or 0] += 1
        finally:
            consumer.close()


def check_writer(writer: IdempotentWriter, log: dict[int, list[tuple[int, bytes]]]) -> None:
    """Checks that each acknowledged record is in the log at its offset, once and in order, and that no record of an
    aborted transaction is visible."""
    assert writer.failures == []
    for partition, rows in log.items():
        prefix = f"{writer.name}:".encode()
        written = [int(value.rstrip(b".").partition(b":")[2]) for _, value in rows if value.startswith(prefix)]
        at = dict(rows)
        acknowledged = dict(writer.acknowledged[partition])
        lost = set(acknowledged) - set(written)
        assert not lost, f"{writer.name}, partition {partition}: lost {len(lost)} records, as {sorted(lost)[:10]}"
        assert len(set(written)) == len(written), f"{writer.name}, partition {partition}: duplicates"
        assert written == sorted(written), f"{writer.name}, partition {partition}: records are not in order"
        visible = writer.aborted.intersection(written)
        assert not visible, f"{writer.name}, partition {partition}: {len(visible)} records of aborted transactions"
        misplaced = [
            (number, offset)
            for number, offset in acknowledged.items()
            if offset != NO_OFFSET and not at.get(offset, b"").startswith(f"{writer.name}:{number}.".encode())
        ]
        assert not misplaced, f"{writer.name}, partition {partition}: not at these offsets: {misplaced[:10]}"


class Load:
    """Writers of these kinds, and a group of two readers."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        kinds: Sequence[type[IdempotentWriter]] = (IdempotentConfluent, IdempotentKafkaPython),
    ):
        self._bootstrap, self._topic, self._partitions = bootstrap, topic, partitions
        place = (bootstrap, topic, partitions)
        self.writers = [kind(*place) for kind in kinds]
        self.readers = [GroupMember(*place), GroupMember(*place)]
        for worker in (*self.writers, *self.readers):
            worker.start()

    def stop(self) -> None:
        """Tells all workers to end, for a test that failed."""
        for worker in (*self.writers, *self.readers):
            worker.enough.set()

    def await_progress(self, what: str) -> None:
        """Waits until each writer has more acknowledgements in each partition, and the group has read more."""
        wanted = {
            (writer.name, partition): len(rows) + RECORDS_OF_PROGRESS
            for writer in self.writers
            for partition, rows in writer.acknowledged.items()
        }
        read = len(self.read()) + RECORDS_OF_PROGRESS

        def waiting() -> list[str]:
            return [
                f"{writer.name} in partition {partition}"
                for writer in self.writers
                for partition, rows in writer.acknowledged.items()
                if len(rows) < wanted[writer.name, partition]
            ] + ["the group"] * (len(self.read()) < read)

        deadline = time.monotonic() + PATIENCE_SECONDS
        while behind := waiting():
            for worker in (*self.writers, *self.readers):
                assert worker.error is None, f"{what}: {worker.name}: {worker.error!r}"
            assert time.monotonic() < deadline, f"{what}: no progress of {', '.join(behind)}"
            time.sleep(0.05)

    def read(self) -> set[tuple[int, int]]:
        return {place for reader in self.readers for place in tuple(reader.found)}

    def longest_pauses(self) -> list[float]:
        """Returns the longest pause of each writer since the last call."""
        longest = [writer.longest_pause for writer in self.writers]
        for writer in self.writers:
            writer.longest_pause = 0.0
        return longest

    def finish_and_check(self) -> None:
        """Stops the writers. Checks that each acknowledged record is in the log once and in order, and that the group
        reads everything."""
        for writer in self.writers:
            writer.finish()
        log: dict[int, list[tuple[int, bytes]]] = {partition: [] for partition in range(self._partitions)}
        for row in Confluent(self._bootstrap).read(self._topic, range(self._partitions)):
            log[row.partition].append((row.offset, row.value or b""))
        for writer in self.writers:
            check_writer(writer, log)
        everything = {(partition, offset) for partition, rows in log.items() for offset, _ in rows}
        eventually(lambda: everything <= self.read(), "the group has read everything", PATIENCE_SECONDS)
        for reader in self.readers:
            reader.finish()
