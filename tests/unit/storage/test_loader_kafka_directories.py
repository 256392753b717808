"""Directories that move between Kafka and Headrace; tests/compat does the same with Kafka itself."""

from pathlib import Path

import pytest

from headrace.common.types import TopicPartition
from headrace.records import encode_rows
from headrace.storage.config import LogConfig, ManagerConfig
from headrace.storage.leader_epoch_cache import EpochEntry
from headrace.storage.loader import LoadReport
from headrace.storage.log import Log
from headrace.storage.manager import LogManager
from headrace.testing.clock import ManualClock

TP = TopicPartition("orders", 0)
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": 1024,
    "index.interval.bytes": 100,
    "min.cleanable.dirty.ratio": 0.0,
    "file.delete.delay.ms": 0,
}


def open_manager(directory: Path, properties: dict[str, object] | None = None) -> LogManager:
    return LogManager(
        ManagerConfig.from_properties({"log.dirs": str(directory)}),
        config_of=lambda topic: LogConfig.from_properties(properties or {}),
        cluster_id="cluster",
        clock=ManualClock(),
    )


def append(log: Log, key: bytes, leader_epoch: int = 0, count: int = 3) -> None:
    now_ms = log.context.clock.time_ms()
    log.append_as_leader(encode_rows([(key, b"x" * 50, now_ms, ())] * count), leader_epoch)


def test_ignores_metadata_log(tmp_path: Path) -> None:
    metadata = tmp_path / "__cluster_metadata-0"
    metadata.mkdir()
    (metadata / "00000000000000000000.log").write_bytes(b"not for us")
    with open_manager(tmp_path) as manager:
        manager.create(TP)
        assert [log.tp for log in manager] == [TP]
    assert {path.name: path.read_bytes() for path in metadata.iterdir()} == {"00000000000000000000.log": b"not for us"}
    assert "__cluster_metadata" not in (tmp_path / "recovery-point-offset-checkpoint").read_text()


@pytest.mark.parametrize(
    ("found", "left"),
    [
        (b'{"version":0,"brokerEpoch":42}', 42),
        (b'{"version":0}', -1),
        (b"", -1),
        (b"[]", -1),
        (b"\xff", -1),
        (None, -1),
    ],
)
def test_keeps_broker_epoch_of_clean_shutdown(tmp_path: Path, found: bytes | None, left: int) -> None:
    marker = tmp_path / ".kafka_cleanshutdown"
    if found is not None:
        marker.write_bytes(found)
    with open_manager(tmp_path):
        assert not marker.exists()
    assert marker.read_bytes() == b'{"version":0,"brokerEpoch":%d}' % left


def test_recovers_indexes_that_end_in_zeros(tmp_path: Path) -> None:
    """Kafka's indexes end in zeros after a crash. Below the recovery point, no scan is needed."""
    with open_manager(tmp_path, {"index.interval.bytes": 500}) as manager:
        log = manager.create(TP)
        for number in range(20):
            append(log, b"%d" % number)
        entries = log.segments.active.offset_index.entries(), log.segments.active.time_index.entries()
        batches = [bytes(batch.raw) for batch in log.batches()]
    (tmp_path / ".kafka_cleanshutdown").unlink()
    for path in (tmp_path / str(TP)).glob("*index"):
        path.write_bytes(path.read_bytes().ljust(12 * 1000, b"\0"))
    with open_manager(tmp_path, {"index.interval.bytes": 500}) as manager:
        log = next(iter(manager))
        assert manager.load_reports[TP] == LoadReport()
        active = log.segments.active
        assert (active.offset_index.entries(), active.time_index.entries()) == entries
        assert [bytes(batch.raw) for batch in log.batches()] == batches


def test_recovers_indexes_of_zeros(tmp_path: Path) -> None:
    with open_manager(tmp_path) as manager:
        append(manager.create(TP), b"key")
    (tmp_path / ".kafka_cleanshutdown").unlink()
    for path in (tmp_path / str(TP)).glob("*index"):
        path.write_bytes(bytes(12 * 1000))
    with open_manager(tmp_path) as manager:
        log = next(iter(manager))
        assert manager.load_reports[TP] == LoadReport()
        assert log.segments.active.offset_index.entries() == []
        assert log.find_timestamp(0) == (log.context.clock.time_ms(), 0)


def test_closed_log_has_all_index_files(tmp_path: Path) -> None:
    """Even with an empty active segment: Kafka treats a segment without indexes as damaged."""
    with open_manager(tmp_path) as manager:
        log = manager.create(TP)
        append(log, b"key")
        log.roll()
    names = {path.name for path in (tmp_path / str(TP)).iterdir()}
    assert {f"{3:020}.log", f"{3:020}.index", f"{3:020}.timeindex"} <= names


def write_and_compact(manager: LogManager) -> Log:
    """Creates a log in which compaction removes all batches of some epochs and the first batches of others."""
    log = manager.create(TP)
    for epoch in range(8):
        for number in range(6):
            append(log, b"other" if epoch in (3, 6) and number > 3 else b"same", leader_epoch=epoch)
    log.roll()
    log.update_high_watermark(log.log_end_offset)
    assert manager.clean_next() == TP
    return log


def test_leader_epochs_of_compacted_batches_survive_crash(tmp_path: Path) -> None:
    manager = open_manager(tmp_path, COMPACTED).start()
    log = write_and_compact(manager)
    assert {batch.leader_epoch for batch in log.batches()} < set(range(8))
    epochs = log.epochs.entries
    assert epochs == [EpochEntry(epoch, 18 * epoch) for epoch in range(8)]
    manager.abandon()
    (tmp_path / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
    with open_manager(tmp_path, COMPACTED) as manager:
        assert manager.load_reports[TP].scanned_batches > 0
        assert next(iter(manager)).epochs.entries == epochs


def test_compaction_keeps_snapshots_of_remaining_segments(tmp_path: Path) -> None:
    with open_manager(tmp_path, COMPACTED) as manager:
        log = write_and_compact(manager)
        assert len(log.segments) > 2
        assert set(log.snapshots.offsets) >= {base for base in log.segments.bases if base > 0}
