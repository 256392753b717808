import asyncio
from typing import Any

import pytest

from headrace.client.admin.types import LogDirDescription, OngoingReassignment, ReplicaInfo
from headrace.common.types import TopicPartition
from headrace.console.moves import Moves
from headrace.testing.clock import ManualClock

TP = TopicPartition("orders", 0)


class Admin:
    """Stands for an admin client. Broker 1 has the partition, broker 2 copies it."""

    def __init__(self) -> None:
        self.copied = 0
        self.calls = 0

    async def describe_log_dirs(self, partitions: Any, timeout_ms: float) -> dict[int, list[LogDirDescription]]:
        self.calls += 1
        assert partitions == {"orders": [0]}
        return {
            1: [LogDirDescription(1, "/a", {TP: ReplicaInfo(1000, 0)})],
            2: [LogDirDescription(2, "/a", {TP: ReplicaInfo(self.copied, 0)})],
        }


def test_progress_and_the_remaining_time() -> None:
    async def run() -> None:
        clock, admin = ManualClock(), Admin()
        moves = Moves(admin, clock)
        ongoing = {TP: OngoingReassignment((1, 2), (2,), (1,))}
        assert (await moves.progress(ongoing))[TP] == (0, 1000, None)
        assert (await moves.progress(ongoing))[TP] == (0, 1000, None)
        assert admin.calls == 1
        clock.advance(10_000)
        admin.copied = 250
        copied, total, remaining = (await moves.progress(ongoing))[TP]
        assert (copied, total) == (250, 1000)
        assert remaining == pytest.approx(30)
        clock.advance(10_000)
        admin.copied = 1000
        assert (await moves.progress(ongoing))[TP] == (1000, 1000, 0.0)
        assert await moves.progress({}) == {}

    asyncio.run(run())
