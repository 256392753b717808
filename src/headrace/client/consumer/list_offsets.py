"""Looks up offsets by timestamp with ListOffsets requests to the partition leaders.

Runs on the event loop. `list_offsets_once` sends one round of requests and separates results from errors;
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
_NEWEST_TIMESTAMP = -3
_FIRST_WITH_NEWEST_TIMESTAMP = 7


class ListOffsetData(NamedTuple):
    offset: int
    """-1 if no record is as new as was asked for."""
    timestamp: int
    leader_epoch: int


Answers = tuple[dict[TopicPartition, ListOffsetData], dict[TopicPartition, KafkaError]]


def group_by_leader(
    view: ClusterView, tps: Iterable[TopicPartition]
) -> tuple[dict[int, list[TopicPartition]], dict[TopicPartition, KafkaError]]:
    """Partitions by the broker to ask about them, and the errors of those that have none."""
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
            errors[tp] = LeaderNotAvailableError(f"partition {tp} has no leader now")
    return nodes, errors


async def list_offsets_once(
    pool: BrokerPool, view: ClusterView, wanted: Mapping[TopicPartition, int], read_committed: bool
) -> Answers:
    """Asks each leader once for the offsets at timestamps (or EARLIEST, or LATEST)."""
    nodes, errors = group_by_leader(view, wanted)
    found: dict[TopicPartition, ListOffsetData] = {}
    replies = await asyncio.gather(
        *(_ask(pool, view, node_id, {tp: wanted[tp] for tp in tps}, read_committed) for node_id, tps in nodes.items())
    )
    for answered, failed in replies:
        found.update(answered)
        errors.update(failed)
    return found, errors


async def _ask(
    pool: BrokerPool, view: ClusterView, node_id: int, wanted: dict[TopicPartition, int], read_committed: bool
) -> Answers:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for tp, timestamp in wanted.items():
        topics.setdefault(tp.topic, []).append(
            ListOffsetsPartition(
                partition_index=tp.partition, current_leader_epoch=view.leader_epoch(tp), timestamp=timestamp
            )
        )
    request = ListOffsetsRequest(
        replica_id=_CONSUMER,
        isolation_level=1 if read_committed else 0,
        topics=[ListOffsetsTopic(name=name, partitions=parts) for name, parts in topics.items()],
        timeout_ms=int(pool.settings.request_timeout_ms),
    )
    needed = _FIRST_WITH_NEWEST_TIMESTAMP if _NEWEST_TIMESTAMP in wanted.values() else None
    try:
        reply: ListOffsetsResponse = await pool.send(node_id, request, min_version=needed)
    except KafkaError as error:
        return {}, dict.fromkeys(wanted, error)
    found: dict[TopicPartition, ListOffsetData] = {}
    errors: dict[TopicPartition, KafkaError] = {}
    for topic in reply.topics:
        for part in topic.partitions:
            tp = TopicPartition(topic.name, part.partition_index)
            failed = error_for(part.error_code)
            if failed is not None:
                errors[tp] = failed
            else:
                found[tp] = ListOffsetData(part.offset, part.timestamp, part.leader_epoch)
    return found, errors


async def list_offsets(
    pool: BrokerPool,
    metadata: Metadata,
    wanted: Mapping[TopicPartition, int],
    *,
    read_committed: bool,
    timeout_ms: float,
    backoff: Backoff,
) -> dict[TopicPartition, ListOffsetData]:
    """The offsets of all that is wanted. Raises the first error that another attempt would not mend, KafkaTimeoutError
    at last."""
    left = dict(wanted)
    found: dict[TopicPartition, ListOffsetData] = {}
    errors: dict[TopicPartition, KafkaError] = {}
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_ms / 1000
    attempt = 0
    for name in sorted({tp.topic for tp in left}):
        await metadata.topic(name, max(1.0, (deadline - loop.time()) * 1000))
    try:
        async with asyncio.timeout_at(deadline):
            while True:
                answered, errors = await list_offsets_once(pool, metadata.view, left, read_committed)
                found.update(answered)
                left = {tp: timestamp for tp, timestamp in left.items() if tp not in answered}
                if not left:
                    return found
                for error in errors.values():
                    if not error.retriable:
                        raise error
                stale = {tp.topic for tp in left if tp not in errors or is_stale_metadata(errors[tp])}
                metadata.request_update(stale)
                await asyncio.sleep(backoff.wait_seconds(attempt))
                attempt += 1
    except TimeoutError as error:
        if isinstance(error, KafkaError):
            raise
        tp = min(left)
        reason = errors.get(tp)
        if isinstance(reason, UnknownTopicOrPartitionError):
            raise reason from None
        why = f"; the last error: {reason}" if reason is not None else ""
        raise KafkaTimeoutError(f"no offset for {tp} in {timeout_ms:.0f} ms{why}") from None
