"""The Fetch request for a range of offsets."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.client.consumer.fetch_session_handler import RequestedPartition
from headrace.client.consumer.range_fetcher import fetch_once
from headrace.common.ids import Uuid
from headrace.common.types import TopicPartition


class RecordingPool:
    def __init__(self) -> None:
        self.sent: list[tuple[int, Any, dict[str, Any]]] = []

    async def send(self, node_id: int, request: Any, **options: Any) -> str:
        self.sent.append((node_id, request, options))
        return "response"


@pytest.mark.parametrize(("isolation_level", "code"), [("read_committed", 1), ("read_uncommitted", 0)])
@pytest.mark.parametrize(("version", "max_version"), [(17, None), (12, 12)])
def test_fetch_once(isolation_level: str, code: int, version: int, max_version: int | None) -> None:
    pool = RecordingPool()
    config = SimpleNamespace(isolation_level=isolation_level, client_rack="here")
    core: Any = SimpleNamespace(config=config, pool=pool)
    requested = {TopicPartition("t", 3): RequestedPartition(Uuid(int=7), 40, 1000, 4)}
    response: Any = asyncio.run(fetch_once(core, 2, version, requested, 250.9, 11, 22, "ranges"))
    assert response == "response"
    ((node_id, request, options),) = pool.sent
    assert (node_id, options) == (2, {"max_version": max_version, "purpose": "ranges"})
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (250, 11, 22)
    assert (request.isolation_level, request.rack_id) == (code, "here")
    assert (request.session_id, request.session_epoch) == (0, -1)
    (topic,) = request.topics
    (partition,) = topic.partitions
    assert (partition.partition, partition.fetch_offset, partition.partition_max_bytes) == (3, 40, 1000)
