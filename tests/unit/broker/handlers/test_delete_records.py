from typing import Any

import pytest
from tests.support.broker.admin_broker import AdminBroker
from tests.support.storage.logs import append

from headrace.common.errors import (
    InvalidTopicError,
    KafkaStorageError,
    OffsetOutOfRangeError,
    PolicyViolationError,
    UnknownTopicOrPartitionError,
)
from headrace.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic


def delete(broker: AdminBroker, *asked: tuple[str, int, int], version: int = 2) -> list[tuple[int, int]]:
    """Returns error code and low watermark of each partition."""
    topics = [
        DeleteRecordsTopic(name=name, partitions=[DeleteRecordsPartition(partition_index=index, offset=offset)])
        for name, index, offset in asked
    ]
    reply: Any = broker.call(DeleteRecordsRequest(topics=topics, timeout_ms=1000), version)
    assert [topic.name for topic in reply.topics] == [name for name, _, _ in asked]
    return [(topic.partitions[0].error_code, topic.partitions[0].low_watermark) for topic in reply.topics]


@pytest.mark.parametrize("version", range(3))
def test_advances_the_log_start_offset(broker: AdminBroker, version: int) -> None:
    broker.create("t", 2)
    append(broker.log("t", 1), count=5)
    assert delete(broker, ("t", 1, 3), version=version) == [(0, 3)]
    assert broker.log("t", 1).log_start_offset == 3
    assert delete(broker, ("t", 1, 2), version=version) == [(0, 3)]


def test_deletes_up_to_the_high_watermark(broker: AdminBroker) -> None:
    broker.create("t")
    append(broker.log("t"), count=5)
    append(broker.log("t"), count=2, replicated=False)
    assert delete(broker, ("t", 0, 6)) == [(OffsetOutOfRangeError.code, -1)]
    assert delete(broker, ("t", 0, -1)) == [(0, 5)]


def test_each_partition_fails_on_its_own(broker: AdminBroker) -> None:
    broker.create("t")
    broker.create("compacted", cleanup_policy="compact")
    broker.create("both", cleanup_policy="compact,delete")
    broker.create("__consumer_offsets")
    assert delete(
        broker,
        ("t", 1, 0),
        ("nope", 0, 0),
        ("compacted", 0, 0),
        ("__consumer_offsets", 0, 0),
        ("t", 0, -2),
        ("both", 0, 0),
    ) == [
        (UnknownTopicOrPartitionError.code, -1),
        (UnknownTopicOrPartitionError.code, -1),
        (PolicyViolationError.code, -1),
        (InvalidTopicError.code, -1),
        (OffsetOutOfRangeError.code, -1),
        (0, 0),
    ]


def test_offline_directory(broker: AdminBroker) -> None:
    broker.create("t")
    broker.log_manager.fail_directory(broker.log_manager.directories[0], "pulled out")
    assert delete(broker, ("t", 0, 0)) == [(KafkaStorageError.code, -1)]
