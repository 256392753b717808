import pytest
from tests.support.broker.admin_broker import NODE_ID, AdminBroker

from headrace.broker.handlers.list_offsets import _lookup
from headrace.cluster.commands import LeaderAndIsr, PartitionState
from headrace.common.errors import LeaderNotAvailableError, OffsetNotAvailableError
from headrace.common.types import TopicPartition
from headrace.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from headrace.records import DEFAULT_MAX_INFLATED_BYTES, Compression, RecordBatch, encode_rows


def test_finds_timestamp_in_a_batch_that_is_larger_than_the_default_limit() -> None:
    """A topic with a large `max.message.bytes` accepts it."""
    value = bytes(DEFAULT_MAX_INFLATED_BYTES)
    batch = RecordBatch(encode_rows([(None, value, 5, ())], codec=Compression.ZSTD))
    assert _lookup(batch, 5, 0) == (5, 0)


class TestNewLeader:
    """KIP-207: its high watermark may be behind that of its predecessor."""

    @pytest.fixture(autouse=True)
    def leader(self, broker: AdminBroker) -> None:
        topic_id = broker.create("t").topic_id
        tp, isr = TopicPartition("t", 0), (NODE_ID, 2)
        partition = broker.replicas.leader(*tp)
        for leader_epoch in 0, 1:
            state = PartitionState(tp, topic_id, NODE_ID, leader_epoch, isr, leader_epoch + 1, isr)
            broker.replicas.lead_or_follow(LeaderAndIsr(NODE_ID, 1, -1, [state]))
            for timestamp in 10, 20:
                partition.append(encode_rows([(None, b"v", timestamp, ())]), 1)
            if leader_epoch == 0:
                partition.follower_fetched(2, 1)

    @staticmethod
    def find(broker: AdminBroker, timestamp: int, version: int = 5, replica_id: int = -1) -> tuple[int, int]:
        partitions = [ListOffsetsPartition(partition_index=0, timestamp=timestamp)]
        topics = [ListOffsetsTopic(name="t", partitions=partitions)]
        response = broker.call(ListOffsetsRequest(replica_id=replica_id, topics=topics), version)
        found = response.topics[0].partitions[0]
        return found.error_code, found.offset

    @pytest.mark.parametrize("timestamp", [-1, 15, 30])
    def test_latest_and_uncommitted_offsets_are_not_available(self, broker: AdminBroker, timestamp: int) -> None:
        assert self.find(broker, timestamp) == (OffsetNotAvailableError.code, -1)
        assert self.find(broker, timestamp, version=4) == (LeaderNotAvailableError.code, -1)

    def test_committed_offsets_are_available(self, broker: AdminBroker) -> None:
        assert self.find(broker, -2) == (0, 0)
        assert self.find(broker, 10) == (0, 0)

    def test_followers_get_the_log_end(self, broker: AdminBroker) -> None:
        assert self.find(broker, -1, replica_id=2) == (0, 4)

    def test_available_once_the_epochs_start_is_committed(self, broker: AdminBroker) -> None:
        broker.replicas.find("t", 0).follower_fetched(2, 2)
        assert self.find(broker, -1) == (0, 2)
        assert self.find(broker, 30) == (0, -1)
