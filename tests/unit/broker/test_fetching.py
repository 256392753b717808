"""Reading partitions for a fetch, and fetches that wait for data."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.broker.replicas import (
    FOLLOWER,
    NODE,
    OTHER,
    SLOW_FOLLOWER,
    TOPIC_ID,
    TP,
    TP_1,
    Replicas,
)
from tests.support.storage.logs import make_batch, make_marker

from headrace.broker.fetch_sessions import FetchedPartition
from headrace.broker.fetching import (
    CONSUMER,
    READ_COMMITTED,
    DelayedFetch,
    FetchLimits,
    PartitionRead,
    Reads,
    fetch_isolation,
    read_partitions,
)
from headrace.broker.partition import Partition
from headrace.broker.replication.throttle import ReplicationQuota
from headrace.common.errors import (
    FencedLeaderEpochError,
    InconsistentTopicIdError,
    KafkaError,
    NotLeaderForPartitionError,
    OffsetOutOfRangeError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    UnsupportedCompressionTypeError,
)
from headrace.common.ids import ZERO_UUID, Uuid
from headrace.common.types import TopicPartition
from headrace.protocol.messages.fetch import PartitionData
from headrace.records import ControlType
from headrace.storage.config import LogConfig
from headrace.storage.log import FetchIsolation
from headrace.storage.producer_state import AppendOrigin

ISR = (NODE, FOLLOWER)
BATCH_BYTES = len(make_batch())
MAX_WAIT_MS = 500
MEGABYTE = 1 << 20


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    with Replicas(tmp_path) as replicas:
        yield replicas


def fetched(
    offset: int = 0,
    tp: TopicPartition = TP,
    *,
    topic_id: Uuid = TOPIC_ID,
    max_bytes: int = MEGABYTE,
    epoch: int = -1,
    last_epoch: int = -1,
) -> FetchedPartition:
    return FetchedPartition(tp.topic, topic_id, tp.partition, offset, max_bytes, epoch, last_epoch)


def limits(
    min_bytes: int = 1, max_bytes: int = MEGABYTE, replica_id: int = CONSUMER, level: int = 0, api_version: int = 18
) -> FetchLimits:
    isolation = fetch_isolation(replica_id, level)
    return FetchLimits(min_bytes, max_bytes, MAX_WAIT_MS, isolation, replica_id, api_version)


def append(replicas: Replicas, partition: Partition, batches: int = 1) -> None:
    for _ in range(batches):
        partition.append(make_batch(), 1)
    replicas.appended(partition)


def sizes(reads: Reads) -> list[int]:
    return [read.size for read in reads.partitions]


def error_of(reads: Reads) -> KafkaError | None:
    (read,) = reads.partitions
    return read.error


@pytest.mark.parametrize(
    ("replica_id", "level", "isolation"),
    [
        (CONSUMER, 0, FetchIsolation.HIGH_WATERMARK),
        (CONSUMER, READ_COMMITTED, FetchIsolation.TXN_COMMITTED),
        (0, 0, FetchIsolation.LOG_END),
        (FOLLOWER, READ_COMMITTED, FetchIsolation.LOG_END),
    ],
)
def test_isolation(replica_id: int, level: int, isolation: FetchIsolation) -> None:
    assert fetch_isolation(replica_id, level) is isolation


class TestReading:
    def test_consumer_reads_up_to_high_watermark(self, replicas: Replicas) -> None:
        partition = replicas.lead(isr=ISR)
        append(replicas, partition, 3)
        partition.follower_fetched(FOLLOWER, 2)
        reads = read_partitions(replicas, [fetched()], limits())
        assert sizes(reads) == [2 * BATCH_BYTES]
        assert (reads.size, reads.urgent) == (2 * BATCH_BYTES, False)
        (read,) = reads.partitions
        assert read.result is not None
        assert (read.result.high_watermark, read.result.log_start_offset) == (2, 0)

    def test_follower_reads_up_to_log_end_and_advances_high_watermark(self, replicas: Replicas) -> None:
        partition = replicas.lead(isr=ISR)
        append(replicas, partition, 3)
        reads = read_partitions(replicas, [fetched(1)], limits(replica_id=FOLLOWER))
        assert sizes(reads) == [2 * BATCH_BYTES]
        assert partition.check_leader().high_watermark == 1
        (read,) = reads.partitions
        assert read.result is not None
        assert read.result.high_watermark == 1, "the follower learns the new high watermark"

    @pytest.mark.parametrize("offset", [1000, 11])
    def test_follower_beyond_log_end_does_not_advance_high_watermark(self, replicas: Replicas, offset: int) -> None:
        partition = replicas.lead(isr=ISR)
        append(replicas, partition, 10)
        reads = read_partitions(replicas, [fetched(offset)], limits(replica_id=FOLLOWER))
        assert isinstance(error_of(reads), OffsetOutOfRangeError)
        assert partition.check_leader().high_watermark == 0
        read_partitions(replicas, [fetched(10)], limits(replica_id=FOLLOWER))
        assert partition.check_leader().high_watermark == 10

    def test_fetch_of_broker_without_replica(self, replicas: Replicas) -> None:
        replicas.lead(isr=ISR)
        reads = read_partitions(replicas, [fetched()], limits(replica_id=OTHER))
        assert isinstance(error_of(reads), NotLeaderForPartitionError)

    def test_stops_at_byte_limit_of_request(self, replicas: Replicas) -> None:
        for tp in (TP, TP_1):
            append(replicas, replicas.lead(tp), 3)
        both = [fetched(tp=TP), fetched(tp=TP_1)]
        assert sizes(read_partitions(replicas, both, limits(max_bytes=4 * BATCH_BYTES))) == [
            3 * BATCH_BYTES,
            BATCH_BYTES,
        ]
        assert sizes(read_partitions(replicas, both, limits(max_bytes=3 * BATCH_BYTES))) == [3 * BATCH_BYTES, 0]
        both.reverse()
        assert [read.fetched.partition for read in read_partitions(replicas, both, limits()).partitions] == [1, 0]

    def test_stops_at_byte_limit_of_partition(self, replicas: Replicas) -> None:
        for tp in (TP, TP_1):
            append(replicas, replicas.lead(tp), 3)
        both = [fetched(tp=TP, max_bytes=2 * BATCH_BYTES), fetched(tp=TP_1, max_bytes=BATCH_BYTES)]
        assert sizes(read_partitions(replicas, both, limits())) == [2 * BATCH_BYTES, BATCH_BYTES]

    def test_returns_only_the_first_batch_whole(self, replicas: Replicas) -> None:
        """A consumer makes progress although the batch is larger than its limit (KIP-74)."""
        empty = replicas.lead(TopicPartition("orders", 2))
        for tp in (TP, TP_1):
            append(replicas, replicas.lead(tp), 3)
        all_partitions = [fetched(tp=empty.tp), fetched(tp=TP, max_bytes=1), fetched(tp=TP_1, max_bytes=1)]
        assert sizes(read_partitions(replicas, all_partitions, limits())) == [0, BATCH_BYTES, 0]
        assert sizes(read_partitions(replicas, all_partitions, limits(max_bytes=1))) == [0, BATCH_BYTES, 0]

    @pytest.mark.parametrize(
        ("asked", "error"),
        [
            (fetched(tp=TopicPartition("nothing", 0)), UnknownTopicOrPartitionError),
            (fetched(tp=TopicPartition("orders", 9)), UnknownTopicOrPartitionError),
            (FetchedPartition(None, Uuid(int=99), 0, 0, MEGABYTE), UnknownTopicIdError),
            (fetched(topic_id=Uuid(int=99)), InconsistentTopicIdError),
            (fetched(epoch=2), FencedLeaderEpochError),
            (fetched(7), OffsetOutOfRangeError),
        ],
    )
    def test_error_is_urgent_and_affects_no_other_partition(
        self, replicas: Replicas, asked: FetchedPartition, error: type[KafkaError]
    ) -> None:
        for tp in (TP, TP_1):
            append(replicas, replicas.lead(tp, leader_epoch=3))
        reads = read_partitions(replicas, [asked, fetched(tp=TP_1)], limits())
        assert [type(read.error) for read in reads.partitions] == [error, type(None)]
        assert (sizes(reads), reads.urgent) == ([0, BATCH_BYTES], True)

    def test_topic_id_is_optional(self, replicas: Replicas) -> None:
        append(replicas, replicas.lead())
        assert error_of(read_partitions(replicas, [fetched(topic_id=ZERO_UUID)], limits())) is None

    def test_internal_error(self, replicas: Replicas, monkeypatch: pytest.MonkeyPatch) -> None:
        append(replicas, replicas.lead())
        monkeypatch.setattr("headrace.storage.log.Log.read", lambda *_: 1 // 0)
        reads = read_partitions(replicas, [fetched()], limits())
        assert reads.urgent
        assert "failed to read the partition" in str(error_of(reads))

    @pytest.mark.parametrize(("version", "refused"), [(9, True), (10, False)])
    def test_zstd_needs_version_10(self, replicas: Replicas, version: int, refused: bool) -> None:
        append(replicas, replicas.lead())
        replicas.manager.update_configs({"orders": LogConfig.from_properties({"compression.type": "zstd"})})
        found = error_of(read_partitions(replicas, [fetched()], limits(api_version=version)))
        assert isinstance(found, UnsupportedCompressionTypeError) is refused

    def test_read_committed_stops_at_open_transaction(self, replicas: Replicas) -> None:
        partition = replicas.lead()
        append(replicas, partition)
        partition.append(make_batch(producer_id=5, producer_epoch=0, base_sequence=0, transactional=True), 1)
        committed, uncommitted = limits(level=READ_COMMITTED), limits()
        assert sizes(read_partitions(replicas, [fetched()], committed)) == [BATCH_BYTES]
        assert sizes(read_partitions(replicas, [fetched()], uncommitted)) == [2 * BATCH_BYTES]


class TestDivergingEpochs:
    """A reader whose log has another history is told where it diverges (KIP-595)."""

    @pytest.fixture
    def partition(self, replicas: Replicas) -> Partition:
        partition = replicas.lead(leader_epoch=1)
        append(replicas, partition, 4)
        replicas.lead(leader_epoch=3)
        append(replicas, partition, 4)
        return partition

    @pytest.mark.parametrize(
        ("offset", "last_epoch", "expected"),
        [
            (8, 3, None),
            (4, 1, None),
            (3, 1, None),
            (5, 1, (1, 4)),
            (6, 2, (1, 4)),
            (4, 2, (1, 4)),
            (9, 3, (3, 8)),
            (4, 0, (0, 0)),
        ],
    )
    def test_diverging_epoch(
        self, replicas: Replicas, partition: Partition, offset: int, last_epoch: int, expected: tuple[int, int] | None
    ) -> None:
        reads = read_partitions(replicas, [fetched(offset, last_epoch=last_epoch)], limits())
        (read,) = reads.partitions
        assert read.error is None
        assert read.diverging_epoch == expected
        assert reads.urgent is (expected is not None)
        if expected is not None:
            assert read.size == 0

    def test_unknown_epoch(self, replicas: Replicas, partition: Partition) -> None:
        reads = read_partitions(replicas, [fetched(4, last_epoch=4)], limits())
        assert isinstance(error_of(reads), OffsetOutOfRangeError)

    def test_follower_that_diverges_does_not_advance_high_watermark(self, replicas: Replicas) -> None:
        partition = replicas.lead(isr=ISR, leader_epoch=1)
        append(replicas, partition, 4)
        read_partitions(replicas, [fetched(9, last_epoch=1)], limits(replica_id=FOLLOWER))
        assert partition.check_leader().high_watermark == 0


class Fetch:
    """A fetch that waits in the purgatory."""

    def __init__(self, replicas: Replicas, *asked: FetchedPartition, **given: int):
        self.responses: list[Reads] = []
        fetch_limits = limits(**given)
        reads = read_partitions(replicas, asked, fetch_limits)
        assert not reads.urgent
        operation = DelayedFetch(replicas, reads, fetch_limits, self.responses.append)
        self.waits = not replicas.fetches.try_complete_else_watch(operation, operation.keys())

    def result(self) -> list[PartitionRead]:
        """Returns what was read. The fetch was answered once."""
        (reads,) = self.responses
        return reads.partitions

    @property
    def size(self) -> int:
        return sum(read.size for read in self.result())


class TestDelayedFetch:
    def test_waits_for_min_bytes(self, replicas: Replicas) -> None:
        partition = replicas.lead()
        fetch = Fetch(replicas, fetched(), min_bytes=2 * BATCH_BYTES)
        assert fetch.waits
        append(replicas, partition)
        assert fetch.responses == []
        append(replicas, partition)
        assert fetch.size == 2 * BATCH_BYTES
        assert replicas.fetches.delayed == len(replicas.timer) == 0

    @pytest.mark.parametrize(("min_bytes", "answered"), [(BATCH_BYTES, True), (BATCH_BYTES + 1, False)])
    def test_min_bytes_is_exact(self, replicas: Replicas, min_bytes: int, answered: bool) -> None:
        partition = replicas.lead()
        fetch = Fetch(replicas, fetched(), min_bytes=min_bytes)
        append(replicas, partition)
        assert bool(fetch.responses) is answered

    def test_counts_bytes_of_all_partitions(self, replicas: Replicas) -> None:
        one, other = replicas.lead(TP), replicas.lead(TP_1)
        fetch = Fetch(replicas, fetched(tp=TP), fetched(tp=TP_1), min_bytes=2 * BATCH_BYTES)
        append(replicas, one)
        assert fetch.responses == []
        append(replicas, other)
        assert [read.size for read in fetch.result()] == [BATCH_BYTES, BATCH_BYTES]

    def test_max_wait_returns_what_is_there(self, replicas: Replicas) -> None:
        partition = replicas.lead()
        fetch = Fetch(replicas, fetched(), min_bytes=2 * BATCH_BYTES)
        append(replicas, partition)
        replicas.pass_time(MAX_WAIT_MS - 1)
        assert fetch.responses == []
        replicas.pass_time(1)
        assert fetch.size == BATCH_BYTES
        append(replicas, partition, 5)
        assert len(fetch.responses) == 1

    def test_max_wait_without_data(self, replicas: Replicas) -> None:
        replicas.lead()
        fetch = Fetch(replicas, fetched())
        replicas.pass_time(MAX_WAIT_MS)
        assert [(read.size, read.error) for read in fetch.result()] == [(0, None)]

    def test_consumer_waits_for_high_watermark(self, replicas: Replicas) -> None:
        partition = replicas.lead(isr=ISR)
        fetch, follower = Fetch(replicas, fetched()), Fetch(replicas, fetched(), replica_id=FOLLOWER)
        append(replicas, partition)
        assert follower.size == BATCH_BYTES
        assert fetch.responses == [], "the record is not committed"
        Fetch(replicas, fetched(1), replica_id=FOLLOWER)
        assert fetch.size == BATCH_BYTES

    def test_notes_the_offset_of_a_follower_once(self, replicas: Replicas, monkeypatch: pytest.MonkeyPatch) -> None:
        """The follower may have fetched from a higher offset since this fetch arrived."""
        noted: list[int] = []
        monkeypatch.setattr(Partition, "follower_fetched", lambda _, __, offset, *___: noted.append(offset))
        partition = replicas.lead(isr=ISR)
        waiting = Fetch(replicas, fetched(), replica_id=FOLLOWER, min_bytes=3 * BATCH_BYTES)
        append(replicas, partition)
        append(replicas, partition)
        replicas.pass_time(MAX_WAIT_MS)
        assert waiting.size == 2 * BATCH_BYTES
        assert noted == [0]

    def test_read_committed_waits_for_end_of_transaction(self, replicas: Replicas) -> None:
        partition = replicas.lead()
        committed, uncommitted = Fetch(replicas, fetched(), level=READ_COMMITTED), Fetch(replicas, fetched())
        partition.append(make_batch(producer_id=5, producer_epoch=0, base_sequence=0, transactional=True), 1)
        replicas.appended(partition)
        assert (len(committed.responses), len(uncommitted.responses)) == (0, 1)
        partition.append(make_marker(ControlType.COMMIT, 5), 1, AppendOrigin.COORDINATOR)
        replicas.appended(partition)
        assert committed.size > BATCH_BYTES

    def test_data_of_other_partitions_does_not_complete_it(self, replicas: Replicas) -> None:
        replicas.lead(TP)
        fetch = Fetch(replicas, fetched(tp=TP))
        append(replicas, replicas.lead(TP_1))
        assert fetch.responses == []

    def test_reads_again_only_after_a_change(self, replicas: Replicas, monkeypatch: pytest.MonkeyPatch) -> None:
        partition = replicas.lead()
        fetch = Fetch(replicas, fetched(), min_bytes=2 * BATCH_BYTES)
        append(replicas, partition)
        with monkeypatch.context() as patched:
            patched.setattr("headrace.broker.fetching.read_partitions", lambda *_: pytest.fail("read again"))
            replicas.appended(partition)
        assert fetch.responses == []

    @pytest.mark.parametrize(
        ("how", "error"),
        [
            ("another leader", NotLeaderForPartitionError),
            ("new epoch", type(None)),
            ("new epoch, and the client gave its epoch", FencedLeaderEpochError),
            ("deleted", UnknownTopicOrPartitionError),
        ],
    )
    def test_leader_change_completes_it(self, replicas: Replicas, how: str, error: type) -> None:
        replicas.lead(isr=ISR, leader_epoch=3)
        fetch = Fetch(replicas, fetched(epoch=3 if "gave" in how else -1))
        if how == "another leader":
            replicas.lead(isr=ISR, leader=FOLLOWER, leader_epoch=4)
        elif how == "deleted":
            replicas.stop_replica(delete=True)
        else:
            replicas.lead(isr=ISR, leader_epoch=4)
        assert [type(read.error) for read in fetch.result()] == [error]

    def test_failed_disk_completes_it(self, replicas: Replicas) -> None:
        replicas.lead()
        fetch = Fetch(replicas, fetched())
        replicas.directory_failed([TP])
        assert "offline" in str(fetch.result()[0].error)

    def test_one_lost_partition_returns_the_data_of_others(self, replicas: Replicas) -> None:
        replicas.lead(TP, isr=ISR)
        other = replicas.lead(TP_1)
        fetch = Fetch(replicas, fetched(tp=TP), fetched(tp=TP_1), min_bytes=2 * BATCH_BYTES)
        append(replicas, other)
        assert fetch.responses == []
        replicas.lead(TP, isr=ISR, leader=FOLLOWER, leader_epoch=1)
        assert [(type(read.error), read.size) for read in fetch.result()] == [
            (NotLeaderForPartitionError, 0),
            (type(None), BATCH_BYTES),
        ]

    def test_deleted_records_complete_it(self, replicas: Replicas) -> None:
        """The log start offset moved past the fetch offset."""
        partition = replicas.lead()
        append(replicas, partition)
        fetch = Fetch(replicas, fetched(0), min_bytes=10 * BATCH_BYTES)
        partition.delete_records(1)
        replicas.appended(partition)
        assert isinstance(fetch.result()[0].error, OffsetOutOfRangeError)

    def test_truncated_log_completes_it(self, replicas: Replicas) -> None:
        partition = replicas.lead(isr=(NODE, FOLLOWER, SLOW_FOLLOWER))
        append(replicas, partition, 3)
        fetch = Fetch(replicas, fetched(3), replica_id=FOLLOWER)
        partition.check_leader().truncate_to(2)
        replicas.appended(partition)
        assert isinstance(fetch.result()[0].error, OffsetOutOfRangeError)


class TestFetchFromFollowers:
    """KIP-392: consumers since version 11 may fetch from followers."""

    @staticmethod
    def consumer(rack: str | None = "") -> FetchLimits:
        return FetchLimits(1, MEGABYTE, MAX_WAIT_MS, FetchIsolation.HIGH_WATERMARK, client_rack=rack)

    @staticmethod
    def follow(replicas: Replicas, records: int, high_watermark: int) -> Partition:
        partition = replicas.lead(isr=(NODE,), leader_epoch=0)
        for _ in range(records):
            partition.append(make_batch(), 1)
        log = partition.check_leader()
        log.update_high_watermark(high_watermark)
        return replicas.lead(isr=ISR, leader=FOLLOWER, leader_epoch=1, partition_epoch=1)

    def test_reads_up_to_the_high_watermark(self, replicas: Replicas) -> None:
        self.follow(replicas, 4, 3)
        reads = read_partitions(replicas, [fetched(1)], self.consumer())
        assert sizes(reads) == [2 * BATCH_BYTES]
        assert sizes(read_partitions(replicas, [fetched(3)], self.consumer())) == [0]

    def test_errors(self, replicas: Replicas) -> None:
        self.follow(replicas, 4, 3)
        assert isinstance(error_of(read_partitions(replicas, [fetched(5)], self.consumer())), OffsetOutOfRangeError)
        old_epoch = read_partitions(replicas, [fetched(1, epoch=0)], self.consumer())
        assert isinstance(error_of(old_epoch), FencedLeaderEpochError)
        for only_leader in (self.consumer(None), limits(replica_id=SLOW_FOLLOWER)):
            reads = read_partitions(replicas, [fetched(1)], only_leader)
            assert isinstance(error_of(reads), NotLeaderForPartitionError)

    def test_waits_for_the_high_watermark(self, replicas: Replicas) -> None:
        partition = self.follow(replicas, 2, 2)
        responses: list[Reads] = []
        reads = read_partitions(replicas, [fetched(2)], self.consumer())
        operation = DelayedFetch(replicas, reads, self.consumer(), responses.append)
        assert not replicas.fetches.try_complete_else_watch(operation, operation.keys())
        records = make_batch(base_offset=2)
        replicas.append_as_follower(partition, PartitionData(high_watermark=2, records=bytes(records)))
        assert not responses
        replicas.append_as_follower(partition, PartitionData(high_watermark=3, records=b""))
        assert sizes(responses[0]) == [BATCH_BYTES]

    def test_leader_names_the_preferred_replica(self, replicas: Replicas) -> None:
        partition = replicas.lead(isr=ISR)
        append(replicas, partition)
        replicas.select_replica = lambda _, offset, rack: FOLLOWER if (offset, rack) == (0, "b") else None
        reads = read_partitions(replicas, [fetched()], self.consumer("b"))
        assert (reads.partitions[0].preferred_replica, reads.urgent, reads.size) == (FOLLOWER, True, 0)
        for others in (self.consumer("a"), self.consumer(""), self.consumer(None), limits(replica_id=FOLLOWER)):
            (read,) = read_partitions(replicas, [fetched()], others).partitions
            assert read.preferred_replica is None


class TestThrottle:
    def test_followers_out_of_sync_wait(self, replicas: Replicas) -> None:
        rate = 10
        replicas.leader_quota = ReplicationQuota(replicas.clock, lambda: rate, lambda tp: tp == TP)
        for tp in (TP, TP_1):
            append(replicas, replicas.lead(tp, isr=ISR, replicas=(NODE, FOLLOWER, SLOW_FOLLOWER)), 2)

        def read(replica_id: int) -> list[int]:
            return sizes(read_partitions(replicas, [fetched(), fetched(tp=TP_1)], limits(replica_id=replica_id)))

        assert read(SLOW_FOLLOWER) == [2 * BATCH_BYTES, 2 * BATCH_BYTES]
        assert read(SLOW_FOLLOWER) == [0, 2 * BATCH_BYTES]
        assert read(FOLLOWER) == [2 * BATCH_BYTES, 2 * BATCH_BYTES], "it is in sync"
        rate = 2**63 - 1
        assert read(SLOW_FOLLOWER) == [2 * BATCH_BYTES, 2 * BATCH_BYTES]
