"""The clients of workers, behind one interface: confluent-kafka and Headrace's own.

A method raises `Aborted` if the transaction certainly has no effect, and `Unknown` if that is not certain. Keys are
`topic-partition`.
"""

import time
from collections.abc import Mapping
from typing import Any, Protocol

import confluent_kafka as confluent

import headrace
from headrace.errors import HeadraceError, KafkaError

TRANSACTION_TIMEOUT_MS = 20_000
DELIVERY_TIMEOUT_MS = 15_000
REQUEST_TIMEOUT_MS = 5_000
END_SECONDS = 20.0
"""How long a worker tries to end a transaction."""
POLL_RECORDS = 50
BEGINNING, END = -2, -1
"""Positions."""
Found = dict[str, list[list[int]]]


class Aborted(Exception):
    """The transaction has no effect. `is_broken`: the client must be replaced."""

    def __init__(self, reason: object, *, is_broken: bool = False):
        super().__init__(str(reason))
        self.is_broken = is_broken


class Unknown(Exception):
    """Nobody knows whether the transaction has been committed. The client must be replaced."""


class Sent:
    """A record on its way. The offset is known after it was written, unless the response was lost."""

    def __init__(self) -> None:
        self.offset: int | None = None
        self.error: str = ""


class Client(Protocol):
    def assign(self, positions: Mapping[str, int]) -> None: ...
    def subscribe(self, topics: list[str]) -> None: ...
    def begin(self) -> None: ...
    def send(self, key: str, value: int) -> Sent: ...
    def flush(self) -> None:
        """Waits until all records are written. Raises Aborted, after it has aborted the transaction."""

    def poll(self, seconds: float) -> Found: ...
    def send_offsets(self, offsets: Mapping[str, int]) -> None:
        """Adds the group's offsets to the transaction. Raises Aborted, after it has aborted the transaction."""

    def commit(self) -> None: ...
    def abort(self) -> None:
        """Raises Aborted if the client must be replaced."""

    def rebalanced(self) -> list[str]:
        """Returns the keys whose assignment has changed since the last call."""


def split(key: str) -> tuple[str, int]:
    topic, _, partition = key.rpartition("-")
    return topic, int(partition)


class ConfluentClient:
    def __init__(self, bootstrap: str, name: str, group: str):
        shared = {
            "bootstrap.servers": bootstrap,
            "client.id": name,
            "socket.timeout.ms": REQUEST_TIMEOUT_MS + 1000,
            "reconnect.backoff.max.ms": 500,
            "topic.metadata.refresh.interval.ms": 5000,
            "log_level": 0,
        }
        self._changed: set[str] = set()
        self._sent: list[Sent] = []
        self._producer = confluent.Producer(
            {
                **shared,
                "transactional.id": name,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "message.timeout.ms": DELIVERY_TIMEOUT_MS,
                "request.timeout.ms": REQUEST_TIMEOUT_MS,
                "linger.ms": 1,
            }
        )
        self._consumer = confluent.Consumer(
            {
                **shared,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "session.timeout.ms": 10_000,
                "fetch.wait.max.ms": 50,
            }
        )
        while not self._retry(self._producer.init_transactions, END_SECONDS):
            pass

    def _retry(self, call: Any, seconds: float) -> bool:
        """Calls until there is no retriable error. Returns False if that took too long."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                call(5.0)
            except confluent.KafkaException as error:
                if not error.args[0].retriable():
                    raise
                if time.monotonic() > deadline:
                    return False
            else:
                return True

    def assign(self, positions: Mapping[str, int]) -> None:
        self._consumer.unsubscribe()
        self._consumer.assign(
            [confluent.TopicPartition(*split(key), self._offset(key, position)) for key, position in positions.items()]
        )

    def _offset(self, key: str, position: int) -> int:
        """Returns an offset in place of a position. If partitions are assigned twice in a short time with OFFSET_END,
        librdkafka 2.16 skips or repeats records after it has returned the first ones; the same on Apache Kafka."""
        if position == END:
            try:
                _, end = self._consumer.get_watermark_offsets(
                    confluent.TopicPartition(*split(key)), REQUEST_TIMEOUT_MS / 1000
                )
            except confluent.KafkaException:
                return 0
            return end
        return max(position, 0)

    def subscribe(self, topics: list[str]) -> None:
        self._consumer.unassign()
        self._consumer.subscribe(topics, on_assign=self._note, on_revoke=self._note, on_lost=self._note)

    def _note(self, consumer: Any, partitions: list[confluent.TopicPartition]) -> None:
        self._changed.update(f"{each.topic}-{each.partition}" for each in partitions)

    def rebalanced(self) -> list[str]:
        changed, self._changed = sorted(self._changed), set()
        return changed

    def begin(self) -> None:
        self._sent = []
        try:
            self._producer.begin_transaction()
        except confluent.KafkaException as error:
            raise Aborted(error, is_broken=True) from None

    def send(self, key: str, value: int) -> Sent:
        sent = Sent()
        topic, partition = split(key)

        def report(error: confluent.KafkaError | None, message: confluent.Message) -> None:
            if error is not None:
                sent.error = str(error)
            elif (offset := message.offset()) is not None and offset >= 0:
                sent.offset = offset

        self._sent.append(sent)
        self._produce(topic, partition, value, report)
        return sent

    def _produce(self, topic: str, partition: int, value: int, report: Any) -> None:
        try:
            self._producer.produce(topic, str(value).encode(), partition=partition, on_delivery=report)
        except confluent.KafkaException as error:  # the transaction has failed
            self.abort()
            raise Aborted(error) from None

    def flush(self) -> None:
        unsent = self._producer.flush(DELIVERY_TIMEOUT_MS / 1000 + 5)
        failed = next((sent.error for sent in self._sent if sent.error), "not delivered" if unsent else "")
        if failed:
            self.abort()
            raise Aborted(failed)

    def poll(self, seconds: float) -> Found:
        found: Found = {}
        try:
            messages = self._consumer.consume(POLL_RECORDS, seconds)
        except (confluent.KafkaException, RuntimeError):
            return found
        for message in messages:
            if message.error() is None:
                key = f"{message.topic()}-{message.partition()}"
                found.setdefault(key, []).append([message.offset() or 0, int(message.value() or b"")])
        return found

    def send_offsets(self, offsets: Mapping[str, int]) -> None:
        partitions = [confluent.TopicPartition(*split(key), offset) for key, offset in offsets.items()]
        try:
            group = self._consumer.consumer_group_metadata()
            has_ended = self._retry(
                lambda seconds: self._producer.send_offsets_to_transaction(partitions, group, seconds), END_SECONDS
            )
        except confluent.KafkaException as error:
            self.abort()
            raise Aborted(error) from None
        if not has_ended:
            self.abort()
            raise Aborted("no response to the offsets")

    def commit(self) -> None:
        try:
            has_ended = self._retry(self._producer.commit_transaction, END_SECONDS)
        except confluent.KafkaException as error:
            raise Unknown(error) from None
        if not has_ended:
            raise Unknown("no response to the commit")

    def abort(self) -> None:
        try:
            has_ended = self._retry(self._producer.abort_transaction, END_SECONDS)
        except confluent.KafkaException as error:
            raise Aborted(error, is_broken=True) from None
        if not has_ended:
            raise Aborted("no response to the abort", is_broken=True)


class HeadraceClient(headrace.ConsumerRebalanceListener):
    def __init__(self, bootstrap: str, name: str, group: str):
        self._changed: set[str] = set()
        self._futures: list[Any] = []
        shared = {"bootstrap_servers": bootstrap, "client_id": name, "request_timeout_ms": REQUEST_TIMEOUT_MS}
        self._producer = headrace.Producer(
            **shared,
            transactional_id=name,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
            max_block_ms=int(END_SECONDS * 1000),
            linger_ms=0,
        )
        self._consumer = headrace.Consumer(
            **shared,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            session_timeout_ms=10_000,
            fetch_max_wait_ms=50,
        )
        self._producer.init_transactions()

    def on_partitions_revoked(self, revoked: Any) -> None:
        self._changed.update(f"{tp.topic}-{tp.partition}" for tp in revoked)

    def on_partitions_assigned(self, assigned: Any) -> None:
        self._changed.update(f"{tp.topic}-{tp.partition}" for tp in assigned)

    def rebalanced(self) -> list[str]:
        changed, self._changed = sorted(self._changed), set()
        return changed

    def assign(self, positions: Mapping[str, int]) -> None:
        self._consumer.unsubscribe()
        tps = {headrace.TopicPartition(*split(key)): position for key, position in positions.items()}
        self._consumer.assign(list(tps))
        for tp, position in tps.items():
            if position == BEGINNING:
                self._consumer.seek_to_beginning(tp)
            elif position == END:
                self._consumer.seek_to_end(tp)
            else:
                self._consumer.seek(tp, position)

    def subscribe(self, topics: list[str]) -> None:
        self._consumer.unsubscribe()
        self._consumer.subscribe(topics, listener=self)

    def begin(self) -> None:
        self._futures = []
        try:
            self._producer.begin_transaction()
        except HeadraceError as error:
            raise Aborted(error, is_broken=True) from None

    def send(self, key: str, value: int) -> Sent:
        topic, partition = split(key)
        sent = Sent()
        try:
            future = self._producer.send(topic, str(value).encode(), partition=partition)
        except HeadraceError as error:
            self.abort()
            raise Aborted(error) from None
        self._futures.append((future, sent))
        return sent

    def flush(self) -> None:
        try:
            for future, sent in self._futures:
                offset = future.get(timeout_ms=DELIVERY_TIMEOUT_MS + 5000).offset
                sent.offset = offset if offset is not None and offset >= 0 else None
        except HeadraceError as error:
            self.abort()
            raise Aborted(error) from None

    def poll(self, seconds: float) -> Found:
        try:
            records = self._consumer.poll(seconds * 1000, max_records=POLL_RECORDS)
        except HeadraceError:
            return {}
        return {
            f"{tp.topic}-{tp.partition}": [[record.offset, int(record.value)] for record in rows]
            for tp, rows in records.items()
        }

    def send_offsets(self, offsets: Mapping[str, int]) -> None:
        sent = {headrace.TopicPartition(*split(key)): headrace.OffsetAndMetadata(each) for key, each in offsets.items()}
        try:
            self._producer.send_offsets_to_transaction(sent, self._consumer.group_metadata())
        except HeadraceError as error:
            self.abort()
            raise Aborted(error) from None

    def commit(self) -> None:
        try:
            self._producer.commit_transaction()
        except HeadraceError as error:
            raise Unknown(repr(error)) from None

    def abort(self) -> None:
        try:
            self._producer.abort_transaction()
        except HeadraceError as error:
            raise Aborted(repr(error), is_broken=True) from None


CLIENTS = {"confluent": ConfluentClient, "headrace": HeadraceClient}

__all__ = ["BEGINNING", "CLIENTS", "END", "Aborted", "Client", "Found", "KafkaError", "Sent", "Unknown", "split"]
