"""Objects that a flow keeps in the driver's memory between batches. Driver only."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from headrace.pipelines.pipeline import Batch, Setting

T = TypeVar("T")


@dataclass(frozen=True)
class _Owner:
    query_id: str
    application_id: str
    settings: dict[str, Setting]


class FlowStateCache(Generic[T]):
    """One object per state directory. The object is created again when the directory's query, Spark application or
    pipeline settings change."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._states: dict[str, tuple[_Owner, T]] = {}

    def get(self, batch: Batch, create: Callable[[Batch], T]) -> T:
        """Returns the state of the batch's flow. Calls `create` if there is none yet."""
        owner = _Owner(batch.query_id, str(batch.spark.sparkContext.applicationId), dict(batch.settings))
        with self._lock:
            state = self._states.get(batch.state_dir)
            if state is None or state[0] != owner:
                state = self._states[batch.state_dir] = (owner, create(batch))
            return state[1]
