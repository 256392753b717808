"""Topics: list, describe, create, delete, more partitions. Belongs to the loop."""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from headrace.client.admin.base import AdminBase, operations
from headrace.client.admin.configs import config_entry, config_text
from headrace.client.admin.types import (
    ConfigEntry,
    CreatedPartitions,
    CreatedTopic,
    DeletedTopic,
    NewPartitions,
    NewTopic,
    PartitionDescription,
    Results,
    TopicDescription,
)
from headrace.client.errors import IllegalArgumentError, error_for
from headrace.client.metadata_cache import ClusterView
from headrace.common.errors import NotControllerError, ThrottlingQuotaExceededError
from headrace.common.ids import Uuid
from headrace.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from headrace.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from headrace.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseTopic,
    TopicRequest,
)
from headrace.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

T = TypeVar("T")
_AGAIN = (NotControllerError, ThrottlingQuotaExceededError)


class TopicsAdmin(AdminBase):
    async def list_topics(self, include_internal: bool = True, timeout_ms: float | None = None) -> list[str]:
        """The names of all topics."""
        view = await self.core.metadata.update_all(self._timeout_ms(timeout_ms))
        return sorted(view.names(include_internal))

    async def describe_topics(
        self,
        topics: Iterable[str | Uuid] | None = None,
        *,
        include_authorized_operations: bool = False,
        timeout_ms: float | None = None,
        raise_errors: bool = True,
    ) -> Results[str | Uuid, TopicDescription]:
        """Topics with their partitions, by name or id; all of them if none are named."""
        wanted = None if topics is None else _several(topics)

        async def ask(asked: list[MetadataRequestTopic] | None) -> MetadataResponse:
            request = MetadataRequest(
                topics=asked,
                allow_auto_topic_creation=False,
                include_topic_authorized_operations=include_authorized_operations,
            )
            by_id = asked is not None and any(each.name is None for each in asked)
            reply: MetadataResponse = await self._to_any(request, min_version=12 if by_id else 1)
            return reply

        if wanted is None:
            reply = await self._once(lambda: ask(None), timeout_ms, "describing all topics")
            return Results((each.name or "", _topic(each)) for each in reply.topics)

        async def attempt(items: list[str | Uuid]) -> dict[str | Uuid, TopicDescription]:
            reply = await ask([_metadata_topic(item) for item in items])
            found: dict[str | Uuid, TopicDescription] = {}
            for each in reply.topics:
                found[each.topic_id if each.topic_id in items else each.name or ""] = _topic(each)
            return found

        return await self._each(wanted, attempt, timeout_ms, "describing topics", raise_errors)

    async def describe_topic_partitions(
        self,
        topics: Iterable[str],
        response_partition_limit: int = 2000,
        *,
        timeout_ms: float | None = None,
        raise_errors: bool = True,
    ) -> Results[str, TopicDescription]:
        """As `describe_topics`, in pages of so many partitions, with the replicas that may lead though they are out of
        sync (KIP-966)."""
        wanted = sorted(set(_several(topics)))

        async def attempt() -> Results[str, TopicDescription]:
            pages: dict[str, list[DescribeTopicPartitionsResponseTopic]] = {}
            cursor: Cursor | None = None
            while True:
                request = DescribeTopicPartitionsRequest(
                    topics=[TopicRequest(name=name) for name in wanted],
                    response_partition_limit=response_partition_limit,
                    cursor=cursor,
                )
                reply: DescribeTopicPartitionsResponse = await self._to_any(request)
                for each in reply.topics:
                    pages.setdefault(each.name or "", []).append(each)
                cursor = reply.next_cursor
                if cursor is None:
                    return Results((name, _joined_topic(name, parts)) for name, parts in pages.items())

        results = await self._once(attempt, timeout_ms, "describing the partitions of topics")
        if raise_errors:
            results.raise_errors()
        return results

    async def create_topics(
        self,
        new_topics: Iterable[NewTopic | str] | Mapping[str, Mapping[str, object]],
        timeout_ms: float | None = None,
        validate_only: bool = False,
        raise_errors: bool = True,
        wait_for_metadata: bool = True,
    ) -> Results[str, CreatedTopic]:
        """Creates topics: NewTopic objects, names, or a mapping of names to options (as kafka-python takes them).

        With `wait_for_metadata`, returns when the brokers asked know leaders for all partitions.
        """
        wanted = {topic.name: topic for topic in _new_topics(new_topics)}
        total_ms = self._timeout_ms(timeout_ms)

        async def attempt(names: list[str]) -> dict[str, CreatedTopic]:
            request = CreateTopicsRequest(
                topics=[_creatable(wanted[name]) for name in names],
                timeout_ms=int(min(total_ms, self.core.config.request_timeout_ms)),
                validate_only=validate_only,
            )
            reply: CreateTopicsResponse = await self._to_controller(request)
            results = {each.name: _created(each) for each in reply.topics}
            await self._refresh_controller(each.error for each in results.values())
            return results

        results = await self._each(wanted, attempt, total_ms, "creating topics", raise_errors, _AGAIN)
        made = [name for name, result in results.items() if result.error is None]
        if wait_for_metadata and made and not validate_only:
            await self.wait_for_topics(made, total_ms)
        return results

    async def wait_for_topics(self, topics: Iterable[str], timeout_ms: float | None = None) -> None:
        """Returns when all partitions of these topics have leaders. Raises KafkaTimeoutError."""
        names = _several(topics)
        total_ms = self._timeout_ms(timeout_ms)

        def complete(view: ClusterView) -> bool:
            infos = [view.topic(name) for name in names]
            return all(
                info is not None and info.error is None and info.partitions and not view.lacks_leader(info)
                for info in infos
            )

        tracked = [name for name in names if name not in self.core.metadata.tracked]
        self.core.metadata.track(tracked)
        try:
            self.core.metadata.request_update(names)
            await self.core.metadata.wait_for(complete, total_ms, f"leaders of {', '.join(names)}")
        finally:
            self.core.metadata.untrack(tracked)

    async def delete_topics(
        self, topics: Iterable[str | Uuid], timeout_ms: float | None = None, raise_errors: bool = True
    ) -> Results[str | Uuid, DeletedTopic]:
        """Deletes topics, by name or by id."""
        wanted = _several(topics)
        by_id = any(isinstance(item, Uuid) for item in wanted)
        total_ms = self._timeout_ms(timeout_ms)

        async def attempt(items: list[str | Uuid]) -> dict[str | Uuid, DeletedTopic]:
            request = DeleteTopicsRequest(
                topic_names=[item for item in items if isinstance(item, str)],
                topics=[
                    DeleteTopicState(topic_id=item) if isinstance(item, Uuid) else DeleteTopicState(name=item)
                    for item in items
                ],
                timeout_ms=int(min(total_ms, self.core.config.request_timeout_ms)),
            )
            reply: DeleteTopicsResponse = await self._to_controller(request, min_version=6 if by_id else None)
            results: dict[str | Uuid, DeletedTopic] = {}
            for each in reply.responses:
                item = each.topic_id if each.topic_id in items else each.name or ""
                results[item] = DeletedTopic(each.name, each.topic_id, error_for(each.error_code, each.error_message))
            await self._refresh_controller(each.error for each in results.values())
            return results

        return await self._each(wanted, attempt, total_ms, "deleting topics", raise_errors, _AGAIN)

    async def create_partitions(
        self,
        topic_partitions: Mapping[str, NewPartitions | int],
        timeout_ms: float | None = None,
        validate_only: bool = False,
        raise_errors: bool = True,
    ) -> Results[str, CreatedPartitions]:
        """Gives topics more partitions: the number that they are to have then."""
        wanted = {
            name: each if isinstance(each, NewPartitions) else NewPartitions(each)
            for name, each in topic_partitions.items()
        }
        total_ms = self._timeout_ms(timeout_ms)

        async def attempt(names: list[str]) -> dict[str, CreatedPartitions]:
            request = CreatePartitionsRequest(
                topics=[_more_partitions(name, wanted[name]) for name in names],
                timeout_ms=int(min(total_ms, self.core.config.request_timeout_ms)),
                validate_only=validate_only,
            )
            reply: CreatePartitionsResponse = await self._to_controller(request)
            results = {
                each.name: CreatedPartitions(each.name, error_for(each.error_code, each.error_message))
                for each in reply.results
            }
            await self._refresh_controller(each.error for each in results.values())
            return results

        return await self._each(wanted, attempt, total_ms, "creating partitions", raise_errors, _AGAIN)


def _several(items: Iterable[T]) -> list[T]:
    if isinstance(items, str | Uuid):
        raise IllegalArgumentError(f"a list of topics is expected, not {items!r} alone")
    return list(items)


def _new_topics(given: Iterable[NewTopic | str] | Mapping[str, Mapping[str, object]]) -> list[NewTopic]:
    if isinstance(given, Mapping):
        topics = []
        for name, options in given.items():
            known = {"num_partitions", "replication_factor", "assignments", "configs"}
            if unknown := set(options) - known:
                raise IllegalArgumentError(f"topic {name}: unknown option {min(unknown)!r}: expected {sorted(known)}")
            topics.append(
                NewTopic(
                    name,
                    options.get("num_partitions", -1),  # type: ignore[arg-type]
                    options.get("replication_factor", -1),  # type: ignore[arg-type]
                    options.get("assignments"),  # type: ignore[arg-type]
                    options.get("configs"),  # type: ignore[arg-type]
                )
            )
        return topics
    return [NewTopic(each) if isinstance(each, str) else each for each in _several(given)]


def _creatable(topic: NewTopic) -> CreatableTopic:
    assigned = topic.replica_assignments
    return CreatableTopic(
        name=topic.name,
        num_partitions=-1 if assigned else topic.num_partitions,
        replication_factor=-1 if assigned else topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
            for index, brokers in (assigned or {}).items()
        ],
        configs=[
            CreatableTopicConfig(name=name, value=None if value is None else config_text(value))
            for name, value in (topic.topic_configs or {}).items()
        ],
    )


def _created(reply: CreatableTopicResult) -> CreatedTopic:
    entries: dict[str, ConfigEntry] = {}
    for each in reply.configs or []:
        entries[each.name] = config_entry(each)
    return CreatedTopic(
        reply.name,
        reply.topic_id,
        reply.num_partitions,
        reply.replication_factor,
        entries,
        error_for(reply.error_code, reply.error_message),
    )


def _more_partitions(name: str, new: NewPartitions) -> CreatePartitionsTopic:
    return CreatePartitionsTopic(
        name=name,
        count=new.total_count,
        assignments=None
        if new.new_assignments is None
        else [CreatePartitionsAssignment(broker_ids=list(brokers)) for brokers in new.new_assignments],
    )


def _metadata_topic(item: str | Uuid) -> MetadataRequestTopic:
    if isinstance(item, Uuid):
        return MetadataRequestTopic(topic_id=item, name=None)
    return MetadataRequestTopic(name=item)


def _topic(reply: MetadataResponseTopic) -> TopicDescription:
    return TopicDescription(
        reply.name or "",
        reply.topic_id,
        reply.is_internal,
        tuple(
            PartitionDescription(
                each.partition_index,
                each.leader_id,
                each.leader_epoch,
                tuple(each.replica_nodes),
                tuple(each.isr_nodes),
                tuple(each.offline_replicas),
                error=error_for(each.error_code),
            )
            for each in sorted(reply.partitions, key=lambda each: each.partition_index)
        ),
        operations(reply.topic_authorized_operations),
        error_for(reply.error_code),
    )


def _joined_topic(name: str, pages: list[DescribeTopicPartitionsResponseTopic]) -> TopicDescription:
    first = pages[0]
    partitions = [
        PartitionDescription(
            each.partition_index,
            each.leader_id,
            each.leader_epoch,
            tuple(each.replica_nodes),
            tuple(each.isr_nodes),
            tuple(each.offline_replicas),
            None if each.eligible_leader_replicas is None else tuple(each.eligible_leader_replicas),
            None if each.last_known_elr is None else tuple(each.last_known_elr),
            error_for(each.error_code),
        )
        for page in pages
        for each in page.partitions
    ]
    return TopicDescription(
        name,
        first.topic_id,
        first.is_internal,
        tuple(sorted(partitions, key=lambda each: each.partition)),
        operations(first.topic_authorized_operations),
        error_for(first.error_code),
    )
