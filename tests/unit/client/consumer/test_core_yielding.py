"""The thread that polls lets the loop send due fetches first."""

import threading
from types import SimpleNamespace
from typing import Any

from headrace.client.consumer.core import ConsumerCore


def test_yields_only_while_work_is_due() -> None:
    waits: list[float] = []

    class Recorded(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout or 0.0)
            return True

    core: Any = SimpleNamespace(_work_is_due=False, _has_worked=Recorded())
    ConsumerCore.yield_to_loop(core)
    assert waits == []
    core._work_is_due = True
    ConsumerCore.yield_to_loop(core)
    assert len(waits) == 1
    assert 0 < waits[0] <= 0.01
