"""AlterPartition: the leader of partitions proposes new in-sync replicas to the controller (KIP-497).

Behavior:
- Any other broker than the active controller responds with NOT_CONTROLLER. A broker that has registered again since
  gets STALE_BROKER_EPOCH.
- The controller writes the ISR only if leader epoch and partition epoch are current. The response has the new state.

Version notes (0 to 3): 1 has the recovery state of leaders (KIP-704), 2 topic ids and INELIGIBLE_REPLICA, in place of
OPERATION_NOT_ATTEMPTED (KIP-841), 3 the broker epochs of replicas (KIP-903).
"""

from collections.abc import Iterable

from headrace.broker.apis import api
from headrace.broker.dispatch import RequestContext
from headrace.broker.required_rights import requires_cluster
from headrace.cluster.controller import Controller
from headrace.cluster.controller_requests import IsrChange
from headrace.cluster.metadata_image import MetadataImage
from headrace.cluster.znodes import Leadership
from headrace.common.errors import (
    IneligibleReplicaError,
    KafkaError,
    OperationNotAttemptedError,
    UnknownTopicIdError,
)
from headrace.common.types import TopicPartition
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionDataRequest,
    PartitionDataResponse,
    TopicDataRequest,
    TopicDataResponse,
)
from headrace.security.acls import Operation

_FIRST_WITH_TOPIC_IDS = 2
_FIRST_WITH_BROKER_EPOCHS = 3


@api(ApiKey.ALTER_PARTITION, 0, 3, needs=requires_cluster(Operation.CLUSTER_ACTION))
async def handle(
    request: AlterPartitionRequest, context: RequestContext, *, controller: Controller, image: MetadataImage
) -> AlterPartitionResponse:
    version = context.api_version
    try:
        names = await _names_of(request.topics, version, image, controller)
        changes = {
            TopicPartition(name, partition.partition_index): _change(partition, topic, version)
            for name, topic in zip(names, request.topics, strict=True)
            if name is not None
            for partition in topic.partitions
        }
        results = await controller.alter_isr(request.broker_id, request.broker_epoch, changes)
    except KafkaError as error:
        return AlterPartitionResponse(error_code=error.code)
    return AlterPartitionResponse(
        topics=[
            TopicDataResponse(
                topic_name=topic.topic_name,
                topic_id=topic.topic_id,
                partitions=[
                    _partition_response(partition.partition_index, name, results, version)
                    for partition in topic.partitions
                ],
            )
            for name, topic in zip(names, request.topics, strict=True)
        ]
    )


async def _names_of(
    topics: Iterable[TopicDataRequest], version: int, image: MetadataImage, controller: Controller
) -> list[str | None]:
    """Returns the names of topics, None for topics that do not exist.

    The image of this broker may not have a topic yet that the controller knows. The leader would take the error as
    final: it waits for another command of the controller, which would never come.
    """
    if version < _FIRST_WITH_TOPIC_IDS:
        return [topic.topic_name for topic in topics]
    names = {topic.topic_id: image.topic_name(topic.topic_id) for topic in topics}
    unknown = {topic_id for topic_id, name in names.items() if name is None}
    if unknown:
        names |= await controller.topic_names(unknown)
    return [names[topic.topic_id] for topic in topics]


def _change(partition: PartitionDataRequest, topic: TopicDataRequest, version: int) -> IsrChange:
    isr = tuple(partition.new_isr)
    broker_epochs: tuple[int, ...] = ()
    if version >= _FIRST_WITH_BROKER_EPOCHS:
        isr = tuple(replica.broker_id for replica in partition.new_isr_with_epochs)
        broker_epochs = tuple(replica.broker_epoch for replica in partition.new_isr_with_epochs)
    return IsrChange(
        partition.leader_epoch,
        partition.partition_epoch,
        isr,
        broker_epochs,
        partition.leader_recovery_state,
        topic.topic_id if version >= _FIRST_WITH_TOPIC_IDS else None,
    )


def _partition_response(
    index: int, name: str | None, results: dict[TopicPartition, Leadership | KafkaError], version: int
) -> PartitionDataResponse:
    if name is None:
        return PartitionDataResponse(partition_index=index, error_code=UnknownTopicIdError.code)
    result = results[TopicPartition(name, index)]
    if isinstance(result, KafkaError):
        is_unknown_to_client = version < _FIRST_WITH_TOPIC_IDS and isinstance(result, IneligibleReplicaError)
        code = OperationNotAttemptedError.code if is_unknown_to_client else result.code
        return PartitionDataResponse(partition_index=index, error_code=code)
    return PartitionDataResponse(
        partition_index=index,
        leader_id=result.leader,
        leader_epoch=result.leader_epoch,
        isr=list(result.isr),
        leader_recovery_state=result.leader_recovery_state,
        partition_epoch=result.partition_epoch,
    )
