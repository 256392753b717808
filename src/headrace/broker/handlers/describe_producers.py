"""DescribeProducers: the producers of a partition, for finding hanging transactions (KIP-664). Version 0.

Behavior:
- Serves partitions on this broker. A producer is listed until `producer.id.expiration.ms` after its last batch.
"""

from headrace.broker.apis import api
from headrace.broker.config.broker import BrokerConfig
from headrace.broker.dispatch import RequestContext
from headrace.broker.replica_manager import ReplicaManager
from headrace.broker.required_rights import denied, on_topic, requires
from headrace.broker.rights import TopicRights
from headrace.broker.yielding import InTurns
from headrace.cluster.metadata_image import MetadataImage
from headrace.cluster.topics import check_topic_name
from headrace.common.errors import (
    HeadraceError,
    KafkaStorageError,
    NotLeaderForPartitionError,
    UnknownTopicOrPartitionError,
    code_of,
    message_of,
)
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from headrace.security.acls import Operation, ResourceType
from headrace.storage.log import Log

_NO_TRANSACTION = -1


@api(ApiKey.DESCRIBE_PRODUCERS, 0, 0, needs=requires(on_topic(Operation.READ, "each topic")))
def handle(
    request: DescribeProducersRequest,
    context: RequestContext,
    *,
    config: BrokerConfig,
    image: MetadataImage,
    replicas: ReplicaManager,
) -> InTurns[DescribeProducersResponse]:
    topics: list[TopicResponse] = []
    described: set[tuple[str, int]] = set()
    rights = TopicRights(context, Operation.READ)
    for topic in request.topics:
        if context.turn_is_over():
            yield
        topics.append(TopicResponse(name=topic.name, partitions=[]))
        for partition in topic.partition_indexes:
            # A partition can have very many producers, so a partition that the request repeats is described once.
            if (topic.name, partition) not in described:
                described.add((topic.name, partition))
                topics[-1].partitions.append(_describe(config, image, replicas, rights, topic.name, partition))
            if context.turn_is_over():
                yield
    return DescribeProducersResponse(topics=topics)


def _describe(
    config: BrokerConfig,
    image: MetadataImage,
    replicas: ReplicaManager,
    rights: TopicRights,
    topic: str,
    partition: int,
) -> PartitionResponse:
    try:
        check_topic_name(topic)
        if not rights.allows(topic):
            raise denied(ResourceType.TOPIC)
        log = _find_log(config, image, replicas, topic, partition)
    except HeadraceError as error:
        return PartitionResponse(partition_index=partition, error_code=code_of(error), error_message=message_of(error))
    return PartitionResponse(
        partition_index=partition,
        active_producers=[
            ProducerState(
                producer_id=entry.producer_id,
                producer_epoch=entry.epoch,
                last_sequence=entry.last_sequence,
                last_timestamp=entry.last_timestamp,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=(
                    _NO_TRANSACTION if entry.transaction_first_offset is None else entry.transaction_first_offset
                ),
            )
            for entry in log.producers.entries.values()
        ],
    )


def _find_log(config: BrokerConfig, image: MetadataImage, replicas: ReplicaManager, topic: str, index: int) -> Log:
    partition = replicas.get(topic, index)
    if partition is None:
        if image.partition(topic, index) is not None:
            raise NotLeaderForPartitionError(f"Broker {config.node_id} is not a replica of partition {topic}-{index}")
        raise UnknownTopicOrPartitionError(f"This server does not host this topic-partition. ({topic}-{index})")
    if partition.log is None:
        raise KafkaStorageError(f"The log directory of partition {topic}-{index} is offline")
    return partition.log
