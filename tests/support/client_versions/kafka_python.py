"""The scenario's client with kafka-python."""

from __future__ import annotations

import logging
import warnings
from typing import Any

warnings.simplefilter("ignore")
import kafka  # noqa: E402
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewTopic  # noqa: E402

logging.getLogger("kafka").setLevel(logging.CRITICAL)
VERSION = kafka.__version__
TIMEOUT = 30.0


class Client:
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")
    has_transactions = "transactional_id" in kafka.KafkaProducer.DEFAULT_CONFIG

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._admin = KafkaAdminClient(bootstrap_servers=bootstrap)

    @property
    def admin(self) -> Client:
        return self

    def create(self, topic: str, partitions: int, configs: dict[str, str]) -> None:
        self._admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=configs)])

    def delete(self, topic: str) -> None:
        self._admin.delete_topics([topic])

    def partition_count(self, topic: str) -> int:
        consumer = kafka.KafkaConsumer(bootstrap_servers=self._bootstrap)
        try:
            return len(consumer.partitions_for_topic(topic) or ()) if topic in consumer.topics() else 0
        finally:
            consumer.close()

    def config(self, topic: str, name: str) -> str:
        found: Any = self._admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        if isinstance(found, list):  # responses of the protocol, up to version 2
            (entries,) = (resource[4] for response in found for resource in response.resources)
            return str({entry[0]: entry[1] for entry in entries}[name])
        while name not in found:  # nested by kind of resource and name
            (found,) = found.values()
        value = found[name]
        return str(value["value"] if isinstance(value, dict) else getattr(value, "value", value))

    def groups(self) -> list[str]:
        listed = getattr(self._admin, "list_consumer_groups", None) or self._admin.list_groups
        return [group["group_id"] if isinstance(group, dict) else group[0] for group in listed()]

    def produce(self, topic: str, partition: int, values: list[str], codec: str, start_ms: int) -> list[int]:
        settings: dict[str, Any] = {"compression_type": None if codec == "none" else codec, "linger_ms": 20}
        if "enable_idempotence" in kafka.KafkaProducer.DEFAULT_CONFIG:
            settings["enable_idempotence"] = True
        producer = kafka.KafkaProducer(bootstrap_servers=self._bootstrap, acks="all", **settings)
        futures = [
            producer.send(topic, value.encode(), b"key", partition=partition, timestamp_ms=start_ms + number)
            for number, value in enumerate(values)
        ]
        offsets = [future.get(TIMEOUT).offset for future in futures]
        producer.close()
        return offsets

    def open_transactional(self, transactional_id: str) -> Transactional:
        return Transactional(self._bootstrap, transactional_id)

    def open_consumer(self, topic: str, group: str) -> Consumer:
        return Consumer(self._bootstrap, topic, group)

    def committed(self, topic: str, group: str) -> list[int]:
        consumer = kafka.KafkaConsumer(bootstrap_servers=self._bootstrap, group_id=group)
        partitions = sorted(consumer.partitions_for_topic(topic))
        found = [consumer.committed(kafka.TopicPartition(topic, index)) for index in partitions]
        consumer.close()
        return [int(getattr(each, "offset", each)) for each in found]

    def read_since(self, topic: str, timestamp: int) -> list[str]:
        consumer = kafka.KafkaConsumer(bootstrap_servers=self._bootstrap)
        tp = kafka.TopicPartition(topic, 0)
        consumer.assign([tp])
        consumer.seek(tp, consumer.offsets_for_times({tp: timestamp})[tp].offset)
        end = consumer.end_offsets([tp])[tp]
        values: list[str] = []
        while consumer.position(tp) < end:
            values += [record.value.decode() for record in consumer.poll(1000).get(tp, ())]
        consumer.close()
        return values


class Transactional:
    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)
        self._producer.init_transactions()

    def write(self, topic: str, partition: int, values: list[str], commit: bool) -> None:
        self._producer.begin_transaction()
        futures = [self._producer.send(topic, value.encode(), partition=partition) for value in values]
        self._producer.flush(TIMEOUT)
        for future in futures:
            future.get(TIMEOUT)
        if commit:
            self._producer.commit_transaction()
        else:
            self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close()


class Consumer:
    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        settings: dict[str, Any] = {}
        if "isolation_level" in kafka.KafkaConsumer.DEFAULT_CONFIG:
            settings["isolation_level"] = "read_committed"
        self._consumer = kafka.KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=200,
            session_timeout_ms=30000,
            **settings,
        )

    def poll(self) -> list[tuple[int, str]]:
        found = self._consumer.poll(500)
        return [(record.partition, record.value.decode()) for records in found.values() for record in records]

    def assignment(self) -> set[int]:
        return {tp.partition for tp in self._consumer.assignment()}

    def commit(self) -> None:
        self._consumer.commit()

    def close(self) -> None:
        self._consumer.close()
