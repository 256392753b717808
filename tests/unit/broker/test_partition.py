"""One partition: roles, epochs, the high watermark, in-sync replicas, appends."""

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.broker.replicas import (
    FOLLOWER,
    NODE,
    OTHER,
    SLOW_FOLLOWER,
    TOPIC_ID,
    Replicas,
    isr_change,
    partition_state,
)
from tests.support.storage.logs import make_batch

from headrace.broker.partition import ALL_IN_SYNC, Partition
from headrace.cluster.znodes import Leadership
from headrace.common.errors import (
    CorruptRecordError,
    FencedLeaderEpochError,
    IneligibleReplicaError,
    InvalidRequestError,
    InvalidUpdateVersionError,
    KafkaError,
    KafkaStorageError,
    NewLeaderElectedError,
    NotEnoughReplicasError,
    NotLeaderForPartitionError,
    OffsetOutOfRangeError,
    OperationNotAttemptedError,
    PolicyViolationError,
    RequestTimedOutError,
    UnknownLeaderEpochError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from headrace.records import Compression
from headrace.storage.config import LogConfig
from headrace.storage.files import DiskFullError
from headrace.storage.large_batches import LargeBatchError
from headrace.storage.log import Log

ISR = (NODE, FOLLOWER)
ALL = (NODE, FOLLOWER, SLOW_FOLLOWER)
MAX_LAG_MS = 30_000


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    with Replicas(tmp_path) as replicas:
        yield replicas


def high_watermark(partition: Partition) -> int:
    assert partition.log is not None
    return partition.log.high_watermark


def become(partition: Partition, **changes: object) -> bool:
    assert partition.log is not None
    return partition.become(partition_state(**changes), partition.log)


class TestRoles:
    def test_leader(self, replicas: Replicas) -> None:
        partition = replicas.lead(isr=ISR, replicas=ALL, leader_epoch=3, partition_epoch=9)
        assert partition.is_leader
        assert (partition.leader_id, partition.leader_epoch, partition.partition_epoch) == (NODE, 3, 9)
        assert (partition.isr, partition.replicas, partition.topic_id) == ([*ISR], [*ALL], TOPIC_ID)
        assert partition.check_leader() is partition.log

    def test_follower(self, replicas: Replicas) -> None:
        partition = replicas.lead(isr=ISR, leader=FOLLOWER)
        assert not partition.is_leader
        with pytest.raises(NotLeaderForPartitionError, match=f"orders-0, broker {FOLLOWER} is"):
            partition.check_leader()
        with pytest.raises(NotLeaderForPartitionError):
            partition.append(make_batch(), 1)
        assert partition.log is not None
        assert partition.log.log_end_offset == 0

    @pytest.mark.parametrize(
        ("changes", "expected"),
        [
            ({}, False),
            ({"isr": (NODE,), "replicas": ISR, "partition_epoch": 1}, False),
            ({"leader_epoch": 1}, True),
            ({"leader": FOLLOWER, "leader_epoch": 1}, True),
            ({"leader": FOLLOWER}, True),
        ],
    )
    def test_become_reports_change_of_leader_or_epoch(
        self, replicas: Replicas, changes: dict[str, object], expected: bool
    ) -> None:
        partition = replicas.lead(isr=ISR)
        assert become(partition, **{"isr": ISR, **changes}) is expected

    def test_new_leader_epoch_starts_at_log_end(self, replicas: Replicas) -> None:
        partition = replicas.lead()
        partition.append(make_batch(3), 1)
        become(partition, leader_epoch=5)
        log = partition.check_leader()
        assert log.end_offset_for_epoch(5) == (5, 3), "also before the first record of the epoch"
        partition.append(make_batch(2), 1)
        assert log.end_offset_for_epoch(0) == (0, 3)
        assert log.end_offset_for_epoch(4) == (0, 3)
        assert log.end_offset_for_epoch(5) == (5, 5)
        assert [batch.leader_epoch for batch in log.batches()] == [0, 5]

    def test_follower_does_not_append_batches_of_a_newer_leader(self, replicas: Replicas) -> None:
        """The old leader follows the newer one, and has overwritten the end of its log while it was sending it."""
        partition = replicas.lead(isr=ISR, leader=FOLLOWER, leader_epoch=5)
        batches = [
            bytes(make_batch(2, base_offset=base_offset, leader_epoch=epoch))
            for base_offset, epoch in ((0, 4), (2, 5), (4, 6), (6, 5))
        ]
        partition.append_as_follower(b"".join(batches), 8, 0)
        assert partition.log is not None
        assert partition.log.log_end_offset == 4
        assert partition.log.epochs.latest_epoch == 5
        partition.append_as_follower(batches[2], 8, 0)
        assert partition.log.log_end_offset == 4
        become(partition, isr=ISR, leader=OTHER, leader_epoch=6)
        partition.append_as_follower(batches[2], 8, 0)
        assert partition.log.log_end_offset == 6

    def test_follower_does_not_start_an_epoch(self, replicas: Replicas) -> None:
        """The leader's batches bring it."""
        partition = replicas.lead()
        partition.append(make_batch(3), 1)
        become(partition, isr=ISR, leader=FOLLOWER, leader_epoch=5)
        assert partition.log is not None
        assert partition.log.end_offset_for_epoch(5) == (-1, -1)

    def test_leader_epoch_of_request(self, replicas: Replicas) -> None:
        partition = replicas.lead(leader_epoch=4)
        assert partition.check_leader(4) is partition.check_leader(-1)
        with pytest.raises(FencedLeaderEpochError, match="leader epoch 4, the request has the older epoch 3"):
            partition.check_leader(3)
        with pytest.raises(UnknownLeaderEpochError, match=r"leader epoch 4 on this broker, .* newer epoch 5"):
            partition.check_leader(5)

    def test_epoch_of_request_is_checked_before_leadership(self, replicas: Replicas) -> None:
        """A client with an old epoch learns that its metadata is old, also from a follower (KIP-320)."""
        partition = replicas.lead(isr=ISR, leader=FOLLOWER, leader_epoch=4)
        with pytest.raises(FencedLeaderEpochError):
            partition.check_leader(3)
        with pytest.raises(NotLeaderForPartitionError):
            partition.check_leader(4)

    def test_offline(self, replicas: Replicas) -> None:
        partition = replicas.lead()
        partition.append(make_batch(), 1)
        partition.go_offline()
        for call in (partition.check_leader, lambda: partition.append(make_batch(), 1)):
            with pytest.raises(KafkaStorageError, match="log directory of partition orders-0 is offline"):
                call()
        assert not partition.is_replicated(0)
        assert not partition.update_high_watermark()
        assert not partition.is_leader


class TestHighWatermark:
    def test_single_replica_commits_at_once(self, replicas: Replicas) -> None:
        partition = replicas.lead()
        result = partition.append(make_batch(3), ALL_IN_SYNC)
        assert high_watermark(partition) == 3
        assert partition.is_replicated(result.last_offset)
        assert not partition.is_replicated(result.last_offset + 1)

    def test_waits_for_all_in_sync_followers(self, replicas: Replicas) -> None:
        partition = replicas.lead(isr=ALL)
        partition.append(make_batch(4), 1)
        assert not partition.follower_fetched(FOLLOWER, 3)
        assert high_watermark(partition) == 0, "the slow follower has not fetched yet"
        assert partition.follower_fetched(SLOW_FOLLOWER, 2)
        assert high_watermark(partition) == 2
        assert partition.follower_fetched(SLOW_FOLLOWER, 4)
        assert high_watermark(partition) == 3
        assert not partition.is_replicated(3)
        assert partition.follower_fetched(FOLLOWER, 4)
        assert high_watermark(partition) == 4
        assert partition.is_replicated(3)

    def test_does_not_wait_for_followers_out_of_sync(self, replicas: Replicas) -> None:
        partition = replicas.lead(isr=ISR, replicas=ALL)
        partition.append(make_batch(4), 1)
        assert not partition.follower_fetched(SLOW_FOLLOWER, 1)
        assert partition.follower_fetched(FOLLOWER, 4)
        assert high_watermark(partition) == 4

    def test_never_goes_back(self, replicas: Replicas) -> None:
        partition = replicas.lead(isr=ISR)
        partition.append(make_batch(4), 1)
        partition.follower_fetched(FOLLOWER, 4)
        assert not partition.follower_fetched(FOLLOWER, 1)
        assert high_watermark(partition) == 4

    def test_not_beyond_log_end(self, replicas: Replicas) -> None:
        partition = replicas.lead(isr=ISR)
        partition.append(make_batch(4), 1)
        assert partition.follower_fetched(FOLLOWER, 100)
        assert high_watermark(partition) == 4

    def test_shrunk_isr_commits(self, replicas: Replicas) -> None:
        partition = replicas.lead(isr=ALL)
        partition.append(make_batch(4), 1)
        partition.follower_fetched(FOLLOWER, 4)
        assert high_watermark(partition) == 0
        replicas.context.is_alive = lambda broker_id: broker_id != SLOW_FOLLOWER
        become(partition, isr=ISR, replicas=ALL, partition_epoch=1)
        assert high_watermark(partition) == 4

    def test_grown_isr_holds_it_back(self, replicas: Replicas) -> None:
        partition = replicas.lead(isr=ISR, replicas=ALL)
        partition.follower_fetched(SLOW_FOLLOWER, 0)
        become(partition, isr=ALL, partition_epoch=1)
        partition.append(make_batch(4), 1)
        assert not partition.follower_fetched(FOLLOWER, 4)
        assert partition.follower_fetched(SLOW_FOLLOWER, 4)

    def test_keeps_offsets_of_followers_in_the_same_epoch(self, replicas: Replicas) -> None:
        partition = replicas.lead(isr=ALL)
        partition.append(make_batch(4), 1)
        partition.follower_fetched(FOLLOWER, 4)
        become(partition, isr=ALL, partition_epoch=1)
        assert partition.follower_fetched(SLOW_FOLLOWER, 4)

    def test_forgets_offsets_of_followers_in_a_new_epoch(self, replicas: Replicas) -> None:
        """A follower may have truncated its log since: only fetches of this epoch count."""
        partition = replicas.lead(isr=ALL)
        partition.append(make_batch(4), 1)
        partition.follower_fetched(FOLLOWER, 4)
        become(partition, isr=ALL, leader_epoch=1)
        assert not partition.follower_fetched(SLOW_FOLLOWER, 4)
        assert high_watermark(partition) == 0
        assert partition.follower_fetched(FOLLOWER, 4)

    def test_fetch_of_a_broker_without_replica(self, replicas: Replicas) -> None:
        partition = replicas.lead(isr=ISR)
        partition.append(make_batch(4), 1)
        with pytest.raises(NotLeaderForPartitionError, match=f"Broker {OTHER} is not a replica of partition orders-0"):
            partition.check_replica(OTHER)
        partition.check_replica(FOLLOWER)

    def test_failed_append_changes_nothing(self, replicas: Replicas) -> None:
        partition = replicas.lead()
        partition.append(make_batch(), 1)
        damaged = make_batch()
        damaged[-1] ^= 1
        with pytest.raises(CorruptRecordError, match="is corrupt"):
            partition.append(damaged, 1)
        assert (partition.check_leader().log_end_offset, high_watermark(partition)) == (1, 1)

    def test_waits_for_a_follower_that_is_about_to_join(self, replicas: Replicas) -> None:
        partition = replicas.lead(isr=ISR, replicas=ALL)
        partition.append(make_batch(2), 1)
        partition.follower_fetched(SLOW_FOLLOWER, 2)
        partition.append(make_batch(2), 1)
        assert partition.follower_fetched(FOLLOWER, 4)
        assert high_watermark(partition) == 2, "the slow follower had caught up a moment ago"
        replicas.pass_time(MAX_LAG_MS)
        assert not partition.update_high_watermark()
        replicas.pass_time(1)
        replicas.check_high_watermarks()
        assert high_watermark(partition) == 4

    def test_does_not_wait_for_a_dead_follower_out_of_sync(self, replicas: Replicas) -> None:
        partition = replicas.lead(isr=ISR, replicas=ALL)
        partition.follower_fetched(SLOW_FOLLOWER, 0)
        partition.append(make_batch(2), 1)
        partition.follower_fetched(FOLLOWER, 2)
        assert high_watermark(partition) == 0
        replicas.context.is_alive = lambda broker_id: broker_id != SLOW_FOLLOWER
        replicas.check_high_watermarks()
        assert high_watermark(partition) == 2

    def test_stays_below_the_minimum_of_replicas(self, tmp_path: Path) -> None:
        with Replicas(tmp_path, min_insync_replicas=2) as replicas:
            replicas.context.is_alive = lambda broker_id: broker_id == NODE
            partition = replicas.lead(isr=(NODE,), replicas=ALL)
            partition.append(make_batch(), 1)
            assert high_watermark(partition) == 0
            become(partition, isr=ISR, replicas=ALL, partition_epoch=1)
            assert partition.follower_fetched(FOLLOWER, 1)


class TestInSyncReplicas:
    """The leader proposes changes, and the controller decides."""

    @pytest.fixture(autouse=True)
    def controller(self, replicas: Replicas) -> None:
        replicas.context.submit_isr_change = replicas.send_isr_change

    @staticmethod
    def answer(
        replicas: Replicas, partition: Partition, isr: tuple[int, ...], partition_epoch: int = 1, leader_epoch: int = 0
    ) -> bool:
        leadership = Leadership(NODE, leader_epoch, isr, 1, partition_epoch)
        return replicas.isr_change_answered(partition, replicas.isr_changes[-1], leadership)

    def test_follower_joins(self, replicas: Replicas) -> None:
        partition = replicas.lead(isr=ISR, replicas=ALL)
        partition.append(make_batch(4), 1)
        partition.follower_fetched(FOLLOWER, 3)
        partition.follower_fetched(SLOW_FOLLOWER, 2)
        assert not replicas.isr_changes, "it lacks committed records"
        partition.follower_fetched(SLOW_FOLLOWER, 3)
        assert replicas.isr_changes == [isr_change(0, 0, ALL)]
        assert (partition.isr, partition.maximal_isr) == ([*ISR], {*ALL})
        assert self.answer(replicas, partition, ALL)
        assert (partition.isr, partition.pending_isr, partition.partition_epoch) == ([*ALL], None, 1)

    def test_sends_the_broker_epochs(self, replicas: Replicas) -> None:
        """A replica that has restarted since may have lost records (KIP-903)."""
        replicas.context.broker_epoch = lambda: 70
        partition = replicas.lead(isr=ISR, replicas=ALL)
        partition.follower_fetched(SLOW_FOLLOWER, 0, broker_epoch=90)
        assert replicas.isr_changes[0].broker_epochs == (70, -1, 90)

    def test_follower_joins_only_with_all_records_before_this_epoch(self, replicas: Replicas) -> None:
        """The previous leader may have committed them."""
        partition = replicas.lead(isr=ISR, replicas=ALL)
        partition.append(make_batch(4), 1)
        become(partition, isr=ISR, replicas=ALL, leader_epoch=1, partition_epoch=1)
        partition.follower_fetched(SLOW_FOLLOWER, 3)
        assert not replicas.isr_changes
        partition.follower_fetched(SLOW_FOLLOWER, 4)
        assert replicas.isr_changes == [isr_change(1, 1, ALL)]

    def test_dead_follower_does_not_join(self, replicas: Replicas) -> None:
        replicas.context.is_alive = lambda broker_id: broker_id != SLOW_FOLLOWER
        partition = replicas.lead(isr=ISR, replicas=ALL)
        partition.follower_fetched(SLOW_FOLLOWER, 0)
        assert not replicas.isr_changes

    def test_pending_expansion_holds_the_high_watermark_back(self, replicas: Replicas) -> None:
        partition = replicas.lead(isr=ISR, replicas=ALL)
        partition.follower_fetched(SLOW_FOLLOWER, 0)
        replicas.context.is_alive = lambda _: False
        partition.append(make_batch(4), 1)
        assert not partition.follower_fetched(FOLLOWER, 4)
        assert self.answer(replicas, partition, ISR), "the controller removed the follower meanwhile"
        assert high_watermark(partition) == 4

    def test_lagging_follower_leaves(self, replicas: Replicas) -> None:
        partition = replicas.lead(isr=ALL)
        partition.append(make_batch(4), 1)
        replicas.pass_time(MAX_LAG_MS)
        replicas.check_isrs()
        assert not replicas.isr_changes
        partition.follower_fetched(FOLLOWER, 4)
        replicas.pass_time(1)
        replicas.check_isrs()
        assert replicas.isr_changes == [isr_change(0, 0, ISR)]
        replicas.check_isrs()
        assert len(replicas.isr_changes) == 1, "one change at a time"
        assert (high_watermark(partition), partition.maximal_isr) == (0, {*ALL})
        assert self.answer(replicas, partition, ISR)
        assert (high_watermark(partition), partition.isr) == (4, [*ISR])

    def test_follower_with_all_records_stays(self, replicas: Replicas) -> None:
        partition = replicas.lead(isr=ISR)
        partition.follower_fetched(FOLLOWER, 0)
        replicas.pass_time(10 * MAX_LAG_MS)
        replicas.check_isrs()
        assert not replicas.isr_changes

    def test_followers_do_not_change_the_isr(self, replicas: Replicas) -> None:
        replicas.lead(isr=ISR, leader=FOLLOWER)
        replicas.pass_time(10 * MAX_LAG_MS)
        replicas.check_isrs()
        assert not replicas.isr_changes

    def test_change_in_flight_is_proposed_later(self, replicas: Replicas) -> None:
        partition = replicas.lead(isr=ISR, replicas=ALL)
        replicas.context.submit_isr_change = lambda *_: False
        partition.follower_fetched(SLOW_FOLLOWER, 0)
        assert partition.pending_isr is None
        replicas.context.submit_isr_change = replicas.send_isr_change
        partition.follower_fetched(SLOW_FOLLOWER, 0)
        assert partition.pending_isr is not None

    @pytest.mark.parametrize("error", [IneligibleReplicaError, OperationNotAttemptedError])
    def test_rejected_change_is_rolled_back(self, replicas: Replicas, error: type[KafkaError]) -> None:
        partition = replicas.lead(isr=ISR, replicas=ALL)
        partition.follower_fetched(SLOW_FOLLOWER, 0)
        assert replicas.isr_change_answered(partition, replicas.isr_changes[0], error("no"))
        assert (partition.pending_isr, partition.isr) == (None, [*ISR])

    @pytest.mark.parametrize(
        "error",
        [
            FencedLeaderEpochError,
            InvalidRequestError,
            InvalidUpdateVersionError,
            NewLeaderElectedError,
            UnknownTopicIdError,
            UnknownTopicOrPartitionError,
        ],
    )
    def test_outdated_change_stays_pending_until_the_next_state(
        self, replicas: Replicas, error: type[KafkaError]
    ) -> None:
        """The controller may have made the change before: the high watermark waits for the maximal ISR."""
        partition = replicas.lead(isr=ISR, replicas=ALL)
        partition.follower_fetched(SLOW_FOLLOWER, 0)
        assert replicas.isr_change_answered(partition, replicas.isr_changes[0], error("no"))
        assert partition.pending_isr is replicas.isr_changes[0]
        become(partition, isr=ISR, replicas=ALL)
        assert partition.pending_isr is replicas.isr_changes[0], "the same state again"
        become(partition, isr=ISR, replicas=ALL, partition_epoch=1)
        assert partition.pending_isr is None

    def test_other_errors_are_retried(self, replicas: Replicas) -> None:
        partition = replicas.lead(isr=ISR, replicas=ALL)
        partition.follower_fetched(SLOW_FOLLOWER, 0)
        assert not replicas.isr_change_answered(partition, replicas.isr_changes[0], RequestTimedOutError("late"))
        assert partition.pending_isr is replicas.isr_changes[0]

    def test_answer_to_an_older_state_is_ignored(self, replicas: Replicas) -> None:
        partition = replicas.lead(isr=ISR, replicas=ALL)
        partition.follower_fetched(SLOW_FOLLOWER, 0)
        become(partition, isr=(NODE,), replicas=ALL, partition_epoch=2)
        assert self.answer(replicas, partition, ALL)
        assert replicas.isr_change_answered(partition, replicas.isr_changes[0], RequestTimedOutError("late"))
        assert (partition.isr, partition.partition_epoch) == ([NODE], 2)

    def test_answer_with_another_leader_epoch_waits_for_the_controller(self, replicas: Replicas) -> None:
        partition = replicas.lead(isr=ISR, replicas=ALL)
        partition.follower_fetched(SLOW_FOLLOWER, 0)
        assert self.answer(replicas, partition, ALL, leader_epoch=1)
        assert (partition.isr, partition.leader_epoch, partition.maximal_isr) == ([*ISR], 0, {*ALL})

    def test_lost_leadership_ends_the_change(self, replicas: Replicas) -> None:
        partition = replicas.lead(isr=ISR, replicas=ALL)
        partition.follower_fetched(SLOW_FOLLOWER, 0)
        replicas.stop_replica(delete=False)
        assert self.answer(replicas, partition, ALL)
        assert (partition.isr, partition.pending_isr, partition.followers) == ([*ISR], None, {})


class TestMinInsyncReplicas:
    @pytest.mark.parametrize(("isr", "minimum"), [(ALL, 3), (ISR, 2), ((NODE,), 1)])
    def test_enough(self, tmp_path: Path, isr: tuple[int, ...], minimum: int) -> None:
        with Replicas(tmp_path, min_insync_replicas=minimum) as replicas:
            partition = replicas.lead(isr=isr, replicas=ALL)
            assert partition.append(make_batch(), ALL_IN_SYNC).base_offset == 0

    @pytest.mark.parametrize(("isr", "minimum"), [(ISR, 3), ((NODE,), 2), ((NODE,), 3)])
    def test_not_enough(self, tmp_path: Path, isr: tuple[int, ...], minimum: int) -> None:
        with Replicas(tmp_path, min_insync_replicas=minimum) as replicas:
            partition = replicas.lead(isr=isr, replicas=ALL)
            with pytest.raises(NotEnoughReplicasError, match=rf"ISR \[.*\] is insufficient .* min.isr .* of {minimum}"):
                partition.append(make_batch(), ALL_IN_SYNC)
            assert partition.check_leader().log_end_offset == 0, "nothing is appended"
            for acks in (0, 1):
                partition.append(make_batch(), acks)
            assert partition.check_leader().log_end_offset == 2

    def test_at_most_the_number_of_replicas(self, tmp_path: Path) -> None:
        with Replicas(tmp_path, min_insync_replicas=3) as replicas:
            assert replicas.lead().append(make_batch(), ALL_IN_SYNC).base_offset == 0

    def test_changed_config_applies(self, tmp_path: Path) -> None:
        with Replicas(tmp_path, min_insync_replicas=2) as replicas, Replicas(tmp_path / "b") as default:
            partition = replicas.lead(isr=(NODE,), replicas=ALL)
            with pytest.raises(NotEnoughReplicasError):
                partition.append(make_batch(), ALL_IN_SYNC)
            replicas.config = default.config
            partition.append(make_batch(), ALL_IN_SYNC)


def test_logs_failing_appends_once(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    partition = replicas.lead()
    log = partition.check_leader()
    caplog.set_level("INFO", "headrace.broker.partition")

    def fail(*_: object) -> None:
        raise KafkaStorageError(f"disk: {errno.errorcode[errno.ENOSPC]}")

    with monkeypatch.context() as patched:
        patched.setattr(type(log), "append_as_leader", fail)
        for _ in range(3):
            with pytest.raises(KafkaStorageError, match="ENOSPC"):
                partition.append(make_batch(), 1)
    assert [record.message for record in caplog.records] == [
        "Partition orders-0: appends fail, producers get KAFKA_STORAGE_ERROR: disk: ENOSPC"
    ]
    caplog.clear()
    for _ in range(2):
        partition.append(make_batch(), 1)
    assert [record.message for record in caplog.records] == ["Partition orders-0: appends succeed again"]


def test_unflushed_append_is_not_replicated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The flush of an append failed, so the leader may lose the record."""
    with Replicas(tmp_path) as replicas:
        partition = replicas.lead(isr=ISR)
        replicas.manager.update_configs({"orders": LogConfig.from_properties({"flush.messages": 1})})
        partition.append(make_batch(), 1)

        def fail(*_: object) -> None:
            raise DiskFullError("full")

        with monkeypatch.context() as patched:
            patched.setattr(Log, "flush", fail)
            with pytest.raises(DiskFullError):
                partition.append(make_batch(), 1)
            assert not partition.follower_fetched(FOLLOWER, 2)
            assert high_watermark(partition) == 0
        partition.follower_fetched(FOLLOWER, 2)
        log = partition.check_leader()
        assert (log.recovery_point, log.high_watermark) == (2, 2)


def test_large_compressed_batch_is_left_to_the_caller(replicas: Replicas) -> None:
    """The caller decompresses it in a thread and appends it then."""
    partition = replicas.lead()
    large = make_batch(100, codec=Compression.ZSTD)
    with pytest.raises(LargeBatchError) as raised:
        partition.append(bytearray(large), 1, max_inline_bytes=1000)
    assert (partition.check_leader().log_end_offset, high_watermark(partition)) == (0, 0)
    assert partition.append(raised.value.validate(bytearray(large)), 1).last_offset == 99
    assert partition.append(bytearray(large), 1, max_inline_bytes=1_000_000).last_offset == 199
    assert high_watermark(partition) == 200


class TestDeleteRecords:
    def test_deletes_before_offset_or_high_watermark(self, replicas: Replicas) -> None:
        partition = replicas.lead(isr=ISR)
        for _ in range(4):
            partition.append(make_batch(), 1)
        partition.follower_fetched(FOLLOWER, 3)
        assert partition.delete_records(1) == 1
        with pytest.raises(OffsetOutOfRangeError):
            partition.delete_records(4)
        assert partition.delete_records(-1) == 3
        assert partition.check_leader().log_start_offset == 3

    def test_only_leader_deletes(self, replicas: Replicas) -> None:
        partition = replicas.lead(isr=ISR, leader=FOLLOWER)
        with pytest.raises(NotLeaderForPartitionError):
            partition.delete_records(0)

    def test_compacted_topic(self, replicas: Replicas) -> None:
        partition = replicas.lead()
        partition.append(make_batch(), 1)
        replicas.manager.update_configs({"orders": LogConfig.from_properties({"cleanup.policy": "compact"})})
        with pytest.raises(PolicyViolationError, match=r"due to the configured policy"):
            partition.delete_records(1)
