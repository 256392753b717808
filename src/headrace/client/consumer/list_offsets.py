"""Looks up offsets by timestamp with ListOffsets requests to the partition leaders.

Runs on the event loop. `list_offsets_once` sends one round of requests and separates results from errors.
`list_offsets` retries until it has every offset or the timeout expires.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headrace.client.consumer.partition_state import EARLIEST, LATEST
from headrace.client.errors import KafkaTimeoutError, error_for, is_stale_metadata
from headrace.client.metadata import Metadata
from headrace.client.metadata_cache import ClusterView
from headrace.common.backoff import Backoff
from headrace.common.errors import KafkaError, LeaderNotAvailableError, UnknownTopicOrPartitionError
from headrace.common.types import TopicPartition
from headrace.net.broker_pool import BrokerPool
from headrace.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

__all__ = ["EARLIEST", "LATEST", "ListOffsetData", "group_by_leader", "list_offsets", "list_offsets_once"]

_CONSUMER = -1
_MAX_TIMESTAMP = -3
_FIRST_VERSION_WITH_MAX_TIMESTAMP = 7


class ListOffsetData(NamedTuple):
    """The result of ListOffsets for one partition."""

    offset: int
    """-1 if no record has this timestamp or a later one."""
    timestamp: int
    leader_epoch: int


ListOffsetsResult = tuple[dict[TopicPartition, ListOffsetData], dict[TopicPartition, KafkaError]]


def group_by_leader(
    view: ClusterView, tps: Iterable[TopicPartition]
) -> tuple[dict[int, list[TopicPartition]], dict[TopicPartition, KafkaError]]:
    """Returns partitions by the node id of their leader, and the errors of partitions without a known leader."""
    nodes: dict[int, list[TopicPartition]] = {}
    errors: dict[TopicPartition, KafkaError] = {}
    for tp in tps:
        topic = view.topic(tp.topic)
        info = view.partition(tp)
        if info is not None and info.leader in view.nodes:
            nodes.setdefault(info.leader, []).append(tp)
        elif topic is not None and topic.error is not None:
            errors[tp] = topic.error(f"topic {tp.topic}: {(topic.error.__doc__ or '').strip()}")
        elif topic is not None and info is None:
            errors[tp] = UnknownTopicOrPartitionError(f"topic {tp.topic} has no partition {tp.partition}")
        else:
            errors[tp] = LeaderNotAvailableError(f"partition {tp} has no leader at the moment")
    return nodes, errors


async def list_offsets_once(
    pool: BrokerPool, view: ClusterView, timestamps: Mapping[TopicPartition, int], read_committed: bool
) -> ListOffsetsResult:
    """Requests the offsets at timestamps (or EARLIEST, or LATEST) from each leader once."""
    nodes, errors = group_by_leader(view, timestamps)
    offsets: dict[TopicPartition, ListOffsetData] = {}
    results = await asyncio.gather(
        *(
            _send(pool, view, node_id, {tp: timestamps[tp] for tp in tps}, read_committed)
            for node_id, tps in nodes.items()
        )
    )
    for listed, failed in results:
        offsets.update(listed)
        errors.update(failed)
    return offsets, errors


async def _send(
    pool: BrokerPool, view: ClusterView, node_id: int, timestamps: dict[TopicPartition, int], read_committed: bool
) -> ListOffsetsResult:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for tp, timestamp in timestamps.items():
        topics.setdefault(tp.topic, []).append(
            ListOffsetsPartition(
                partition_index=tp.partition, current_leader_epoch=view.leader_epoch(tp), timestamp=timestamp
            )
        )
    request = ListOffsetsRequest(
        replica_id=_CONSUMER,
        isolation_level=1 if read_committed else 0,
        topics=[ListOffsetsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
        timeout_ms=int(pool.config.request_timeout_ms),
    )
    min_version = _FIRST_VERSION_WITH_MAX_TIMESTAMP if _MAX_TIMESTAMP in timestamps.values() else None
    try:
        response: ListOffsetsResponse = await pool.send(node_id, request, min_version=min_version)
    except KafkaError as error:
        return {}, dict.fromkeys(timestamps, error)
    offsets: dict[TopicPartition, ListOffsetData] = {}
    errors: dict[TopicPartition, KafkaError] = {}
    for topic in response.topics:
        for partition in topic.partitions:
            tp = TopicPartition(topic.name, partition.partition_index)
            failed = error_for(partition.error_code)
            if failed is not None:
                errors[tp] = failed
            else:
                offsets[tp] = ListOffsetData(partition.offset, partition.timestamp, partition.leader_epoch)
    return offsets, errors


async def list_offsets(
    pool: BrokerPool,
    metadata: Metadata,
    timestamps: Mapping[TopicPartition, int],
    *,
    read_committed: bool,
    timeout_ms: float,
    backoff: Backoff,
) -> dict[TopicPartition, ListOffsetData]:
    """Returns the offset of every partition. Retries retriable errors. Raises the first other error, or
    KafkaTimeoutError."""
    missing = dict(timestamps)
    offsets: dict[TopicPartition, ListOffsetData] = {}
    errors: dict[TopicPartition, KafkaError] = {}
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_ms / 1000
    attempt = 0
    for name in sorted({tp.topic for tp in missing}):
        await metadata.topic(name, max(1.0, (deadline - loop.time()) * 1000))
    try:
        async with asyncio.timeout_at(deadline):
            while True:
                listed, errors = await list_offsets_once(pool, metadata.view, missing, read_committed)
                offsets.update(listed)
                missing = {tp: timestamp for tp, timestamp in missing.items() if tp not in listed}
                if not missing:
                    return offsets
                for error in errors.values():
                    if not error.retriable:
                        raise error
                stale = {tp.topic for tp in missing if tp not in errors or is_stale_metadata(errors[tp])}
                metadata.request_update(stale)
                await asyncio.sleep(backoff.wait_seconds(attempt))
                attempt += 1
    except TimeoutError as error:
        if isinstance(error, KafkaError):
            raise
        tp = min(missing)
        reason = errors.get(tp)
        if isinstance(reason, UnknownTopicOrPartitionError):
            raise reason from None
        last_error = f"; the last error: {reason}" if reason is not None else ""
        raise KafkaTimeoutError(
            f"Failed to get offsets by times in {timeout_ms:.0f} ms: no offset for partition {tp}{last_error}"
        ) from None
