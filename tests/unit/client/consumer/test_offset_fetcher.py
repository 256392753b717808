"""Start positions, and validation of positions after a leader change, in virtual time."""

import asyncio

import pytest
from tests.support.client.fake_logs import FakeLogs
from tests.support.net.virtual_loop import run

from headrace.client.consumer.errors import TruncatedError
from headrace.client.errors import KafkaTimeoutError, NoOffsetForPartitionError
from headrace.client.types import OffsetAndMetadata, OffsetAndTimestamp
from headrace.common.errors import OffsetOutOfRangeError
from headrace.common.types import TopicPartition
from headrace.protocol import ApiKey
from headrace.protocol.messages.list_offsets import ListOffsetsResponse

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def make_logs(brokers=1, partitions=1, **options):
    logs = FakeLogs(brokers)
    logs.create("t", partitions, **options)
    for number in range(5):
        logs.append(("t", 0), b"%d" % number, timestamp=1000 * number)
    return logs


async def position_of(logs, **config):
    async with logs.consumer(**config) as consumer:
        consumer.assign([T0])
        return await consumer.position(T0)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("earliest", 0),
        ("latest", 5),
        ("smallest", 0),
        ("largest", 5),
        # Virtual time starts at 1000 seconds; the records have timestamps of seconds 0 to 4.
        ("by_duration:PT16M37S", 3),
        ("by_duration:PT1S", 5),
        ("by_duration:P1D", 0),
    ],
)
def test_reset_without_committed_offset(policy, expected):
    assert run(position_of(make_logs(), auto_offset_reset=policy)) == expected


def test_reset_none_raises_until_seek():
    async def test():
        logs = make_logs()
        async with logs.consumer(auto_offset_reset="none") as consumer:
            consumer.assign([T0])
            for _ in range(2):
                with pytest.raises(NoOffsetForPartitionError, match="t-0"):
                    await consumer.poll(5000)
            consumer.seek(T0, 3)
            assert [record.value for record in (await consumer.poll(1000))[T0]] == [b"3", b"4"]
            assert await consumer.poll(2000) == {}

    run(test())


def test_finds_moved_leader():
    async def test():
        logs = make_logs(brokers=2, partitions=1)
        async with logs.consumer(auto_offset_reset="earliest") as consumer:
            await consumer.beginning_offsets([T0])
            logs.move(("t", 0), 2)
            consumer.assign([T0])
            assert await consumer.position(T0) == 0

    run(test())


def test_seek_overtakes_query():
    async def test():
        logs = make_logs()
        async with logs.consumer(auto_offset_reset="earliest") as consumer:
            await consumer.beginning_offsets([T0])
            logs.broker(1).latency = 1.0
            consumer.assign([T0])
            await asyncio.sleep(0.1)
            consumer.seek(T0, 2)
            await asyncio.sleep(3)
            assert await consumer.position(T0) == 2

    run(test())


class SlowCommittedOffsets:
    """Committed offsets that arrive late."""

    def __init__(self, offset, leader_epoch=-1):
        self.offset = OffsetAndMetadata(offset, "", leader_epoch)

    async def committed(self, tps):
        await asyncio.sleep(1)
        return dict.fromkeys(tps, self.offset)


def test_seek_overtakes_committed_offset():
    async def test():
        logs = make_logs()
        async with logs.consumer(auto_offset_reset="earliest") as consumer:
            consumer._core.offset_fetcher._committed = SlowCommittedOffsets(4)
            consumer.assign([T0])
            await asyncio.sleep(0.1)
            consumer.seek(T0, 2)
            await asyncio.sleep(3)
            assert await consumer.position(T0) == 2
            consumer.assign([])
            consumer.assign([T0])
            assert await consumer.position(T0) == 4

    run(test())


def test_offset_lookup_times_out():
    async def test():
        logs = make_logs()
        async with logs.consumer(auto_offset_reset="earliest") as consumer:
            logs.broker(1).on(ApiKey.LIST_OFFSETS, lambda request: None)
            consumer.assign([T0])
            with pytest.raises(KafkaTimeoutError, match="t-0"):
                await consumer.position(T0, timeout_ms=500)
            with pytest.raises(KafkaTimeoutError, match="in 500 ms: no offset for partition t-0"):
                await consumer.end_offsets([T0], timeout_ms=500)

    run(test())


def test_retries_response_without_partition():
    async def test():
        logs = make_logs()
        answer = logs.broker(1).handlers[ApiKey.LIST_OFFSETS]
        logs.broker(1).on(ApiKey.LIST_OFFSETS, lambda request: ListOffsetsResponse())
        async with logs.consumer(auto_offset_reset="latest") as consumer:
            consumer.assign([T0])
            with pytest.raises(KafkaTimeoutError):
                await consumer.position(T0, timeout_ms=500)
            logs.broker(1).on(ApiKey.LIST_OFFSETS, answer)
            assert await consumer.position(T0) == 5

    run(test())


def test_offsets_for_times():
    async def test():
        logs = make_logs(partitions=2)
        async with logs.consumer() as consumer:
            found = await consumer.offsets_for_times({T0: 1500, T1: 1500})
            assert found == {T0: OffsetAndTimestamp(2, 2000, 0), T1: None}
            assert await consumer.offsets_for_times({}) == {}
            with pytest.raises(ValueError, match="milliseconds"):
                await consumer.offsets_for_times({T0: -1})
            consumer.assign([T0, T1])
            consumer.seek_to_timestamp(1500)
            assert (await consumer.position(T0), await consumer.position(T1)) == (2, 0)

    run(test())


class TestTruncation:
    """KIP-320."""

    async def read_all(self, consumer):
        consumer.assign([T0])
        found = []
        while len(found) < 5:
            found += [record.value for record in (await consumer.poll(1000)).get(T0, [])]
        return found

    def test_leader_with_all_records(self):
        async def test():
            logs = make_logs(brokers=2)
            async with logs.consumer(auto_offset_reset="earliest") as consumer:
                await self.read_all(consumer)
                logs.move(("t", 0), 2)
                logs.append(("t", 0), b"5")
                records = (await consumer.poll(5000))[T0]
                assert [(record.value, record.leader_epoch) for record in records] == [(b"5", 1)]
            (asked,) = logs.broker(2).asked(ApiKey.OFFSET_FOR_LEADER_EPOCH)
            part = asked.message.topics[0].partitions[0]
            assert (part.leader_epoch, part.current_leader_epoch) == (0, 1)

        run(test())

    def test_position_at_the_end_of_an_epoch_is_valid(self):
        async def test():
            logs = make_logs(brokers=2)
            async with logs.consumer(auto_offset_reset="none") as consumer:
                consumer.assign([T0])
                consumer.seek(T0, 0)
                await self.read_all(consumer)
                logs.move(("t", 0), 2)
                logs.append(("t", 0), b"5")
                assert [record.offset for record in (await consumer.poll(5000))[T0]] == [5]
            assert len(logs.broker(2).asked(ApiKey.OFFSET_FOR_LEADER_EPOCH)) == 1

        run(test())

    def test_leader_with_truncated_log(self):
        async def test():
            logs = make_logs(brokers=2)
            async with logs.consumer(auto_offset_reset="latest") as consumer:
                consumer.assign([T0])
                consumer.seek(T0, 0)
                await self.read_all(consumer)
                logs.truncate(("t", 0), 3)
                logs.move(("t", 0), 2)
                logs.append(("t", 0), b"new 3", b"new 4")
                records = (await consumer.poll(5000))[T0]
                assert [(record.offset, record.value) for record in records] == [(3, b"new 3"), (4, b"new 4")]

        run(test())

    def test_truncation_raises_without_reset_policy(self):
        async def test():
            logs = make_logs(brokers=2)
            async with logs.consumer(auto_offset_reset="none") as consumer:
                consumer.assign([T0])
                consumer.seek(T0, 0)
                await self.read_all(consumer)
                logs.truncate(("t", 0), 3)
                logs.move(("t", 0), 2)
                logs.append(("t", 0), b"new 3", b"new 4")
                for _ in range(2):
                    with pytest.raises(TruncatedError, match="offset is 3") as raised:
                        await consumer.poll(5000)
                    assert raised.value.divergent == OffsetAndMetadata(3, "", 0)
                    assert raised.value.offset == 5
                consumer.seek(T0, 3)
                assert [record.value for record in (await consumer.poll(5000))[T0]] == [b"new 3", b"new 4"]

        run(test())

    def test_truncation_drops_buffered_records(self):
        async def test():
            logs = make_logs(brokers=2)
            async with logs.consumer(auto_offset_reset="earliest", max_poll_records=1) as consumer:
                consumer.assign([T0])
                assert [record.value for record in (await consumer.poll(1000))[T0]] == [b"0"]
                await asyncio.sleep(1)
                logs.truncate(("t", 0), 3)
                logs.move(("t", 0), 2)
                logs.append(("t", 0), b"new 3")
                await asyncio.sleep(1)
                found = [record.value for _ in range(3) for record in (await consumer.poll(1000))[T0]]
                assert found == [b"1", b"2", b"new 3"]

        run(test())

    def test_validation_of_position_before_seek_is_ignored(self):
        """The response says that epoch 0 ends at 5. That is below the new position, which has epoch 1."""

        async def test():
            logs = make_logs(brokers=2)
            logs.move(("t", 0), 2)
            logs.append(("t", 0), b"5", b"6")
            async with logs.consumer(auto_offset_reset="earliest") as consumer:
                await consumer.beginning_offsets([T0])
                logs.broker(2).latency = 1.0
                consumer.assign([T0])
                consumer.seek(T0, OffsetAndMetadata(2, "", 0))
                await asyncio.sleep(0.5)
                assert len(logs.broker(2).asked(ApiKey.OFFSET_FOR_LEADER_EPOCH)) == 1
                consumer.seek(T0, OffsetAndMetadata(6, "", 1))
                await asyncio.sleep(5)
                assert [record.offset for record in (await consumer.poll(5000))[T0]] == [6]

        run(test())

    def test_leader_does_not_know_epoch(self):
        async def test():
            logs = make_logs()
            logs.logs["t", 0].epoch = 7
            logs.publish_metadata("t")
            logs.logs["t", 0].batches = [(*each[:2], 7, *each[3:]) for each in logs.logs["t", 0].batches]
            async with logs.consumer(auto_offset_reset="earliest") as consumer:
                consumer.assign([T0])
                consumer.seek(T0, OffsetAndMetadata(4, "", 2))
                assert (await consumer.poll(5000))[T0][0].offset == 0

        run(test())

    def test_broker_without_validation_is_trusted(self):
        async def test():
            logs = make_logs(brokers=2)
            for broker in logs.cluster.brokers:
                broker.versions[ApiKey.OFFSET_FOR_LEADER_EPOCH] = (2, 2)
            async with logs.consumer(auto_offset_reset="earliest") as consumer:
                await self.read_all(consumer)
                logs.move(("t", 0), 2)
                logs.append(("t", 0), b"5")
                assert [record.value for record in (await consumer.poll(5000))[T0]] == [b"5"]

        run(test())


class TestReplacedLeader:
    """The metadata names a leader that was replaced, but does not know it, and lacks the last records."""

    def make_logs(self):
        logs = make_logs(brokers=2)
        logs.isolate_leader(("t", 0), end=3, leader=2)
        logs.append(("t", 0), b"5", b"6")
        return logs

    @pytest.mark.parametrize("policy", ["earliest", "latest", "none"])
    @pytest.mark.parametrize("is_committed", [True, False])
    def test_position_with_later_epoch_waits_for_its_leader(self, policy, is_committed):
        async def test():
            logs = self.make_logs()
            async with logs.consumer(auto_offset_reset=policy) as consumer:
                if is_committed:
                    consumer._core.offset_fetcher._committed = SlowCommittedOffsets(6, 1)
                consumer.assign([T0])
                if not is_committed:
                    consumer.seek(T0, OffsetAndMetadata(6, "", 1))
                assert await consumer.poll(3000) == {}
                assert not logs.fetched
                assert not logs.broker(1).asked(ApiKey.OFFSET_FOR_LEADER_EPOCH)
                logs.publish_metadata("t")
                assert [record.offset for record in (await consumer.poll(5000))[T0]] == [6]
            assert {broker for broker, _ in logs.fetched} == {2}

        run(test())

    def test_topic_missing_for_a_while_keeps_its_leader(self):
        async def test():
            logs = self.make_logs()
            former = logs.cluster.topics["t"]
            logs.publish_metadata("t")
            async with logs.consumer(auto_offset_reset="latest", metadata_max_age_ms=1000) as consumer:
                consumer.assign([T0])
                consumer.seek(T0, 5)
                assert [record.offset for record in (await consumer.poll(5000))[T0]] == [5, 6]
                del logs.cluster.topics["t"]
                await asyncio.sleep(2)
                logs.cluster.topics["t"] = former
                await asyncio.sleep(5)
                logs.append(("t", 0), b"7")
                assert [record.offset for record in (await consumer.poll(5000))[T0]] == [7]
            assert {broker for broker, _ in logs.fetched} == {2}

        run(test())

    def test_out_of_range_after_the_leader_changed_does_not_reset(self):
        """The broker leads again, in a later epoch: what it answered before counts no more."""

        async def test():
            logs = make_logs(brokers=2)
            async with logs.consumer(auto_offset_reset="earliest", fetch_max_wait_ms=5000) as consumer:
                consumer.assign([T0])
                consumer.seek(T0, OffsetAndMetadata(5, "", 0))
                assert await consumer.poll(1000) == {}
                log = logs.logs["t", 0]
                log.epoch = 2
                consumer._core.client.metadata.note_leader(T0, 1, 2)
                log.error = OffsetOutOfRangeError.code
                logs.complete_fetches()
                log.error = 0
                logs.append(("t", 0), b"5")
                assert [record.offset for record in (await consumer.poll(5000))[T0]] == [5]

        run(test())

    def test_topic_recreated_with_earlier_epochs_is_read(self):
        async def test():
            logs = make_logs()
            logs.logs["t", 0].epoch = 3
            logs.publish_metadata("t")
            logs.append(("t", 0), b"5")
            async with logs.consumer(auto_offset_reset="earliest", metadata_max_age_ms=1000) as consumer:
                consumer.assign([T0])
                consumer.seek(T0, 5)
                assert [record.value for record in (await consumer.poll(5000))[T0]] == [b"5"]
                logs.create("t")
                logs.append(("t", 0), b"new")
                assert [record.value for record in (await consumer.poll(5000))[T0]] == [b"new"]

        run(test())
