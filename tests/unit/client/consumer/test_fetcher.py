"""Fetching in virtual time from brokers without sockets: the whole consumer except the network."""

import asyncio
import contextlib

import pytest
from tests.support.client.fake_logs import FakeLogs, tps
from tests.support.net.virtual_loop import run

from headrace.client.consumer.errors import CorruptBatchError, OffsetsLostError
from headrace.client.errors import KafkaTimeoutError
from headrace.common.errors import (
    NotLeaderForPartitionError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from headrace.common.types import TopicPartition
from headrace.protocol import ApiKey
from headrace.protocol.messages.fetch import FetchResponse, LeaderIdAndEpoch, NodeEndpoint
from headrace.records import ControlType, encode_marker

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def virtual(test):
    """Runs a coroutine function on a loop with virtual time."""

    def wrapper(*arguments, **keywords):
        run(test(*arguments, **keywords))

    wrapper.__name__ = test.__name__
    wrapper.__doc__ = test.__doc__
    wrapper.pytestmark = getattr(test, "pytestmark", [])  # type: ignore[attr-defined]
    return wrapper


async def values(consumer, count, timeout_ms=10_000, max_records=None):
    """Reads `count` values; returns them by partition."""
    found = {}
    total = 0
    deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
    while total < count:
        left = (deadline - asyncio.get_running_loop().time()) * 1000
        assert left > 0, f"only {total} of {count} records arrived: {found}"
        for tp, records in (await consumer.poll(left, max_records)).items():
            found.setdefault(tp, []).extend(record.value for record in records)
            total += len(records)
    return found


def numbered(*numbers):
    return [b"%d" % number for number in numbers]


@virtual
async def test_fetches_from_several_brokers():
    logs = FakeLogs(brokers=2)
    logs.create("t", 2, leaders=[1, 2])
    logs.append(("t", 0), *numbered(0, 1, 2))
    logs.append(("t", 1), *numbered(10, 11))
    async with logs.consumer(auto_offset_reset="earliest") as consumer:
        consumer.assign([T0, T1])
        assert await values(consumer, 5) == {T0: numbered(0, 1, 2), T1: numbered(10, 11)}
        assert await consumer.position(T0) == 3
        assert consumer.highwater(T0) == 3
        assert consumer.current_lag(T1) == 0
        logs.append(("t", 0), *numbered(3))
        assert await values(consumer, 1) == {T0: numbered(3)}


@virtual
async def test_poll_respects_max_records():
    logs = FakeLogs()
    logs.create("t")
    logs.append(("t", 0), *numbered(*range(10)))
    async with logs.consumer(auto_offset_reset="earliest", max_poll_records=4) as consumer:
        consumer.assign([T0])
        polls = [len((await consumer.poll(1000))[T0]) for _ in range(3)]
        assert polls == [4, 4, 2]
        assert await consumer.poll(0) == {}


@virtual
async def test_session_sends_partition_once():
    logs = FakeLogs()
    logs.create("t", 2)
    logs.append(("t", 0), *numbered(0))
    logs.append(("t", 1), *numbered(1))
    async with logs.consumer(auto_offset_reset="earliest") as consumer:
        consumer.assign([T0, T1])
        await values(consumer, 2)
        logs.append(("t", 1), *numbered(2))
        await values(consumer, 1)
        consumer.pause(T0)
        logs.append(("t", 1), *numbered(3))
        await values(consumer, 1)
        await asyncio.sleep(1)
    fetches = [each.message for each in logs.broker(1).asked(ApiKey.FETCH)]
    assert [each.session_epoch for each in fetches] == list(range(len(fetches)))
    assert [len(each.topics) for each in fetches[-1:]] == [0]
    forgotten = [topic.partitions for each in fetches for topic in each.forgotten_topics_data]
    assert forgotten == [[0]]


@virtual
async def test_recreates_evicted_session():
    logs = FakeLogs()
    logs.create("t")
    logs.append(("t", 0), *numbered(0))
    async with logs.consumer(auto_offset_reset="earliest") as consumer:
        consumer.assign([T0])
        await values(consumer, 1)
        logs.sessions.clear()
        logs.append(("t", 0), *numbered(1))
        assert await values(consumer, 1) == {T0: numbered(1)}
    assert len(logs.sessions) == 1


@virtual
async def test_without_sessions_every_fetch_is_full():
    logs = FakeLogs()
    logs.create("t")
    async with logs.consumer(auto_offset_reset="earliest", enable_incremental_fetch_sessions=False) as consumer:
        consumer.assign([T0])
        await consumer.poll(2000)
    fetches = [each.message for each in logs.broker(1).asked(ApiKey.FETCH)]
    assert {each.session_epoch for each in fetches} == {-1}
    assert all(each.topics for each in fetches)


@virtual
async def test_broker_without_session_gets_full_requests():
    logs = FakeLogs()
    logs.has_sessions = False
    logs.create("t")
    logs.append(("t", 0), *numbered(0))
    async with logs.consumer(auto_offset_reset="earliest") as consumer:
        consumer.assign([T0])
        await values(consumer, 1)
        logs.append(("t", 0), *numbered(1))
        assert await values(consumer, 1) == {T0: numbered(1)}
    assert {each.message.session_epoch for each in logs.broker(1).asked(ApiKey.FETCH)} == {0}


@pytest.mark.parametrize("with_id", [True, False])
def test_uses_topic_ids_if_available(with_id):
    async def test():
        logs = FakeLogs()
        logs.create("t", with_id=with_id)
        logs.append(("t", 0), *numbered(0))
        async with logs.consumer(auto_offset_reset="earliest") as consumer:
            consumer.assign([T0])
            await values(consumer, 1)
        versions = {each.version for each in logs.broker(1).asked(ApiKey.FETCH)}
        assert versions == ({18} if with_id else {12})

    run(test())


@virtual
async def test_old_broker_gets_topic_names():
    logs = FakeLogs()
    logs.create("t")
    logs.broker(1).versions[ApiKey.FETCH] = (4, 11)
    logs.append(("t", 0), *numbered(0))
    async with logs.consumer(auto_offset_reset="earliest") as consumer:
        consumer.assign([T0])
        assert await values(consumer, 1) == {T0: numbered(0)}


class TestPrefetch:
    @virtual
    async def test_prefetches_a_limited_number_of_rounds(self):
        logs = FakeLogs()
        logs.create("t")
        for number in range(100):
            logs.append(("t", 0), b"%03d" % number * 300)
        async with logs.consumer(auto_offset_reset="earliest", max_partition_fetch_bytes=1000) as consumer:
            consumer.assign([T0])
            await consumer.poll(1000, max_records=1)
            await asyncio.sleep(60)
            ahead = max(logs.requested_offsets(("t", 0)))
            assert 2 <= ahead <= 8
            found = await values(consumer, 99, max_records=1)
            assert found[T0] == [b"%03d" % number * 300 for number in range(1, 100)]

    @virtual
    async def test_buffer_is_bounded_and_responses_are_large(self):
        logs = FakeLogs()
        logs.create("t", 4)
        for number in range(400):
            logs.append(("t", number % 4), b"%03d" % number * 300)
        round_bytes = 4000
        partitions = [TopicPartition("t", index) for index in range(4)]
        async with logs.consumer(auto_offset_reset="earliest", max_partition_fetch_bytes=round_bytes) as consumer:
            consumer.assign(partitions)
            buffer = consumer._core.buffer
            found, most = 0, 0
            while found < 350:  # before the end, where there are many small fetches
                for records in (await consumer.poll(1000, max_records=1)).values():
                    found += len(records)
                await asyncio.sleep(0.02)  # the user is slow: the buffer fills up to its limit
                assert all(buffer.buffered_bytes(tp) <= 4 * round_bytes for tp in partitions)
                most = max(most, buffer.size_in_bytes)
            assert 8 * round_bytes < most <= 16 * round_bytes
            assert len(logs.fetched) <= 30  # 4 partitions each: 100 rounds of one partition

    @virtual
    async def test_total_buffer_stays_below_limit(self):
        logs = FakeLogs()
        logs.create("t", 2)
        for number in range(100):
            logs.append(("t", 0), b"%03d" % number * 1000)
            logs.append(("t", 1), b"%03d" % number * 1000)
        async with logs.consumer(
            auto_offset_reset="earliest", max_partition_fetch_bytes=3500, queued_max_messages_kbytes=10
        ) as consumer:
            consumer.assign([T0, T1])
            await consumer.poll(1000, max_records=1)
            await asyncio.sleep(60)
            ahead = [max(logs.requested_offsets(place)) for place in logs.logs]
            assert sum(ahead) <= 8
            found = await values(consumer, 199, max_records=7)
            assert len(found[T0]) + len(found[T1]) == 199

    @virtual
    async def test_requests_a_byte_if_buffer_fills_up_while_connecting(self):
        """A broker would respond to a request for 0 bytes at once, without waiting for records."""
        logs = FakeLogs(brokers=2)
        logs.create("t", 2, leaders=[1, 2])
        logs.append(("t", 0), b"v" * 20_000)
        logs.broker(2).latency = 1.0
        async with logs.consumer(auto_offset_reset="earliest", queued_max_messages_kbytes=10) as consumer:
            consumer.assign([T0, T1])
            for tp in (T0, T1):
                consumer.seek(tp, 0)
            await consumer.poll(0)
            await asyncio.sleep(10)
            assert [each.message.max_bytes for each in logs.broker(1).asked(ApiKey.FETCH)] == [10 * 1024]
            assert [each.message.max_bytes for each in logs.broker(2).asked(ApiKey.FETCH)] == [1]
            assert await values(consumer, 1) == {T0: [b"v" * 20_000]}

    @virtual
    async def test_paused_partitions_free_the_buffer(self):
        logs = FakeLogs()
        logs.create("t", 2)
        for number in range(20):
            logs.append(("t", 0), b"%03d" % number * 1000)
        async with logs.consumer(
            auto_offset_reset="earliest", max_partition_fetch_bytes=5000, queued_max_messages_kbytes=10
        ) as consumer:
            consumer.assign([T0, T1])
            assert len((await consumer.poll(1000, max_records=1))[T0]) == 1
            await asyncio.sleep(5)
            consumer.pause(T0)
            logs.append(("t", 1), *numbered(1))
            assert await values(consumer, 1) == {T1: numbered(1)}
            consumer.resume(T0)
            assert await values(consumer, 19) == {T0: [b"%03d" % number * 1000 for number in range(1, 20)]}

    @virtual
    async def test_empty_partition_does_not_delay_full_one(self):
        logs = FakeLogs()
        logs.create("t", 2)
        for number in range(200):
            logs.append(("t", 0), b"%03d" % number * 300)
        async with logs.consumer(auto_offset_reset="earliest", max_partition_fetch_bytes=1000) as consumer:
            consumer.assign([T0, T1])
            began = asyncio.get_running_loop().time()
            await values(consumer, 200, max_records=1)
            assert asyncio.get_running_loop().time() - began < 5  # not 50 times half a second

    @virtual
    async def test_empty_partition_does_not_delay_pending_position(self):
        logs = FakeLogs()
        logs.create("t", 2)
        logs.append(("t", 1), *numbered(0))
        async with logs.consumer(auto_offset_reset="earliest") as consumer:
            await consumer.beginning_offsets([T0])
            loop = asyncio.get_running_loop()
            logs.broker(1).latency = 0.05
            consumer.assign([T0, T1])
            consumer.seek(T0, 0)
            began = loop.time()
            assert await values(consumer, 1) == {T1: numbered(0)}
            assert loop.time() - began < 0.4


class TestSeeks:
    @virtual
    async def test_drops_response_from_before_seek(self):
        logs = FakeLogs()
        logs.create("t")
        logs.append(("t", 0), *numbered(*range(5)))
        async with logs.consumer(auto_offset_reset="earliest") as consumer:
            consumer.assign([T0])
            assert await consumer.position(T0) == 0
            logs.broker(1).latency = 0.2
            consumer.seek(T0, 0)
            while not logs.fetched:
                await asyncio.sleep(0.01)
            consumer.seek(T0, 3)
            assert await values(consumer, 2) == {T0: numbered(3, 4)}
            assert logs.requested_offsets(("t", 0))[:2] == [0, 3]

    @virtual
    async def test_seek_drops_buffered_records(self):
        logs = FakeLogs()
        logs.create("t")
        logs.append(("t", 0), *numbered(*range(5)))
        async with logs.consumer(auto_offset_reset="earliest") as consumer:
            consumer.assign([T0])
            assert len((await consumer.poll(1000, max_records=1))[T0]) == 1
            consumer.seek(T0, 4)
            assert await values(consumer, 1) == {T0: numbered(4)}

    @virtual
    async def test_seek_to_end_beginning_and_tail(self):
        logs = FakeLogs()
        logs.create("t")
        logs.append(("t", 0), *numbered(*range(5)))
        async with logs.consumer() as consumer:
            consumer.assign([T0])
            assert await consumer.position(T0) == 5
            consumer.seek_to_beginning(T0)
            assert await consumer.position(T0) == 0
            consumer.seek_to_tail(2)
            assert await consumer.position(T0) == 3
            consumer.seek_to_tail(100)
            assert await consumer.position(T0) == 0
            consumer.seek_to_end()
            assert await consumer.position(T0) == 5
            consumer.seek_to_beginning()
            consumer.seek_to_tail(0)
            assert await consumer.position(T0) == 5
            logs.logs["t", 0].start = 4
            consumer.seek_to_tail(3)
            assert await consumer.position(T0) == 4

    @virtual
    async def test_paused_partition_keeps_buffered_records(self):
        logs = FakeLogs()
        logs.create("t", 2)
        logs.append(("t", 0), *numbered(0, 1))
        logs.append(("t", 1), *numbered(10))
        async with logs.consumer(auto_offset_reset="earliest") as consumer:
            consumer.assign([T0, T1])
            consumer.pause(T0)
            assert consumer.paused() == {T0}
            assert await values(consumer, 1) == {T1: numbered(10)}
            assert await consumer.poll(2000) == {}
            consumer.resume(T0)
            assert await values(consumer, 2) == {T0: numbered(0, 1)}


class TestLeaders:
    @virtual
    async def test_finds_new_leader(self):
        logs = FakeLogs(brokers=2)
        logs.create("t")
        logs.append(("t", 0), *numbered(0))
        async with logs.consumer(auto_offset_reset="earliest") as consumer:
            consumer.assign([T0])
            await values(consumer, 1)
            logs.move(("t", 0), 2)
            logs.append(("t", 0), *numbered(1, 2))
            assert await values(consumer, 2) == {T0: numbered(1, 2)}
            assert logs.fetched[-1][0] == 2
        assert len(logs.broker(2).asked(ApiKey.OFFSET_FOR_LEADER_EPOCH)) == 1

    @virtual
    async def test_uses_current_leader_of_response(self):
        """KIP-951."""
        logs = FakeLogs(brokers=2)
        logs.create("t")
        logs.append(("t", 0), *numbered(0))

        def name_leader(broker, reply: FetchResponse):
            for topic in reply.responses:
                for part in topic.partitions:
                    if part.error_code == NotLeaderForPartitionError.code:
                        part.current_leader = LeaderIdAndEpoch(leader_id=2, leader_epoch=1)
                        reply.node_endpoints = [NodeEndpoint(node_id=2, host="host2", port=9092)]

        logs.before_reply = name_leader
        async with logs.consumer(auto_offset_reset="earliest") as consumer:
            consumer.assign([T0])
            await values(consumer, 1)
            logs.move(("t", 0), 2, publish=False)  # metadata is still old
            logs.append(("t", 0), *numbered(1))
            assert await values(consumer, 1, timeout_ms=600) == {T0: numbered(1)}

    @virtual
    async def test_reconnects_after_lost_connection(self):
        logs = FakeLogs(brokers=2)
        logs.create("t", 2, leaders=[1, 2])
        logs.append(("t", 0), *numbered(0))
        async with logs.consumer(auto_offset_reset="earliest") as consumer:
            consumer.assign([T0, T1])
            await values(consumer, 1)
            for number in range(1, 6):
                logs.broker(1).hang_up()
                logs.append(("t", 0), *numbered(number))
                logs.append(("t", 1), *numbered(10 + number))
                assert await values(consumer, 2) == {T0: numbered(number), T1: numbered(10 + number)}

    @virtual
    async def test_finds_new_leader_after_broker_failed(self):
        logs = FakeLogs(brokers=2)
        logs.create("t")
        logs.append(("t", 0), *numbered(0))
        async with logs.consumer(auto_offset_reset="earliest") as consumer:
            consumer.assign([T0])
            await values(consumer, 1)
            logs.broker(1).accepts = False
            logs.broker(1).hang_up()
            logs.move(("t", 0), 2)
            logs.append(("t", 0), *numbered(1))
            assert await values(consumer, 1) == {T0: numbered(1)}

    @virtual
    async def test_failed_broker_does_not_delay_others(self):
        logs = FakeLogs(brokers=2)
        logs.create("t", 2, leaders=[1, 2])
        async with logs.consumer(auto_offset_reset="earliest") as consumer:
            consumer.assign([T0, T1])
            assert await consumer.position(T0) == await consumer.position(T1) == 0
            logs.broker(2).accepts = False
            logs.broker(2).hang_up()
            logs.append(("t", 0), *numbered(0))
            assert await values(consumer, 1, timeout_ms=1000) == {T0: numbered(0)}
            logs.append(("t", 1), *numbered(10))
            await asyncio.sleep(5)
            logs.broker(2).accepts = True
            assert await values(consumer, 1) == {T1: numbered(10)}

    @virtual
    async def test_fetches_from_preferred_replica(self):
        """KIP-392."""
        logs = FakeLogs(brokers=2)
        logs.create("t")
        logs.logs["t", 0].preferred = 2
        logs.append(("t", 0), *numbered(0))
        async with logs.consumer(auto_offset_reset="earliest", client_rack="here") as consumer:
            consumer.assign([T0])
            assert await values(consumer, 1) == {T0: numbered(0)}
            assert [broker for broker, _ in logs.fetched[:2]] == [1, 2]
            assert logs.broker(1).asked(ApiKey.FETCH)[0].message.rack_id == "here"
            # The follower has failed: back to the leader.
            logs.logs["t", 0].preferred = -1
            logs.append(("t", 0), *numbered(1))
            assert await values(consumer, 1) == {T0: numbered(1)}
            assert logs.fetched[-1][0] == 1

    @virtual
    async def test_out_of_range_at_follower_does_not_reset(self):
        logs = FakeLogs(brokers=2)
        logs.create("t")
        log = logs.logs["t", 0]
        logs.append(("t", 0), *numbered(0, 1, 2))
        log.preferred, log.follower_end = 2, 1
        async with logs.consumer(auto_offset_reset="earliest") as consumer:
            consumer.assign([T0])
            consumer.seek(T0, 2)
            assert await consumer.poll(1000) == {}
            assert {broker for broker, _ in logs.fetched} == {1, 2}
            assert 3 < len(logs.fetched) < 50, "requests are sent with a backoff"
            log.follower_end = 3
            assert await values(consumer, 1) == {T0: numbered(2)}


class TestErrors:
    @virtual
    async def test_out_of_range_resets_offset(self):
        logs = FakeLogs()
        logs.create("t")
        logs.append(("t", 0), *numbered(0, 1, 2))
        async with logs.consumer(auto_offset_reset="earliest") as consumer:
            consumer.assign([T0])
            consumer.seek(T0, 100)
            assert await values(consumer, 3) == {T0: numbered(0, 1, 2)}

    @virtual
    async def test_out_of_range_raises_without_reset_policy(self):
        logs = FakeLogs()
        logs.create("t")
        logs.append(("t", 0), *numbered(0, 1, 2))
        async with logs.consumer(auto_offset_reset="none") as consumer:
            consumer.assign([T0])
            consumer.seek(T0, 100)
            for _ in range(2):
                with pytest.raises(OffsetsLostError) as raised:
                    await consumer.poll(5000)
                assert (raised.value.topic_partition, raised.value.offset) == (T0, 100)
            consumer.seek(T0, 2)
            assert await values(consumer, 1) == {T0: numbered(2)}

    @virtual
    async def test_buffered_records_precede_out_of_range_error(self):
        logs = FakeLogs()
        logs.create("t")
        logs.append(("t", 0), *numbered(0, 1, 2))
        async with logs.consumer(auto_offset_reset="latest") as consumer:
            consumer.assign([T0])
            consumer.seek(T0, 0)
            assert await values(consumer, 1, max_records=1) == {T0: numbered(0)}
            logs.logs["t", 0].start = logs.logs["t", 0].end = 50
            logs.logs["t", 0].batches = []
            await asyncio.sleep(3)
            assert await values(consumer, 2, max_records=1) == {T0: numbered(1, 2)}
            logs.append(("t", 0), *numbered(50))
            await asyncio.sleep(3)
            logs.append(("t", 0), *numbered(51))
            assert (await values(consumer, 1))[T0][-1:] == numbered(51)

    @pytest.mark.parametrize("code", [3, 5, 6, 9, 56, 74, 75, 78])
    def test_retries_retriable_errors(self, code):
        async def test():
            logs = FakeLogs()
            logs.create("t")
            logs.append(("t", 0), *numbered(0))
            logs.logs["t", 0].error = code
            async with logs.consumer(auto_offset_reset="earliest") as consumer:
                consumer.assign([T0])
                assert await consumer.poll(3000) == {}
                assert 3 < len(logs.fetched) < 50, "retries have a backoff"
                logs.logs["t", 0].error = 0
                assert await values(consumer, 1) == {T0: numbered(0)}

        run(test())

    @virtual
    async def test_raises_other_errors(self):
        logs = FakeLogs()
        logs.create("t", 2)
        logs.append(("t", 0), *numbered(0))
        logs.append(("t", 1), *numbered(1))
        logs.logs["t", 0].error = TopicAuthorizationFailedError.code
        async with logs.consumer(auto_offset_reset="earliest") as consumer:
            consumer.assign([T0, T1])
            found, errors = {}, []
            for _ in range(6):
                try:
                    found.update(await consumer.poll(1000))
                except TopicAuthorizationFailedError as error:
                    errors.append(str(error))
            assert len(errors) >= 2
            assert all("t-0" in error for error in errors)
            assert found.keys() == {T1}

    @virtual
    async def test_fetches_corrupt_batch_again(self):
        logs = FakeLogs()
        logs.create("t")
        logs.append(("t", 0), *numbered(0))
        logs.append(("t", 0), *numbered(1))
        log = logs.logs["t", 0]
        good = log.batches[1]
        bad = bytearray(good[4])
        bad[-2] ^= 1
        log.batches[1] = (*good[:4], bytes(bad))
        async with logs.consumer(auto_offset_reset="earliest") as consumer:
            consumer.assign([T0])
            assert await values(consumer, 1) == {T0: numbered(0)}
            for _ in range(3):
                with pytest.raises(CorruptBatchError) as raised:
                    await consumer.poll(1000)
                assert (raised.value.topic_partition, raised.value.offset) == (T0, 1)
            assert await consumer.position(T0) == 1
            log.batches[1] = good
            found = {}
            while not found:
                with contextlib.suppress(CorruptBatchError):
                    found = await consumer.poll(1000)
            assert [record.value for record in found[T0]] == numbered(1)

    @virtual
    async def test_arrow_table_of_corrupt_batch_raises(self):
        logs = FakeLogs()
        logs.create("t")
        logs.append(("t", 0), *numbered(0))
        log = logs.logs["t", 0]
        good = log.batches[0]
        bad = bytearray(good[4])
        bad[-2] ^= 1
        log.batches[0] = (*good[:4], bytes(bad))
        async with logs.consumer(auto_offset_reset="earliest") as consumer:
            consumer.assign([T0])
            for _ in range(2):
                with pytest.raises(CorruptBatchError) as raised:
                    await consumer.poll_arrow(1000)
                assert (raised.value.topic_partition, raised.value.offset) == (T0, 0)

    @virtual
    async def test_new_task_starts_after_internal_error(self):
        logs = FakeLogs()
        logs.create("t")
        logs.append(("t", 0), *numbered(0))
        async with logs.consumer(auto_offset_reset="earliest") as consumer:
            fetcher = consumer._core.fetcher
            handle_response = fetcher._handle_response
            failures = []

            def fail_once(node_id, plan, response):
                if not failures:
                    failures.append(node_id)
                    fetcher._clear_in_flight(plan)
                    raise RuntimeError("injected by a test")
                return handle_response(node_id, plan, response)

            fetcher._handle_response = fail_once
            consumer.assign([T0])
            assert await values(consumer, 1) == {T0: numbered(0)}
            assert failures == [1]

    @virtual
    async def test_waits_for_unknown_topic(self):
        logs = FakeLogs()
        async with logs.consumer(auto_offset_reset="earliest") as consumer:
            consumer.assign([T0])
            assert await consumer.poll(5000) == {}
            logs.create("t")
            logs.append(("t", 0), *numbered(0))
            assert await values(consumer, 1) == {T0: numbered(0)}

    @virtual
    async def test_unauthorized_topic_raises(self):
        logs = FakeLogs()
        logs.cluster.set_topic("t", [], error_code=TopicAuthorizationFailedError.code)
        async with logs.consumer("t", auto_offset_reset="earliest") as consumer:
            with pytest.raises(TopicAuthorizationFailedError, match="topic t"):
                await consumer.poll(5000)

    @virtual
    async def test_offsets_of_missing_topic(self):
        logs = FakeLogs()
        async with logs.consumer() as consumer:
            with pytest.raises(KafkaTimeoutError, match="Topic 't' does not exist") as raised:
                await consumer.end_offsets(tps(("t", 0)), timeout_ms=2000)
            assert isinstance(raised.value.__cause__, UnknownTopicOrPartitionError)


class TestTransactions:
    def fill(self, logs):
        logs.create("t")
        open_fields = {"producer_epoch": 0, "base_sequence": 0, "transactional": True}
        logs.append(("t", 0), *numbered(0, 1), producer_id=7, **open_fields)
        logs.append(("t", 0), *numbered(2), producer_id=8, **open_fields)
        for producer_id, kind in ((7, ControlType.ABORT), (8, ControlType.COMMIT)):
            offset = logs.logs["t", 0].end
            marker = encode_marker(
                kind, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp=1, base_offset=offset
            )
            logs.append_raw(("t", 0), bytes(marker), 1)
        logs.append(("t", 0), *numbered(5))
        logs.logs["t", 0].aborted = [(7, 0)]

    @virtual
    async def test_read_committed_skips_aborted_records(self):
        logs = FakeLogs()
        self.fill(logs)
        async with logs.consumer(auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
            consumer.assign([T0])
            assert await values(consumer, 2) == {T0: numbered(2, 5)}
            consumer.seek_to_beginning()
            table = await consumer.poll_arrow(1000)
            assert table.column("value").to_pylist() == numbered(2, 5)
            assert await consumer.position(T0) == 6

    @virtual
    async def test_read_uncommitted_returns_all_records(self):
        logs = FakeLogs()
        self.fill(logs)
        async with logs.consumer(auto_offset_reset="earliest") as consumer:
            consumer.assign([T0])
            assert await values(consumer, 4) == {T0: numbered(0, 1, 2, 5)}

    @virtual
    async def test_end_offset_is_last_stable_offset(self):
        logs = FakeLogs()
        self.fill(logs)
        logs.logs["t", 0].stable = 4
        async with logs.consumer(isolation_level="read_committed") as consumer:
            assert await consumer.end_offsets([T0]) == {T0: 4}


class TestPartitionEof:
    @virtual
    async def test_reports_each_end_once(self):
        logs = FakeLogs()
        logs.create("t")
        logs.append(("t", 0), *numbered(0, 1))
        ends = []
        async with logs.consumer(
            auto_offset_reset="earliest",
            enable_partition_eof=True,
            on_partition_eof=lambda tp, offset: ends.append((tp, offset)),
        ) as consumer:
            consumer.assign([T0])
            await values(consumer, 2)
            assert ends == []
            for _ in range(3):
                await consumer.poll(1000)
            assert ends == [(T0, 2)]
            logs.append(("t", 0), *numbered(2))
            await values(consumer, 1)
            await consumer.poll(1000)
            assert ends == [(T0, 2), (T0, 3)]
            consumer.seek(T0, 3)
            await consumer.poll(1000)
            assert ends == [(T0, 2), (T0, 3), (T0, 3)]
