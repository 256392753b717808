"""The controller's commands as requests of Kafka's protocol, in all versions, and brokers' results as responses.

- `encode_command` returns several requests only for a StopReplica below version 3, which can either delete all of its
  partitions or none.
- Kafka's requests cannot say that an UpdateMetadata has all partitions, except in version 8, where `type` is FULL.
  Kafka's controllers in ZooKeeper mode never set it, and its brokers ignore it from them.
- Before LeaderAndIsr 5 and UpdateMetadata 7 there are no topic ids; the decoded commands have the zero id then.
"""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from headrace.cluster.commands import (
    NO_EPOCH,
    BrokerEndpoint,
    BrokerInfo,
    Command,
    CommandResult,
    LeaderAndIsr,
    PartitionState,
    ReplicaToStop,
    StopReplica,
    UpdateMetadata,
)
from headrace.common.ids import ZERO_UUID, Uuid
from headrace.common.types import TopicPartition
from headrace.protocol import Message
from headrace.protocol.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    LeaderAndIsrTopicState,
)
from headrace.protocol.messages.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaPartitionState,
    StopReplicaPartitionV0,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
    StopReplicaTopicV1,
)
from headrace.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
    UpdateMetadataTopicState,
)

_T = TypeVar("_T", PartitionState, ReplicaToStop)

FULL = 2
"""The `type` of a request that has all partitions."""

_SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""By their number in Kafka's protocol."""
_FIRST_GROUPED_LEADER_AND_ISR = 2
_FIRST_RESPONSE_WITH_TOPIC_IDS = 5
_FIRST_GROUPED_STOP_REPLICA = 1
_FIRST_WITH_LEADER_EPOCH = 3
_FIRST_GROUPED_METADATA = 5
_FIRST_WITH_ENDPOINTS = 1
_FIRST_WITH_LISTENERS = 3


def encode_command(command: Command, version: int, live_leaders: Iterable[tuple[int, str, int]] = ()) -> list[Message]:
    """Returns the requests for a command. `live_leaders` are the ids and addresses of leaders, for a LeaderAndIsr."""
    if isinstance(command, LeaderAndIsr):
        return [_encode_leader_and_isr(command, version, live_leaders)]
    if isinstance(command, UpdateMetadata):
        return [_encode_update_metadata(command, version)]
    return list(_encode_stop_replica(command, version))


def decode_result(command: Command, responses: Iterable[Message]) -> CommandResult:
    """Returns a broker's result from its responses to the requests of a command."""
    code = 0
    errors: dict[TopicPartition, int] = {}
    for response in responses:
        code = code or response.error_code  # type: ignore[attr-defined]
        if isinstance(response, LeaderAndIsrResponse):
            names = {
                state.topic_id: state.tp.topic for state in command.partitions if isinstance(state, PartitionState)
            }
            for partition in response.partition_errors:
                errors[TopicPartition(partition.topic_name, partition.partition_index)] = partition.error_code
            for topic in response.topics:
                if (name := names.get(topic.topic_id)) is not None:
                    for partition in topic.partition_errors:
                        errors[TopicPartition(name, partition.partition_index)] = partition.error_code
        elif isinstance(response, StopReplicaResponse):
            for stopped in response.partition_errors:
                errors[TopicPartition(stopped.topic_name, stopped.partition_index)] = stopped.error_code
    return CommandResult(code, {tp: error for tp, error in errors.items() if error})


# ---- LeaderAndIsr


def _encode_leader_and_isr(
    command: LeaderAndIsr, version: int, live_leaders: Iterable[tuple[int, str, int]]
) -> LeaderAndIsrRequest:
    request = LeaderAndIsrRequest(
        controller_id=command.controller_id,
        controller_epoch=command.controller_epoch,
        broker_epoch=command.broker_epoch,
        live_leaders=[
            LeaderAndIsrLiveLeader(broker_id=leader, host_name=host, port=port) for leader, host, port in live_leaders
        ],
    )
    if version < _FIRST_GROUPED_LEADER_AND_ISR:
        request.ungrouped_partition_states = [_leader_and_isr_state(state) for state in command.partitions]
    else:
        request.topic_states = [
            LeaderAndIsrTopicState(
                topic_name=topic,
                topic_id=states[0].topic_id,
                partition_states=[_leader_and_isr_state(state) for state in states],
            )
            for topic, states in _by_topic(command.partitions).items()
        ]
    return request


def _leader_and_isr_state(state: PartitionState) -> LeaderAndIsrPartitionState:
    return LeaderAndIsrPartitionState(
        topic_name=state.tp.topic,
        partition_index=state.tp.partition,
        controller_epoch=state.controller_epoch,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        partition_epoch=state.partition_epoch,
        replicas=list(state.replicas),
        adding_replicas=list(state.adding),
        removing_replicas=list(state.removing),
        is_new=state.is_new,
        leader_recovery_state=state.leader_recovery_state,
    )


def decode_leader_and_isr(request: LeaderAndIsrRequest) -> LeaderAndIsr:
    def decode(state: LeaderAndIsrPartitionState, topic: str, topic_id: Uuid) -> PartitionState:
        return PartitionState(
            tp=TopicPartition(topic, state.partition_index),
            topic_id=topic_id,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=tuple(state.isr),
            partition_epoch=state.partition_epoch,
            replicas=tuple(state.replicas),
            adding=tuple(state.adding_replicas),
            removing=tuple(state.removing_replicas),
            is_new=state.is_new,
            controller_epoch=state.controller_epoch,
            leader_recovery_state=state.leader_recovery_state,
        )

    states = [decode(state, state.topic_name, ZERO_UUID) for state in request.ungrouped_partition_states]
    for topic in request.topic_states:
        states += [decode(state, topic.topic_name, topic.topic_id) for state in topic.partition_states]
    return LeaderAndIsr(request.controller_id, request.controller_epoch, request.broker_epoch, states)


def leader_and_isr_response(command: LeaderAndIsr, result: CommandResult, version: int) -> LeaderAndIsrResponse:
    response = LeaderAndIsrResponse(error_code=result.error_code)
    if version < _FIRST_RESPONSE_WITH_TOPIC_IDS:
        response.partition_errors = [_leader_and_isr_error(state, result) for state in command.partitions]
    else:
        response.topics = [
            LeaderAndIsrTopicError(
                topic_id=states[0].topic_id,
                partition_errors=[_leader_and_isr_error(state, result) for state in states],
            )
            for states in _by_topic(command.partitions).values()
        ]
    return response


def _leader_and_isr_error(state: PartitionState, result: CommandResult) -> LeaderAndIsrPartitionError:
    return LeaderAndIsrPartitionError(
        topic_name=state.tp.topic, partition_index=state.tp.partition, error_code=result.error_of(state.tp)
    )


# ---- StopReplica


def _encode_stop_replica(command: StopReplica, version: int) -> Iterator[StopReplicaRequest]:
    if version >= _FIRST_WITH_LEADER_EPOCH:
        request = _stop_replica_request(command)
        request.topic_states = [
            StopReplicaTopicState(
                topic_name=topic,
                partition_states=[
                    StopReplicaPartitionState(
                        partition_index=replica.tp.partition,
                        leader_epoch=replica.leader_epoch,
                        delete_partition=replica.delete,
                    )
                    for replica in replicas
                ],
            )
            for topic, replicas in _by_topic(command.partitions).items()
        ]
        yield request
        return
    for delete in (False, True):
        replicas = [replica for replica in command.partitions if replica.delete == delete]
        if not replicas:
            continue
        request = _stop_replica_request(command)
        request.delete_partitions = delete
        if version < _FIRST_GROUPED_STOP_REPLICA:
            request.ungrouped_partitions = [
                StopReplicaPartitionV0(topic_name=replica.tp.topic, partition_index=replica.tp.partition)
                for replica in replicas
            ]
        else:
            request.topics = [
                StopReplicaTopicV1(name=topic, partition_indexes=[replica.tp.partition for replica in of_topic])
                for topic, of_topic in _by_topic(replicas).items()
            ]
        yield request


def _stop_replica_request(command: StopReplica) -> StopReplicaRequest:
    return StopReplicaRequest(
        controller_id=command.controller_id,
        controller_epoch=command.controller_epoch,
        broker_epoch=command.broker_epoch,
    )


def decode_stop_replica(request: StopReplicaRequest) -> StopReplica:
    replicas = [
        ReplicaToStop(TopicPartition(old.topic_name, old.partition_index), NO_EPOCH, request.delete_partitions)
        for old in request.ungrouped_partitions
    ]
    for topic in request.topics:
        replicas += [
            ReplicaToStop(TopicPartition(topic.name, partition), NO_EPOCH, request.delete_partitions)
            for partition in topic.partition_indexes
        ]
    for state in request.topic_states:
        replicas += [
            ReplicaToStop(
                TopicPartition(state.topic_name, partition.partition_index),
                partition.leader_epoch,
                partition.delete_partition,
            )
            for partition in state.partition_states
        ]
    return StopReplica(request.controller_id, request.controller_epoch, request.broker_epoch, replicas)


def stop_replica_response(command: StopReplica, result: CommandResult) -> StopReplicaResponse:
    return StopReplicaResponse(
        error_code=result.error_code,
        partition_errors=[
            StopReplicaPartitionError(
                topic_name=replica.tp.topic,
                partition_index=replica.tp.partition,
                error_code=result.error_of(replica.tp),
            )
            for replica in command.partitions
        ],
    )


# ---- UpdateMetadata


def _encode_update_metadata(command: UpdateMetadata, version: int) -> UpdateMetadataRequest:
    request = UpdateMetadataRequest(
        controller_id=command.controller_id,
        controller_epoch=command.controller_epoch,
        broker_epoch=command.broker_epoch,
        live_brokers=[_encode_broker(broker) for broker in command.brokers],
        type=FULL if command.full else 0,
    )
    if version < _FIRST_GROUPED_METADATA:
        request.ungrouped_partition_states = [_metadata_state(state) for state in command.partitions]
    else:
        request.topic_states = [
            UpdateMetadataTopicState(
                topic_name=topic,
                topic_id=states[0].topic_id,
                partition_states=[_metadata_state(state) for state in states],
            )
            for topic, states in _by_topic(command.partitions).items()
        ]
    return request


def _encode_broker(broker: BrokerInfo) -> UpdateMetadataBroker:
    first = broker.endpoints[0] if broker.endpoints else BrokerEndpoint("", "", -1)
    return UpdateMetadataBroker(
        id=broker.id,
        v0_host=first.host,
        v0_port=first.port,
        endpoints=[
            UpdateMetadataEndpoint(
                port=endpoint.port,
                host=endpoint.host,
                listener=endpoint.listener,
                security_protocol=_SECURITY_PROTOCOLS.index(endpoint.security_protocol),
            )
            for endpoint in broker.endpoints
        ],
        rack=broker.rack,
    )


def _metadata_state(state: PartitionState) -> UpdateMetadataPartitionState:
    return UpdateMetadataPartitionState(
        topic_name=state.tp.topic,
        partition_index=state.tp.partition,
        controller_epoch=state.controller_epoch,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        zk_version=state.partition_epoch,
        replicas=list(state.replicas),
        offline_replicas=list(state.offline_replicas),
    )


def decode_update_metadata(request: UpdateMetadataRequest, version: int) -> UpdateMetadata:
    def decode(state: UpdateMetadataPartitionState, topic: str, topic_id: Uuid) -> PartitionState:
        return PartitionState(
            tp=TopicPartition(topic, state.partition_index),
            topic_id=topic_id,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=tuple(state.isr),
            partition_epoch=state.zk_version,
            replicas=tuple(state.replicas),
            offline_replicas=tuple(state.offline_replicas),
            controller_epoch=state.controller_epoch,
        )

    states = [decode(state, state.topic_name, ZERO_UUID) for state in request.ungrouped_partition_states]
    for topic in request.topic_states:
        states += [decode(state, topic.topic_name, topic.topic_id) for state in topic.partition_states]
    return UpdateMetadata(
        request.controller_id,
        request.controller_epoch,
        request.broker_epoch,
        [_decode_broker(broker, version) for broker in request.live_brokers],
        states,
        full=request.type == FULL,
    )


def _decode_broker(broker: UpdateMetadataBroker, version: int) -> BrokerInfo:
    if version < _FIRST_WITH_ENDPOINTS:
        return BrokerInfo(broker.id, (BrokerEndpoint("PLAINTEXT", broker.v0_host, broker.v0_port),))
    endpoints = []
    for endpoint in broker.endpoints:
        number = endpoint.security_protocol
        protocol = _SECURITY_PROTOCOLS[number] if 0 <= number < len(_SECURITY_PROTOCOLS) else f"UNKNOWN_{number}"
        # Before listeners had names, they were called as their security protocol.
        listener = endpoint.listener if version >= _FIRST_WITH_LISTENERS else protocol
        endpoints.append(BrokerEndpoint(listener, endpoint.host, endpoint.port, protocol))
    return BrokerInfo(broker.id, tuple(endpoints), broker.rack or None)


def update_metadata_response(result: CommandResult) -> UpdateMetadataResponse:
    return UpdateMetadataResponse(error_code=result.error_code)


def _by_topic(partitions: Iterable[_T]) -> dict[str, list[_T]]:
    topics: dict[str, list[_T]] = {}
    for partition in partitions:
        topics.setdefault(partition.tp.topic, []).append(partition)
    return topics
