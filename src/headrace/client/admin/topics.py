"""Topics: list, describe, create, delete, add partitions. Owner: the loop."""

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
_RETRIED = (NotControllerError, ThrottlingQuotaExceededError)


class TopicsAdmin(AdminBase):
    """The calls about topics."""

    async def list_topics(self, include_internal: bool = True, timeout_ms: float | None = None) -> list[str]:
        """Returns the names of all topics."""
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
        """Returns topics and their partitions, by name or topic id. The default is all topics."""
        requested = None if topics is None else _check_list(topics)

        async def send(request_topics: list[MetadataRequestTopic] | None) -> MetadataResponse:
            request = MetadataRequest(
                topics=request_topics,
                allow_auto_topic_creation=False,
                include_topic_authorized_operations=include_authorized_operations,
            )
            by_id = request_topics is not None and any(topic.name is None for topic in request_topics)
            response: MetadataResponse = await self._to_any(request, min_version=12 if by_id else 1)
            return response

        if requested is None:
            response = await self._call_with_retries(lambda: send(None), timeout_ms, "describing all topics")
            return Results((topic.name or "", _topic(topic)) for topic in response.topics)

        async def attempt(items: list[str | Uuid]) -> dict[str | Uuid, TopicDescription]:
            response = await send([_metadata_topic(item) for item in items])
            descriptions: dict[str | Uuid, TopicDescription] = {}
            for topic in response.topics:
                descriptions[topic.topic_id if topic.topic_id in items else topic.name or ""] = _topic(topic)
            return descriptions

        return await self._call_for_items(requested, attempt, timeout_ms, "describing topics", raise_errors)

    async def describe_topic_partitions(
        self,
        topics: Iterable[str],
        response_partition_limit: int = 2000,
        *,
        timeout_ms: float | None = None,
        raise_errors: bool = True,
    ) -> Results[str, TopicDescription]:
        """Returns topics like `describe_topics`, requested in pages of at most `response_partition_limit` partitions,
        with their eligible leader replicas (KIP-966)."""
        requested = sorted(set(_check_list(topics)))

        async def attempt() -> Results[str, TopicDescription]:
            pages: dict[str, list[DescribeTopicPartitionsResponseTopic]] = {}
            cursor: Cursor | None = None
            while True:
                request = DescribeTopicPartitionsRequest(
                    topics=[TopicRequest(name=name) for name in requested],
                    response_partition_limit=response_partition_limit,
                    cursor=cursor,
                )
                response: DescribeTopicPartitionsResponse = await self._to_any(request)
                for topic in response.topics:
                    pages.setdefault(topic.name or "", []).append(topic)
                cursor = response.next_cursor
                if cursor is None:
                    return Results((name, _joined_topic(name, topic_pages)) for name, topic_pages in pages.items())

        results = await self._call_with_retries(attempt, timeout_ms, "describing the partitions of topics")
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
        """Creates topics from NewTopic objects, names, or a mapping of names to options (as in kafka-python).

        With `wait_for_metadata`, waits until metadata shows leaders for all partitions.
        """
        requested = {topic.name: topic for topic in _new_topics(new_topics)}
        total_ms = self._timeout_ms(timeout_ms)

        async def attempt(names: list[str]) -> dict[str, CreatedTopic]:
            request = CreateTopicsRequest(
                topics=[_creatable(requested[name]) for name in names],
                timeout_ms=int(min(total_ms, self.core.config.request_timeout_ms)),
                validate_only=validate_only,
            )
            response: CreateTopicsResponse = await self._to_controller(request)
            results = {topic.name: _created(topic) for topic in response.topics}
            await self._refresh_controller(result.error for result in results.values())
            return results

        results = await self._call_for_items(requested, attempt, total_ms, "creating topics", raise_errors, _RETRIED)
        created = [name for name, result in results.items() if result.error is None]
        if wait_for_metadata and created and not validate_only:
            await self.wait_for_topics(created, total_ms)
        return results

    async def wait_for_topics(self, topic_names: Iterable[str], timeout_ms: float | None = None) -> None:
        """Waits until all partitions of these topics have leaders. Raises KafkaTimeoutError."""
        names = _check_list(topic_names)
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
        """Deletes topics, by name or topic id."""
        requested = _check_list(topics)
        by_id = any(isinstance(item, Uuid) for item in requested)
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
            response: DeleteTopicsResponse = await self._to_controller(request, min_version=6 if by_id else None)
            results: dict[str | Uuid, DeletedTopic] = {}
            for topic in response.responses:
                item = topic.topic_id if topic.topic_id in items else topic.name or ""
                results[item] = DeletedTopic(
                    topic.name, topic.topic_id, error_for(topic.error_code, topic.error_message)
                )
            await self._refresh_controller(result.error for result in results.values())
            return results

        return await self._call_for_items(requested, attempt, total_ms, "deleting topics", raise_errors, _RETRIED)

    async def create_partitions(
        self,
        topic_partitions: Mapping[str, NewPartitions | int],
        timeout_ms: float | None = None,
        validate_only: bool = False,
        raise_errors: bool = True,
    ) -> Results[str, CreatedPartitions]:
        """Adds partitions to topics, up to the given total number."""
        requested = {
            name: partitions if isinstance(partitions, NewPartitions) else NewPartitions(partitions)
            for name, partitions in topic_partitions.items()
        }
        total_ms = self._timeout_ms(timeout_ms)

        async def attempt(names: list[str]) -> dict[str, CreatedPartitions]:
            request = CreatePartitionsRequest(
                topics=[_partitions_to_create(name, requested[name]) for name in names],
                timeout_ms=int(min(total_ms, self.core.config.request_timeout_ms)),
                validate_only=validate_only,
            )
            response: CreatePartitionsResponse = await self._to_controller(request)
            results = {
                topic.name: CreatedPartitions(topic.name, error_for(topic.error_code, topic.error_message))
                for topic in response.results
            }
            await self._refresh_controller(result.error for result in results.values())
            return results

        return await self._call_for_items(requested, attempt, total_ms, "creating partitions", raise_errors, _RETRIED)


def _check_list(items: Iterable[T], kinds: tuple[type, ...] = (str, Uuid)) -> list[T]:
    """Rejects a single topic in place of a list, and topics of another type."""
    if isinstance(items, str | Uuid | NewTopic):
        raise IllegalArgumentError(f"topics must be a list, not {items!r} alone")
    if not isinstance(items, Iterable):
        raise TypeError(f"topics must be a list, not {type(items).__name__}")
    topics = list(items)
    for topic in topics:
        if not isinstance(topic, kinds):
            expected = " or ".join(kind.__name__ for kind in kinds)
            raise TypeError(f"a topic must be of type {expected}, not {type(topic).__name__} {topic!r}")
    return topics


def _new_topics(topics: Iterable[NewTopic | str] | Mapping[str, Mapping[str, object]]) -> list[NewTopic]:
    if isinstance(topics, Mapping):
        new_topics = []
        for name, options in topics.items():
            valid_options = {"num_partitions", "replication_factor", "assignments", "configs"}
            if unknown := set(options) - valid_options:
                raise IllegalArgumentError(
                    f"Topic {name!r}: unknown option {min(unknown)!r}: expected {sorted(valid_options)}"
                )
            new_topics.append(
                NewTopic(
                    name,
                    options.get("num_partitions", -1),  # type: ignore[arg-type]
                    options.get("replication_factor", -1),  # type: ignore[arg-type]
                    options.get("assignments"),  # type: ignore[arg-type]
                    options.get("configs"),  # type: ignore[arg-type]
                )
            )
        return new_topics
    return [NewTopic(topic) if isinstance(topic, str) else topic for topic in _check_list(topics, (NewTopic, str))]


def _creatable(topic: NewTopic) -> CreatableTopic:
    assigned = topic.replica_assignments
    return CreatableTopic(
        name=topic.name,
        num_partitions=-1 if assigned else topic.num_partitions,
        replication_factor=-1 if assigned else topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=partition, broker_ids=list(brokers))
            for partition, brokers in (assigned or {}).items()
        ],
        configs=[
            CreatableTopicConfig(name=name, value=None if value is None else config_text(value))
            for name, value in (topic.topic_configs or {}).items()
        ],
    )


def _created(response: CreatableTopicResult) -> CreatedTopic:
    entries: dict[str, ConfigEntry] = {}
    for config in response.configs or []:
        entries[config.name] = config_entry(config)
    return CreatedTopic(
        response.name,
        response.topic_id,
        response.num_partitions,
        response.replication_factor,
        entries,
        error_for(response.error_code, response.error_message),
    )


def _partitions_to_create(name: str, new_partitions: NewPartitions) -> CreatePartitionsTopic:
    return CreatePartitionsTopic(
        name=name,
        count=new_partitions.total_count,
        assignments=None
        if new_partitions.new_assignments is None
        else [CreatePartitionsAssignment(broker_ids=list(brokers)) for brokers in new_partitions.new_assignments],
    )


def _metadata_topic(item: str | Uuid) -> MetadataRequestTopic:
    if isinstance(item, Uuid):
        return MetadataRequestTopic(topic_id=item, name=None)
    return MetadataRequestTopic(name=item)


def _topic(response: MetadataResponseTopic) -> TopicDescription:
    return TopicDescription(
        response.name or "",
        response.topic_id,
        response.is_internal,
        tuple(
            PartitionDescription(
                partition.partition_index,
                partition.leader_id,
                partition.leader_epoch,
                tuple(partition.replica_nodes),
                tuple(partition.isr_nodes),
                tuple(partition.offline_replicas),
                error=error_for(partition.error_code),
            )
            for partition in sorted(response.partitions, key=lambda partition: partition.partition_index)
        ),
        operations(response.topic_authorized_operations),
        error_for(response.error_code, about=f"Topic {response.name or str(response.topic_id)!r}"),
    )


def _joined_topic(name: str, pages: list[DescribeTopicPartitionsResponseTopic]) -> TopicDescription:
    first = pages[0]
    partitions = [
        PartitionDescription(
            partition.partition_index,
            partition.leader_id,
            partition.leader_epoch,
            tuple(partition.replica_nodes),
            tuple(partition.isr_nodes),
            tuple(partition.offline_replicas),
            None if partition.eligible_leader_replicas is None else tuple(partition.eligible_leader_replicas),
            None if partition.last_known_elr is None else tuple(partition.last_known_elr),
            error_for(partition.error_code),
        )
        for page in pages
        for partition in page.partitions
    ]
    return TopicDescription(
        name,
        first.topic_id,
        first.is_internal,
        tuple(sorted(partitions, key=lambda partition: partition.partition)),
        operations(first.topic_authorized_operations),
        error_for(first.error_code, about=f"Topic {name!r}"),
    )
