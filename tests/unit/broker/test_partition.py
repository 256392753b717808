"""One partition: roles, epochs, the high watermark, in-sync replicas, appends."""

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.broker.replicas import FOLLOWER, NODE, OTHER, SLOW_FOLLOWER, TOPIC_ID, Replicas, partition_state
from tests.support.storage.logs import make_batch

from headrace.broker.partition import ALL_IN_SYNC, Partition
from headrace.common.errors import (
    CorruptRecordError,
    FencedLeaderEpochError,
    KafkaStorageError,
    NotEnoughReplicasError,
    NotLeaderForPartitionError,
    OffsetOutOfRangeError,
    PolicyViolationError,
    UnknownLeaderEpochError,
)
from headrace.records import Compression
from headrace.storage.config import LogConfig
from headrace.storage.large_batches import LargeBatchError

ISR = (NODE, FOLLOWER)
ALL = (NODE, FOLLOWER, SLOW_FOLLOWER)


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
