"""The asyncio consumer in virtual time: iteration, deserializer errors, commits of processed records, close."""

import asyncio

import pytest
from tests.support.client.fake_logs import FakeLogs
from tests.support.net.virtual_loop import run

from headrace.client.consumer.errors import RecordDeserializationError
from headrace.client.errors import IllegalStateError, WakeupError
from headrace.client.types import OffsetAndMetadata
from headrace.common.errors import ConfigError
from headrace.common.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def make_logs(partitions=1, count=5):
    logs = FakeLogs()
    logs.create("t", partitions)
    for index in range(partitions):
        logs.append(("t", index), *(b"%d" % (10 * index + number) for number in range(count)))
    return logs


def consuming(test, *arguments, partitions=1, count=5, **settings):
    """Runs a test with a consumer of all partitions."""

    async def main():
        logs = make_logs(partitions, count)
        async with logs.consumer(auto_offset_reset="earliest", **settings) as consumer:
            consumer.assign([TopicPartition("t", index) for index in range(partitions)])
            await test(logs, consumer, *arguments)

    run(main())


class TestIteration:
    def test_position_moves_with_each_record(self):
        async def test(logs, consumer):
            seen = []
            async for record in consumer:
                seen.append((record.offset, await consumer.position(T0)))
                if record.offset == 3:
                    break
            assert seen == [(0, 1), (1, 2), (2, 3), (3, 4)]
            assert [record.offset async for record in consumer] == [4]

        consuming(test, consumer_timeout_ms=1000)

    def test_timeout_of_0_ends_at_once(self):
        async def test(logs, consumer):
            consumer.seek_to_end()
            await consumer.position(T0)
            assert [record.offset async for record in consumer] == []

        consuming(test, consumer_timeout_ms=0)

    def test_auto_commit_excludes_the_current_record(self):
        async def test(logs, consumer):
            async for record in consumer:
                done = consumer._subscription.auto_commit_offsets()
                assert done[T0] == OffsetAndMetadata(record.offset, "", 0)

        consuming(test, consumer_timeout_ms=1000)

    def test_seek_takes_effect_with_the_next_record(self):
        async def test(logs, consumer):
            seen = []
            async for record in consumer:
                seen.append(record.offset)
                if seen == [0, 1]:
                    consumer.seek(T0, 4)
                elif seen == [0, 1, 4]:
                    consumer.seek(T0, 2)
            assert seen == [0, 1, 4, 2, 3, 4]

        consuming(test, consumer_timeout_ms=1000)

    def test_pause_takes_effect_with_the_next_record(self):
        async def test(logs, consumer):
            seen = []
            async for record in consumer:
                seen.append((record.partition, record.offset))
                first = TopicPartition("t", seen[0][0])
                if len(seen) == 1:
                    consumer.pause(first)
                elif len(seen) == 6:
                    assert {partition for partition, _ in seen[1:]} == {1 - first.partition}
                    consumer.resume(first)
            assert seen[6:] == [(first.partition, offset) for offset in range(1, 5)]

        consuming(test, partitions=2, consumer_timeout_ms=1000)

    def test_lost_partition_takes_effect_with_the_next_record(self):
        async def test(logs, consumer):
            seen = []
            async for record in consumer:
                seen.append((record.partition, record.offset))
                if len(seen) == 2:
                    consumer.assign([T1 if record.partition == 0 else T0])
            assert len(seen) == 7
            assert len({partition for partition, _ in seen[2:]}) == 1

        consuming(test, partitions=2, consumer_timeout_ms=1000)

    def test_poll_continues_after_iteration(self):
        async def test(logs, consumer):
            first = await anext(consumer)
            second = await consumer.getone()
            polled = await consumer.poll(1000)
            assert (first.offset, second.offset) == (0, 1)
            assert [record.offset for record in polled[T0]] == [2, 3, 4]

        consuming(test)

    def test_poll_within_the_loop_takes_the_remaining_records(self):
        async def test(logs, consumer):
            seen = []
            async for record in consumer:
                seen.append(record.offset)
                if record.offset == 1:
                    polled = await consumer.poll(1000, max_records=2)
                    seen += [each.offset for each in polled[T0]]
            assert seen == [0, 1, 2, 3, 4]

        consuming(test, consumer_timeout_ms=1000)

    def test_iterators_share_the_remaining_records(self):
        async def test(logs, consumer):
            seen = []
            async for record in consumer:
                seen += [record.offset, (await consumer.getone()).offset]
            assert seen == list(range(10))

        consuming(test, consumer_timeout_ms=1000, max_poll_records=3, count=10)

    def test_unread_records_go_to_polls_and_back(self):
        decoded = []

        def decode(value):
            decoded.append(value)
            return int(value)

        async def test(logs, consumer):
            first = await anext(consumer)
            polled = await consumer.poll(1000, max_records=2)
            assert await consumer.position(T0) == 3
            assert consumer._subscription.auto_commit_offsets()[T0].offset == 1
            then = await anext(consumer)
            assert consumer._subscription.auto_commit_offsets()[T0].offset == 3
            rest = await consumer.poll(1000)
            assert await consumer.position(T0) == 8
            assert [each.value for each in (first, *polled[T0], then, *rest[T0])] == list(range(8))
            assert len(decoded) == 8, "no record was fetched twice"

        consuming(test, count=8, value_deserializer=decode)

    def test_unread_records_of_a_paused_partition_wait(self):
        decoded = []

        async def test(logs, consumer):
            first = await anext(consumer)
            paused = TopicPartition("t", first.partition)
            consumer.pause(paused)
            others = [await anext(consumer) for _ in range(3)]
            assert {each.partition for each in others} == {1 - first.partition}
            polled = await consumer.poll(1000)
            assert [(tp.partition, len(records)) for tp, records in polled.items()] == [(1 - first.partition, 2)]
            assert await consumer.poll(1000) == {}
            consumer.resume(paused)
            assert [each.offset for each in (await consumer.poll(1000))[paused]] == [1, 2, 3, 4]
            assert len(decoded) == 10

        consuming(test, partitions=2, value_deserializer=lambda value: decoded.append(value) or value)

    def test_seek_drops_unread_records(self):
        async def test(logs, consumer):
            await anext(consumer)
            consumer.seek(T0, 4)
            assert [record.offset for record in (await consumer.poll(1000))[T0]] == [4]
            consumer.seek(T0, 0)
            await anext(consumer)
            consumer.assign([])
            assert await consumer.poll(1000) == {}

        consuming(test)

    def test_poll_arrow_returns_unread_records(self):
        async def test(logs, consumer):
            await anext(consumer)
            found = []
            while len(found) < 4:
                found += (await consumer.poll_arrow(1000)).column("offset").to_pylist()
            assert found == [1, 2, 3, 4]

        consuming(test)

    def test_ends_after_consumer_timeout(self):
        async def test(logs, consumer):
            loop = asyncio.get_running_loop()
            assert len([record async for record in consumer]) == 5
            began = loop.time()
            assert [record async for record in consumer] == []
            assert loop.time() - began == pytest.approx(2.5, abs=0.1)
            logs.append(("t", 0), b"more")
            assert [record.value async for record in consumer] == [b"more"]

        consuming(test, consumer_timeout_ms=2500)

    def test_close_ends_iteration(self):
        async def test(logs, consumer):
            seen = []
            async for record in consumer:
                seen.append(record.offset)
                if len(seen) == 2:
                    await consumer.close()
            assert seen == [0, 1]

        consuming(test)


class TestDeserializers:
    def test_deserializes_keys_and_values(self):
        async def test(logs, consumer):
            records = (await consumer.poll(1000))[T0]
            assert [(record.key, record.value) for record in records] == [("k", number) for number in range(5)]

        consuming(test, key_deserializer=bytes.decode, value_deserializer=int)

    def test_error_names_offset_and_keeps_position(self):
        def deserialize(value):
            if value == b"2":
                raise ZeroDivisionError
            return int(value)

        async def test(logs, consumer):
            assert [record.value for record in (await consumer.poll(1000))[T0]] == [0, 1]
            for _ in range(2):
                with pytest.raises(RecordDeserializationError, match="value for partition t-0 at offset 2") as raised:
                    await consumer.poll(1000)
                assert (raised.value.topic_partition, raised.value.offset, raised.value.field) == (T0, 2, "value")
                assert isinstance(raised.value.__cause__, ZeroDivisionError)
                assert await consumer.position(T0) == 2
            consumer.seek(T0, 3)
            assert [record.value for record in (await consumer.poll(1000))[T0]] == [3, 4]

        consuming(test, value_deserializer=deserialize)

    def test_interrupt_loses_no_records(self):
        def deserialize(value):
            if value == b"2" and interrupts:
                raise interrupts.pop()
            return int(value)

        interrupts = [KeyboardInterrupt()]

        async def test(logs, consumer):
            with pytest.raises(KeyboardInterrupt):
                await consumer.poll(1000)
            assert [record.value for record in (await consumer.poll(1000))[T0]] == [0, 1, 2, 3, 4]

        consuming(test, value_deserializer=deserialize)

    def test_error_in_iteration(self):
        async def test(logs, consumer):
            seen = [(await anext(consumer)).offset for _ in range(4)]
            assert seen == [0, 1, 2, 3]
            with pytest.raises(RecordDeserializationError):
                await anext(consumer)
            assert await consumer.position(T0) == 4

        consuming(test, value_deserializer=lambda value: 1 // (4 - int(value)))


class TestPoll:
    def test_poll_arrow(self):
        async def test(logs, consumer):
            table = await consumer.poll_arrow(1000, max_records=7)
            assert table.num_rows == 7
            rest = await consumer.poll_arrow(1000)
            assert rest.num_rows == 3
            assert (await consumer.poll_arrow(0)).num_rows == 0
            rows = table.to_pylist() + rest.to_pylist()
            assert sorted((row["partition"], row["offset"], row["value"]) for row in rows) == [
                (index, offset, b"%d" % (10 * index + offset)) for index in range(2) for offset in range(5)
            ]
            assert {row["topic"] for row in rows} == {"t"}
            assert rows[0]["timestamp"].timestamp() == 1
            assert (rows[0]["key"], rows[0]["headers"], rows[0]["timestamp_type"]) == (b"k", [], 0)
            assert table.column_names == rest.column_names

        consuming(test, partitions=2)

    def test_update_offsets_false_keeps_positions(self):
        async def test(logs, consumer):
            for _ in range(2):
                found = await consumer.poll(1000, max_records=2, update_offsets=False)
                assert [record.offset for record in found[T0]] == [0, 1]

        consuming(test)

    def test_wakeup_ends_poll(self):
        async def test(logs, consumer):
            await consumer.poll(1000)
            asyncio.get_running_loop().call_later(5, consumer.wakeup)
            with pytest.raises(WakeupError):
                await consumer.poll(60_000)
            assert await consumer.poll(100) == {}

        consuming(test)

    def test_refuses_concurrent_polls(self):
        async def test(logs, consumer):
            await consumer.poll(1000)
            task = asyncio.create_task(consumer.poll(1000))
            await asyncio.sleep(0.1)
            with pytest.raises(IllegalStateError, match="another task"):
                await consumer.poll(1000)
            await task

        consuming(test)

    @pytest.mark.parametrize("arguments", [{"timeout_ms": -1}, {"max_records": 0}])
    def test_rejects_invalid_arguments(self, arguments):
        async def test(logs, consumer):
            with pytest.raises(ValueError, match="must be at least"):
                await consumer.poll(**arguments)

        consuming(test)

    def test_interceptors_see_records(self):
        class Interceptor:
            def on_consume(self, found):
                return {tp: records[:1] for tp, records in found.items()}

        async def test(logs, consumer):
            assert [len(records) for records in (await consumer.poll(1000)).values()] == [1]

        consuming(test, interceptors=[Interceptor()])


class TestSubscriptions:
    def test_without_group_all_partitions_are_assigned(self):
        async def main():
            logs = make_logs(partitions=2)
            async with logs.consumer("t", auto_offset_reset="earliest", metadata_max_age_ms=1000) as consumer:
                assert consumer.subscription() == {"t"}
                count = 0
                while count < 10:
                    count += sum(map(len, (await consumer.poll(1000)).values()))
                assert consumer.assignment() == {T0, T1}
                logs.append(("t", logs.add_partition("t")), b"new")
                while TopicPartition("t", 2) not in consumer.assignment():
                    await consumer.poll(1000)

        run(main())

    def test_pattern_subscription(self):
        async def main():
            logs = FakeLogs()
            for name in ("order-a", "order-b", "other", "an-order"):
                logs.create(name)
            async with logs.consumer(metadata_max_age_ms=1000) as consumer:
                consumer.subscribe(pattern="order-.*")
                await consumer.poll(1000)
                assert {tp.topic for tp in consumer.assignment()} == {"order-a", "order-b"}
                logs.create("order-c")
                await consumer.poll(3000)
                assert consumer.subscription() == {"order-a", "order-b", "order-c"}
                await consumer.unsubscribe()
                assert consumer.assignment() == set()
                assert consumer.subscription() is None

        run(main())

    def test_topics_and_partitions(self):
        async def main():
            logs = make_logs(partitions=3)
            logs.create("u")
            async with logs.consumer() as consumer:
                assert not consumer.bootstrap_connected()
                assert await consumer.topics() == {"t", "u"}
                assert await consumer.partitions_for_topic("t") == {0, 1, 2}
                assert (await consumer.metrics())["type"] == "consumer"
                assert consumer.bootstrap_connected()

        run(main())


class TestClose:
    def test_closed_consumer_raises(self):
        async def main():
            logs = make_logs()
            consumer = logs.consumer()
            with pytest.raises(IllegalStateError, match="not started"):
                await consumer.poll(0)
            await consumer.start()
            with pytest.raises(IllegalStateError, match="already started"):
                await consumer.start()
            await consumer.close()
            await consumer.close()
            for call in (consumer.poll, consumer.commit, consumer.topics):
                with pytest.raises(IllegalStateError, match="closed"):
                    await call()
            with pytest.raises(IllegalStateError, match="closed"):
                consumer.subscribe(["t"])
            assert "closed" in repr(consumer)

        run(main())

    def test_commit_requires_group(self):
        async def test(logs, consumer):
            with pytest.raises(IllegalStateError, match="no group"):
                await consumer.commit({T0: 3})
            with pytest.raises(IllegalStateError, match="no group"):
                await consumer.committed(T0)
            with pytest.raises(IllegalStateError, match="no group"):
                consumer.group_metadata()

        consuming(test)

    def test_rejects_conflicting_configs(self):
        async def main():
            with pytest.raises(ConfigError, match=r"fetch\.max\.wait\.ms"):
                await make_logs().consumer(fetch_max_wait_ms=30_000).start()
            with pytest.raises(ConfigError, match="duration"):
                await make_logs().consumer(auto_offset_reset="by_duration:PT").start()

        run(main())
