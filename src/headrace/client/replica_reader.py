"""Reads batches from chosen replicas, not only from leaders, for tools that compare replicas.

Owner: the loop. A replica returns the batches below its own high watermark. Fetches have version 11 or 12: from 11 on
followers serve consumers (KIP-392), and up to 12 topics have names.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.client.config.types import AdminConfig
from headrace.client.core import ClientCore
from headrace.client.errors import error_for
from headrace.common.errors import KafkaError
from headrace.common.types import Buffer, TopicPartition
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from headrace.records import split_batches

_FIRST_WITH_FOLLOWERS, _LAST_WITH_NAMES = 11, 12


class BatchChecksum(NamedTuple):
    """A record batch of a replica."""

    base_offset: int
    last_offset: int
    checksum: int


@dataclass(frozen=True, slots=True)
class ReplicaRead:
    """What a replica returned for a partition."""

    high_watermark: int = -1
    log_start_offset: int = -1
    batches: list[BatchChecksum] = field(default_factory=list)
    error: KafkaError | None = None


class ReplicaReader:
    """Fetches from replicas by broker."""

    def __init__(self, core: ClientCore[AdminConfig]):
        self._core = core

    async def fetch(
        self, broker_id: int, offsets: Mapping[TopicPartition, int], *, max_bytes: int, max_wait_ms: int
    ) -> dict[TopicPartition, ReplicaRead]:
        """Returns the batches from the given offsets on, of the replicas on one broker; at most `max_bytes` of each
        partition, but at least one batch of the first one."""
        topics: dict[str, list[FetchPartition]] = {}
        for tp, offset in offsets.items():
            topics.setdefault(tp.topic, []).append(
                FetchPartition(partition=tp.partition, fetch_offset=offset, partition_max_bytes=max_bytes)
            )
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            topics=[FetchTopic(topic=name, partitions=partitions) for name, partitions in topics.items()],
        )
        response: FetchResponse = await self._core.pool.send(
            broker_id, request, min_version=_FIRST_WITH_FOLLOWERS, max_version=_LAST_WITH_NAMES
        )
        error = error_for(response.error_code)
        if error is not None:
            raise error
        return {
            TopicPartition(topic.topic, data.partition_index): ReplicaRead(
                data.high_watermark,
                data.log_start_offset,
                [] if data.error_code else _batches(data.records),
                error_for(data.error_code),
            )
            for topic in response.responses
            for data in topic.partitions
        }


def _batches(records: object) -> list[BatchChecksum]:
    if not isinstance(records, bytes | bytearray | memoryview):
        return []
    data: Buffer = records
    return [
        BatchChecksum(batch.base_offset, batch.last_offset, batch.crc)
        for batch in split_batches(data, allow_partial=True)
    ]
