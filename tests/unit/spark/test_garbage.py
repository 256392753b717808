"""Imported modules are excluded from garbage collection once per process."""

import gc
from collections.abc import Iterator

import pytest

from headrace.spark import garbage


@pytest.fixture(autouse=True)
def thawed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(garbage, "_frozen_in", None)
    yield
    gc.unfreeze()


def test_freezes_once() -> None:
    garbage.freeze_imports()
    frozen = gc.get_freeze_count()
    assert frozen > 1000
    later = [[] for _ in range(100)]  # type: list[list[int]]
    garbage.freeze_imports()
    assert gc.get_freeze_count() <= frozen, "some frozen objects may be freed meanwhile"
    assert any(each is later for each in gc.get_objects()), "objects of tasks are collected"


def test_freezes_again_after_a_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    garbage.freeze_imports()
    frozen = gc.get_freeze_count()
    later = [[] for _ in range(10_000)]  # type: list[list[int]]
    monkeypatch.setattr("os.getpid", lambda: -1)
    garbage.freeze_imports()
    assert gc.get_freeze_count() > frozen + len(later) // 2
