"""The ends of partitions that other brokers lead, for the lag of groups that this broker coordinates."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable

from headrace.broker.inter_broker_client import InterBrokerClient
from headrace.cluster.metadata_image import MetadataImage
from headrace.common.errors import HeadraceError
from headrace.common.types import TopicPartition
from headrace.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

_logger = logging.getLogger(__name__)

_CONSUMER = -1
_LATEST = -1
_TIMEOUT_MS = 2000
_PURPOSE = "metrics"


async def remote_ends(
    client: InterBrokerClient, image: MetadataImage, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Asks the leaders for the ends of partitions. Leaves out those without an answer."""
    by_leader: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for topic, index in partitions:
        state = image.partition(topic, index)
        if state is not None and state.leader >= 0:
            by_leader[state.leader][topic].append(index)
    answers = await asyncio.gather(*(_ask(client, leader, topics) for leader, topics in by_leader.items()))
    return {tp: offset for answer in answers for tp, offset in answer.items()}


async def _ask(client: InterBrokerClient, leader: int, topics: dict[str, list[int]]) -> dict[TopicPartition, int]:
    request = ListOffsetsRequest(
        replica_id=_CONSUMER,
        topics=[
            ListOffsetsTopic(
                name=topic,
                partitions=[ListOffsetsPartition(partition_index=index, timestamp=_LATEST) for index in indexes],
            )
            for topic, indexes in topics.items()
        ],
        timeout_ms=_TIMEOUT_MS,
    )
    try:
        response: ListOffsetsResponse = await client.send(leader, request, purpose=_PURPOSE, timeout_ms=_TIMEOUT_MS)
    except HeadraceError as error:
        _logger.debug("Metrics: broker %d did not return the ends of its partitions: %s", leader, error)
        return {}
    return {
        TopicPartition(topic.name, partition.partition_index): partition.offset
        for topic in response.topics
        for partition in topic.partitions
        if not partition.error_code and partition.offset >= 0
    }
