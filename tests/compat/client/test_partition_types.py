"""Headrace's clients accept topic partitions and offsets of kafka-python, aiokafka and confluent-kafka."""

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import aiokafka
import aiokafka.structs
import confluent_kafka
import kafka
import kafka.structs
import pytest

import headrace
import headrace.aio
from headrace.admin import AbortTransactionSpec, OffsetSpec
from headrace.testing import EmbeddedBroker

TOPIC = "types"
PATIENCE_MS = 30_000


def confluent_offset(offset: int) -> Any:
    return confluent_kafka.TopicPartition(TOPIC, 0, offset)


CLIENTS = {
    "kafka-python": (kafka.TopicPartition, lambda offset: kafka.structs.OffsetAndMetadata(offset, "m", -1)),
    "aiokafka": (aiokafka.TopicPartition, lambda offset: aiokafka.structs.OffsetAndMetadata(offset, "m")),
    "confluent-kafka": (confluent_kafka.TopicPartition, confluent_offset),
}


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={TOPIC: 2}) as running:
        with headrace.Producer(bootstrap_servers=running.bootstrap_servers) as producer:
            for number in range(10):
                producer.send(TOPIC, b"%d" % number, partition=0, timestamp_ms=1000 + number)
        yield running


@pytest.fixture(params=sorted(CLIENTS))
def types(request: pytest.FixtureRequest) -> SimpleNamespace:
    make_partition, make_offset = CLIENTS[request.param]
    return SimpleNamespace(name=request.param, tp=make_partition(TOPIC, 0), offset=make_offset)


def test_consumer(broker: EmbeddedBroker, types: SimpleNamespace) -> None:
    tp, ours = types.tp, headrace.TopicPartition(TOPIC, 0)
    with headrace.Consumer(
        bootstrap_servers=broker.bootstrap_servers, group_id=f"of-{types.name}", enable_auto_commit=False
    ) as consumer:
        consumer.assign([tp])
        assert consumer.assignment() == {ours}
        consumer.seek(tp, types.offset(4))
        assert consumer.position(tp) == 4
        consumer.pause(tp)
        assert consumer.paused() == {ours}
        consumer.resume(tp)
        assert consumer.poll(PATIENCE_MS, max_records=1)[ours][0].value == b"4"
        assert consumer.highwater(tp) == 10
        assert consumer.current_lag(tp) == 5
        consumer.seek_to_beginning(tp)
        consumer.seek_to_end(tp)
        consumer.seek_to_tail(2, tp)
        consumer.seek_to_timestamp(1003, tp)
        assert consumer.position(tp) == 3
        assert consumer.beginning_offsets([tp]) == {ours: 0}
        assert consumer.end_offsets([tp]) == {ours: 10}
        assert consumer.offsets_for_times({tp: 1005}) == {ours: headrace.OffsetAndTimestamp(5, 1005, 0)}
        consumer.commit({tp: types.offset(6)})
        assert consumer.committed(tp) == 6
        assert consumer.commit_async({tp: 7}).get(timeout_ms=PATIENCE_MS) == {ours: headrace.OffsetAndMetadata(7)}
        assert consumer.committed(tp, metadata=True) == headrace.OffsetAndMetadata(7)


def test_asyncio_consumer(broker: EmbeddedBroker, types: SimpleNamespace) -> None:
    tp, ours = types.tp, headrace.TopicPartition(TOPIC, 0)

    async def main() -> None:
        async with headrace.aio.Consumer(
            bootstrap_servers=broker.bootstrap_servers, group_id=f"aio-{types.name}", enable_auto_commit=False
        ) as consumer:
            consumer.assign([tp])
            consumer.seek(tp, types.offset(4))
            consumer.pause(tp)
            consumer.resume(tp)
            assert await consumer.position(tp) == 4
            assert await consumer.end_offsets([tp]) == {ours: 10}
            assert (await consumer.offsets_for_times({tp: 1005}))[ours].offset == 5
            await consumer.commit({tp: types.offset(6)})
            assert await consumer.committed(tp) == 6
            assert await consumer.commit_async({tp: 7}) == {ours: headrace.OffsetAndMetadata(7)}

    asyncio.run(main())


def test_admin(broker: EmbeddedBroker, types: SimpleNamespace) -> None:
    tp, ours, group = types.tp, headrace.TopicPartition(TOPIC, 0), f"admin-{types.name}"
    with headrace.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        assert admin.list_partition_offsets({tp: OffsetSpec.LATEST})[ours].offset == 10
        assert admin.delete_records({tp: 0})[ours].low_watermark == 0
        assert list(admin.describe_producers([tp])) == [ours]
        admin.alter_group_offsets(group, {tp: types.offset(3)})
        assert admin.list_group_offsets({group: [tp]})[group][ours].offset == 3
        admin.reset_group_offsets(group, {tp: OffsetSpec.LATEST})
        assert admin.list_group_offsets(group)[group][ours].offset == 10
        admin.delete_group_offsets(group, [tp])
        assert admin.list_group_offsets(group)[group].offsets == {}
        admin.abort_transaction(AbortTransactionSpec(type(tp)(TOPIC, 1), 999_999, 0))


def test_transaction(broker: EmbeddedBroker, types: SimpleNamespace) -> None:
    ours, group = headrace.TopicPartition(TOPIC, 0), f"transaction-{types.name}"
    with headrace.Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id=group) as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send_offsets_to_transaction({types.tp: types.offset(8)}, kafka.ConsumerGroupMetadata(group))
    with headrace.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        assert admin.list_group_offsets({group: [ours]}, require_stable=True)[group][ours].offset == 8
