"""Reads a cluster on an interval into its `Snapshot`, with the console's own rights.

A cycle has parts, and each part is due at its own time: offsets in each cycle, log directories twice a minute. A part
that takes long on a large cluster is read less often, so that the console costs the brokers little. A part that
cannot be read (a missing right, an API that an old broker lacks) is noted in `Snapshot.not_read`; the others still
work. Owner: the loop.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from headrace.aio.admin import Admin
from headrace.common.clock import Clock
from headrace.common.errors import HeadraceError
from headrace.console.broker_reader import BrokerReader
from headrace.console.group_reader import GroupReader
from headrace.console.snapshot import Snapshot
from headrace.console.topic_reader import TopicReader

__all__ = ["Collector", "sentence"]

_logger = logging.getLogger(__name__)

_COST = 20
"""A part is read again after this many times its duration, at the earliest."""
_REACH_TIMEOUT_MS = 5_000


@dataclass
class _Part:
    """A part of the cluster."""

    name: str
    read: Callable[[Snapshot], Awaitable[None]]
    period: float
    due: float = 0.0


class Collector:
    """Reads one cluster. `run` it in a task; `collected` is called after each cycle, and `failed` after one in which
    the cluster was not reachable."""

    def __init__(
        self,
        admin: Admin,
        clock: Clock,
        interval: float,
        *,
        collected: Callable[[Snapshot], Awaitable[None]],
        failed: Callable[[str], None],
        broker_reader: BrokerReader,
    ):
        self._admin = admin
        self._clock = clock
        self._interval = interval
        self._collected = collected
        self._failed = failed
        topics = TopicReader(admin, clock)
        groups = GroupReader(admin, clock)
        self._parts = [
            _Part("topics", topics.read_topics, interval),
            _Part("offsets", topics.read_ends, interval),
            _Part("start offsets", topics.read_starts, 6 * interval),
            _Part("log directories", broker_reader.read_log_dirs, 6 * interval),
            _Part("topic configs", topics.read_min_isr, 60 * interval),
            _Part("reassignments", broker_reader.read_reassignments, interval),
            _Part("groups", groups.read_groups, 2 * interval),
            _Part("group offsets", groups.read_offsets, interval),
            _Part("broker metrics", broker_reader.read_metrics, interval),
            _Part("versions", broker_reader.read_versions, 60 * interval),
            _Part("transactions", broker_reader.read_transactions, 12 * interval),
        ]
        self._wake = asyncio.Event()
        self.snapshot: Snapshot | None = None
        self.cycles = 0
        self.last_seconds = 0.0

    def refresh(self) -> None:
        """Reads everything soon, as after a change."""
        for part in self._parts:
            if part.name not in ("versions", "topic configs"):
                part.due = 0.0
        self._wake.set()

    async def run(self) -> None:
        while True:
            started = self._clock.monotonic()
            self._wake.clear()
            try:
                await self._collect()
            except (HeadraceError, OSError) as error:
                self._failed(sentence(error))
            except Exception as error:
                _logger.exception("Reading the cluster failed")
                self._failed(sentence(error))
            self.last_seconds = self._clock.monotonic() - started
            wait = max(self._interval - self.last_seconds, self.last_seconds, 0.05)
            try:
                await asyncio.wait_for(self._wake.wait(), wait)
            except TimeoutError:
                continue

    async def _collect(self) -> None:
        cluster = await self._admin.describe_cluster(timeout_ms=_REACH_TIMEOUT_MS)
        snapshot = self.snapshot
        if snapshot is None:
            snapshot = Snapshot(self._clock.time_ms(), cluster)
        snapshot.cluster = cluster
        for part in self._parts:
            now = self._clock.monotonic()
            if now < part.due:
                continue
            try:
                await part.read(snapshot)
                snapshot.not_read.pop(part.name, None)
            except HeadraceError as error:
                if snapshot.not_read.get(part.name) != sentence(error):
                    _logger.info("Cannot read %s: %s", part.name, sentence(error))
                snapshot.not_read[part.name] = sentence(error)
            ended = self._clock.monotonic()
            part.due = ended + max(part.period - (ended - now) - 0.5 * self._interval, _COST * (ended - now))
        snapshot.time_ms = self._clock.time_ms()
        self.snapshot = snapshot
        self.cycles += 1
        await self._collected(snapshot)


def sentence(error: BaseException) -> str:
    """Returns an error's message in one line."""
    return " ".join(str(error).split()) or type(error).__name__
