"""The order of a scan."""

from headrace.console.search.ranges import Part, parts_of, plan_parts


def test_oldest_first_takes_turns() -> None:
    parts = list(plan_parts({1: (0, 5), 0: (10, 13), 2: (4, 4)}, 2, newest_first=False))
    assert parts == [Part(0, 10, 12), Part(1, 0, 2), Part(0, 12, 13), Part(1, 2, 4), Part(1, 4, 5)]


def test_newest_first_goes_backward() -> None:
    parts = list(plan_parts({1: (0, 5), 0: (10, 13)}, 2, newest_first=True))
    assert parts == [Part(0, 11, 13), Part(1, 3, 5), Part(0, 10, 11), Part(1, 1, 3), Part(1, 0, 1)]


def test_parts_grow() -> None:
    parts = list(plan_parts({0: (0, 20)}, 2, newest_first=True, largest=7))
    assert [part.end - part.start for part in parts] == [2, 4, 7, 7]
    assert sum(part.end - part.start for part in plan_parts({0: (0, 21)}, 2, newest_first=False, largest=7)) == 21


def test_single_records() -> None:
    assert parts_of([(1, 5), (0, 3), (1, 6), (1, 5), (1, 8)]) == [Part(0, 3, 4), Part(1, 5, 7), Part(1, 8, 9)]
