"""Partitions on brokers: reassign them, elect their leaders. Owner: the loop."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from headrace.client.admin.base import AdminBase, by_topic
from headrace.client.admin.types import (
    AlteredReassignment,
    ElectedLeader,
    ElectionType,
    OngoingReassignment,
    Results,
    to_enum,
)
from headrace.client.arguments import AnyPartition, PartitionLike, to_partition_keys, to_partitions
from headrace.client.errors import check, error_for
from headrace.common.errors import ElectionNotNeededError, NotControllerError
from headrace.common.types import TopicPartition
from headrace.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from headrace.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from headrace.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)

Partitions: TypeAlias = Mapping[str, Iterable[int]] | Iterable[PartitionLike]
"""Partitions by topic, or a list of them."""


class ReassignmentsAdmin(AdminBase):
    """The calls about the placement of partitions."""

    async def alter_partition_reassignments(
        self,
        reassignments: Mapping[AnyPartition, Sequence[int] | None],
        timeout_ms: float | None = None,
        *,
        allow_replication_factor_change: bool = True,
        raise_errors: bool = True,
    ) -> Results[TopicPartition, AlteredReassignment]:
        """Starts to move partitions to other brokers (KIP-455). None cancels a reassignment.

        Returns when the reassignments have started. `list_partition_reassignments` has those that are not done yet.
        """
        targets = to_partition_keys(reassignments, "reassignments")
        total_ms = self._timeout_ms(timeout_ms)

        async def attempt(tps: list[TopicPartition]) -> dict[TopicPartition, AlteredReassignment]:
            request = AlterPartitionReassignmentsRequest(
                timeout_ms=int(min(total_ms, self.core.config.request_timeout_ms)),
                allow_replication_factor_change=allow_replication_factor_change,
                topics=[
                    ReassignableTopic(
                        name=topic,
                        partitions=[
                            ReassignablePartition(
                                partition_index=index, replicas=_list(targets[TopicPartition(topic, index)])
                            )
                            for index in indexes
                        ],
                    )
                    for topic, indexes in by_topic(tps).items()
                ],
            )
            response: AlterPartitionReassignmentsResponse = await self._to_controller(
                request, min_version=None if allow_replication_factor_change else 1
            )
            await self._check_controller(response.error_code, response.error_message)
            return {
                TopicPartition(topic.name, partition.partition_index): AlteredReassignment(
                    error_for(
                        partition.error_code,
                        partition.error_message,
                        about=f"Partition {topic.name}-{partition.partition_index}",
                    )
                )
                for topic in response.responses
                for partition in topic.partitions
            }

        return await self._call_for_items(targets, attempt, total_ms, "altering reassignments", raise_errors)

    async def list_partition_reassignments(
        self, topic_partitions: Partitions | None = None, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OngoingReassignment]:
        """Returns the reassignments in progress: all, or those of some partitions."""
        total_ms = self._timeout_ms(timeout_ms)
        topics = None
        if topic_partitions is not None:
            topics = [
                ListPartitionReassignmentsTopics(name=topic, partition_indexes=indexes)
                for topic, indexes in by_topic(_partitions(topic_partitions)).items()
            ]

        async def attempt() -> dict[TopicPartition, OngoingReassignment]:
            response: ListPartitionReassignmentsResponse = await self._to_controller(
                ListPartitionReassignmentsRequest(
                    timeout_ms=int(min(total_ms, self.core.config.request_timeout_ms)), topics=topics
                )
            )
            await self._check_controller(response.error_code, response.error_message)
            return {
                TopicPartition(topic.name, partition.partition_index): OngoingReassignment(
                    tuple(partition.replicas), tuple(partition.adding_replicas), tuple(partition.removing_replicas)
                )
                for topic in response.topics
                for partition in topic.partitions
            }

        return await self._call_with_retries(attempt, total_ms, "listing reassignments")

    async def elect_leaders(
        self,
        election_type: ElectionType | str | int,
        topic_partitions: Partitions | Iterable[str] | None = None,
        timeout_ms: float | None = None,
        raise_errors: bool = True,
    ) -> Results[TopicPartition, ElectedLeader]:
        """Elects preferred leaders, or with ElectionType.UNCLEAN a live replica for partitions without leader.

        An unclean leader may lack acknowledged records; they are lost. `topic_partitions` are partitions or names of
        topics. Without them, elects for all partitions, and returns only those that needed it. A partition that has
        the right leader gets ElectionNotNeededError.
        """
        election = to_enum(ElectionType, election_type, "election_type")
        total_ms = self._timeout_ms(timeout_ms)

        async def send(tps: list[TopicPartition] | None) -> dict[TopicPartition, ElectedLeader]:
            response: ElectLeadersResponse = await self._to_controller(
                ElectLeadersRequest(
                    election_type=election,
                    topic_partitions=None
                    if tps is None
                    else [TopicPartitions(topic=topic, partitions=indexes) for topic, indexes in by_topic(tps).items()],
                    timeout_ms=int(min(total_ms, self.core.config.request_timeout_ms)),
                ),
                min_version=1 if election is ElectionType.UNCLEAN else None,
            )
            check(response.error_code)
            results = {
                TopicPartition(topic.topic, partition.partition_id): ElectedLeader(
                    error_for(
                        partition.error_code,
                        partition.error_message,
                        about=f"Partition {topic.topic}-{partition.partition_id}",
                    )
                )
                for topic in response.replica_election_results
                for partition in topic.partition_result
            }
            await self._refresh_controller(result.error for result in results.values())
            return results

        if topic_partitions is not None:
            return await self._call_for_items(
                await self._partitions_of(topic_partitions, total_ms),
                send,
                total_ms,
                "electing leaders",
                raise_errors,
                (NotControllerError,),
            )

        async def send_for_all() -> dict[TopicPartition, ElectedLeader]:
            results = await send(None)
            for result in results.values():
                if isinstance(result.error, NotControllerError):
                    raise result.error
            return results

        results = await self._call_with_retries(send_for_all, total_ms, "electing leaders")
        needed: Results[TopicPartition, ElectedLeader] = Results(
            (tp, result) for tp, result in results.items() if not isinstance(result.error, ElectionNotNeededError)
        )
        if raise_errors:
            needed.raise_errors()
        return needed

    async def _partitions_of(self, partitions: Partitions | Iterable[str], timeout_ms: float) -> list[TopicPartition]:
        """Returns partitions; those of a topic if only its name is given."""
        if isinstance(partitions, Mapping):
            return _partitions(partitions)
        names: list[str] = []
        listed: list[PartitionLike] = []
        for item in partitions:
            if isinstance(item, str):
                names.append(item)
            else:
                listed.append(item)
        found = to_partitions(listed)
        if names:
            view = await self.core.metadata.update(names, timeout_ms)
            found += [TopicPartition(name, index) for name in names for index in range(view.partition_count(name) or 0)]
        return found

    async def _check_controller(self, error_code: int, error_message: str | None) -> None:
        error = error_for(error_code, error_message)
        if error is not None:
            await self._refresh_controller([error])
            raise error


def _list(replicas: Sequence[int] | None) -> list[int] | None:
    return None if replicas is None else list(replicas)


def _partitions(partitions: Partitions) -> list[TopicPartition]:
    if isinstance(partitions, Mapping):
        return [TopicPartition(topic, index) for topic, indexes in partitions.items() for index in indexes]
    return to_partitions(partitions)
