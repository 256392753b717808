"""Offsets that transactions commit for a group: only the owner of a partition can commit."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.broker.process import eventually

from headrace import Consumer, Producer, TopicPartition
from headrace.client.errors import CommitFailedError
from headrace.client.types import OffsetAndMetadata
from headrace.testing import EmbeddedBroker

PATIENCE = 60.0
TP = TopicPartition("in", 0)


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    settings = {
        "group.initial.rebalance.delay.ms": 0,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.num.partitions": 1,
    }
    with EmbeddedBroker(settings, topics={"in": 1, "out": 1}) as running:
        yield running


def make_consumer(broker: EmbeddedBroker, **settings: Any) -> Consumer:
    return Consumer(
        **{
            "bootstrap_servers": broker.bootstrap_servers,
            "group_id": "copiers",
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "isolation_level": "read_committed",
            "heartbeat_interval_ms": 100,
            **settings,
        }
    )


def wait_assigned(consumer: Consumer) -> None:
    eventually(lambda: consumer.poll(20) is not None and consumer.assignment(), "it has partitions", PATIENCE)


def test_exactly_once_from_topic_to_topic(broker: EmbeddedBroker) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(50):
            producer.send("in", b"%d" % number)
    copied = 0
    with Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="copier") as producer:
        producer.init_transactions()
        for life in range(3):  # each starts at the offsets of the previous one's transactions
            with make_consumer(broker) as consumer:
                consumer.subscribe(["in"])
                aborts = 0
                while copied < (life + 1) * 15:
                    for records in consumer.poll(100, max_records=5).values():
                        producer.begin_transaction()
                        for record in records:
                            producer.send("out", record.value)
                        offsets = {TP: OffsetAndMetadata(records[-1].offset + 1, "copied", -1)}
                        producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
                        if aborts == 0:
                            aborts += 1
                            producer.abort_transaction()
                            consumer.seek(TP, records[0].offset)
                        else:
                            producer.commit_transaction()
                            copied += len(records)
    with make_consumer(broker, group_id=None) as reader:
        out = TopicPartition("out", 0)
        reader.assign([out])
        values: list[bytes] = []
        eventually(
            lambda: values.extend(record.value for record in reader.poll(50).get(out, [])) or len(values) >= copied,
            "all is read",
            PATIENCE,
        )
    assert values == [b"%d" % number for number in range(copied)]
    with make_consumer(broker) as consumer:
        assert consumer.committed(TP, metadata=True) == OffsetAndMetadata(copied, "copied", -1)


def test_member_of_earlier_generation_cannot_commit(broker: EmbeddedBroker) -> None:
    with make_consumer(broker) as first, make_consumer(broker) as second:
        first.subscribe(["in"])
        wait_assigned(first)
        stale = first.group_metadata()
        second.subscribe(["in"])

        def both_are_in() -> bool:
            first.poll(20)
            second.poll(20)
            return first.group_metadata().generation_id == second.group_metadata().generation_id > stale.generation_id

        eventually(both_are_in, "the next generation starts", PATIENCE)
        with Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="zombie") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            with pytest.raises(CommitFailedError):
                producer.send_offsets_to_transaction({TP: 5}, stale)
            producer.abort_transaction()
            producer.begin_transaction()
            producer.send_offsets_to_transaction({TP: 7}, first.group_metadata())
            producer.commit_transaction()
        assert first.committed(TP) == 7
