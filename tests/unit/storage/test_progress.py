import logging

import pytest

from headrace.storage.progress import Progress
from headrace.testing.clock import ManualClock


def test_quick_work_is_silent(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    progress = Progress(ManualClock(), "Loading /data", 2)
    progress.add(2)
    progress.finish()
    assert caplog.messages == []


def test_slow_work_shows_its_progress(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = ManualClock()
    progress = Progress(clock, "Loading /data", 9)
    for _ in range(9):
        clock.advance(1000)
        progress.add()
    progress.finish()
    assert caplog.messages == [
        "Loading /data: 1 of 9 logs",
        "Loading /data: 6 of 9 logs",
        "Loading /data: 9 logs in 9.0 seconds",
    ]
