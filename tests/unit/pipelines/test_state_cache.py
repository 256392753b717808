"""The state of a partition before a batch is the same in every process, however it is loaded."""

from pathlib import Path

import pytest
from tests.support.spark.seen_state import SeenKeys

from headrace.pipelines import state_cache
from headrace.pipelines.state_cache import StateStore
from headrace.pipelines.state_files import DELTA, NO_BATCH, SNAPSHOT, StateFile, StateFileError, StateFiles


@pytest.fixture(autouse=True)
def empty_cache() -> None:
    state_cache._cache.clear()


def store(directory: Path, partition: int = 0, query: str = "q") -> StateStore:
    return StateStore(str(directory), query, "orders", partition, SeenKeys)


def process(directory: Path, batch_id: int, *keys: str, partition: int = 0, commit: bool = True) -> set[str]:
    """Processes a batch with these keys. Returns the keys that were known before."""
    place = store(directory, partition)
    held = place.take(batch_id)
    before = set(held.state.keys)
    for key in keys:
        held.state.add(key)
    place.save(held, batch_id, is_merged=False)
    if commit:
        place.keep(held, batch_id)
    return before


def names(directory: Path, partition: int = 0) -> list[str]:
    return sorted(path.name for path in (directory / f"orders-{partition}").iterdir())


def other_process() -> None:
    state_cache._cache.clear()


def test_state_stays_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert process(tmp_path, 0, "a") == set()
    monkeypatch.setattr(StateFiles, "files_before", lambda self, batch_id: pytest.fail("no file is needed"))
    assert process(tmp_path, 1, "b") == {"a"}


def test_another_process_restores_the_state(tmp_path: Path) -> None:
    for batch_id in range(5):
        process(tmp_path, batch_id, f"k{batch_id}")
    other_process()
    assert process(tmp_path, 5) == {"k0", "k1", "k2", "k3", "k4"}


def test_batches_without_changes_have_no_file(tmp_path: Path) -> None:
    process(tmp_path, 0, "a")
    process(tmp_path, 1, "a")
    process(tmp_path, 4, "b")
    assert names(tmp_path) == ["delta-0000000000", "delta-0000000004"]
    other_process()
    assert process(tmp_path, 5) == {"a", "b"}


def test_replay_starts_from_the_state_before_the_batch(tmp_path: Path) -> None:
    process(tmp_path, 0, "a")
    process(tmp_path, 1, "b")
    assert process(tmp_path, 1, "b") == {"a"}
    other_process()
    assert process(tmp_path, 1, "b") == {"a"}
    assert process(tmp_path, 2) == {"a", "b"}


def test_failed_attempt_leaves_no_state_in_memory(tmp_path: Path) -> None:
    process(tmp_path, 0, "a")
    process(tmp_path, 1, "b", commit=False)
    assert process(tmp_path, 1, "c") == {"a"}
    assert process(tmp_path, 2) == {"a", "c"}


def test_older_copy_catches_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process(tmp_path, 0, "a")
    old = dict(state_cache._cache)
    other_process()
    process(tmp_path, 1, "b")
    process(tmp_path, 2, "c")
    state_cache._cache.clear()
    state_cache._cache.update(old)
    monkeypatch.setattr(StateStore, "_load", lambda *_: pytest.fail("the copy in memory lacks only two deltas"))
    assert process(tmp_path, 3) == {"a", "b", "c"}


def test_snapshots_replace_old_files_after_the_next_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_cache, "_MAX_DELTAS", 3)
    for batch_id in range(3):
        process(tmp_path, batch_id, f"k{batch_id}")
    assert names(tmp_path) == [*(f"delta-000000000{n}" for n in range(3)), "snapshot-0000000002"]
    other_process()
    assert process(tmp_path, 2, "k2") == {"k0", "k1"}, "a replay does not use the snapshot of its own batch"
    other_process()
    assert process(tmp_path, 3, "k3") == {"k0", "k1", "k2"}
    assert names(tmp_path) == ["delta-0000000002", "delta-0000000003", "snapshot-0000000002"]
    other_process()
    assert process(tmp_path, 4) == {"k0", "k1", "k2", "k3"}


def test_copy_that_is_older_than_all_files_is_loaded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process(tmp_path, 0, "a")
    old = dict(state_cache._cache)
    other_process()
    monkeypatch.setattr(state_cache, "_MAX_DELTAS", 2)
    for batch_id in range(1, 6):
        process(tmp_path, batch_id, f"k{batch_id}")
    state_cache._cache.clear()
    state_cache._cache.update(old)
    assert process(tmp_path, 6) == {"a", "k1", "k2", "k3", "k4", "k5"}


def test_large_deltas_cause_snapshots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_cache, "_MIN_SNAPSHOT_BYTES", 50)
    for batch_id in range(60):
        process(tmp_path, batch_id, f"key number {batch_id}")
        if batch_id % 7 == 0:
            other_process()
    assert len(names(tmp_path)) < 60
    other_process()
    assert process(tmp_path, 60) == {f"key number {batch_id}" for batch_id in range(60)}


def test_added_partitions_start_with_the_merged_states(tmp_path: Path) -> None:
    process(tmp_path, 0, "a", partition=0)
    process(tmp_path, 1, "b", partition=1)
    for attempt in range(2):
        for partition in (2, 0, 1):
            place = store(tmp_path, partition)
            held = place.take_merged(2, (0, 1))
            assert held.state.keys == {"a", "b"}, f"attempt {attempt}"
            held.state.add(f"c{partition}")
            place.save(held, 2, is_merged=True)
            place.keep(held, 2)
    assert process(tmp_path, 3, "d", partition=2) == {"a", "b", "c2"}
    other_process()
    for partition, more in ((0, set()), (1, set()), (2, {"d"})):
        assert process(tmp_path, 4, partition=partition) == {"a", "b", f"c{partition}"} | more


def test_copy_from_before_a_merge_is_not_used_after_it(tmp_path: Path) -> None:
    process(tmp_path, 0, "a", partition=0)
    process(tmp_path, 0, "b", partition=1)
    old = dict(state_cache._cache)
    other_process()
    place = store(tmp_path, 0)
    place.save(place.take_merged(1, (0, 1)), 1, is_merged=True)
    state_cache._cache.update(old)
    assert process(tmp_path, 2, partition=0) == {"a", "b"}


def test_states_of_another_query_are_not_used(tmp_path: Path) -> None:
    place = store(tmp_path, query="first")
    held = place.take(0)
    held.state.add("a")
    place.keep(held, 0)
    assert store(tmp_path, query="second").take(1).state.keys == set()


def test_missing_delta_is_an_error(tmp_path: Path) -> None:
    for batch_id in range(3):
        process(tmp_path, batch_id, f"k{batch_id}")
    (tmp_path / "orders-0" / StateFile(1, DELTA).name).unlink()
    other_process()
    with pytest.raises(StateFileError, match=r"delta-0000000002 follows batch 1, whose file is missing"):
        process(tmp_path, 3)


def test_damaged_snapshot_is_an_error(tmp_path: Path) -> None:
    StateFiles(str(tmp_path), "orders", 0).write(StateFile(1, SNAPSHOT), NO_BATCH, b"[]")
    path = tmp_path / "orders-0" / StateFile(1, SNAPSHOT).name
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(StateFileError, match=f"{path} is damaged"):
        process(tmp_path, 2)
