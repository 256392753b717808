"""Invalid arguments: each raises an error that names the problem, and no stored data is lost."""

import array
from pathlib import Path

import pytest
from tests.support.storage.logs import MakeLog, MakeManager, make_batch

from headrace.common.errors import ConfigError, CorruptRecordError, HeadraceError, KafkaStorageError
from headrace.common.types import TopicPartition
from headrace.records import RecordBatch
from headrace.storage.config import LogConfig, ManagerConfig
from headrace.storage.log import Log
from headrace.testing.disks import FaultyFileSystem

TP = TopicPartition("orders", 0)


def batch_of_whole_words() -> bytearray:
    return next(batch for size in range(4) if len(batch := make_batch(value=b"x" * size)) % 4 == 0)


def test_leader_accepts_buffers_of_any_item_size(make_log: MakeLog) -> None:
    log = make_log()
    batch = batch_of_whole_words()
    spaced = bytearray(2 * len(batch))
    spaced[::2] = batch
    for data in (
        memoryview(bytearray(batch)).cast("I"),
        array.array("I", bytes(batch)),
        memoryview(batch * 2),
        memoryview(spaced)[::2],
    ):
        log.append_as_leader(data, 0)
    assert log.size_in_bytes == 5 * len(batch)
    assert [each.base_offset for each in log.batches()] == [0, 1, 2, 3, 4]


def test_follower_accepts_buffers_of_any_item_size(make_log: MakeLog) -> None:
    log = make_log()
    log.append_as_follower(memoryview(batch_of_whole_words()).cast("I"))
    assert [each.base_offset for each in log.batches()] == [0]


@pytest.mark.parametrize("data", ["text", None, 5])
def test_rejects_objects_that_are_not_buffers(make_log: MakeLog, data: object) -> None:
    with pytest.raises(TypeError, match="bytes-like object is required"):
        make_log().append_as_leader(data, 0)


@pytest.mark.parametrize("base_offset", [2**63 - 1, 2**63 - 2])
def test_rejects_offsets_beyond_64_bits(make_log: MakeLog, base_offset: int) -> None:
    log = make_log()
    batch = make_batch(10)
    RecordBatch(batch).patch_base_offset(base_offset)
    with pytest.raises(CorruptRecordError, match="has an invalid range of offsets"):
        log.append_as_follower(batch)
    assert log.log_end_offset == 0


@pytest.mark.parametrize("offset", [-1, 2**63])
def test_rejects_invalid_start_offset(make_log: MakeLog, offset: int) -> None:
    with pytest.raises(ValueError, match=f"Cannot start the log of partition orders-0 at offset {offset}"):
        make_log().truncate_fully_and_start_at(offset)


@pytest.mark.parametrize("epoch", [-2, 2**31])
def test_rejects_invalid_leader_epoch(make_log: MakeLog, epoch: int) -> None:
    with pytest.raises(ValueError, match=f"leader epoch {epoch} is out of range: expected -1 to 2147483647"):
        make_log().append_as_leader(make_batch(), epoch)


def test_failed_append_keeps_leader_epochs(make_log: MakeLog) -> None:
    disk = FaultyFileSystem()
    log = make_log(files=disk)
    log.append_as_leader(make_batch(), 3)
    before = log.epochs.entries
    for epoch in (7, 1):
        disk.fill_up(10)
        with pytest.raises(KafkaStorageError):
            log.append_as_leader(make_batch(), epoch)
        disk.heal()
        assert log.epochs.entries == before


def test_rejects_invalid_isolation(make_log: MakeLog) -> None:
    log = make_log()
    log.append_as_leader(make_batch(), 0)
    with pytest.raises(TypeError, match="isolation must be a FetchIsolation, not 'committed'"):
        log.read(0, 100, "committed")


@pytest.mark.parametrize("timestamp", [-(2**70), -5, 2**70])
def test_accepts_timestamps_out_of_range(make_log: MakeLog, timestamp: int) -> None:
    log = make_log()
    log.append_as_leader(make_batch(at=1), 0)
    assert log.find_timestamp(timestamp) == ((1, 0) if timestamp < 0 else None)


def test_closed_log_raises_on_every_call(make_log: MakeLog) -> None:
    log = make_log()
    log.close()
    for call in (
        lambda: log.append_as_leader(b"", 0),
        lambda: log.append_as_follower(b""),
        lambda: log.read(0, 1),
        log.flush,
        log.roll,
    ):
        with pytest.raises(KafkaStorageError, match="The log for partition orders-0 is closed"):
            call()


def test_manager_must_be_started(make_manager: MakeManager) -> None:
    first = make_manager()
    with pytest.raises(HeadraceError, match="This LogManager has not been started"):
        first.create(TP)
    with pytest.raises(HeadraceError, match="This LogManager has not been started"):
        first.tick()
    first.start().create(TP)
    first.close()
    second = make_manager().start()
    with pytest.raises(HeadraceError, match="This LogManager is closed"):
        first.create(TP)
    with pytest.raises(HeadraceError, match="This LogManager is closed"):
        first.delete(TP)
    with pytest.raises(HeadraceError, match="This LogManager was already started; create a new one"):
        second.start()
    assert isinstance(second.get(TP), Log)
    with second as same:
        assert same is second
    make_manager().start().close()


def test_start_fails_if_only_directory_cannot_be_loaded(make_manager: MakeManager, tmp_path: Path) -> None:
    with make_manager() as manager:
        manager.create(TP).append_as_leader(make_batch(), 0)
    (tmp_path / "data" / str(TP) / "partition.metadata").write_text("nonsense")
    with pytest.raises(
        KafkaStorageError, match=r"None of the specified log dirs can be used: .*partition.metadata is damaged"
    ):
        make_manager().start()


def test_rejected_log_leaves_no_directory(make_manager: MakeManager, tmp_path: Path) -> None:
    manager = make_manager().start()
    with pytest.raises(TypeError, match="topic_id must be a Uuid, not 'abc'"):
        manager.create(TP, topic_id="abc")
    assert not (tmp_path / "data" / str(TP)).exists()


@pytest.mark.parametrize("partition", [1.5, True, "0", None, 2**31])
def test_rejects_invalid_partition_numbers(make_manager: MakeManager, partition: object) -> None:
    manager = make_manager().start()
    with pytest.raises(HeadraceError, match="is invalid: expected a number from 0"):
        manager.create(TopicPartition("orders", partition))


@pytest.mark.parametrize("given", [{"node_id": -1}, {"cluster_id": "a\nb=c"}, {"cluster_id": ""}, {"cluster_id": None}])
def test_rejects_invalid_node_and_cluster_ids(make_manager: MakeManager, given: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"(node|cluster)\.id=.* is not a valid value: expected"):
        make_manager(**given)


def test_rejects_config_of_wrong_type() -> None:
    with pytest.raises(ConfigError, match="A configuration key must be a str, not 1"):
        LogConfig.from_properties({1: 2})
    with pytest.raises(ConfigError, match=r"Invalid value b'/tmp' for configuration log\.dirs"):
        ManagerConfig.from_properties({"log.dirs": b"/tmp"})


def test_recovers_from_damage_after_clean_shutdown(make_manager: MakeManager) -> None:
    with make_manager() as manager:
        log = manager.create(TP)
        for _ in range(5):
            log.append_as_leader(make_batch(), 0)
        path, size = log.segments.active.path(), log.size_in_bytes
    for snapshot in path.parent.glob("*.snapshot"):
        snapshot.unlink()
    path.write_bytes(path.read_bytes()[: size - 10])
    again = make_manager().start()
    assert [batch.base_offset for batch in again.create(TP).batches()] == [0, 1, 2, 3]
    again.close()
