"""The scenario's client with confluent-kafka (librdkafka)."""

from __future__ import annotations

from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

VERSION = confluent_kafka.__version__
TIMEOUT = 30.0


class Client:
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")
    has_transactions = True

    def __init__(self, bootstrap: str) -> None:
        self._common = {"bootstrap.servers": bootstrap, "log_level": 0}
        self._admin = AdminClient(dict(self._common))

    @property
    def admin(self) -> Client:
        return self

    def create(self, topic: str, partitions: int, configs: dict[str, str]) -> None:
        new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=configs)
        for future in self._admin.create_topics([new]).values():
            future.result(TIMEOUT)

    def delete(self, topic: str) -> None:
        for future in self._admin.delete_topics([topic]).values():
            future.result(TIMEOUT)

    def partition_count(self, topic: str) -> int:
        found = self._admin.list_topics(timeout=TIMEOUT).topics.get(topic)
        return 0 if found is None or found.error is not None else len(found.partitions)

    def config(self, topic: str, name: str) -> str:
        (future,) = self._admin.describe_configs([ConfigResource("topic", topic)]).values()
        return str(future.result(TIMEOUT)[name].value)

    def groups(self) -> list[str]:
        if hasattr(self._admin, "list_consumer_groups"):
            return [group.group_id for group in self._admin.list_consumer_groups().result(TIMEOUT).valid]
        return [group.id for group in self._admin.list_groups(timeout=TIMEOUT)]

    def produce(self, topic: str, partition: int, values: list[str], codec: str, start_ms: int) -> list[int]:
        producer = confluent_kafka.Producer({
            **self._common, "compression.type": codec, "enable.idempotence": True, "linger.ms": 20
        })  # fmt: skip
        offsets: list[int] = []

        def delivered(error: Any, message: Any) -> None:
            offsets.append(message.offset() if error is None else -1)

        for number, value in enumerate(values):
            producer.produce(
                topic, value.encode(), b"key", partition, timestamp=start_ms + number, on_delivery=delivered
            )
        producer.flush(TIMEOUT)
        return offsets

    def open_transactional(self, transactional_id: str) -> Transactional:
        return Transactional({**self._common, "transactional.id": transactional_id})

    def open_consumer(self, topic: str, group: str) -> Consumer:
        return Consumer(self._common, topic, group)

    def committed(self, topic: str, group: str) -> list[int]:
        consumer = confluent_kafka.Consumer({**self._common, "group.id": group})
        wanted = [confluent_kafka.TopicPartition(topic, index) for index in range(self.partition_count(topic))]
        found = consumer.committed(wanted, TIMEOUT)
        consumer.close()
        return [tp.offset for tp in found]

    def read_since(self, topic: str, timestamp: int) -> list[str]:
        consumer = confluent_kafka.Consumer({**self._common, "group.id": "none", "enable.partition.eof": True})
        (found,) = consumer.offsets_for_times([confluent_kafka.TopicPartition(topic, 0, timestamp)], TIMEOUT)
        consumer.assign([found])
        values: list[str] = []
        while True:
            message = consumer.poll(TIMEOUT)
            if message is None:
                raise RuntimeError("nothing arrived")
            error = message.error()
            if error is not None:
                if error.code() != confluent_kafka.KafkaError._PARTITION_EOF:
                    raise confluent_kafka.KafkaException(error)
                break
            values.append(message.value().decode())
        consumer.close()
        return values


class Transactional:
    def __init__(self, config: dict[str, Any]) -> None:
        self._producer = confluent_kafka.Producer(config)
        self._producer.init_transactions(TIMEOUT)

    def write(self, topic: str, partition: int, values: list[str], commit: bool) -> None:
        self._producer.begin_transaction()
        for value in values:
            self._producer.produce(topic, value.encode(), partition=partition)
        self._producer.flush(TIMEOUT)
        if commit:
            self._producer.commit_transaction(TIMEOUT)
        else:
            self._producer.abort_transaction(TIMEOUT)

    def close(self) -> None:
        self._producer.flush(TIMEOUT)


class Consumer:
    def __init__(self, common: dict[str, Any], topic: str, group: str) -> None:
        self._consumer = confluent_kafka.Consumer({
            **common,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "heartbeat.interval.ms": 200,
            "session.timeout.ms": 30000,
        })  # fmt: skip
        self._consumer.subscribe([topic])

    def poll(self) -> list[tuple[int, str]]:
        messages = self._consumer.consume(500, 0.1)
        return [(message.partition(), message.value().decode()) for message in messages if message.error() is None]

    def assignment(self) -> set[int]:
        return {tp.partition for tp in self._consumer.assignment()}

    def commit(self) -> None:
        self._consumer.commit(asynchronous=False)

    def close(self) -> None:
        self._consumer.close()
