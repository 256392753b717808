"""Copies selected records into a topic. Blocking; runs in the scan process.

Keys, values and headers are copied as they are, without a Python object per record. Records of one partition keep their
order in the target partition, if the target is chosen by partition or by key. The producer is idempotent, so a retry
writes no duplicates.
"""

from collections import deque
from typing import Any

from headrace.client.producer.producer import Producer
from headrace.common.errors import HeadraceError
from headrace.common.extras import requires_extra
from headrace.console.search.scan import Selected

with requires_extra("arrow"):
    import pyarrow as pa

__all__ = ["Copier"]

_MAX_PENDING = 4
_TIMEOUT_MS = 120_000


class Copier:
    """The writing side of a copy. `copied` counts the acknowledged records."""

    def __init__(self, target: dict[str, Any]):
        self._topic: str = target["topic"]
        self._keep_partition: bool = target["keep_partition"]
        self._keep_timestamp: bool = target["keep_timestamp"]
        self._producer = Producer({"enable.idempotence": True, "acks": "all", **target["config"]})
        self._pending: deque[tuple[Any, int]] = deque()
        self.copied = 0

    def send(self, selected: Selected) -> None:
        """Sends records. Waits while several blocks are unacknowledged, which bounds the memory."""
        columns = selected.taken()
        names = ["key", "value", "headers"]
        if self._keep_timestamp:
            names.append("timestamp")
        table = pa.record_batch([columns[name] for name in names], names=names)
        partition = selected.partition if self._keep_partition else None
        self._pending.append((self._producer.send_arrow(self._topic, table, partition=partition), selected.size))
        while len(self._pending) > _MAX_PENDING:
            self._wait()

    def _wait(self) -> None:
        future, rows = self._pending.popleft()
        try:
            future.get(timeout_ms=_TIMEOUT_MS)
        except HeadraceError as error:
            acknowledged = sum(part.rows for part in future.acknowledged)
            self.copied += acknowledged
            error.add_note(f"{self.copied} records were copied before")
            raise
        self.copied += rows

    def finish(self) -> None:
        """Waits for all records."""
        self._producer.flush()
        while self._pending:
            self._wait()

    def close(self) -> None:
        self._producer.close()
