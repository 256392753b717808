"""ElectLeaders: makes the preferred replica leader, or any live one of a partition without leader (KIP-183, KIP-460).

Behavior:
- Any other broker than the active controller responds with NOT_CONTROLLER, for each partition as Kafka does.
- Null partitions request an election for all partitions. The response has only those that needed one.
- The response waits until this broker's metadata has the new leaders. After `timeout_ms` such a partition gets
  REQUEST_TIMED_OUT, but it has the new leader.

Version notes (0 to 2): 1 has the election type and an error for the whole response (0: preferred), 2 is flexible.
"""

from collections.abc import Iterable, Mapping

from headrace.broker.apis import api
from headrace.broker.dispatch import RequestContext
from headrace.broker.required_rights import denied, on_cluster, requires
from headrace.broker.rights import is_allowed_on_cluster
from headrace.broker.topic_waits import wait_for_image
from headrace.cluster.controller import Controller
from headrace.cluster.leader_election import Election
from headrace.cluster.metadata_image import MetadataImage
from headrace.common.clock import Clock
from headrace.common.errors import (
    InvalidRequestError,
    KafkaError,
    RequestTimedOutError,
    message_of,
)
from headrace.common.types import TopicPartition
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from headrace.security.acls import Operation, ResourceType

_ELECTIONS = {0: Election.PREFERRED_REPLICA, 1: Election.UNCLEAN}


@api(ApiKey.ELECT_LEADERS, 0, 2, needs=requires(on_cluster(Operation.ALTER)))
async def handle(
    request: ElectLeadersRequest,
    context: RequestContext,
    *,
    clock: Clock,
    controller: Controller,
    image: MetadataImage,
) -> ElectLeadersResponse:
    deadline = clock.monotonic() + request.timeout_ms / 1000
    election = _ELECTIONS.get(request.election_type if context.api_version > 0 else 0)
    if election is None:
        return ElectLeadersResponse(error_code=InvalidRequestError.code)
    requested = None
    if request.topic_partitions is not None:
        requested = []
        for topic in request.topic_partitions:
            await context.give_way()
            for index in topic.partitions:
                requested.append(TopicPartition(topic.topic, index))
                await context.give_way()
    if not is_allowed_on_cluster(context, Operation.ALTER):
        return await _denied(context, requested or ())
    try:
        results = await controller.elect_leaders(election, requested)
    except KafkaError as error:
        failed = [state.tp for state in image.partitions()] if requested is None else requested
        return await _response(context, dict.fromkeys(failed, error))
    expected = {
        tp: state.leader_epoch
        for tp, error in results.items()
        if error is None and (state := controller.context.leaderships.get(tp)) is not None
    }

    def is_done(image: MetadataImage, tp: TopicPartition) -> bool:
        state = image.partition(*tp)
        return state is None or state.leader_epoch >= expected[tp]

    for tp in await wait_for_image(image, clock, expected, is_done, deadline):
        results[tp] = RequestTimedOutError(f"This broker does not know the new leader of {tp} yet.")
    return await _response(context, results)


async def _denied(context: RequestContext, requested: Iterable[TopicPartition]) -> ElectLeadersResponse:
    error = denied(ResourceType.CLUSTER)
    response = await _response(context, dict.fromkeys(requested, error))
    response.error_code = error.code
    return response


async def _response(
    context: RequestContext, results: Mapping[TopicPartition, KafkaError | None]
) -> ElectLeadersResponse:
    topics: dict[str, ReplicaElectionResult] = {}
    for tp, error in results.items():
        topic = topics.setdefault(tp.topic, ReplicaElectionResult(topic=tp.topic))
        topic.partition_result.append(
            PartitionResult(partition_id=tp.partition)
            if error is None
            else PartitionResult(partition_id=tp.partition, error_code=error.code, error_message=message_of(error))
        )
        await context.give_way()
    return ElectLeadersResponse(replica_election_results=list(topics.values()))
