"""The progress of reassignments: how much the added replicas have copied, and how long the rest takes.

Log directories are read at most every few seconds, however many pages ask. Owner: the loop.
"""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from headrace.aio.admin import Admin
from headrace.client.admin.types import OngoingReassignment
from headrace.common.clock import Clock
from headrace.common.types import TopicPartition

_SECONDS = 2.0
_TIMEOUT_MS = 10_000


class MoveProgress(NamedTuple):
    """How far a partition has moved."""

    copied_bytes: int | None
    total_bytes: int | None
    remaining_seconds: float | None


class Moves:
    """Follows the reassignments of one cluster."""

    def __init__(self, admin: Admin, clock: Clock):
        self._admin = admin
        self._clock = clock
        self._lock = asyncio.Lock()
        self._read_at: float | None = None
        self._began: dict[TopicPartition, tuple[float, int]] = {}
        """When a partition was seen first, and what was copied then."""
        self._progress: dict[TopicPartition, MoveProgress] = {}

    async def progress(
        self, ongoing: Mapping[TopicPartition, OngoingReassignment]
    ) -> dict[TopicPartition, MoveProgress]:
        """Returns the progress of partitions."""
        if not ongoing:
            self._began.clear()
            return {}
        async with self._lock:
            now = self._clock.monotonic()
            if self._read_at is None or now - self._read_at >= _SECONDS or not ongoing.keys() <= self._progress.keys():
                await self._read(ongoing)
                self._read_at = self._clock.monotonic()
        return {tp: self._progress[tp] for tp in ongoing if tp in self._progress}

    async def _read(self, ongoing: Mapping[TopicPartition, OngoingReassignment]) -> None:
        partitions: dict[str, list[int]] = {}
        for tp in ongoing:
            partitions.setdefault(tp.topic, []).append(tp.partition)
        found = await self._admin.describe_log_dirs(partitions, timeout_ms=_TIMEOUT_MS)
        sizes: dict[tuple[TopicPartition, int], int] = {}
        for broker, log_dirs in found.items():
            for log_dir in log_dirs:
                for tp, replica in log_dir.replicas.items():
                    sizes[tp, broker] = max(sizes.get((tp, broker), 0), replica.size)
        now = self._clock.monotonic()
        self._began = {tp: began for tp, began in self._began.items() if tp in ongoing}
        self._progress = {tp: self._of(tp, moving, sizes, now) for tp, moving in ongoing.items()}

    def _of(
        self,
        tp: TopicPartition,
        moving: OngoingReassignment,
        sizes: Mapping[tuple[TopicPartition, int], int],
        now: float,
    ) -> MoveProgress:
        sources = [sizes.get((tp, broker)) for broker in moving.replicas if broker not in moving.adding_replicas]
        size = max((size for size in sources if size is not None), default=None)
        if size is None or not moving.adding_replicas:
            return MoveProgress(None, None, None)
        copied = sum(min(size, sizes.get((tp, broker), 0)) for broker in moving.adding_replicas)
        total = size * len(moving.adding_replicas)
        began, before = self._began.setdefault(tp, (now, copied))
        rate = (copied - before) / (now - began) if now > began else 0.0
        remaining = 0.0 if copied >= total else (total - copied) / rate if rate > 0 else None
        return MoveProgress(copied, total, remaining)
