"""A follower that replicates from a leader with the real handlers, in virtual time and without sockets."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from tests.support.broker.leader_broker import LeaderBroker
from tests.support.broker.replicas import FOLLOWER, NODE, SLOW_FOLLOWER, TOPIC_ID, TP, TP_1, Replicas, partition_state
from tests.support.net.virtual_loop import run
from tests.support.storage.logs import make_batch

from headrace.broker.config.replication import FetcherConfig
from headrace.broker.replication.fetcher_manager import FetcherManager
from headrace.common.errors import KafkaStorageError, RequestTimedOutError, UnknownError
from headrace.common.ids import Uuid
from headrace.common.types import TopicPartition
from headrace.protocol.messages.fetch import FetchRequest, FetchResponse
from headrace.protocol.messages.list_offsets import ListOffsetsRequest
from headrace.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from headrace.storage.config import LogConfig
from headrace.storage.files import DiskFullError
from headrace.storage.log import Log

ISR = (NODE, FOLLOWER)
CONFIG = FetcherConfig()
OLD_CONFIG = FetcherConfig(fetch_version=11, epoch_version=3, list_offsets_version=5, truncates_on_fetch=False)
"""The config for `inter.broker.protocol.version` 2.6."""


class Pair:
    """A leader and a follower of partitions."""

    def __init__(self, directory: Path, config: FetcherConfig = CONFIG):
        self.leader = LeaderBroker(directory / "leader")
        self.follower = Replicas(directory / "follower", node_id=FOLLOWER)
        self.fetchers = FetcherManager(FOLLOWER, self.leader, self.follower, config, broker_epoch=lambda: 77)
        self.follower.on_role_assigned = self.fetchers.update

    async def __aenter__(self) -> "Pair":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.fetchers.close()
        self.leader.replicas.manager.close()
        self.follower.manager.close()

    def start(self, *tps: TopicPartition, **changes: Any) -> None:
        """Makes both take their roles."""
        states = [partition_state(tp, **{"isr": ISR, **changes}) for tp in tps or (TP,)]
        self.leader.update(states)
        assert set(self.follower.apply(*states).values()) == {0}

    def log(self, tp: TopicPartition = TP) -> Log:
        log = self.follower.find(*tp).log
        assert log is not None
        return log

    def leader_log(self, tp: TopicPartition = TP) -> Log:
        return self.leader.replicas.find(*tp).check_leader()

    def produce(self, count: int = 1, tp: TopicPartition = TP) -> None:
        partition = self.leader.replicas.find(*tp)
        partition.append(make_batch(count), 1)
        self.leader.replicas.appended(partition)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(600):
            while not condition():
                await asyncio.sleep(0.01)

    async def until_equal(self, tp: TopicPartition = TP) -> None:
        """Waits until the follower has the bytes of the leader's log and its high watermark."""
        leader, follower = self.leader_log(tp), self.log(tp)
        await self.until(
            lambda: (
                follower.log_end_offset == leader.log_end_offset == follower.high_watermark
                and stored(follower) == stored(leader)
            )
        )
        assert follower.epochs.entries == [
            entry for entry in leader.epochs.entries if entry.start_offset < leader.log_end_offset
        ]


def stored(log: Log) -> bytes:
    return b"".join(bytes(segment.path().read_bytes()) for segment in log.segments)


def in_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def call(*arguments: Any, **fixtures: Any) -> None:
        run(test(*arguments, **fixtures))

    return call


def write(replicas: Replicas, leader_epoch: int, *counts: int, tp: TopicPartition = TP) -> None:
    """Writes batches as the leader of an epoch."""
    partition = replicas.lead(tp, isr=(replicas.node_id,), leader=replicas.node_id, leader_epoch=leader_epoch)
    replicas.fetches.check_and_complete(partition)
    for count in counts:
        partition.append(make_batch(count, value=b"%d" % leader_epoch), 1)


@in_virtual_time
async def test_replicates(tmp_path: Path) -> None:
    async with Pair(tmp_path) as pair:
        pair.start()
        for count in 3, 1, 2:
            pair.produce(count)
        await pair.until_equal()
        assert pair.leader_log().high_watermark == 6, "the follower's fetches have committed the records"
        pair.produce(4)
        await pair.until_equal()


@in_virtual_time
async def test_request(tmp_path: Path) -> None:
    async with Pair(tmp_path) as pair:
        pair.start(leader_epoch=4)
        pair.produce(2)
        await pair.until_equal()
        first, version = pair.leader.requests[0]
        assert isinstance(first, FetchRequest)
        assert version == 17
        assert first.replica_state is not None
        assert (first.replica_state.replica_id, first.replica_state.replica_epoch) == (FOLLOWER, 77)
        assert (first.max_wait_ms, first.min_bytes, first.max_bytes) == (500, 1, 10_485_760)
        ((topic,), later) = first.topics, pair.leader.fetches()[1]
        assert topic.topic_id == TOPIC_ID
        assert (topic.partitions[0].current_leader_epoch, topic.partitions[0].partition_max_bytes) == (4, 1_048_576)
        assert (later.session_epoch, later.topics[0].partitions[0].fetch_offset) == (1, 2)
        assert later.topics[0].partitions[0].last_fetched_epoch == 4
        assert pair.leader.replicas.find(*TP).followers[FOLLOWER].broker_epoch == 77


@in_virtual_time
async def test_old_protocol(tmp_path: Path) -> None:
    async with Pair(tmp_path, OLD_CONFIG) as pair:
        pair.start(leader_epoch=4)
        pair.produce(2)
        await pair.until_equal()
        first, version = pair.leader.requests[0]
        assert isinstance(first, FetchRequest)
        assert (version, first.replica_id, first.topics[0].topic) == (11, FOLLOWER, "orders")


@in_virtual_time
async def test_topic_without_id(tmp_path: Path) -> None:
    async with Pair(tmp_path) as pair:
        pair.start(topic_id=Uuid(int=0))
        pair.produce(2)
        await pair.until_equal()
        assert pair.leader.requests[0][1] == 12


@in_virtual_time
async def test_incremental_session(tmp_path: Path) -> None:
    async with Pair(tmp_path) as pair:
        pair.start(TP, TP_1)
        await pair.until(lambda: len(pair.leader.requests) > 2)
        pair.produce(tp=TP_1)
        await pair.until_equal(TP_1)
        named = [
            [part.partition for topic in fetch.topics for part in topic.partitions] for fetch in pair.leader.fetches()
        ]
        assert named[0] == [0, 1]
        assert named[1] == []
        assert [1] in named


@in_virtual_time
async def test_several_partitions_and_small_responses(tmp_path: Path) -> None:
    """Responses are cut within a batch."""
    async with Pair(tmp_path, replace(CONFIG, max_bytes=250, response_max_bytes=400)) as pair:
        pair.start(TP, TP_1)
        for tp in (TP, TP_1):
            for count in 1, 2, 3, 1, 5:
                pair.produce(count, tp)
        await pair.until_equal(TP)
        await pair.until_equal(TP_1)


@in_virtual_time
async def test_adopts_the_log_start(tmp_path: Path) -> None:
    async with Pair(tmp_path) as pair:
        pair.start()
        for _ in range(4):
            pair.produce()
        await pair.until_equal()
        pair.leader.replicas.find(*TP).delete_records(3)
        await pair.until(lambda: pair.log().log_start_offset == 3)
        await pair.until(lambda: pair.leader.replicas.find(*TP).low_watermark() == 3)


class TestTruncation:
    @pytest.mark.parametrize("config", [CONFIG, OLD_CONFIG])
    @in_virtual_time
    async def test_diverging_log(self, tmp_path: Path, config: FetcherConfig) -> None:
        """The follower has led epoch 1, and nobody has replicated its last records."""
        async with Pair(tmp_path, config) as pair:
            for replicas in (pair.leader.replicas, pair.follower):
                write(replicas, 0, 3, 2)
            write(pair.follower, 1, 4)
            write(pair.leader.replicas, 2, 1, 1)
            pair.start(leader_epoch=3, partition_epoch=1)
            await pair.until_equal()
            assert [entry.epoch for entry in pair.log().epochs.entries] == [0, 2]

    @pytest.mark.parametrize("config", [CONFIG, OLD_CONFIG])
    @in_virtual_time
    async def test_in_several_steps(self, tmp_path: Path, config: FetcherConfig) -> None:
        """Both have epochs that the other one does not know."""
        async with Pair(tmp_path, config) as pair:
            for replicas in (pair.leader.replicas, pair.follower):
                write(replicas, 0, 3)
            for epoch in 1, 3, 5:
                write(pair.follower, epoch, 2)
            for epoch in 2, 4, 6:
                write(pair.leader.replicas, epoch, 2)
            pair.start(leader_epoch=7, partition_epoch=1)
            await pair.until_equal()

    @pytest.mark.parametrize("config", [CONFIG, OLD_CONFIG])
    @in_virtual_time
    async def test_epoch_without_records(self, tmp_path: Path, config: FetcherConfig) -> None:
        """The follower has led an epoch, but wrote nothing. Its leader does not know that epoch."""
        async with Pair(tmp_path, config) as pair:
            for replicas in (pair.leader.replicas, pair.follower):
                write(replicas, 0, 3)
            write(pair.follower, 1)
            write(pair.leader.replicas, 2, 1)
            pair.start(leader_epoch=3, partition_epoch=1)
            await pair.until_equal()

    @pytest.mark.parametrize("config", [CONFIG, OLD_CONFIG])
    @in_virtual_time
    async def test_asks_only_if_responses_do_not_tell(self, tmp_path: Path, config: FetcherConfig) -> None:
        async with Pair(tmp_path, config) as pair:
            for replicas in (pair.leader.replicas, pair.follower):
                write(replicas, 0, 3)
            pair.start(leader_epoch=1, partition_epoch=1)
            pair.produce()
            await pair.until_equal()
            asked = [request for request, _ in pair.leader.requests if isinstance(request, OffsetForLeaderEpochRequest)]
            assert len(asked) == (0 if config is CONFIG else 1)

    @in_virtual_time
    async def test_role_changes_while_the_leader_responds(self, tmp_path: Path) -> None:
        """The follower becomes leader: the response of the old leader changes nothing."""
        async with Pair(tmp_path) as pair:
            for replicas in (pair.leader.replicas, pair.follower):
                write(replicas, 0, 3)
            write(pair.follower, 1, 4)
            pair.start(leader_epoch=2, partition_epoch=1)
            await asyncio.sleep(0)
            pair.follower.lead(isr=ISR, leader=FOLLOWER, leader_epoch=3, partition_epoch=2)
            await asyncio.sleep(10)
            assert pair.log().log_end_offset == 7
            assert len(pair.fetchers) == 0


class TestOutOfRange:
    @in_virtual_time
    async def test_leader_starts_later(self, tmp_path: Path) -> None:
        async with Pair(tmp_path) as pair:
            write(pair.follower, 0, 2)
            write(pair.leader.replicas, 0, 2, 2, 2)
            pair.leader.replicas.find(*TP).delete_records(4)
            pair.start(leader_epoch=1, partition_epoch=1)
            await pair.until(lambda: pair.log().log_end_offset == 6)
            assert (pair.log().log_start_offset, pair.log().high_watermark) == (4, 6)
            assert [
                request.topics[0].partitions[0].timestamp
                for request, _ in pair.leader.requests
                if isinstance(request, ListOffsetsRequest)
            ] == [-1, -2]

    @pytest.mark.parametrize("first_counts", [(), (2,)])
    @in_virtual_time
    async def test_leader_starts_in_the_middle_of_a_batch(self, tmp_path: Path, first_counts: tuple[int, ...]) -> None:
        """After DeleteRecords. The leader sends whole batches: the first one starts before the leader's log start."""
        async with Pair(tmp_path) as pair:
            write(pair.leader.replicas, 0, 2, 10, 1)
            write(pair.follower, 0, *first_counts)
            pair.leader.replicas.find(*TP).delete_records(6)
            pair.start(leader_epoch=1, partition_epoch=1)
            pair.produce(3)
            await pair.until(lambda: pair.log().high_watermark == 16)
            log = pair.log()
            assert (log.log_start_offset, log.log_end_offset) == (6, 16)
            assert [(batch.base_offset, batch.last_offset) for batch in log.batches()] == [(2, 11), (12, 12), (13, 15)]
            assert log.epochs.entries == pair.leader_log().epochs.entries
            restarts = len(pair.leader.requests)
            await asyncio.sleep(5)
            assert len(pair.leader.requests) < restarts + 20, "no further restarts"

    @in_virtual_time
    async def test_leader_ends_earlier(self, tmp_path: Path) -> None:
        """After an unclean election, with the old protocol: the same epoch has fewer records."""
        async with Pair(tmp_path) as pair:
            write(pair.follower, 0, 2, 3)
            write(pair.leader.replicas, 0, 2)
            pair.start(leader_epoch=0, partition_epoch=1)
            await pair.until_equal()
            assert pair.log().log_end_offset == 2


class TestErrors:
    @in_virtual_time
    async def test_unreachable_leader(self, tmp_path: Path) -> None:
        async with Pair(tmp_path) as pair:
            pair.leader.is_reachable = False
            pair.start()
            pair.produce()
            await asyncio.sleep(10)
            assert pair.log().log_end_offset == 0
            pair.leader.is_reachable = True
            pair.fetchers.wake()
            await pair.until_equal()

    @in_virtual_time
    async def test_lost_response_starts_a_new_session(self, tmp_path: Path) -> None:
        async with Pair(tmp_path) as pair:
            pair.start()
            await pair.until(lambda: len(pair.leader.requests) > 1)
            pair.leader.failures.append(RequestTimedOutError("late"))
            pair.produce()
            await pair.until_equal()
            await pair.until(lambda: sum(fetch.session_epoch == 0 for fetch in pair.leader.fetches()) == 2)

    @in_virtual_time
    async def test_leader_learns_its_role_later(self, tmp_path: Path) -> None:
        async with Pair(tmp_path) as pair:
            state = partition_state(isr=ISR)
            pair.follower.apply(state)
            await asyncio.sleep(0.5)
            assert 4 <= len(pair.leader.fetches()) <= 6, "after 50, 100, 200 and 400 ms"
            await asyncio.sleep(3)
            pair.leader.update([state])
            pair.produce()
            await pair.until_equal()

    @in_virtual_time
    async def test_fenced_follower_waits_for_the_controller(self, tmp_path: Path) -> None:
        async with Pair(tmp_path) as pair:
            pair.start()
            pair.leader.update([partition_state(isr=ISR, leader_epoch=1, partition_epoch=1)])
            pair.produce()
            await asyncio.sleep(5)
            requests = len(pair.leader.requests)
            await asyncio.sleep(5)
            assert len(pair.leader.requests) == requests
            pair.start(leader_epoch=1, partition_epoch=1)
            await pair.until_equal()

    @in_virtual_time
    async def test_fenced_partitions_still_belong_to_the_fetcher(self, tmp_path: Path) -> None:
        """All partitions of the fetcher are fenced. They get new roles one after the other."""
        async with Pair(tmp_path) as pair:
            pair.start(TP, TP_1)
            changes: dict[str, Any] = {"isr": ISR, "leader_epoch": 1, "partition_epoch": 1}
            pair.leader.update([partition_state(TP, **changes), partition_state(TP_1, **changes)])
            await asyncio.sleep(5)
            for tp in (TP, TP_1):
                pair.follower.lead(tp, leader=FOLLOWER, **{**changes, "leader_epoch": 2})
            assert len(pair.fetchers) == 0

    @in_virtual_time
    async def test_error_of_a_whole_response(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with Pair(tmp_path) as pair:
            fetches: list[FetchRequest] = []

            async def refuse(_: int, request: FetchRequest, **__: object) -> FetchResponse:
                fetches.append(request)
                await asyncio.sleep(0.001)
                return FetchResponse(error_code=UnknownError.code)

            with monkeypatch.context() as patched:
                patched.setattr(pair.leader, "send", refuse)
                pair.start()
                pair.produce()
                await asyncio.sleep(5)
            assert 4 <= len(fetches) <= 6, "with a back-off"
            assert caplog.text.count("will retry: broker 1 responds to fetches with UNKNOWN_SERVER_ERROR") == 1
            await pair.until_equal()

    @in_virtual_time
    async def test_partition_that_is_added_while_the_leader_responds(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It does not wait for the back-off of the others."""
        async with Pair(tmp_path, OLD_CONFIG) as pair:
            for tp in (TP, TP_1):
                write(pair.leader.replicas, 0, 1, tp=tp)
                write(pair.follower, 0, 1, tp=tp)
            send, asked = pair.leader.send, asyncio.Event()

            async def respond(broker_id: int, request: Any, **options: Any) -> Any:
                if not asked.is_set():
                    asked.set()
                    pair.start(TP_1, leader_epoch=1, partition_epoch=1)
                    pair.follower.lead(TP, isr=ISR, leader=FOLLOWER, leader_epoch=2, partition_epoch=2)
                return await send(broker_id, request, **options)

            monkeypatch.setattr(pair.leader, "send", respond)
            pair.start(TP, leader_epoch=1, partition_epoch=1)
            await asked.wait()
            await asyncio.sleep(CONFIG.backoff_ms / 2000)
            assert pair.leader.fetches()

    @pytest.mark.parametrize("error", [DiskFullError("full"), KafkaStorageError("broken")])
    @in_virtual_time
    async def test_failed_append_is_retried(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: KafkaStorageError
    ) -> None:
        """Other partitions of the disk may still be readable."""
        async with Pair(tmp_path) as pair:
            with monkeypatch.context() as patched:
                patched.setattr(Log, "append_as_follower", lambda *_: fail(error))
                pair.start()
                pair.produce()
                await asyncio.sleep(5)
                assert len(pair.leader.fetches()) < 20, "with a back-off"
            await pair.until_equal()

    @in_virtual_time
    async def test_unflushed_append_is_not_replicated(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The flush of an append failed, so the follower may lose the record."""
        async with Pair(tmp_path) as pair:
            pair.start()
            pair.follower.manager.update_configs({"orders": LogConfig.from_properties({"flush.messages": 1})})
            attempts: list[int] = []

            def fail(log: Log) -> None:
                attempts.append(log.log_end_offset)
                raise DiskFullError("full")

            with monkeypatch.context() as patched:
                patched.setattr(Log, "flush", fail)
                pair.produce()
                await asyncio.sleep(10)
                assert pair.log().log_end_offset == 1
                assert pair.leader_log().high_watermark == 0
                assert 2 < len(attempts) < 20, "with a back-off"
            await pair.until_equal()
            assert pair.log().recovery_point == 1


def fail(error: Exception) -> None:
    raise error


@in_virtual_time
async def test_partition_without_leader_is_not_fetched(tmp_path: Path) -> None:
    async with Pair(tmp_path) as pair:
        pair.start()
        await pair.until(lambda: len(pair.leader.requests) > 1)
        pair.follower.lead(isr=ISR, leader=-1, leader_epoch=1, partition_epoch=1)
        assert len(pair.fetchers) == 0


@in_virtual_time
async def test_three_replicas_share_a_leader(tmp_path: Path) -> None:
    """The high watermark waits for the slowest follower in sync."""
    async with Pair(tmp_path) as pair:
        pair.start(isr=(NODE, FOLLOWER, SLOW_FOLLOWER))
        pair.produce(3)
        await pair.until(lambda: pair.log().log_end_offset == 3)
        await asyncio.sleep(2)
        assert pair.leader_log().high_watermark == pair.log().high_watermark == 0
        pair.leader.replicas.find(*TP).follower_fetched(SLOW_FOLLOWER, 3)
        await pair.until(lambda: pair.log().high_watermark == 3)
