"""The admin client's calls about groups, their offsets and their members. Owner: the loop."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar

from headrace.client.admin.base import MOVED_COORDINATOR, by_topic, gather, operations
from headrace.client.admin.partitions import PartitionsAdmin
from headrace.client.admin.types import (
    AlteredOffset,
    DeletedGroup,
    GroupDescription,
    GroupListing,
    GroupOffsets,
    MemberDescription,
    MemberToRemove,
    OffsetSpec,
    RemovedMember,
    Results,
)
from headrace.client.arguments import AnyPartition, OffsetLike, PartitionLike, to_offsets, to_partitions
from headrace.client.coordinators import CoordinatorType
from headrace.client.errors import IllegalArgumentError, check, error_for
from headrace.client.group.consumer_protocol import PROTOCOL_TYPE, decode_assignment, decode_subscription
from headrace.client.types import OffsetAndMetadata
from headrace.common.errors import HeadraceError, KafkaError
from headrace.common.types import TopicPartition
from headrace.net.nodes import Node
from headrace.protocol import Message
from headrace.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from headrace.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from headrace.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from headrace.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from headrace.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from headrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

_logger = logging.getLogger(__name__)

V = TypeVar("V")
GROUP = CoordinatorType.GROUP
_LAST_WITH_NAMES = 9
"""The last version of OffsetCommit and OffsetFetch with topic names. Later versions have topic ids."""


class GroupsAdmin(PartitionsAdmin):
    """The calls about groups."""

    async def list_groups(
        self,
        broker_ids: Iterable[int] | None = None,
        states_filter: Iterable[str] | None = None,
        types_filter: Iterable[str] | None = None,
        *,
        timeout_ms: float | None = None,
    ) -> list[GroupListing]:
        """Returns all groups, or those of some coordinators, states (KIP-518) and types (KIP-848)."""
        request = ListGroupsRequest(states_filter=list(states_filter or ()), types_filter=list(types_filter or ()))
        least = 5 if request.types_filter else 4 if request.states_filter else 0

        async def send(broker_id: int) -> list[GroupListing]:
            response: ListGroupsResponse = await self.core.pool.send(broker_id, request, min_version=least)
            check(response.error_code)
            return [
                GroupListing(group.group_id, group.protocol_type, group.group_state, group.group_type)
                for group in response.groups
            ]

        async def attempt() -> list[GroupListing]:
            listings_by_broker = await asyncio.gather(
                *[send(broker_id) for broker_id in await self._broker_ids(broker_ids)]
            )
            listings = {
                listing.group_id: listing for broker_listings in listings_by_broker for listing in broker_listings
            }
            return [listings[group_id] for group_id in sorted(listings)]

        return await self._call_with_retries(attempt, timeout_ms, "listing groups")

    async def describe_groups(
        self,
        group_ids: Iterable[str],
        include_authorized_operations: bool = False,
        *,
        timeout_ms: float | None = None,
        raise_errors: bool = True,
    ) -> Results[str, GroupDescription]:
        """Returns groups and their members, with subscriptions and assignments of consumers. A group that does not
        exist has the state `Dead` or an error, depending on the broker."""

        async def send(group_id: str) -> GroupDescription:
            request = DescribeGroupsRequest(
                groups=[group_id], include_authorized_operations=include_authorized_operations
            )
            response: DescribeGroupsResponse = await self._to_group(group_id, request)
            coordinator = self.core.coordinators.known(GROUP, group_id)
            node = None if coordinator is None else self.core.pool.node(coordinator)
            description = _description(response.groups[0], node)
            self._coordinator_moved(GROUP, group_id, description.error)
            return description

        return await self._call_for_groups(
            group_ids,
            send,
            lambda error: GroupDescription("", error=error),
            timeout_ms,
            "describing groups",
            raise_errors,
        )

    async def delete_groups(
        self, group_ids: Iterable[str], *, timeout_ms: float | None = None, raise_errors: bool = True
    ) -> Results[str, DeletedGroup]:
        """Deletes groups without members, and their offsets."""

        async def send(group_id: str) -> DeletedGroup:
            response: DeleteGroupsResponse = await self._to_group(
                group_id, DeleteGroupsRequest(groups_names=[group_id])
            )
            error = error_for(response.results[0].error_code, about=f"Group {group_id}")
            self._coordinator_moved(GROUP, group_id, error)
            return DeletedGroup(error)

        return await self._call_for_groups(group_ids, send, DeletedGroup, timeout_ms, "deleting groups", raise_errors)

    # ---- offsets

    async def list_group_offsets(
        self,
        group_specs: Mapping[str, Iterable[PartitionLike] | None] | Iterable[str] | str,
        *,
        require_stable: bool = False,
        timeout_ms: float | None = None,
        raise_errors: bool = True,
    ) -> Results[str, GroupOffsets]:
        """Returns the committed offsets of all or some partitions. With `require_stable`, waits for offsets that are
        part of open transactions (KIP-447)."""
        if isinstance(group_specs, str):
            group_specs = [group_specs]
        specs: dict[str, list[TopicPartition] | None] = (
            {group_id: None if tps is None else to_partitions(tps) for group_id, tps in group_specs.items()}
            if isinstance(group_specs, Mapping)
            else dict.fromkeys(group_specs)
        )

        async def send(group_id: str) -> GroupOffsets:
            tps = specs[group_id]
            topics = None if tps is None else by_topic(tps)
            request = OffsetFetchRequest(
                group_id=group_id,
                topics=None
                if topics is None
                else [
                    OffsetFetchRequestTopic(name=name, partition_indexes=partitions)
                    for name, partitions in topics.items()
                ],
                groups=[
                    OffsetFetchRequestGroup(
                        group_id=group_id,
                        topics=None
                        if topics is None
                        else [
                            OffsetFetchRequestTopics(name=name, partition_indexes=partitions)
                            for name, partitions in topics.items()
                        ],
                    )
                ],
                require_stable=require_stable,
            )
            response: OffsetFetchResponse = await self._to_group(
                group_id, request, min_version=7 if require_stable else 2, max_version=_LAST_WITH_NAMES
            )
            offsets = _group_offsets(response)
            self._coordinator_moved(GROUP, group_id, offsets.error)
            return offsets

        return await self._call_for_groups(
            specs,
            send,
            lambda error: GroupOffsets(error=error),
            timeout_ms,
            "listing the offsets of groups",
            raise_errors,
        )

    async def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[AnyPartition, OffsetLike],
        *,
        timeout_ms: float | None = None,
        raise_errors: bool = True,
    ) -> Results[TopicPartition, AlteredOffset]:
        """Commits offsets for a group without members."""
        requested = to_offsets(offsets)

        async def attempt(tps: list[TopicPartition]) -> dict[TopicPartition, AlteredOffset]:
            request = OffsetCommitRequest(
                group_id=group_id,
                topics=[
                    OffsetCommitRequestTopic(
                        name=topic,
                        partitions=[
                            OffsetCommitRequestPartition(
                                partition_index=partition,
                                committed_offset=requested[TopicPartition(topic, partition)].offset,
                                committed_leader_epoch=requested[TopicPartition(topic, partition)].leader_epoch,
                                committed_metadata=requested[TopicPartition(topic, partition)].metadata,
                            )
                            for partition in partitions
                        ],
                    )
                    for topic, partitions in by_topic(tps).items()
                ],
            )
            response: OffsetCommitResponse = await self._to_group(group_id, request, max_version=_LAST_WITH_NAMES)
            results = {
                TopicPartition(topic.name, partition.partition_index): AlteredOffset(
                    error_for(partition.error_code, about=f"Partition {topic.name}-{partition.partition_index}")
                )
                for topic in response.topics
                for partition in topic.partitions
            }
            for result in results.values():
                self._coordinator_moved(GROUP, group_id, result.error)
            return results

        return await self._call_for_items(
            requested, attempt, timeout_ms, f"altering the offsets of {group_id}", raise_errors, MOVED_COORDINATOR
        )

    async def reset_group_offsets(
        self,
        group_id: str,
        offset_specs: Mapping[AnyPartition, OffsetSpec | int],
        *,
        timeout_ms: float | None = None,
        raise_errors: bool = True,
    ) -> Results[TopicPartition, AlteredOffset]:
        """Commits the earliest offsets, the latest offsets, or the offsets at timestamps in milliseconds.
        `list_partition_offsets` looks them up. If all records are older than the timestamp, the latest offset is
        committed."""
        listed = await self.list_partition_offsets(offset_specs, timeout_ms=timeout_ms)
        missing = [tp for tp, result in listed.items() if result.offset < 0]
        listed |= await self.list_partition_offsets(dict.fromkeys(missing, OffsetSpec.LATEST), timeout_ms=timeout_ms)
        offsets = {tp: OffsetAndMetadata(result.offset, "", result.leader_epoch) for tp, result in listed.items()}
        return await self.alter_group_offsets(group_id, offsets, timeout_ms=timeout_ms, raise_errors=raise_errors)

    async def delete_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[PartitionLike],
        *,
        timeout_ms: float | None = None,
        raise_errors: bool = True,
    ) -> Results[TopicPartition, AlteredOffset]:
        """Deletes the committed offsets of topics that no member is subscribed to."""

        async def attempt(tps: list[TopicPartition]) -> dict[TopicPartition, AlteredOffset]:
            request = OffsetDeleteRequest(
                group_id=group_id,
                topics=[
                    OffsetDeleteRequestTopic(
                        name=topic,
                        partitions=[
                            OffsetDeleteRequestPartition(partition_index=partition) for partition in partitions
                        ],
                    )
                    for topic, partitions in by_topic(tps).items()
                ],
            )
            response: OffsetDeleteResponse = await self._to_group(group_id, request)
            error = error_for(response.error_code, about=f"Group {group_id}")
            self._coordinator_moved(GROUP, group_id, error)
            if error is not None:
                return {tp: AlteredOffset(error) for tp in tps}
            return {
                TopicPartition(topic.name, partition.partition_index): AlteredOffset(
                    error_for(partition.error_code, about=f"Partition {topic.name}-{partition.partition_index}")
                )
                for topic in response.topics
                for partition in topic.partitions
            }

        return await self._call_for_items(
            to_partitions(partitions),
            attempt,
            timeout_ms,
            f"deleting offsets of {group_id}",
            raise_errors,
            MOVED_COORDINATOR,
        )

    # ---- members

    async def remove_group_members(
        self,
        group_id: str,
        members: Iterable[MemberToRemove | str] | None = None,
        *,
        timeout_ms: float | None = None,
        raise_errors: bool = True,
    ) -> Results[MemberToRemove, RemovedMember]:
        """Removes members from a group, by member id or group instance id. The default is all members. Members that are
        still running join again."""
        if members is None:
            description = (await self.describe_groups([group_id], timeout_ms=timeout_ms))[group_id]
            requested = [MemberToRemove(member.member_id, member.group_instance_id) for member in description.members]
        else:
            requested = [MemberToRemove(member) if isinstance(member, str) else member for member in members]
        if any(not member.member_id and member.group_instance_id is None for member in requested):
            raise IllegalArgumentError("a member to remove needs a member_id or a group_instance_id")

        async def attempt(items: list[MemberToRemove]) -> dict[MemberToRemove, RemovedMember]:
            request = LeaveGroupRequest(
                group_id=group_id,
                members=[
                    MemberIdentity(
                        member_id=member.member_id,
                        group_instance_id=member.group_instance_id,
                        reason=member.reason or "removed by an administrator",
                    )
                    for member in items
                ],
            )
            response: LeaveGroupResponse = await self._to_group(group_id, request, min_version=3)
            error = error_for(response.error_code, about=f"Group {group_id}")
            self._coordinator_moved(GROUP, group_id, error)
            if error is not None or len(response.members) != len(items):
                return {member: RemovedMember(error) for member in items}
            return {
                member: RemovedMember(error_for(member_response.error_code))
                for member, member_response in zip(items, response.members, strict=True)
            }

        return await self._call_for_items(
            requested, attempt, timeout_ms, f"removing members of {group_id}", raise_errors, MOVED_COORDINATOR
        )

    # ---- routing

    async def _to_group(self, group_id: str, request: Message, **bounds: int | None) -> Any:
        return await self._to_coordinator(GROUP, group_id, request, self._timeout_ms(None), **bounds)

    async def _call_for_groups(
        self,
        group_ids: Iterable[str],
        send: Callable[[str], Awaitable[V]],
        fail: Callable[[KafkaError], V],
        timeout_ms: float | None,
        operation: str,
        raise_errors: bool,
    ) -> Results[str, V]:
        """Sends one request per group, concurrently."""
        if isinstance(group_ids, str):
            raise IllegalArgumentError(f"group_ids must be a list, not the str {group_ids!r}")

        async def attempt(items: list[str]) -> dict[str, V]:
            return await gather(items, send, lambda _, error: fail(error))

        return await self._call_for_items(group_ids, attempt, timeout_ms, operation, raise_errors, MOVED_COORDINATOR)


def _description(response: DescribedGroup, coordinator: Node | None) -> GroupDescription:
    return GroupDescription(
        response.group_id,
        response.group_state,
        response.protocol_type,
        response.protocol_data,
        tuple(_member(member, response.protocol_type) for member in response.members),
        coordinator,
        operations(response.authorized_operations),
        error_for(response.error_code, response.error_message),
    )


def _member(response: DescribedGroupMember, protocol_type: str) -> MemberDescription:
    assignment: tuple[TopicPartition, ...] = ()
    subscription: tuple[str, ...] = ()
    metadata, assigned = bytes(response.member_metadata), bytes(response.member_assignment)
    if protocol_type == PROTOCOL_TYPE:
        try:
            if assigned:
                assignment = decode_assignment(assigned).partitions
            if metadata:
                subscription = decode_subscription(metadata).topics
        except HeadraceError as error:
            _logger.warning(
                "Member %s: subscription or assignment is unreadable and shown as empty: %s", response.member_id, error
            )
    return MemberDescription(
        response.member_id,
        response.group_instance_id,
        response.client_id,
        response.client_host,
        assignment,
        subscription,
        metadata,
        assigned,
    )


def _group_offsets(response: OffsetFetchResponse) -> GroupOffsets:
    group: Any = response.groups[0] if response.groups else response
    offsets: dict[TopicPartition, OffsetAndMetadata] = {}
    errors: dict[TopicPartition, KafkaError] = {}
    for topic in group.topics:
        for partition in topic.partitions:
            tp = TopicPartition(topic.name, partition.partition_index)
            error = error_for(partition.error_code, about=f"Partition {tp}")
            if error is not None:
                errors[tp] = error
            elif partition.committed_offset >= 0:
                offsets[tp] = OffsetAndMetadata(
                    partition.committed_offset, partition.metadata or "", partition.committed_leader_epoch
                )
    first = next(iter(errors.values()), None)
    return GroupOffsets(offsets, errors, error_for(group.error_code) or first)
