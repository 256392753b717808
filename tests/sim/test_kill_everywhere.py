"""A kill at every step of each operation that changes more than one file.

Each test prepares a log, then repeats one operation: killed before its first change to the disk, before its second,
and so on until it completes. After each kill, the directory is opened as the next process would. Kinds of kill:

    killed      between two changes
    torn        halfway through a write
    power cut   between two changes; unsynced bytes are lost, kept, or kept in part
"""

import os
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from random import Random
from shutil import copytree, rmtree

import pytest
from tests.support.storage.copying import copy_log, start_move
from tests.support.storage.log_checks import check_log, committed_records, latest_values
from tests.support.storage.log_workload import Mix, random_append

from headrace.common.ids import Uuid
from headrace.common.types import TopicPartition
from headrace.records import RecordBatch, encode_rows
from headrace.storage.cleaner import CleanerConfig, finish_cleaning, plan_cleaning
from headrace.storage.config import LogConfig, ManagerConfig
from headrace.storage.log import Log
from headrace.storage.manager import LogManager
from headrace.storage.retention import delete_old_segments
from headrace.testing.clock import ManualClock
from headrace.testing.disks import FaultyFileSystem, Killed, PowerLossFileSystem

SEEDS = range(1 + int(os.environ.get("HEADRACE_POWER_SEEDS", "0")) // 1000)
TP = TopicPartition("victim", 0)
TOPIC_ID = Uuid.parse("L4tkSDvtSWyV2FJpQYyZlA")
SMALL = {"segment.bytes": 2048, "index.interval.bytes": 200, "retention.ms": -1, "file.delete.delay.ms": 0}


def make_manager(directory: Path, files: FaultyFileSystem, clock: ManualClock, **topic: object) -> LogManager:
    """With `two=True`, the manager has the log directories `directory` and `directory/two`."""
    directories = [directory, directory / "two"] if topic.pop("two", False) else [directory]
    config = LogConfig.from_properties({**SMALL, **topic})
    settings = ManagerConfig.from_properties({"log.dirs": ",".join(map(str, directories))})
    return LogManager(settings, config_of=lambda _: config, cluster_id="kill", files=files, clock=clock, seed=1)


def prepare(directory: Path, clock: ManualClock, seed: int, appends: int, mix: Mix, **topic: object) -> None:
    """Creates a log with several segments, some of them flushed, after a clean shutdown."""
    random = Random(seed)
    with make_manager(directory, FaultyFileSystem(syncs=False), clock, **topic) as manager:
        log = manager.create(TP, TOPIC_ID)
        for _ in range(appends):
            batch, origin = random_append(log, random, mix)
            log.append_as_leader(batch, 0, origin)
            log.update_high_watermark(log.log_end_offset)
            clock.advance(random.choice((0, 1, 10)))


@pytest.fixture(params=["killed", "torn", "power cut"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def killed_everywhere(
    tmp_path: Path, clock: ManualClock, kind: str, operation: Callable[[LogManager], None], **topic: object
) -> Iterator[LogManager]:
    """Yields the reopened manager after each kill of the operation, and finally after none."""
    before = tmp_path / "before"
    for changes in count():
        directory = tmp_path / f"killed-{changes}"
        copytree(before, directory)
        files = PowerLossFileSystem(directory) if kind == "power cut" else FaultyFileSystem(syncs=False)
        manager = make_manager(directory, files, clock, **topic).start()
        for log in manager:
            log.update_high_watermark(log.log_end_offset)
        files.kill_after(changes, torn=kind == "torn")
        try:
            operation(manager)
        except Killed:
            killed = True
        else:
            killed = False
        manager.abandon()
        files.heal()
        if isinstance(files, PowerLossFileSystem):
            files.crash(Random(changes))
        again = make_manager(directory, files, clock, **topic).start()
        for log in again:
            log.update_high_watermark(log.log_end_offset)
        yield again
        again.abandon()
        rmtree(directory)
        if not killed:
            assert changes > 0, "the operation changed nothing"
            return


def log_of(manager: LogManager) -> Log:
    log = manager.get(TP)
    assert log is not None
    return log


def raw(batches: list[RecordBatch]) -> list[bytes]:
    return [bytes(batch.raw) for batch in batches]


def content(tmp_path: Path, clock: ManualClock, **topic: object) -> list[RecordBatch]:
    copytree(tmp_path / "before", tmp_path / "look")
    with make_manager(tmp_path / "look", FaultyFileSystem(syncs=False), clock, **topic) as manager:
        return check_log(log_of(manager))


@pytest.mark.parametrize("seed", SEEDS)
def test_crashes_while_appending_rolling_and_flushing(tmp_path: Path, kind: str, seed: int) -> None:
    clock = ManualClock()
    prepare(tmp_path / "before", clock, seed, 20, Mix())
    before = raw(content(tmp_path, clock))
    rows = [(b"new-%d" % number, b"v" * 300, clock.time_ms(), None) for number in range(12)]
    safe = 0

    def operation(manager: LogManager) -> None:
        nonlocal safe
        safe = 0
        log = log_of(manager)
        for number, row in enumerate(rows):
            log.append_as_leader(encode_rows([row]), number // 4)
            if kind != "power cut":
                safe = number + 1
            if number == 5:
                log.flush()
                safe = 6
        manager.close()
        safe = len(rows)

    for manager in killed_everywhere(tmp_path, clock, kind, operation):
        found = check_log(log_of(manager))
        assert raw(found)[: len(before)] == before
        keys = [batch.records().key(0) for batch in found[len(before) :]]
        assert keys == [row[0] for row in rows[: len(keys)]]
        assert len(keys) >= safe


@pytest.mark.parametrize("seed", SEEDS)
def test_crashes_while_truncating(tmp_path: Path, kind: str, seed: int) -> None:
    clock = ManualClock()
    prepare(tmp_path / "before", clock, seed, 40, Mix())
    before = content(tmp_path, clock)
    cut = Random(seed).choice(before[5:]).base_offset
    kept = raw([batch for batch in before if batch.last_offset < cut])

    def operation(manager: LogManager) -> None:
        log_of(manager).truncate_to(cut)
        log_of(manager).append_as_leader(encode_rows([(b"next", b"", clock.time_ms(), None)]), 1)

    for manager in killed_everywhere(tmp_path, clock, kind, operation):
        found = raw(check_log(log_of(manager)))
        assert found[: len(kept)] == kept
        rest = found[len(kept) :]
        went_on = len(rest) == 1 and RecordBatch(rest[0]).records().key(0) == b"next"
        assert went_on or rest == raw(before)[len(kept) : len(found)]


@pytest.mark.parametrize("how", ["retention", "delete records", "start over"])
def test_removes_metric(tmp_path: Path, kind: str, how: str) -> None:
    clock = ManualClock()
    prepare(tmp_path / "before", clock, 1, 40, Mix())
    before = content(tmp_path, clock)
    target = before[len(before) // 2].base_offset

    def operation(manager: LogManager) -> None:
        log = log_of(manager)
        if how == "start over":
            log.truncate_fully_and_start_at(10_000)
            return
        log.delete_records(target)
        delete_old_segments(log)
        manager.checkpoint_log_start_offsets()

    for manager in killed_everywhere(tmp_path, clock, kind, operation):
        log = log_of(manager)
        found = raw(check_log(log))
        if how == "start over" and log.log_end_offset in (0, 10_000):
            assert found == []
        elif how == "start over":
            assert found == raw(before)[: len(found)]
        else:
            assert log.log_start_offset <= target
            assert found == raw(before)[len(before) - len(found) :]


@pytest.mark.parametrize("seed", SEEDS)
def test_crashes_while_compacting(tmp_path: Path, kind: str, seed: int) -> None:
    """Compacts twice, to remove tombstones and markers as well. No key loses its value; aborted data is removed."""
    topic: dict[str, object] = {"cleanup.policy": "compact", "delete.retention.ms": 100}
    clock = ManualClock()
    mix = Mix(keys=6, tombstones=0.3, transactional=0.5)
    prepare(tmp_path / "before", clock, seed, 45, mix, **topic)
    copytree(tmp_path / "before", tmp_path / "look")
    with make_manager(tmp_path / "look", FaultyFileSystem(syncs=False), clock, **topic) as manager:
        log = log_of(manager)
        log.update_high_watermark(log.log_end_offset)
        expected = latest_values(committed_records(log))
        end_offset, size = log.log_end_offset, log.size_in_bytes
        sequences = {producer_id: entry.last_sequence for producer_id, entry in log.producers.entries.items()}
    start_ms = clock.now_ms

    def operation(manager: LogManager) -> None:
        clock.now_ms = start_ms
        log = log_of(manager)
        for _ in range(2):
            log.cleaned_up_to = None
            job = plan_cleaning(log, CleanerConfig())
            assert job is not None
            assert finish_cleaning(log, job.run())
            clock.advance(1000)

    shrunk = False
    for manager in killed_everywhere(tmp_path, clock, kind, operation, **topic):
        log = log_of(manager)
        check_log(log)
        assert log.log_end_offset == end_offset
        assert latest_values(committed_records(log)) == expected
        assert {p: entry.last_sequence for p, entry in log.producers.entries.items()} == sequences
        shrunk = shrunk or log.size_in_bytes < size
    assert shrunk


def test_crashes_while_creating_and_deleting(tmp_path: Path, kind: str) -> None:
    clock = ManualClock()
    prepare(tmp_path / "before", clock, 1, 20, Mix())
    before = raw(content(tmp_path, clock))
    other = TopicPartition("other", 3)

    def operation(manager: LogManager) -> None:
        manager.create(other).append_as_leader(encode_rows([(b"k", b"v", clock.time_ms(), None)]), 0)
        manager.delete(TP)
        manager.tick()

    for manager in killed_everywhere(tmp_path, clock, kind, operation):
        assert all(directory.online for directory in manager.directories)
        kept, made = manager.get(TP), manager.get(other)
        if kept is not None:
            assert raw(check_log(kept)) == before
        else:
            assert made is not None
        if made is not None:
            assert [batch.records().key(0) for batch in check_log(made)] in ([], [b"k"])
        manager.tick()
        assert not [path for path in manager.directories[0].path.iterdir() if path.name.endswith("-delete")]


@pytest.mark.parametrize("seed", SEEDS)
def test_crashes_while_moving_to_another_directory(tmp_path: Path, kind: str, seed: int) -> None:
    """After each crash there is one log with all records, and the move can be continued or started again."""
    clock = ManualClock()
    prepare(tmp_path / "before", clock, seed, 8, Mix(), two=True)
    before = raw(content(tmp_path, clock, two=True))
    rows = [(b"new-%d" % number, b"v" * 300, clock.time_ms(), None) for number in range(4)]
    safe = 0

    def operation(manager: LogManager) -> None:
        nonlocal safe
        safe = 0
        source = manager.directory_of(TP)
        other = next(directory for directory in manager.directories if directory is not source)
        start_move(manager, TP, other)
        for number, row in enumerate(rows):
            log_of(manager).append_as_leader(encode_rows([row]), 7)
            if kind != "power cut":
                safe = number + 1
            if number == 1:
                log_of(manager).flush()
                safe = 2
            if number < 3:
                copy_log(manager, TP, max_steps=None if number == 2 else 2)
        log_of(manager).flush()
        safe = len(rows)
        manager.tick()

    moved = False
    for manager in killed_everywhere(tmp_path, clock, kind, operation, two=True):
        assert all(directory.online for directory in manager.directories)
        found = check_log(log_of(manager))
        assert raw(found)[: len(before)] == before
        keys = [batch.records().key(0) for batch in found[len(before) :]]
        assert keys == [row[0] for row in rows[: len(keys)]]
        assert len(keys) >= safe
        home = manager.directory_of(TP)
        moved = home is manager.directories[1]
        if TP not in manager.futures:
            start_move(manager, TP, next(other for other in manager.directories if other is not home))
        copy_log(manager, TP)
        assert raw(check_log(log_of(manager))) == raw(found)
        manager.tick()
        names = [path.name for directory in manager.directories for path in directory.path.iterdir()]
        assert [name for name in names if name.startswith(TP.topic)] == [str(TP)]
    assert moved
