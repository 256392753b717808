"""Copies a topic to another one in transactions, which include the offsets that it has read.

    python -m tests.support.broker.copy_worker BOOTSTRAP SOURCE TARGET GROUP NAME [STATIC]

Several workers share a group, each with its own name; with STATIC a worker is a static member. A worker sometimes
aborts a transaction without a reason. Tests kill workers; a worker that receives SIGTERM leaves the group. After a
fatal error it exits, and the test restarts it.
"""

import os
import random
import signal
import sys
from collections.abc import Callable

import confluent_kafka as confluent

TIMEOUT_SECONDS = 5.0
RECORDS = 10
"""The maximum number of records in a transaction."""
ABORTS = 0.15
"""The share of transactions that are aborted without a reason."""


class Worker:
    def __init__(self, bootstrap: str, source: str, target: str, group: str, name: str, static: str = "") -> None:
        self._target = target
        self._producer = confluent.Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": f"{group}-{name}",
                "transaction.timeout.ms": 20_000,
                "log_level": 0,
                "linger.ms": 0,
                # librdkafka 2.16 hangs in send_offsets_to_transaction, beyond its timeout and without a request, after
                # it lost all connections for a moment: it waits for a broker handle that its rebootstrap dropped. The
                # same happens with Apache Kafka.
                "metadata.recovery.strategy": "none",
            }
        )
        identity = {"group.instance.id": name} if static else {}
        self._consumer = confluent.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "session.timeout.ms": 3_000,
                "heartbeat.interval.ms": 300,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "log_level": 0,
                **identity,
            }
        )
        self._messages: list[confluent.Message] = []
        self._membership: object = None
        """Returns the membership in which the messages were read; the broker rejects offsets of an older generation
        (KIP-447)."""
        self._stopped = False
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "_stopped", True))
        _again(lambda: self._producer.init_transactions(TIMEOUT_SECONDS))
        self._consumer.subscribe([source], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)

    def _assigned(self, consumer: confluent.Consumer, partitions: list[confluent.TopicPartition]) -> None:
        self._membership = consumer.consumer_group_metadata()

    def _revoked(self, consumer: confluent.Consumer, partitions: list[confluent.TopicPartition]) -> None:
        self._messages.clear()  # the next owner starts at the committed offsets

    def run(self) -> None:
        while not self._stopped:
            self._read()
            if self._messages:
                self._copy()
        self._consumer.close()

    def _read(self) -> None:
        self._messages.clear()
        patience = 0.2
        while len(self._messages) < RECORDS:
            message = self._consumer.poll(patience)
            if message is None:
                return
            if message.error() is None:
                self._messages.append(message)
                patience = 0.0

    def _copy(self) -> None:
        producer, offsets = self._producer, {each.partition(): each.offset() + 1 for each in self._messages}
        try:
            producer.begin_transaction()
            for each in self._messages:
                producer.produce(self._target, each.value(), b"%d" % each.offset(), each.partition())
            topic = self._messages[0].topic()
            read = [confluent.TopicPartition(topic, *each) for each in offsets.items()]
            _again(lambda: producer.send_offsets_to_transaction(read, self._membership, TIMEOUT_SECONDS))
            if random.random() < ABORTS:
                self._abort()
            else:
                _again(lambda: producer.commit_transaction(TIMEOUT_SECONDS))
        except confluent.KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self._abort()

    def _abort(self) -> None:
        """Aborts, and seeks to the start of the transaction in the partitions that are still assigned."""
        _again(lambda: self._producer.abort_transaction(TIMEOUT_SECONDS))
        mine = {each.partition for each in self._consumer.assignment()}
        first = {each.partition(): each for each in reversed(self._messages) if each.partition() in mine}
        for each in first.values():
            self._consumer.seek(confluent.TopicPartition(each.topic(), each.partition(), each.offset()))


def _again(call: Callable[[], object]) -> None:
    """Retries operations that fail with a retriable error."""
    while True:
        try:
            call()
        except confluent.KafkaException as error:
            if not error.args[0].retriable():
                raise
        else:
            return


if __name__ == "__main__":
    try:
        Worker(*sys.argv[1:]).run()
    except confluent.KafkaException:
        os._exit(1)
