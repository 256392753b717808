"""Transactional producers of other projects behind one small interface."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from itertools import count
from typing import Any, Protocol

import aiokafka
import confluent_kafka as confluent
from tests.support.broker.clients import TIMEOUT_SECONDS
from tests.support.broker.java_clients import Java, to_fields
from tests.support.broker.records import Record
from tests.support.records.other_clients import kafka

import headrace
from headrace.common.types import TopicPartition

_names = count()


class Transactional(Protocol):
    """A producer that calls init_transactions on creation. Errors are the client's own."""

    def begin(self) -> None: ...

    def send(self, topic: str, records: Sequence[Record]) -> None:
        """Returns when the broker has acknowledged the records."""

    def send_offset(self, topic: str, offset: int, group: str) -> None:
        """Commits an offset of partition 0 with the transaction."""

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def close(self) -> None: ...


class ConfluentTransactional:
    def __init__(self, bootstrap: str, transactional_id: str):
        self._bootstrap = bootstrap
        self._producer = confluent.Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "log_level": 0,
                "linger.ms": 0,
            }
        )
        self._producer.init_transactions(TIMEOUT_SECONDS)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, records: Sequence[Record]) -> None:
        for each in records:
            self._producer.produce(topic, each.value, each.key, each.partition, timestamp=each.timestamp or 0)
        assert self._producer.flush(TIMEOUT_SECONDS) == 0

    def send_offset(self, topic: str, offset: int, group: str) -> None:
        consumer = confluent.Consumer({"bootstrap.servers": self._bootstrap, "group.id": group, "log_level": 0})
        try:
            self._producer.send_offsets_to_transaction(
                [confluent.TopicPartition(topic, 0, offset)], consumer.consumer_group_metadata(), TIMEOUT_SECONDS
            )
        finally:
            consumer.close()

    def commit(self) -> None:
        self._producer.commit_transaction(TIMEOUT_SECONDS)

    def abort(self) -> None:
        self._producer.abort_transaction(TIMEOUT_SECONDS)

    def close(self) -> None:
        del self._producer


class KafkaPythonTransactional:
    def __init__(self, bootstrap: str, transactional_id: str):
        self._producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap, transactional_id=transactional_id, enable_idempotence=True
        )
        self._producer.init_transactions()

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, records: Sequence[Record]) -> None:
        futures = [
            self._producer.send(topic, each.value, each.key, partition=each.partition, timestamp_ms=each.timestamp)
            for each in records
        ]
        self._producer.flush(TIMEOUT_SECONDS)
        for future in futures:
            future.get(TIMEOUT_SECONDS)

    def send_offset(self, topic: str, offset: int, group: str) -> None:
        committed = kafka.OffsetAndMetadata(offset, "", -1)
        self._producer.send_offsets_to_transaction({kafka.TopicPartition(topic, 0): committed}, group)

    def commit(self) -> None:
        self._producer.commit_transaction()

    def abort(self) -> None:
        self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(timeout=0)


class AiokafkaTransactional:
    def __init__(self, bootstrap: str, transactional_id: str):
        self._loop = asyncio.new_event_loop()

        async def start() -> aiokafka.AIOKafkaProducer:
            producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)
            try:
                await producer.start()
            except BaseException:
                await producer.stop()
                raise
            return producer

        self._producer = self._run(start())

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._loop.run_until_complete(asyncio.wait_for(work, TIMEOUT_SECONDS))

    def begin(self) -> None:
        self._run(self._producer.begin_transaction())

    def send(self, topic: str, records: Sequence[Record]) -> None:
        async def send() -> None:
            futures = [
                await self._producer.send(topic, each.value, each.key, each.partition, each.timestamp)
                for each in records
            ]
            for future in futures:
                await future

        self._run(send())

    def send_offset(self, topic: str, offset: int, group: str) -> None:
        tp = aiokafka.TopicPartition(topic, 0)
        self._run(self._producer.send_offsets_to_transaction({tp: offset}, group))

    def commit(self) -> None:
        self._run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._run(self._producer.abort_transaction())

    def close(self) -> None:
        try:
            self._run(self._producer.stop())
        finally:
            self._loop.close()


class JavaTransactional:
    def __init__(self, java: Java, transactional_id: str):
        self._java = java
        self._name = f"producer-{next(_names)}"
        self._step("init", settings={"transactional.id": transactional_id})

    def _step(self, step: str, **fields: Any) -> None:
        self._java.call("transaction", producer=self._name, step=step, **fields)

    def begin(self) -> None:
        self._step("begin")

    def send(self, topic: str, records: Sequence[Record]) -> None:
        self._step("send", topic=topic, records=[to_fields(each) for each in records])

    def send_offset(self, topic: str, offset: int, group: str) -> None:
        self._step("offset", topic=topic, offset=offset, group=group)

    def commit(self) -> None:
        self._step("commit")

    def abort(self) -> None:
        self._step("abort")

    def close(self) -> None:
        self._step("close")


class HeadraceTransactional:
    def __init__(self, bootstrap: str, transactional_id: str):
        self._producer = headrace.Producer(bootstrap_servers=bootstrap, transactional_id=transactional_id)
        self._producer.init_transactions()

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, records: Sequence[Record]) -> None:
        futures = [
            self._producer.send(topic, each.value, each.key, partition=each.partition, timestamp_ms=each.timestamp)
            for each in records
        ]
        for future in futures:
            future.get(timeout_ms=TIMEOUT_SECONDS * 1000)

    def send_offset(self, topic: str, offset: int, group: str) -> None:
        self._producer.send_offsets_to_transaction({TopicPartition(topic, 0): offset}, group)

    def commit(self) -> None:
        self._producer.commit_transaction()

    def abort(self) -> None:
        self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close()


IN_PROCESS: dict[str, Callable[[str, str], Transactional]] = {
    "confluent-kafka": ConfluentTransactional,
    "kafka-python": KafkaPythonTransactional,
    "aiokafka": AiokafkaTransactional,
}
