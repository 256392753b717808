from typing import Any

from tests.support.broker.admin_broker import AdminBroker
from tests.support.storage.logs import START_MS, append, make_marker, send

from headrace.cluster.commands import PartitionState
from headrace.common.errors import (
    InvalidTopicError,
    KafkaStorageError,
    NotLeaderForPartitionError,
    UnknownTopicOrPartitionError,
)
from headrace.common.ids import Uuid
from headrace.common.types import TopicPartition
from headrace.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from headrace.records import ControlType
from headrace.storage.producer_state import AppendOrigin


def describe(broker: AdminBroker, topic: str, *indexes: int) -> list[Any]:
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=list(indexes))])
    (described,) = broker.call(request).topics
    assert described.name == topic
    assert [partition.partition_index for partition in described.partitions] == list(indexes)
    return list(described.partitions)


def test_describes_producers_and_transactions(broker: AdminBroker) -> None:
    broker.create("t", 2)
    log = broker.log("t", 1)
    append(log)  # of a producer without an id
    send(log, 7, sequence=0, count=3)
    send(log, 8, epoch=2, transactional=True)
    send(log, 9, transactional=True)
    log.append_as_leader(make_marker(ControlType.COMMIT, 9, coordinator_epoch=5), 0, AppendOrigin.COORDINATOR)
    nobody, some = describe(broker, "t", 0, 1)
    assert (nobody.error_code, nobody.active_producers) == (0, [])
    plain, open_transaction, ended = some.active_producers
    assert (plain.producer_id, plain.producer_epoch, plain.last_sequence, plain.last_timestamp) == (7, 0, 2, START_MS)
    assert (plain.coordinator_epoch, plain.current_txn_start_offset) == (-1, -1)
    assert (open_transaction.producer_id, open_transaction.producer_epoch) == (8, 2)
    assert open_transaction.current_txn_start_offset == 4
    assert (ended.producer_id, ended.coordinator_epoch, ended.current_txn_start_offset) == (9, 5, -1)


def test_errors_for_missing_partitions(broker: AdminBroker) -> None:
    broker.create("t")
    elsewhere = PartitionState(TopicPartition("far", 0), Uuid(int=5), 2, 0, (2,), 0, (2,))
    broker.update([elsewhere])
    for topic, index, error in (
        ("t", 1, UnknownTopicOrPartitionError),
        ("nope", 0, UnknownTopicOrPartitionError),
        ("x y", 0, InvalidTopicError),
        ("far", 0, NotLeaderForPartitionError),
    ):
        (result,) = describe(broker, topic, index)
        assert result.error_code == error.code, topic
        assert result.error_message


def test_offline_directory(broker: AdminBroker) -> None:
    broker.create("t")
    broker.log_manager.fail_directory(broker.log_manager.directories[0], "pulled out")
    assert describe(broker, "t", 0)[0].error_code == KafkaStorageError.code
