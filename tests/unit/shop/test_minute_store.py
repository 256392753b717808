"""The minutes that `dws-traffic` stores. In these tests a sketch is a set of letters."""

from collections.abc import Callable

import pytest
from tests.support.shop.files import FilesInMemory

from headrace.shop.minute_store import MINUTE_MS, Minute, MinuteStore
from headrace.testing.clock import ManualClock

LATENESS_MS = 10 * MINUTE_MS
NOON = 1_700_000_000_000 // MINUTE_MS * MINUTE_MS


def merge_sketches(pairs: list[tuple[bytes, bytes]]) -> list[bytes]:
    return [bytes(sorted({*one, *other})) for one, other in pairs]


def minute(number: int, views: int = 1, visitors: bytes | None = b"a", **more: int) -> Minute:
    return Minute(NOON + number * MINUTE_MS, page_views=views, visitors=visitors, **more)


@pytest.fixture
def files() -> FilesInMemory:
    return FilesInMemory()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOON + 60 * MINUTE_MS)


@pytest.fixture
def make(files: FilesInMemory, clock: ManualClock) -> Callable[[], MinuteStore]:
    return lambda: MinuteStore(files, LATENESS_MS, clock, merge_sketches)


def test_adds_batches_to_minutes(make: Callable[[], MinuteStore]) -> None:
    minutes = make()
    first = minutes.add(0, [minute(1, 3, b"ab"), minute(0, 2, b"c", orders=1, revenue=250)])
    assert first.minutes == [minute(0, 2, b"c", orders=1, revenue=250), minute(1, 3, b"ab")]
    second = minutes.add(1, [minute(0, 1, b"cd", orders=1, revenue=50), minute(2, 0, None, orders=2)])
    assert second.minutes == [minute(0, 3, b"cd", orders=2, revenue=300), minute(2, 0, None, orders=2)]
    assert second.version > first.version
    assert minutes.add(2, [minute(2, 1, b"x")]).minutes == [minute(2, 1, b"x", orders=2)]
    assert minutes.add(3, []).minutes == []


def test_accepts_late_rows_within_the_lateness(make: Callable[[], MinuteStore]) -> None:
    minutes = make()
    minutes.add(0, [minute(0)])
    minutes.add(1, [minute(10)])
    assert minutes.horizon_ms(2) == NOON
    assert minutes.add(2, [minute(0)]).minutes == [minute(0, 2)]
    minutes.add(3, [minute(11)])
    assert minutes.horizon_ms(4) == NOON + MINUTE_MS
    assert minutes.add(4, [minute(0), minute(1)]).minutes == [minute(1)], "minute 0 is before the horizon"


def test_future_event_does_not_make_others_late(make: Callable[[], MinuteStore], clock: ManualClock) -> None:
    minutes = make()
    minutes.add(0, [minute(0), minute(10**6)])
    assert minutes.horizon_ms(1) == clock.now_ms - LATENESS_MS
    assert minutes.add(1, [minute(59), minute(10**6)]).minutes == [minute(59), minute(10**6, 2)]


def test_replay_returns_the_same_minutes(make: Callable[[], MinuteStore], clock: ManualClock) -> None:
    minutes = make()
    minutes.add(0, [minute(0)])
    changed = minutes.add(1, [minute(0, 5), minute(200)])
    horizon = minutes.horizon_ms(2)
    assert minutes.add(1, [minute(0, 5), minute(200)]) == changed, "in the same process"
    clock.advance(LATENESS_MS * 100)
    again = make()
    assert again.add(1, [minute(0, 5), minute(200)]) == changed, "in a new process"
    assert again.horizon_ms(2) == horizon
    assert make().horizon_ms(2) == horizon


def test_batch_without_a_file_is_not_a_replay(make: Callable[[], MinuteStore], files: FilesInMemory) -> None:
    minutes = make()
    minutes.add(0, [minute(0)])
    minutes.add(1, [minute(0)])
    del files.content["batch-000000000001"]
    assert make().add(1, [minute(0, 7)]).minutes == [minute(0, 8)]


def test_snapshot_replaces_batch_files(
    make: Callable[[], MinuteStore], files: FilesInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.shop.minute_store._FILES_BEFORE_SNAPSHOT", 5)
    minutes, expected = make(), 0
    for batch_id in range(23):
        if batch_id % 7 == 6:
            minutes = make()
        expected += batch_id
        before = minutes.add(batch_id, [minute(batch_id // 10, batch_id)])
        assert len(files.content) <= 8
    assert make().add(22, [minute(2, 22)]) == before, "the last batch can always be replayed"
    after = make().add(23, [minute(number, 0) for number in range(3)])
    assert sum(changed.page_views for changed in after.minutes) == expected
    assert sum(name.startswith("minutes-") for name in files.list()) == 1


def test_versions_increase_while_the_clock_stands_still(make: Callable[[], MinuteStore]) -> None:
    minutes = make()
    versions = [minutes.add(batch_id, [minute(0)]).version for batch_id in range(4)]
    assert versions == sorted(set(versions))


def test_rejects_damaged_file(make: Callable[[], MinuteStore], files: FilesInMemory) -> None:
    make().add(0, [minute(0)])
    files.content["batch-000000000000"] = b"ARROW1 and then garbage"
    with pytest.raises(ValueError, match="batch-000000000000 is damaged"):
        make().add(1, [minute(0)])
