"""Headrace reads directories that Kafka wrote: after a clean shutdown, and after kill -9.

After kill -9, Headrace's recovery creates the same files as Kafka's.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.apache_kafka.dump_log import dump_log
from tests.support.apache_kafka.files import KafkaFiles, Partition, topic_configs
from tests.support.storage.files import consume, files_in, open_manager

from headrace.common.errors import OutOfOrderSequenceNumberError
from headrace.common.types import TopicPartition
from headrace.records import encode_rows
from headrace.storage.loader import LoadReport
from headrace.storage.log import Log
from headrace.storage.producer_snapshots import decode_snapshot, snapshot_name
from headrace.storage.producer_state import ProducerStateEntry

SAMPLE_PARTITIONS = [
    *(("codecs", number) for number in range(5)),
    *((topic, 0) for topic in ("txn", "segments", "appendtime", "trimmed", "compacted", "compacted-deletes")),
]
per_partition = pytest.mark.parametrize(
    "partition", SAMPLE_PARTITIONS, ids=lambda partition: "-".join(map(str, partition))
)


class Opened:
    """A copy of Kafka's directory, opened by Headrace."""

    def __init__(self, source: Path, copy: Path) -> None:
        self.source = source
        self.directory = copy
        shutil.copytree(source, copy)
        self.manager = open_manager(copy, topic_configs())

    def log(self, partition: Partition) -> Log:
        log = self.manager.get(TopicPartition(*partition))
        assert log is not None
        return log

    def report(self, partition: Partition) -> LoadReport:
        return self.manager.load_reports[TopicPartition(*partition)]


@pytest.fixture(scope="module", params=["clean", "killed"])
def opened(
    request: pytest.FixtureRequest, kafka_files: KafkaFiles, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Opened]:
    source = getattr(kafka_files, request.param)
    opened = Opened(source, tmp_path_factory.mktemp(request.param) / "data")
    with opened.manager:
        for log in opened.manager:
            log.update_high_watermark(log.log_end_offset)
        yield opened


def test_opens_all_partitions(opened: Opened, kafka_files: KafkaFiles) -> None:
    found = {(log.tp.topic, log.tp.partition) for log in opened.manager}
    assert found >= {*kafka_files.sample.records, ("__consumer_offsets", 0), ("__transaction_state", 0)}
    assert found == {
        (path.name.rpartition("-")[0], int(path.name.rpartition("-")[2]))
        for path in opened.source.iterdir()
        if path.is_dir() and path.name != "__cluster_metadata-0"
    }
    for log in opened.manager:
        assert f"topic_id: {log.topic_id}" in (opened.source / str(log.tp) / "partition.metadata").read_text()


def test_clean_shutdown_needs_no_scan_and_kill_no_repair(opened: Opened) -> None:
    was_clean = (opened.source / ".kafka_cleanshutdown").exists()
    for tp, report in opened.manager.load_reports.items():
        log = opened.log((tp.topic, tp.partition))
        assert (report.truncated_bytes, report.rebuilt_indexes, report.finished_swaps) == (0, 0, 0)
        if was_clean:
            assert (report.scanned_batches, report.scanned_bytes) == (0, 0)
        else:
            below_start = sum(segment.size for segment in log.segments if segment.base_offset < log.log_start_offset)
            assert log.size_in_bytes - below_start <= report.scanned_bytes <= log.size_in_bytes


@per_partition
@pytest.mark.parametrize("max_bytes", [1, 700, 1024 * 1024])
def test_reads_every_record(opened: Opened, kafka_files: KafkaFiles, partition: Partition, max_bytes: int) -> None:
    expected = kafka_files.sample.records[partition]
    found = consume(opened.log(partition), max_bytes=max_bytes)
    assert [record.content for record in found] == [record.content for record in expected]


@per_partition
@pytest.mark.parametrize("max_bytes", [1, 700, 1024 * 1024])
def test_read_committed_returns_committed_records(
    opened: Opened, kafka_files: KafkaFiles, partition: Partition, max_bytes: int
) -> None:
    expected = kafka_files.sample.committed(*partition)
    found = consume(opened.log(partition), read_committed=True, max_bytes=max_bytes)
    assert [record.content for record in found] == [record.content for record in expected]


@pytest.mark.parametrize("topic", ["compacted", "compacted-deletes"])
def test_compacted_log_has_last_value_of_each_key(opened: Opened, kafka_files: KafkaFiles, topic: str) -> None:
    found = {record.key: record.value for record in consume(opened.log((topic, 0)), read_committed=True)}
    latest = kafka_files.sample.latest[topic, 0]
    assert {key: value for key, value in found.items() if value is not None} == {
        key: value for key, value in latest.items() if value is not None
    }


@per_partition
def test_offsets_by_timestamp_match_kafkas(opened: Opened, kafka_files: KafkaFiles, partition: Partition) -> None:
    log = opened.log(partition)
    for timestamp, answer in kafka_files.by_timestamp[partition].items():
        found = log.find_timestamp(timestamp) or (-1, -1)
        if partition == ("trimmed", 0) and timestamp == 0:
            # Kafka searches only the first segment, which is below the log start, and finds none.
            assert (answer.offset, found[1]) == (-1, log.log_start_offset)
        else:
            assert found == (answer.timestamp, answer.offset), timestamp
    newest = kafka_files.newest[partition]
    assert log.max_timestamp() == (newest.timestamp, newest.offset)


@per_partition
def test_finds_offsets_by_timestamp(opened: Opened, partition: Partition) -> None:
    """Checks every timestamp with a linear search."""
    log = opened.log(partition)
    all_records = [
        (timestamp, offset)
        for records in (batch.records() for batch in log.batches())
        for offset, timestamp in zip(records.offsets(), records.timestamps(), strict=True)
        if offset >= log.log_start_offset
    ]
    assert all_records
    for timestamp in {timestamp for timestamp, _ in all_records}:
        assert log.find_timestamp(timestamp) == next(each for each in all_records if each[0] >= timestamp)


def test_producer_state_matches_kafkas_snapshots(opened: Opened, kafka_files: KafkaFiles) -> None:
    """Compares with the snapshots of Kafka's shutdown, as Kafka prints them; it writes none for an empty log."""
    logs = [log for log in opened.manager if log.log_end_offset]
    newest = [files_in(kafka_files.clean / str(log.tp), ".snapshot")[-1] for log in logs]
    dump = dump_log(*newest)
    assert dump.problems == []
    for log, snapshot in zip(logs, newest, strict=True):
        assert int(snapshot.stem) == log.log_end_offset
        printed = {int(entry["producerId"] or 0): entry for entry in dump.entries[str(snapshot)]}
        assert printed.keys() == log.producers.entries.keys()
        for producer_id, entry in log.producers.entries.items():
            last = entry.batches[-1] if entry.batches else None
            assert printed[producer_id] == {
                "producerId": producer_id,
                "producerEpoch": entry.epoch,
                "coordinatorEpoch": entry.coordinator_epoch,
                "currentTxnFirstOffset": entry.transaction_first_offset,
                "lastTimestamp": entry.last_timestamp,
                **(
                    {
                        "firstSequence": last.base_sequence,
                        "lastSequence": last.last_sequence,
                        "lastOffset": last.last_offset,
                        "offsetDelta": last.offset_delta,
                        "timestamp": entry.last_timestamp,
                    }
                    if last
                    else {}
                ),
            }


def test_keeps_open_transaction(opened: Opened, kafka_files: KafkaFiles) -> None:
    log = opened.log(("txn", 0))
    first_offset = kafka_files.sample.last_stable["txn", 0]
    assert log.producers.first_unstable_offset() == first_offset
    assert log.last_stable_offset == first_offset


def test_leader_epochs_match_kafkas(opened: Opened) -> None:
    for log in opened.manager:
        lines = (opened.source / str(log.tp) / "leader-epoch-checkpoint").read_text().split()
        entries = list(zip(map(int, lines[2::2]), map(int, lines[3::2]), strict=True))
        # Like Kafka at startup, Headrace does not know leaders that have not written.
        assert log.epochs.entries == [entry for entry in entries if entry[1] < log.log_end_offset]
        if log.log_end_offset:
            assert {batch.leader_epoch for batch in log.batches()} <= {entry.epoch for entry in log.epochs.entries}
            assert log.end_offset_for_epoch(log.epochs.latest_epoch)[1] == log.log_end_offset


@pytest.mark.parametrize("which", ["clean", "killed"])
def test_recognizes_retry_and_rejects_gap(kafka_files: KafkaFiles, tmp_path: Path, which: str) -> None:
    """The check of sequence numbers continues where Kafka's ended."""
    opened = Opened(getattr(kafka_files, which), tmp_path / "data")
    with opened.manager:
        log = opened.log(("segments", 0))
        batches = list(log.batches())
        assert len({batch.producer_id for batch in batches}) == 2
        for producer_id in {batch.producer_id for batch in batches}:
            last = [batch for batch in batches if batch.producer_id == producer_id][-1]
            again = log.append_as_leader(bytes(last.raw), 1)
            assert (again.duplicate, again.base_offset) == (True, last.base_offset)
            fields = {"producer_id": producer_id, "producer_epoch": last.producer_epoch}
            rows = [(b"key", b"value", last.max_timestamp, ())]
            with pytest.raises(OutOfOrderSequenceNumberError):
                log.append_as_leader(encode_rows(rows, **fields, base_sequence=last.last_sequence + 2), 1)
            log.append_as_leader(encode_rows(rows, **fields, base_sequence=last.last_sequence + 1), 1)
        assert log.log_end_offset == batches[-1].next_offset + 2


def test_open_and_close_changes_nothing(kafka_files: KafkaFiles, tmp_path: Path) -> None:
    opened = Opened(kafka_files.clean, tmp_path / "data")
    with opened.manager:
        pass
    before, after = contents(kafka_files.clean), contents(opened.directory)
    assert [name for name in before if name not in after and not name.endswith(".deleted")] == []
    assert {name for name in after if name not in before} == {".lock"}
    # Leaders that have not written are removed, as Kafka does at startup.
    changed = {name for name in before if name in after and after[name] != before[name]}
    changed = {name for name in changed if not name.endswith("leader-epoch-checkpoint")}
    assert all(name.endswith("-offset-checkpoint") for name in changed)
    assert all(sorted(before[name].splitlines()) == sorted(after[name].splitlines()) for name in changed)


def test_ignores_metadata_log_of_controllers(kafka_files: KafkaFiles, tmp_path: Path) -> None:
    """Even if it would need recovery or retention."""
    opened = Opened(kafka_files.killed, tmp_path / "data")
    with opened.manager:
        opened.manager.apply_retention()
        opened.manager.checkpoint_recovery_points()
    name = "__cluster_metadata-0"
    assert contents(opened.directory / name) == contents(kafka_files.killed / name)
    assert "__cluster_metadata" not in (opened.directory / "recovery-point-offset-checkpoint").read_text()


def test_recovery_rebuilds_same_files_as_kafka(kafka_files: KafkaFiles, tmp_path: Path) -> None:
    """Compares logs and indexes byte for byte, and the producer state at the log end.

    Kafka also rebuilds intermediate snapshots for a later recovery.
    """
    opened = Opened(kafka_files.killed, tmp_path / "data")
    with opened.manager:
        newest = {Path(str(log.tp), snapshot_name(log.log_end_offset)) for log in opened.manager if log.log_end_offset}
    ours, theirs = partition_files(opened.directory), partition_files(kafka_files.clean)
    assert all(producers_in(path, ours[path]) == producers_in(path, theirs[path]) for path in newest)
    # After recovery, Kafka deleted the segments below the start of the trimmed log.
    start = min(int(path.stem) for path in files_in(kafka_files.clean / "trimmed-0", ".log"))
    gone = {path for path in ours if path.parent.name == "trimmed-0" and int(path.stem) < start}
    ours, theirs = (
        {path: content for path, content in files.items() if path.suffix != ".snapshot" and path not in gone}
        for files in (ours, theirs)
    )
    assert ours.keys() == theirs.keys()
    assert [path for path in theirs if ours[path] != theirs[path]] == []


def test_rebuilt_indexes_match_kafkas(kafka_files: KafkaFiles, tmp_path: Path) -> None:
    opened = Opened(kafka_files.clean, tmp_path / "data")
    for path in partition_files(opened.directory):
        if path.suffix in (".index", ".timeindex"):
            (opened.directory / path).unlink()
    with opened.manager:
        assert sum(report.rebuilt_indexes for report in opened.manager.load_reports.values()) > 40
    ours, theirs = partition_files(opened.directory), partition_files(kafka_files.clean)
    # An empty segment has no index files until its first records.
    assert [path for path in theirs if ours.get(path, b"") != theirs[path]] == []


def producers_in(path: Path, snapshot: bytes) -> list[ProducerStateEntry]:
    return sorted(decode_snapshot(path, snapshot), key=lambda entry: entry.producer_id)


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def partition_files(directory: Path) -> dict[Path, bytes]:
    """Returns logs, indexes and snapshots of all partitions."""
    paths = (path for path in files_in(directory) if path.parent.name != "__cluster_metadata-0")
    return {path.relative_to(directory): path.read_bytes() for path in paths}
