"""Keeps Python's garbage collector away from imported modules.

Runs in Spark's Python workers. Spark's daemon collects garbage after every task. A collection visits every object of
the process, which takes 20 ms with Headrace's imports and 40 ms with pandas. Frozen objects are not visited.

Owner of the state: the process. Objects that exist at the first task are frozen once, so later garbage is still
collected.
"""

import gc
import os
from functools import cache

__all__ = ["freeze_after_first_task", "freeze_imports"]

_frozen_in: int | None = None
"""The id of the process that is frozen. The child of a fork has imported more by the time of its first task."""


def freeze_imports() -> None:
    """Excludes all objects that exist now from garbage collection, on the first call in a process. Call it in a task,
    after everything that the task needs is imported."""
    global _frozen_in
    if _frozen_in != os.getpid():
        _frozen_in = os.getpid()
        gc.freeze()


@cache
def freeze_after_first_task() -> None:
    """Excludes everything that the first task imported, too: the user's code imports modules while it runs."""
    gc.collect()
    gc.freeze()
