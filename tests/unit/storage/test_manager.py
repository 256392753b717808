import errno
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.storage.logs import TP, MakeManager, append, contents, make_batch, names_in, new_manager, send

from headrace.common.errors import InvalidTopicError, KafkaStorageError
from headrace.common.ids import Uuid
from headrace.common.types import TopicPartition
from headrace.storage.checkpoints import MetaProperties
from headrace.storage.directory import parse_directory_name, suffixed_directory_name
from headrace.storage.files import FileSystem
from headrace.storage.log import Log
from headrace.storage.manager import LogManager
from headrace.testing.clock import ManualClock
from headrace.testing.disks import FaultyFileSystem

ID = Uuid.parse("L4tkSDvtSWyV2FJpQYyZlA")
OTHER_ID = Uuid.parse("AAAAAAAAAAAAAAAAAAAAAQ")


def partition(number: int) -> TopicPartition:
    return TopicPartition("orders", number)


def log_of(manager: LogManager, tp: TopicPartition) -> Log:
    log = manager.get(tp)
    assert log is not None
    return log


def home_of(manager: LogManager, tp: TopicPartition) -> str:
    home = manager.directory_of(tp)
    assert home is not None
    return home.path.name


def partitions_in(directory: Path) -> int:
    return sum(path.is_dir() for path in directory.iterdir())


# ---- creating


def test_creates_log_in_directory_with_fewest_logs(make_manager: MakeManager, tmp_path: Path) -> None:
    with make_manager("one", "two", "three") as manager:
        for number in range(7):
            manager.create(partition(number))
        assert sorted(partitions_in(tmp_path / name) for name in ("one", "two", "three")) == [2, 2, 3]
        home = manager.directory_of(partition(0))
        assert home is not None
        for number in range(7):
            if manager.directory_of(partition(number)) is home:
                manager.delete(partition(number))
        manager.create(partition(7))
        assert manager.directory_of(partition(7)) is home
    with make_manager("one", "two", "three") as manager:
        assert home_of(manager, partition(7)) == home.path.name
        assert len(manager) == 5


def test_create_returns_existing_log(make_manager: MakeManager) -> None:
    with make_manager() as manager:
        log = manager.create(TP)
        assert manager.create(TP) is log
        assert manager.get(TP) is log
        assert manager.get(partition(9)) is None
        assert manager.directory_of(partition(9)) is None


def test_checks_topic_id(make_manager: MakeManager, tmp_path: Path) -> None:
    for _ in range(2):
        with make_manager() as manager:
            log = manager.create(TP, ID)
            assert log.topic_id == ID
            assert manager.create(TP) is manager.create(TP, ID) is log
            with pytest.raises(KafkaStorageError, match=f"orders-0 has topic id {ID}, not {OTHER_ID}"):
                manager.create(TP, OTHER_ID)
    assert (tmp_path / "data" / "orders-0" / "partition.metadata").read_text() == f"version: 0\ntopic_id: {ID}"


def test_assigns_topic_id_to_log_without_one(make_manager: MakeManager, tmp_path: Path) -> None:
    with make_manager() as manager:
        log = manager.create(TP)
        assert log.topic_id is None
        assert manager.create(TP, ID) is log
        assert log.topic_id == ID
    with make_manager() as manager:
        assert manager.create(TP).topic_id == ID


def test_create_fails_on_full_disk(make_manager: MakeManager) -> None:
    files = FaultyFileSystem()
    with make_manager(files=files) as manager:
        files.fail("make_directory", "*/orders-0", errno.ENOSPC)
        with pytest.raises(KafkaStorageError, match=r"Cannot create a log in .*data: No space left on device"):
            manager.create(TP)
        assert manager.get(TP) is None
        files.heal()
        manager.create(TP)


# ---- deleting


def test_delete_renames_directory_and_removes_it_later(
    make_manager: MakeManager, clock: ManualClock, tmp_path: Path
) -> None:
    with make_manager(topic_properties={"file.delete.delay.ms": 5000}) as manager:
        append(manager.create(TP))
        append(manager.create(partition(1)))
        manager.checkpoint_recovery_points()
        assert "orders 0" in (tmp_path / "data" / "recovery-point-offset-checkpoint").read_text()
        manager.delete(TP)
        assert manager.get(TP) is None
        (renamed,) = [path for path in (tmp_path / "data").iterdir() if path.name.endswith("-delete")]
        assert renamed.name.startswith("orders-0.")
        assert not (tmp_path / "data" / "orders-0").exists()
        again = manager.create(TP)
        assert again.log_end_offset == 0
        assert "orders 0" not in (tmp_path / "data" / "recovery-point-offset-checkpoint").read_text()
        clock.advance(4999)
        manager.tick()
        assert renamed.exists()
        clock.advance(1)
        manager.tick()
        assert not renamed.exists()
        assert (tmp_path / "data" / "orders-0").exists()
        with pytest.raises(KafkaStorageError, match="No log exists for partition orders-5"):
            manager.delete(partition(5))


def test_stray_log_keeps_its_files(make_manager: MakeManager, clock: ManualClock, tmp_path: Path) -> None:
    with make_manager() as manager:
        append(manager.create(TP))
        manager.checkpoint_recovery_points()
        kept = manager.move_stray_log(TP)
        assert kept.parent == tmp_path / "data"
        assert kept.name.startswith("orders-0.")
        assert manager.get(TP) is None
        assert manager.create(TP).log_end_offset == 0
        clock.advance(10**12)
        manager.tick()
    with make_manager() as manager:
        manager.tick()
        assert [log.tp for log in manager] == [TP]
        (records,) = kept.glob("*.log")
        assert records.stat().st_size > 0


def test_start_removes_deleted_logs(make_manager: MakeManager, tmp_path: Path) -> None:
    with make_manager() as manager:
        manager.create(TP)
        manager.delete(TP)
    assert any(name.endswith("-delete") for name in names_in(tmp_path / "data"))
    with make_manager() as manager:
        assert len(manager) == 0
        manager.tick()
        assert not any(name.endswith("-delete") for name in names_in(tmp_path / "data"))


def test_recreated_topic_has_no_cleaned_offset(make_manager: MakeManager) -> None:
    properties = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.0}
    with make_manager(topic_properties=properties) as manager:
        log = manager.create(TP)
        append(log)
        log.roll()
        assert manager.clean_next() == TP
        assert log.cleaned_up_to == 1
        manager.delete(TP)
        manager.create(TP)
    with make_manager(topic_properties=properties) as manager:
        assert log_of(manager, TP).cleaned_up_to is None


@pytest.mark.parametrize(
    ("name", "tp"),
    [
        ("orders-0", TopicPartition("orders", 0)),
        ("a-b-12", TopicPartition("a-b", 12)),
        ("a.b_c-3", TopicPartition("a.b_c", 3)),
        ("orders", None),
        ("orders-", None),
        ("-0", None),
        ("orders-x", None),
        ("orders-007", None),
        ("orders-٣", None),
        ("my orders-0", None),
        (f"orders-0.{ID.hex}-delete", None),
        (f"orders-0.{ID.hex}-future", None),
        (f"orders-0.{ID.hex}-stray", None),
    ],
)
def test_parses_directory_names(name: str, tp: TopicPartition | None) -> None:
    assert parse_directory_name(name) == tp


def test_name_of_deleted_log_is_shortened() -> None:
    assert suffixed_directory_name(TP, ID, "-delete") == f"orders-0.{ID.hex}-delete"
    longest = suffixed_directory_name(TopicPartition("x" * 249, 123), ID, "-delete")
    assert len(longest) == 255
    assert longest.endswith(f"-123.{ID.hex}-delete")


# ---- periodic tasks


def test_runs_periodic_tasks(make_manager: MakeManager, clock: ManualClock, tmp_path: Path) -> None:
    properties = {
        "log.initial.task.delay.ms": 1000,
        "log.retention.check.interval.ms": 5000,
        "log.flush.offset.checkpoint.interval.ms": 2000,
        "log.flush.start.offset.checkpoint.interval.ms": 3000,
        "log.flush.scheduler.interval.ms": 10_000,
        "producer.id.expiration.check.interval.ms": 4000,
        "producer.id.expiration.ms": 3000,
        "log.cleaner.enable": False,
    }
    start_ms = clock.time_ms()
    data = tmp_path / "data"
    with make_manager(properties=properties, topic_properties={"retention.ms": 4000}) as manager:
        assert manager.tick() == 1000
        log = manager.create(TP)
        send(log, 1)
        append(log)
        log.delete_records(1)
        log.flush()
        assert not (data / "recovery-point-offset-checkpoint").exists()

        def at(passed_ms: int) -> None:
            clock.advance(start_ms + passed_ms - clock.time_ms())
            manager.tick()

        at(1000)
        assert (data / "recovery-point-offset-checkpoint").read_text() == "0\n1\norders 0 2\n"
        assert (data / "log-start-offset-checkpoint").read_text() == "0\n1\norders 0 1\n"
        append(log)
        log.flush()
        log.delete_records(2)
        at(2999)
        assert (data / "recovery-point-offset-checkpoint").read_text() == "0\n1\norders 0 2\n"
        at(3000)
        assert (data / "recovery-point-offset-checkpoint").read_text() == "0\n1\norders 0 3\n"
        assert (data / "log-start-offset-checkpoint").read_text() == "0\n1\norders 0 1\n"
        at(4000)
        assert (data / "log-start-offset-checkpoint").read_text() == "0\n1\norders 0 2\n"
        assert list(log.producers.entries) == [1]
        at(5000)
        assert list(log.producers.entries) == []
        assert log.log_start_offset == 2
        at(6000)
        assert (log.log_start_offset, log.log_end_offset) == (3, 3)


def test_runs_compaction_periodically(make_manager: MakeManager, clock: ManualClock, tmp_path: Path) -> None:
    properties = {"log.initial.task.delay.ms": 0, "log.cleaner.backoff.ms": 1000}
    with make_manager(properties=properties, topic_properties={"cleanup.policy": "compact"}) as manager:
        manager.tick()
        log = manager.create(TP)
        append(log)
        append(log)
        log.roll()
        clock.advance(999)
        manager.tick()
        assert len(contents(log)) == 2
        clock.advance(1)
        manager.tick()
        assert [offset for offset, _, _ in contents(log)] == [1]
        assert (tmp_path / "data" / "cleaner-offset-checkpoint").read_text() == "0\n1\norders 0 2\n"
    with make_manager(topic_properties={"cleanup.policy": "compact"}) as manager:
        assert log_of(manager, TP).cleaned_up_to == 2


def test_writes_checkpoints_per_directory(make_manager: MakeManager, tmp_path: Path) -> None:
    with make_manager("one", "two") as manager:
        for number in range(3):
            append(manager.create(partition(number)), count=number + 1)
        log_of(manager, partition(2)).delete_records(1)
        homes = {number: home_of(manager, partition(number)) for number in range(3)}
    for name in ("one", "two"):
        here = [number for number in range(3) if homes[number] == name]
        lines = "".join(f"orders {number} {number + 1}\n" for number in here)
        assert (tmp_path / name / "recovery-point-offset-checkpoint").read_text() == f"0\n{len(here)}\n{lines}"
        starts = "orders 2 1\n" if 2 in here else ""
        assert (tmp_path / name / "log-start-offset-checkpoint").read_text() == f"0\n{len(starts) and 1}\n{starts}"
        assert (tmp_path / name / ".kafka_cleanshutdown").exists()


def test_log_start_offset_survives_restart(make_manager: MakeManager) -> None:
    with make_manager() as manager:
        append(manager.create(TP), count=5)
        log_of(manager, TP).delete_records(3)
    with make_manager() as manager:
        assert (log_of(manager, TP).log_start_offset, log_of(manager, TP).log_end_offset) == (3, 5)


# ---- ownership


@pytest.mark.parametrize(("cluster_id", "node_id"), [("other", 1), ("cluster", 2)])
def test_rejects_directory_of_other_node(
    make_manager: MakeManager, tmp_path: Path, cluster_id: str, node_id: int
) -> None:
    with make_manager():
        pass
    with pytest.raises(KafkaStorageError) as refused:
        make_manager(cluster_id=cluster_id, node_id=node_id).start()
    assert str(refused.value) == (
        f"None of the specified log dirs can be used: Log directory {tmp_path / 'data'} belongs to node 1 of cluster "
        f"cluster, not to node {node_id} of cluster {cluster_id}. Check node.id, cluster.id and log.dirs"
    )
    with make_manager():
        pass  # and the lock is released again


def test_directory_id_is_stable(make_manager: MakeManager, tmp_path: Path) -> None:
    seen = set()
    for _ in range(2):
        with make_manager("one", "two") as manager:
            seen.add(tuple(directory.meta for directory in manager.directories))
    ((one, two),) = seen
    assert one is not None
    assert two is not None
    assert (one.cluster_id, one.node_id) == ("cluster", 1)
    assert one.directory_id != two.directory_id
    assert MetaProperties.read(tmp_path / "one", FileSystem()) == one


def test_rejects_directory_in_use_by_this_process(make_manager: MakeManager, tmp_path: Path) -> None:
    with (
        make_manager() as manager,
        pytest.raises(KafkaStorageError, match=f"Log directory {tmp_path / 'data'} is already in use by this process"),
    ):
        make_manager().start()
    assert not manager.directories[0].failure


def test_rejects_duplicate_directory(make_manager: MakeManager) -> None:
    with make_manager("data", "data/../data") as manager:
        assert [directory.online for directory in manager.directories] == [True, False]
        assert "is already in use by this process" in str(manager.directories[1].failure)


LOCKER = """
import sys
from pathlib import Path
from headrace.common.ids import make_random, random_uuid
from headrace.storage.directory import LogDirectory
from headrace.storage.files import FileSystem
directory = LogDirectory(Path(sys.argv[1]), FileSystem())
directory.open("cluster", 1, random_uuid(make_random()))
print("locked", flush=True)
sys.stdin.read()
"""


def test_rejects_directory_in_use_by_other_process(make_manager: MakeManager, tmp_path: Path) -> None:
    other = subprocess.Popen(
        [sys.executable, "-c", LOCKER, str(tmp_path / "data")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert other.stdin is not None
    assert other.stdout is not None
    try:
        assert other.stdout.readline() == b"locked\n"
        with pytest.raises(
            KafkaStorageError, match=r"data is in use by another process: failed to acquire lock on its \.lock file"
        ):
            make_manager().start()
    finally:
        other.stdin.close()
        other.wait(60)
        other.stdout.close()
    with make_manager():
        pass


# ---- loading


def test_loads_partitions_in_parallel(make_manager: MakeManager) -> None:
    properties = {"num.recovery.threads.per.data.dir": 4}
    with make_manager("one", "two", properties=properties) as manager:
        for number in range(40):
            append(manager.create(partition(number)), count=number % 7 + 1)
    with make_manager("one", "two", properties=properties) as manager:
        assert {log.tp.partition: log.log_end_offset for log in manager} == {
            number: number % 7 + 1 for number in range(40)
        }
        assert all(report.scanned_batches == 0 for report in manager.load_reports.values())
        assert len(manager.load_reports) == 40
        manager.abandon()
    with make_manager("one", "two", properties=properties) as manager:
        assert len(manager) == 40


def test_ignores_other_directories_and_files(make_manager: MakeManager, tmp_path: Path) -> None:
    data = tmp_path / "data"
    strangers = ["lost+found", "notes", "orders-007", "orders-0.0123-stray", "orders-1-future", "my orders-0"]
    for name in strangers:
        (data / name).mkdir(parents=True)
        (data / name / "file").write_text("mine")
    (data / "orders-3").write_text("not a directory")
    with make_manager() as manager:
        assert len(manager) == 0
        manager.create(TP)
        manager.tick()
    for name in strangers:
        assert [path.name for path in (data / name).iterdir()] == ["file"]
    assert (data / "orders-3").read_text() == "not a directory"


def test_partition_in_two_directories_takes_one_offline(make_manager: MakeManager, tmp_path: Path) -> None:
    for name in ("one", "two"):
        with make_manager(name) as manager:
            append(manager.create(TP))
    with make_manager("one", "two") as manager:
        assert [directory.online for directory in manager.directories] == [True, False]
        assert manager.directories[1].failure == (
            f"Duplicate log directories found for partition orders-0: {tmp_path / 'one'} and {tmp_path / 'two'}; "
            "remove one of them"
        )
        assert len(manager) == 1


@pytest.mark.parametrize("name", ["meta.properties", "orders-0/partition.metadata"])
@pytest.mark.parametrize("content", [b"\xff\xfe", b"version: 0\ntopic_id: what", b"version=1\n"])
def test_damaged_directory_does_not_affect_others(
    make_manager: MakeManager, tmp_path: Path, name: str, content: bytes
) -> None:
    with make_manager("one") as manager:
        append(manager.create(TP, ID))
    (tmp_path / "one" / name).write_bytes(content)
    with make_manager("two", "one") as manager:
        assert [directory.online for directory in manager.directories] == [True, False]
        assert f"{tmp_path / 'one' / name} is damaged" in str(manager.directories[1].failure)


def test_damaged_checkpoint_causes_scan(
    make_manager: MakeManager, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with make_manager() as manager:
        append(manager.create(TP), count=5)
    (tmp_path / "data" / "recovery-point-offset-checkpoint").write_bytes(b"0\n5\n")
    with make_manager() as manager:
        assert log_of(manager, TP).log_end_offset == 5
        assert manager.load_reports[TP].scanned_batches == 1
    assert "expected 5 entries, found 0" in caplog.text


def test_cleaned_offset_is_limited_to_log_end(make_manager: MakeManager, tmp_path: Path) -> None:
    """As after a crash that lost records."""
    with make_manager() as manager:
        append(manager.create(TP), count=5)
    (tmp_path / "data" / "cleaner-offset-checkpoint").write_bytes(b"0\n1\norders 0 9\n")
    with make_manager() as manager:
        assert log_of(manager, TP).cleaned_up_to == 5


# ---- failures


def test_failed_directory_goes_offline_with_its_logs(make_manager: MakeManager, tmp_path: Path) -> None:
    files = FaultyFileSystem()
    lost: list[tuple[str, list[TopicPartition]]] = []
    with make_manager("one", "two", files=files) as manager:
        manager.on_directory_failed = lambda directory, tps: lost.append((directory.path.name, tps))
        for number in range(4):
            append(manager.create(partition(number)))
        gone = [number for number in range(4) if home_of(manager, partition(number)) == "one"]
        log = log_of(manager, partition(gone[0]))
        files.fail("sync", "*/one/*")
        with pytest.raises(KafkaStorageError, match="Input/output error"):
            log.flush()
        assert lost == [("one", [partition(number) for number in gone])]
        assert len(manager) == 2
        with pytest.raises(KafkaStorageError, match=f"The log for partition orders-{gone[0]} is closed"):
            append(log)
        manager.create(partition(9))
        assert home_of(manager, partition(9)) == "two"
        manager.fail_directory(manager.directories[1], "someone pulled the plug")
        assert manager.directories[1].failure == "someone pulled the plug"
        with pytest.raises(KafkaStorageError, match="All log directories are offline"):
            manager.create(partition(10))
    assert not (tmp_path / "one" / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize(
    ("operation", "before"),
    [
        ("make_directory", lambda manager: None),  # a new log
        ("rename", lambda manager: manager.create(TP)),  # a log without topic id
        ("list", lambda manager: (manager.directories[0].path / str(TP)).mkdir()),  # a directory that a crash has left
    ],
)
def test_io_error_of_a_creation_takes_the_directory_offline(
    make_manager: MakeManager, operation: str, before: Callable[[LogManager], object]
) -> None:
    files = FaultyFileSystem()
    with make_manager(files=files) as manager:
        before(manager)
        files.fail(operation, "*orders-0*")
        with pytest.raises(KafkaStorageError, match="Input/output error"):
            manager.create(TP, ID)
        assert not manager.directories[0].online
        assert manager.get(TP) is None


def test_updates_topic_config(make_manager: MakeManager, clock: ManualClock) -> None:
    with make_manager() as manager:
        log = manager.create(TP)
        other = manager.create(TopicPartition("other", 0))
        changed = type(log.config).from_properties({"max.message.bytes": 10})
        manager.update_configs({"orders": changed})
        assert log.config is changed
        assert other.config is not changed
        with pytest.raises(Exception, match=r"maximum configured value of 10 \(max\.message\.bytes\)"):
            append(log, make_batch())


def test_start_fails_if_directory_cannot_be_created(tmp_path: Path, clock: ManualClock) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(
        KafkaStorageError, match=r"None of the specified log dirs can be used: Cannot open log directory .*data"
    ):
        new_manager([tmp_path / "file" / "data"], clock).start()


@pytest.mark.parametrize(
    ("topic", "partition", "message"),
    [
        ("", 0, "Topic name '' is invalid"),
        (".", 0, "Topic name '.' is invalid"),
        ("..", 0, "Topic name '..' is invalid"),
        ("my orders", 0, "Topic name 'my orders' is invalid"),
        ("../escape", 0, "Topic name '../escape' is invalid"),
        ("größe", 0, "is invalid: expected 1 to 249 letters, digits, dots, dashes and underscores"),
        ("t" * 250, 0, "is invalid: expected"),
        ("__cluster_metadata", 0, "'__cluster_metadata' is reserved for Kafka's metadata log"),
        ("orders", -1, "Partition -1 of topic 'orders' is invalid: expected a number from 0 to 2^31 - 1"),
    ],
)
def test_rejects_invalid_partition_names(make_manager: MakeManager, topic: str, partition: int, message: str) -> None:
    manager = make_manager().start()
    with pytest.raises(InvalidTopicError, match=re.escape(message)):
        manager.create(TopicPartition(topic, partition))
    assert len(manager) == 0
    longest = manager.create(TopicPartition("t" * 249, 0))
    manager.delete(longest.tp)
