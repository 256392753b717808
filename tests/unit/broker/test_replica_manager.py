"""All partitions of a broker: the controller's commands, and the requests that wait for partitions."""

import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.broker.replicas import (
    FOLLOWER,
    NODE,
    OTHER,
    TOPIC_ID,
    TP,
    TP_1,
    Replicas,
    partition_state,
)
from tests.support.storage.logs import make_batch, names_in

from headrace.broker.partition import Partition
from headrace.broker.purgatory import DelayedOperation
from headrace.cluster.commands import EPOCH_DURING_DELETE, NO_EPOCH, PartitionState, UpdateMetadata
from headrace.cluster.metadata_image import MetadataImage
from headrace.common.background import WorkResult
from headrace.common.errors import (
    FencedLeaderEpochError,
    KafkaStorageError,
    NotLeaderForPartitionError,
    ReplicaNotAvailableError,
    UnknownTopicOrPartitionError,
)
from headrace.common.ids import Uuid
from headrace.common.types import TopicPartition
from headrace.storage.files import DiskFullError
from headrace.storage.log import Log

ISR = (NODE, FOLLOWER)
REPLACED_TOPIC_ID = Uuid(int=8)
UNKNOWN_SERVER_ERROR = -1


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    with Replicas(tmp_path) as replicas:
        yield replicas


class Wait(DelayedOperation):
    """Counts how often it is tried; completes if the partition has no leader here."""

    def __init__(self, partition: Partition):
        super().__init__(timeout_ms=1000)
        self.partition = partition
        self.tries = 0

    def try_complete(self) -> bool:
        self.tries += 1
        return not self.partition.is_leader and self.force_complete()

    def on_complete(self) -> None:
        pass


def watch(replicas: Replicas, partition: Partition) -> tuple[Wait, Wait]:
    waits = Wait(partition), Wait(partition)
    for wait, purgatory in zip(waits, (replicas.fetches, replicas.produces), strict=True):
        assert not purgatory.try_complete_else_watch(wait, [partition])
        wait.tries = 0
    return waits


class TestFinding:
    def test_partitions(self, replicas: Replicas) -> None:
        other = TopicPartition("payments", 3)
        made = [replicas.lead(tp) for tp in (TP, TP_1, other)]
        assert (list(replicas), len(replicas)) == (made, 3)
        assert replicas.get("payments", 3) is replicas.find("payments", 3) is made[2]
        for topic, index in (("payments", 0), ("nothing", 0)):
            assert replicas.get(topic, index) is None
            with pytest.raises(UnknownTopicOrPartitionError, match=f"does not host partition {topic}-{index}"):
                replicas.find(topic, index)

    def test_leader(self, replicas: Replicas) -> None:
        partition = replicas.lead(leader_epoch=2)
        assert replicas.leader("orders", 0) is replicas.leader("orders", 0, 2) is partition
        with pytest.raises(FencedLeaderEpochError):
            replicas.leader("orders", 0, 1)
        replicas.lead(TP_1, isr=ISR, leader=FOLLOWER)
        with pytest.raises(NotLeaderForPartitionError):
            replicas.leader("orders", 1)


class TestLeaderAndIsr:
    def test_creates_log_with_topic_id(self, replicas: Replicas, tmp_path: Path) -> None:
        partition = replicas.lead(is_new=True)
        assert partition.log is replicas.logs.get(TP)
        assert partition.check_leader().topic_id == TOPIC_ID
        assert "orders-0" in names_in(tmp_path)

    def test_keeps_partition_and_log(self, replicas: Replicas) -> None:
        partition = replicas.lead(isr=ISR)
        partition.append(make_batch(), 1)
        log = partition.log
        assert replicas.lead(isr=ISR, leader=FOLLOWER, leader_epoch=1) is partition
        assert replicas.lead(isr=ISR, leader_epoch=2) is partition
        assert partition.check_leader() is log
        assert len(replicas) == 1

    def test_old_leader_epoch_is_ignored(self, replicas: Replicas) -> None:
        partition = replicas.lead(isr=ISR, leader_epoch=5)
        assert replicas.apply(partition_state(isr=ISR, leader=FOLLOWER, leader_epoch=4)) == {TP: 0}
        assert (partition.is_leader, partition.leader_epoch) == (True, 5)

    def test_old_partition_epoch_is_ignored(self, replicas: Replicas) -> None:
        partition = replicas.lead(isr=ISR, leader_epoch=5, partition_epoch=8)
        assert replicas.apply(partition_state(isr=(NODE,), replicas=ISR, leader_epoch=5, partition_epoch=7)) == {TP: 0}
        assert (partition.isr, partition.partition_epoch) == (list(ISR), 8)

    def test_same_leader_epoch_changes_isr(self, replicas: Replicas) -> None:
        partition = replicas.lead(isr=ISR)
        replicas.lead(isr=(NODE,), replicas=ISR, partition_epoch=1)
        assert (partition.isr, partition.partition_epoch) == ([NODE], 1)

    def test_error_of_one_partition_does_not_affect_others(self, replicas: Replicas) -> None:
        errors = replicas.apply(
            partition_state(TP, leader=OTHER, isr=(OTHER,)),
            partition_state(TP_1),
        )
        assert errors == {TP: ReplicaNotAvailableError.code, TP_1: 0}
        assert [partition.tp for partition in replicas] == [TP_1]
        assert replicas.logs.get(TP) is None

    def test_internal_error_of_one_partition(self, replicas: Replicas) -> None:
        def fail(_: Partition) -> None:
            raise ValueError("bug")

        replicas.on_role_changed.append(fail)
        assert replicas.apply(partition_state(TP)) == {TP: UNKNOWN_SERVER_ERROR}

    def test_role_change_completes_waiting_requests(self, replicas: Replicas) -> None:
        partition = replicas.lead(isr=ISR)
        other = replicas.lead(TP_1)
        changed: list[Partition] = []
        replicas.on_role_changed.append(changed.append)
        fetch, produce = watch(replicas, partition)
        untouched = watch(replicas, other)
        replicas.lead(isr=ISR, leader=FOLLOWER, leader_epoch=1)
        assert fetch.completed
        assert produce.completed
        assert changed == [partition]
        assert [wait.tries for wait in untouched] == [0, 0]

    def test_listeners_see_only_changes_of_leader_or_epoch(self, replicas: Replicas) -> None:
        changed: list[tuple[int, bool]] = []
        replicas.on_role_changed.append(lambda partition: changed.append((partition.leader_epoch, partition.is_leader)))
        replicas.lead(isr=ISR)
        replicas.lead(isr=(NODE,), replicas=ISR, partition_epoch=1)
        replicas.lead(isr=ISR, leader_epoch=1)
        replicas.lead(isr=ISR, leader=FOLLOWER, leader_epoch=2)
        assert changed == [(0, True), (1, True), (2, False)]

    def test_restart_restores_high_watermark(self, tmp_path: Path) -> None:
        with Replicas(tmp_path) as before:
            partition = before.lead(isr=ISR)
            partition.append(make_batch(5), 1)
            partition.follower_fetched(FOLLOWER, 3)
            before.checkpoint_high_watermarks()
        with Replicas(tmp_path) as after:
            partition = after.lead(isr=ISR, leader=FOLLOWER, leader_epoch=1)
            assert partition.log is not None
            assert (partition.log.high_watermark, partition.log.log_end_offset) == (3, 5)

    def test_created_again_without_deletion(self, replicas: Replicas, tmp_path: Path) -> None:
        """The new topic starts with lower epochs."""
        old = replicas.lead(leader_epoch=5, partition_epoch=9)
        old.append(make_batch(5), 1)
        waits = watch(replicas, old)
        partition = replicas.lead(topic_id=REPLACED_TOPIC_ID)
        assert partition is not old
        assert all(wait.completed for wait in waits)
        assert not old.is_leader
        assert (partition.topic_id, partition.leader_epoch) == (REPLACED_TOPIC_ID, 0)
        log = partition.check_leader()
        assert (log.log_end_offset, log.high_watermark) == (0, 0)
        assert any(name.startswith("orders-0.") and name.endswith("-stray") for name in names_in(tmp_path))

    def test_replaced_topic_gets_an_empty_log(self, replicas: Replicas, tmp_path: Path) -> None:
        """The topic was deleted and created again while this broker was down."""
        replicas.lead().append(make_batch(5), 1)
        assert replicas.stop_replica(delete=False) == 0
        partition = replicas.lead(topic_id=REPLACED_TOPIC_ID)
        assert (partition.check_leader().log_end_offset, partition.topic_id) == (0, REPLACED_TOPIC_ID)
        assert any(name.startswith("orders-0.") and name.endswith("-stray") for name in names_in(tmp_path))


class TestStopReplica:
    @pytest.mark.parametrize("delete", [True, False])
    def test_stop(self, replicas: Replicas, tmp_path: Path, delete: bool) -> None:
        partition = replicas.lead()
        replicas.lead(TP_1)
        changed: list[Partition] = []
        replicas.on_role_changed.append(changed.append)
        waits = watch(replicas, partition)
        assert replicas.stop_replica(delete=delete) == 0
        assert all(wait.completed for wait in waits)
        assert changed == [partition]
        assert not partition.is_leader
        assert [each.tp for each in replicas] == [TP_1]
        assert (replicas.logs.get(TP) is None) is delete
        assert ("orders-0" not in names_in(tmp_path)) is delete

    @pytest.mark.parametrize("delete", [True, False])
    def test_old_leader_epoch_is_rejected(self, replicas: Replicas, delete: bool) -> None:
        partition = replicas.lead(leader_epoch=5)
        assert replicas.stop_replica(delete=delete, leader_epoch=0) == FencedLeaderEpochError.code
        assert partition.is_leader
        assert replicas.logs.get(TP) is not None

    @pytest.mark.parametrize("epoch", [5, 6, EPOCH_DURING_DELETE, NO_EPOCH])
    def test_valid_leader_epochs(self, replicas: Replicas, epoch: int) -> None:
        replicas.lead(leader_epoch=5)
        assert replicas.stop_replica(delete=True, leader_epoch=epoch) == 0
        assert replicas.logs.get(TP) is None

    def test_stopped_partition_keeps_its_high_watermark(self, tmp_path: Path) -> None:
        """A replica that was stopped without deletion may become a replica again, also after a restart."""
        with Replicas(tmp_path) as before:
            partition = before.lead(isr=ISR)
            partition.append(make_batch(5), 1)
            partition.follower_fetched(FOLLOWER, 3)
            before.lead(TP_1)
            assert before.stop_replica(delete=False) == 0
            before.checkpoint_high_watermarks()
            partition = before.lead(isr=ISR, leader=FOLLOWER, leader_epoch=1)
            assert partition.log is not None
            assert partition.log.high_watermark == 3
            before.stop_replica(delete=False)
        with Replicas(tmp_path) as without_role:
            without_role.lead(TP_1)
            without_role.checkpoint_high_watermarks()
        with Replicas(tmp_path) as after:
            partition = after.lead(isr=ISR, leader=FOLLOWER, leader_epoch=2)
            assert partition.log is not None
            assert (partition.log.high_watermark, partition.log.log_end_offset) == (3, 5)

    def test_last_partition_of_topic(self, replicas: Replicas) -> None:
        replicas.lead()
        replicas.stop_replica(delete=True)
        assert len(replicas) == 0
        assert replicas.get("orders", 0) is None

    @pytest.mark.parametrize("delete", [True, False])
    def test_unknown_partition(self, replicas: Replicas, delete: bool) -> None:
        assert replicas.stop_replica(TP, delete=delete) == 0

    def test_deletes_log_of_stopped_partition(self, replicas: Replicas) -> None:
        """The controller first stops all replicas and then deletes them."""
        replicas.lead()
        replicas.stop_replica(delete=False)
        assert replicas.stop_replica(delete=True) == 0
        assert replicas.logs.get(TP) is None

    def test_created_again_after_deletion(self, replicas: Replicas) -> None:
        replicas.lead().append(make_batch(5), 1)
        replicas.stop_replica(delete=True)
        partition = replicas.lead(topic_id=REPLACED_TOPIC_ID)
        log = partition.check_leader()
        assert (log.log_end_offset, log.high_watermark) == (0, 0)


class TestAppended:
    def test_checks_both_purgatories(self, replicas: Replicas) -> None:
        partition, other = replicas.lead(), replicas.lead(TP_1)
        waits, others = watch(replicas, partition), watch(replicas, other)
        replicas.appended(partition)
        assert [wait.tries for wait in (*waits, *others)] == [1, 1, 0, 0]


class TestStrayLogs:
    def test_unknown_logs_are_renamed(self, tmp_path: Path) -> None:
        unknown = TopicPartition("unknown", 0)
        with Replicas(tmp_path) as before:
            for tp in (TP, TP_1, unknown):
                before.lead(tp).append(make_batch(), 1)
        with Replicas(tmp_path) as after:
            after.lead(TP)
            after.move_stray_logs(lambda tp: tp == TP_1)
            assert {log.tp for log in after.logs} == {TP, TP_1}
            names = names_in(tmp_path)
        assert {"orders-0", "orders-1"} <= names
        assert "unknown-0" not in names
        assert any(name.startswith("unknown-0.") and name.endswith("-stray") for name in names)

    @pytest.mark.parametrize(
        ("assigned", "leader_epoch", "is_dropped"),
        [((FOLLOWER,), 3, True), ((FOLLOWER,), 2, False), ((NODE, FOLLOWER), 4, False), (None, 4, False)],
    )
    def test_reassigned_replicas_are_dropped(
        self, tmp_path: Path, assigned: tuple[int, ...] | None, leader_epoch: int, is_dropped: bool
    ) -> None:
        """The metadata of a new controller has other replicas: the command to delete this one was lost."""
        image = MetadataImage()
        with Replicas(tmp_path) as replicas:
            partition = replicas.lead(leader_epoch=3)
            partition.append(make_batch(), 1)
            if assigned is not None:
                state = PartitionState(TP, TOPIC_ID, FOLLOWER, leader_epoch, (FOLLOWER,), 9, assigned)
                image.apply(UpdateMetadata(FOLLOWER, 1, 1, [], [state], full=True))
            replicas.drop_reassigned(image)
            assert (replicas.get(*TP) is None) == is_dropped
            names = names_in(tmp_path)
        assert ("orders-0" not in names) == is_dropped
        assert any(name.startswith("orders-0.") and name.endswith("-stray") for name in names) == is_dropped


class TestDisks:
    def test_failed_directory(self, tmp_path: Path) -> None:
        with Replicas(tmp_path / "a", tmp_path / "b") as replicas:
            lost, kept = replicas.lead(TP), replicas.lead(TP_1)
            waits = watch(replicas, lost)
            directory = replicas.logs.directory_of(TP)
            assert directory is not None
            assert directory is not replicas.logs.directory_of(TP_1)
            replicas.logs.fail_directory(directory, "broken")
            assert all(wait.completed for wait in waits)
            with pytest.raises(KafkaStorageError, match="offline"):
                replicas.leader("orders", 0)
            assert replicas.leader("orders", 1) is kept
            # An existing partition must not get an empty log in the other directory; a new one may.
            unknown, new = TopicPartition("old", 0), TopicPartition("new", 0)
            errors = replicas.apply(partition_state(TP), partition_state(unknown), partition_state(new, is_new=True))
            assert errors == {TP: KafkaStorageError.code, unknown: KafkaStorageError.code, new: 0}

    def test_checkpoints_high_watermarks(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with Replicas(tmp_path) as replicas:
            submitted = Submitted()
            monkeypatch.setattr(replicas.logs, "runner", submitted)
            partition = replicas.lead()
            partition.append(make_batch(4), 1)
            replicas.checkpoint_high_watermarks()
            partition.append(make_batch(4), 1)
            replicas.checkpoint_high_watermarks()
            assert len(submitted.work) == 1, "one write at a time"
            submitted.run()
            (directory,) = replicas.logs.directories
            assert directory.high_watermarks == {TP: 4}
            replicas.checkpoint_high_watermarks()
            submitted.run()
            assert directory.high_watermarks == {TP: 8}
            replicas.checkpoint_high_watermarks()
            assert submitted.work == [], "nothing has changed"

    @pytest.mark.parametrize("full", [True, False])
    def test_failed_checkpoint(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: bool) -> None:
        with Replicas(tmp_path) as replicas:
            submitted = Submitted()
            monkeypatch.setattr(replicas.logs, "runner", submitted)
            replicas.lead().append(make_batch(), 1)
            (directory,) = replicas.logs.directories
            replicas.checkpoint_high_watermarks()
            submitted.run(OSError(errno.ENOSPC if full else errno.EIO, "cannot write"))
            assert directory.online is full, "a full disk is temporary"
            if full:
                replicas.checkpoint_high_watermarks()
                submitted.run()
                assert directory.high_watermarks == {TP: 1}


class Submitted:
    """A background runner whose work runs when the test says so, or fails with an error."""

    def __init__(self) -> None:
        self.work: list[tuple[Callable[[], object], Callable[[WorkResult], object]]] = []

    def submit(self, work: Callable[[], object], done: Callable[[WorkResult], object]) -> None:
        self.work.append((work, done))

    def run(self, error: Exception | None = None) -> None:
        submitted, self.work = self.work, []
        for work, done in submitted:
            done(WorkResult(error=error) if error is not None else WorkResult(work()))


class TestFailedAppend:
    """A leader that cannot write its log gives it up, if others can replace it."""

    @pytest.fixture
    def failing(self, monkeypatch: pytest.MonkeyPatch) -> list[KafkaStorageError]:
        """Appends fail with the first error of the list."""
        errors = [KafkaStorageError("input/output error")]
        append = Log.append_as_leader

        def fail(log: Log, *arguments: Any) -> Any:
            if errors:
                raise errors[0]
            return append(log, *arguments)

        monkeypatch.setattr(Log, "append_as_leader", fail)
        return errors

    @staticmethod
    def append(replicas: Replicas, partition: Partition) -> None:
        with pytest.raises(KafkaStorageError):
            partition.append(make_batch(), 1)
        replicas.timer.advance()

    @pytest.mark.usefixtures("failing")
    def test_gives_up_the_replica(self, replicas: Replicas) -> None:
        reported: list[bool] = []
        replicas.on_replica_failed = lambda: reported.append(True)
        changed: list[Partition] = []
        replicas.on_role_changed.append(changed.append)
        partition = replicas.lead(isr=(NODE, FOLLOWER))
        changed.clear()
        self.append(replicas, partition)
        assert (partition.is_leader, partition.log, changed, reported) == (False, None, [partition], [True])
        state = partition_state(isr=(NODE, FOLLOWER), partition_epoch=1)
        assert replicas.apply(state) == {TP: KafkaStorageError.code}, "the controller learns it from the response"
        assert replicas.stop_replica(delete=True) == 0
        replicas.lead(isr=(NODE, FOLLOWER), leader_epoch=5)

    @pytest.mark.usefixtures("failing")
    def test_last_replica_stays(self, replicas: Replicas) -> None:
        partition = replicas.lead(isr=(NODE,), replicas=(NODE, FOLLOWER))
        self.append(replicas, partition)
        assert partition.is_leader

    def test_full_disk(self, replicas: Replicas, failing: list[KafkaStorageError]) -> None:
        """Space may become free again."""
        failing[:] = [DiskFullError("no space left")]
        partition = replicas.lead(isr=(NODE, FOLLOWER))
        self.append(replicas, partition)
        assert partition.is_leader

    @pytest.mark.usefixtures("failing")
    def test_new_epoch_in_between(self, replicas: Replicas) -> None:
        partition = replicas.lead(isr=(NODE, FOLLOWER))
        with pytest.raises(KafkaStorageError):
            partition.append(make_batch(), 1)
        replicas.lead(isr=(NODE, FOLLOWER), leader_epoch=1)
        replicas.timer.advance()
        assert partition.is_leader


def test_counts_partitions_with_replicas_out_of_sync(tmp_path: Path) -> None:
    with Replicas(tmp_path, min_insync_replicas=2) as replicas:
        replicas.lead(TP, isr=(NODE, FOLLOWER))
        assert (replicas.under_replicated, replicas.under_min_isr) == (0, 0)
        replicas.lead(TP, isr=(NODE, FOLLOWER), replicas=(OTHER, NODE, FOLLOWER), adding=(OTHER,), leader_epoch=1)
        assert replicas.under_replicated == 0
        replicas.lead(TP, isr=(NODE, FOLLOWER), replicas=(NODE, FOLLOWER, OTHER), leader_epoch=1, partition_epoch=1)
        replicas.lead(TP_1, isr=(NODE,), replicas=(NODE, FOLLOWER))
        assert (replicas.under_replicated, replicas.under_min_isr) == (2, 1)
