"""Creates and deletes topics and adds partitions, as operations on the coordination store. The controller watches the
store and does the rest: it elects leaders and sends commands to the brokers.

A topic and its configs are created in one step. Deleting a topic only marks it. The controller deletes it.
"""

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.cluster import znodes
from headrace.cluster.assignment import assign_replicas
from headrace.cluster.commands import BrokerInfo
from headrace.cluster.config_store import ConfigEntity, notification
from headrace.cluster.registration import read_brokers
from headrace.cluster.store import (
    BadVersion,
    CoordinationStore,
    Create,
    NodeExists,
    NoNode,
    Operation,
    Set,
)
from headrace.cluster.znodes import ReplicaAssignment, TopicAssignment
from headrace.common.errors import (
    InvalidPartitionsError,
    InvalidReplicationAssignmentError,
    InvalidRequestError,
    InvalidTopicError,
    ReassignmentInProgressError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from headrace.common.ids import Random, random_uuid

MAX_TOPIC_NAME_LENGTH = 249
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
BROKER_DEFAULT = -1
"""A partition count or replication factor that uses the broker's default."""

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")
_CLUSTER_METADATA_TOPIC = "__cluster_metadata"

ConfigCheck = Callable[[str, Mapping[str, str]], None]
"""Raises if a topic cannot have these configs."""


def check_topic_name(name: str) -> None:
    """Raises InvalidTopicError if the name is illegal."""
    if not name:
        raise InvalidTopicError("Topic name is invalid: the empty string is not allowed")
    if name in (".", ".."):
        raise InvalidTopicError(f"Topic name is invalid: '{name}' is not allowed")
    if len(name) > MAX_TOPIC_NAME_LENGTH:
        raise InvalidTopicError(
            f"Topic name is invalid: the length of '{name}' is longer than the max allowed length "
            f"{MAX_TOPIC_NAME_LENGTH}"
        )
    if _LEGAL_NAME.fullmatch(name) is None:
        raise InvalidTopicError(
            f"Topic name is invalid: '{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' "
            "and '-'"
        )
    if name == _CLUSTER_METADATA_TOPIC:
        raise InvalidTopicError(f"Topic name is invalid: {name!r} is reserved for Kafka's metadata log.")


def find_collision(name: str, topics: Iterable[str]) -> str | None:
    """Returns a topic with the same metric name (`.` replaced by `_`), or None if no topic collides."""
    if "." not in name and "_" not in name:
        return None
    metric_name = name.replace(".", "_")
    return next((topic for topic in topics if topic.replace(".", "_") == metric_name), None)


def is_internal(name: str) -> bool:
    return name in INTERNAL_TOPICS


@dataclass(frozen=True)
class TopicSpec:
    """A topic to create."""

    name: str
    num_partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    assignment: Mapping[int, Sequence[int]] | None = None
    """Replicas by partition, instead of partition count and replication factor."""
    configs: Mapping[str, str] = field(default_factory=dict)


class TopicAdmin:
    """Creates and deletes topics and adds partitions. `check_config` raises if a topic's configs are invalid."""

    def __init__(
        self,
        store: CoordinationStore,
        random: Random,
        *,
        default_partitions: Callable[[], int] = lambda: 1,
        default_replication_factor: Callable[[], int] = lambda: 1,
        check_config: ConfigCheck = lambda _topic, _configs: None,
    ):
        self._store = store
        self._random = random
        self._default_partitions = default_partitions
        self._default_replication_factor = default_replication_factor
        self._check_config = check_config
        self._creating = asyncio.Lock()
        """Held from the check of a name until the topic exists: the store itself accepts names that collide."""

    # ---- creating

    async def create_topic(self, spec: TopicSpec, *, validate_only: bool = False) -> TopicAssignment:
        """Creates a topic and returns it. With `validate_only`, only returns it, with a meaningless id."""
        if spec.name == _CLUSTER_METADATA_TOPIC:
            raise InvalidRequestError(f"Creation of internal topic {spec.name} is prohibited.")
        check_topic_name(spec.name)
        async with self._creating:
            return await self._create_topic(spec, validate_only)

    async def _create_topic(self, spec: TopicSpec, validate_only: bool) -> TopicAssignment:
        await self._check_name_is_free(spec.name)
        brokers = await read_brokers(self._store)
        replicas = self._replicas_of(spec, brokers)
        self._check_config(spec.name, spec.configs)
        assignment = TopicAssignment(
            spec.name,
            random_uuid(self._random),
            {partition: ReplicaAssignment(tuple(ids)) for partition, ids in replicas.items()},
        )
        if not validate_only:
            await self._write(assignment, spec.configs)
        return assignment

    async def _check_name_is_free(self, name: str) -> None:
        topics = await self._store.children(znodes.TOPICS)
        if name in topics:
            raise await self._exists_error(name)
        if (existing := find_collision(name, topics)) is not None:
            raise InvalidTopicError(
                f"Topic '{name}' collides with existing topic: {existing}. ('.' and '_' are the same in metric names.)"
            )

    async def _exists_error(self, name: str) -> TopicAlreadyExistsError:
        if await self._store.exists(znodes.delete_topic_path(name)) is not None:
            return TopicAlreadyExistsError(f"Topic '{name}' already exists and is marked for deletion.")
        return TopicAlreadyExistsError(f"Topic '{name}' already exists.")

    def _replicas_of(self, spec: TopicSpec, brokers: Mapping[int, BrokerInfo]) -> dict[int, tuple[int, ...]]:
        if spec.assignment is not None:
            for name, value in (
                ("replication factor", spec.replication_factor),
                ("numPartitions", spec.num_partitions),
            ):
                if value != BROKER_DEFAULT:
                    raise InvalidRequestError(
                        f"A manual partition assignment was specified, but {name} was not set to {BROKER_DEFAULT}."
                    )
            return _check_manual_assignment(spec.assignment, brokers)
        partitions = self._default_partitions() if spec.num_partitions == BROKER_DEFAULT else spec.num_partitions
        factor = spec.replication_factor
        if factor == BROKER_DEFAULT:
            factor = self._default_replication_factor()
        return assign_replicas(list(brokers.values()), partitions, factor, self._random)

    async def _write(self, assignment: TopicAssignment, configs: Mapping[str, str]) -> None:
        path = znodes.topic_path(assignment.topic)
        entity = ConfigEntity.topic(assignment.topic)
        data = znodes.encode_config(configs)
        # Configs can exist without a topic: written beforehand, or left over from an interrupted deletion.
        configs_exist = await self._store.exists(entity.path) is not None
        config: Operation = Set(entity.path, data) if configs_exist else Create(entity.path, data)
        try:
            # The topic is last: a reader that sees it also finds its configs.
            await self._store.multi([config, notification(entity), Create(path, znodes.encode_topic(assignment))])
        except (NodeExists, NoNode):
            if await self._store.exists(path) is not None:
                raise await self._exists_error(assignment.topic) from None
            raise

    # ---- adding partitions

    async def create_partitions(
        self,
        topic: str,
        total: int,
        assignments: Sequence[Sequence[int]] | None = None,
        *,
        validate_only: bool = False,
    ) -> TopicAssignment:
        """Increases a topic to `total` partitions. `assignments` are the replicas of the added partitions."""
        while True:
            before, version = await self._read_topic(topic)
            after = self._with_more_partitions(before, total, assignments, await read_brokers(self._store))
            if validate_only:
                return after
            try:
                await self._store.set(znodes.topic_path(topic), znodes.encode_topic(after), version)
            except BadVersion:
                continue
            except NoNode:
                raise _unknown(topic) from None
            return after

    async def _read_topic(self, topic: str) -> tuple[TopicAssignment, int]:
        if not topic:
            raise _unknown(topic)
        try:
            data, stat = await self._store.get(znodes.topic_path(topic))
        except NoNode:
            raise _unknown(topic) from None
        if await self._store.exists(znodes.delete_topic_path(topic)) is not None:
            raise InvalidTopicError(f"Topic '{topic}' is marked for deletion; partitions cannot be added.")
        return znodes.decode_topic(topic, data), stat.version

    def _with_more_partitions(
        self,
        before: TopicAssignment,
        total: int,
        assignments: Sequence[Sequence[int]] | None,
        brokers: Mapping[int, BrokerInfo],
    ) -> TopicAssignment:
        count = len(before.partitions)
        if any(assignment.is_reassigned for assignment in before.partitions.values()):
            raise ReassignmentInProgressError(
                f"A partition reassignment is in progress for topic '{before.topic}'; add partitions afterwards."
            )
        if total < count:
            raise InvalidPartitionsError(
                f"The topic {before.topic} currently has {count} partition(s); {total} would not be an increase."
            )
        if total == count:
            raise InvalidPartitionsError(f"Topic already has {count} partition(s).")
        first_replicas = before.partitions[0].replicas
        if assignments is None:
            ids = sorted(brokers)
            start = next((position for position, broker in enumerate(ids) if broker >= first_replicas[0]), 0)
            added = assign_replicas(
                list(brokers.values()),
                total - count,
                len(first_replicas),
                self._random,
                first_partition=count,
                start_index=start,
            )
        else:
            added = _check_added_assignments(assignments, count, total, len(first_replicas), brokers)
        partitions = {**before.partitions, **{partition: ReplicaAssignment(ids) for partition, ids in added.items()}}
        return TopicAssignment(before.topic, before.topic_id, partitions)

    # ---- deleting

    async def delete_topic(self, topic: str) -> None:
        """Marks a topic for deletion by the controller. Does nothing if it is already marked."""
        if not topic:
            raise _unknown(topic)
        path = znodes.topic_path(topic)
        while True:
            try:
                data, stat = await self._store.get(path)
                # Rewriting the unchanged topic makes a concurrent create_partitions fail its compare-and-set and retry.
                await self._store.multi([Set(path, data, stat.version), Create(znodes.delete_topic_path(topic))])
                return
            except BadVersion:
                continue
            except NoNode:
                raise _unknown(topic) from None
            except NodeExists:
                return

    async def is_marked_for_deletion(self, topic: str) -> bool:
        return await self._store.exists(znodes.delete_topic_path(topic)) is not None


def _unknown(topic: str) -> UnknownTopicOrPartitionError:
    return UnknownTopicOrPartitionError(f"Topic '{topic}' does not exist.")


def _check_manual_assignment(
    assignment: Mapping[int, Sequence[int]], brokers: Mapping[int, BrokerInfo]
) -> dict[int, tuple[int, ...]]:
    if not assignment:
        raise InvalidPartitionsError("Manual assignment is empty: a topic needs at least one partition.")
    if sorted(assignment) != list(range(len(assignment))):
        raise InvalidReplicationAssignmentError(
            f"partitions should be a consecutive 0-based integer sequence, not {sorted(assignment)}"
        )
    factor = len(assignment[0])
    return {
        partition: _check_replicas(partition, assignment[partition], factor, brokers)
        for partition in range(len(assignment))
    }


def _check_added_assignments(
    assignments: Sequence[Sequence[int]], count: int, total: int, factor: int, brokers: Mapping[int, BrokerInfo]
) -> dict[int, tuple[int, ...]]:
    if len(assignments) != total - count:
        raise InvalidReplicationAssignmentError(
            f"Attempted to add {total - count} additional partition(s), but only {len(assignments)} assignment(s) were "
            "specified."
        )
    return {
        partition: _check_replicas(partition, replicas, factor, brokers)
        for partition, replicas in enumerate(assignments, start=count)
    }


def _check_replicas(
    partition: int, replicas: Sequence[int], factor: int, brokers: Mapping[int, BrokerInfo]
) -> tuple[int, ...]:
    if not replicas:
        raise InvalidReplicationAssignmentError(
            f"The manual partition assignment includes an empty replica list. (Partition {partition})"
        )
    for position, replica in enumerate(replicas):
        if replica in replicas[:position]:
            raise InvalidReplicationAssignmentError(
                f"The manual partition assignment includes the broker {replica} more than once. (Partition {partition})"
            )
        if replica not in brokers:
            raise InvalidReplicationAssignmentError(
                f"The manual partition assignment includes broker {replica}, but no such broker is registered. "
                f"(Partition {partition})"
            )
    if len(replicas) != factor:
        raise InvalidReplicationAssignmentError(
            f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is not "
            f"consistent with previous partitions, which have {factor} replica(s). (Partition {partition})"
        )
    return tuple(replicas)
