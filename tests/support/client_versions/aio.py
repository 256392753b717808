"""The scenario's client with aiokafka. Each client, and each member, has its own event loop.

aiokafka 0.7 has no admin client; kafka-python, on which it depends, has one.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import warnings
from typing import Any

warnings.simplefilter("ignore")
import aiokafka  # noqa: E402

logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
VERSION = aiokafka.__version__
TIMEOUT = 30.0


class Loop:
    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)

    def run(self, work: Any) -> Any:
        return self._loop.run_until_complete(asyncio.wait_for(work, TIMEOUT))

    def close(self) -> None:
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()


class Client:
    codecs = ("none", "gzip", "snappy", "lz4", *(["zstd"] if "zstd" in aiokafka.AIOKafkaProducer._COMPRESSORS else []))
    has_transactions = True

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._loop = Loop()
        self.admin: Any = (
            Admin(self._loop, bootstrap) if importlib.util.find_spec("aiokafka.admin") else other(bootstrap)
        )

    async def _started(self, kind: Any, *args: Any, **settings: Any) -> Any:
        client = kind(*args, bootstrap_servers=self._bootstrap, **settings)
        await client.start()
        return client

    def produce(self, topic: str, partition: int, values: list[str], codec: str, start_ms: int) -> list[int]:
        async def send() -> list[int]:
            producer = await self._started(
                aiokafka.AIOKafkaProducer,
                compression_type=None if codec == "none" else codec,
                enable_idempotence=True,
                linger_ms=20,
            )
            futures = [
                await producer.send(topic, value.encode(), b"key", partition, start_ms + number)
                for number, value in enumerate(values)
            ]
            offsets = [(await future).offset for future in futures]
            await producer.stop()
            return offsets

        return self._loop.run(send())  # type: ignore[no-any-return]

    def open_transactional(self, transactional_id: str) -> Transactional:
        started = self._started(aiokafka.AIOKafkaProducer, transactional_id=transactional_id)
        return Transactional(self._loop, self._loop.run(started))

    def open_consumer(self, topic: str, group: str) -> Consumer:
        return Consumer(self._bootstrap, topic, group)

    def read_since(self, topic: str, timestamp: int) -> list[str]:
        async def read() -> list[str]:
            consumer = await self._started(aiokafka.AIOKafkaConsumer)
            tp = aiokafka.TopicPartition(topic, 0)
            consumer.assign([tp])
            consumer.seek(tp, (await consumer.offsets_for_times({tp: timestamp}))[tp].offset)
            end = (await consumer.end_offsets([tp]))[tp]
            values: list[str] = []
            while await consumer.position(tp) < end:
                found = await consumer.getmany(tp, timeout_ms=1000)
                values += [record.value.decode() for record in found.get(tp, ())]
            await consumer.stop()
            return values

        return self._loop.run(read())  # type: ignore[no-any-return]


def other(bootstrap: str) -> Any:
    from tests.support.client_versions import kafka_python

    return kafka_python.Client(bootstrap)


class Admin:
    def __init__(self, loop: Loop, bootstrap: str) -> None:
        from aiokafka.admin import AIOKafkaAdminClient

        async def start() -> Any:
            admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
            await admin.start()
            return admin

        self._run = loop.run
        self._admin = self._run(start())

    def create(self, topic: str, partitions: int, configs: dict[str, str]) -> None:
        from aiokafka.admin import NewTopic

        self._run(self._admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=configs)]))

    def delete(self, topic: str) -> None:
        self._run(self._admin.delete_topics([topic]))

    def partition_count(self, topic: str) -> int:
        if topic not in self._run(self._admin.list_topics()):
            return 0
        (found,) = self._run(self._admin.describe_topics([topic]))
        return len(found["partitions"])

    def config(self, topic: str, name: str) -> str:
        from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

        responses = self._run(self._admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)]))
        (entries,) = (resource[4] for response in responses for resource in response.resources)
        return str({entry[0]: entry[1] for entry in entries}[name])

    def groups(self) -> list[str]:
        return [group[0] for group in self._run(self._admin.list_consumer_groups())]

    def committed(self, topic: str, group: str) -> list[int]:
        found = self._run(self._admin.list_consumer_group_offsets(group))
        return [found[tp].offset for tp in sorted(found)]


class Transactional:
    def __init__(self, loop: Loop, producer: Any) -> None:
        self._loop, self._producer = loop, producer

    def write(self, topic: str, partition: int, values: list[str], commit: bool) -> None:
        async def write() -> None:
            await self._producer.begin_transaction()
            for value in values:
                await self._producer.send_and_wait(topic, value.encode(), partition=partition)
            await (self._producer.commit_transaction() if commit else self._producer.abort_transaction())

        self._loop.run(write())

    def close(self) -> None:
        self._loop.run(self._producer.stop())


class Consumer:
    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        async def start() -> Any:
            consumer = aiokafka.AIOKafkaConsumer(
                topic,
                bootstrap_servers=bootstrap,
                group_id=group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                isolation_level="read_committed",
                heartbeat_interval_ms=200,
                session_timeout_ms=30000,
            )
            await consumer.start()
            return consumer

        self._loop = Loop()
        self._consumer = self._loop.run(start())

    def poll(self) -> list[tuple[int, str]]:
        found = self._loop.run(self._consumer.getmany(timeout_ms=100))
        return [(record.partition, record.value.decode()) for records in found.values() for record in records]

    def assignment(self) -> set[int]:
        return {tp.partition for tp in self._consumer.assignment()}

    def commit(self) -> None:
        self._loop.run(self._consumer.commit())

    def close(self) -> None:
        self._loop.run(self._consumer.stop())
        self._loop.close()
