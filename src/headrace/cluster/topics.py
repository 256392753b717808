"""Creates and deletes topics and adds partitions, as operations on the coordination store. The controller watches the
store and does the rest: it elects leaders and sends commands to the brokers.

A topic and its configs are created in one step. Deleting a topic only marks it. The controller deletes it.
"""

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.cluster import znodes
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
    StoreError,
)
from headrace.cluster.znodes import ReplicaAssignment, TopicAssignment
from headrace.common.assignment import assign_replicas
from headrace.common.errors import (
    HeadraceError,
    InvalidPartitionsError,
    InvalidReplicationAssignmentError,
    InvalidRequestError,
    InvalidTopicError,
    ReassignmentInProgressError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from headrace.common.ids import ZERO_UUID, Random, random_uuid

MAX_TOPIC_NAME_LENGTH = 249
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
BROKER_DEFAULT = -1
"""A partition count or replication factor that uses the broker's default."""

_TOPICS_PER_WRITE = 100
"""ZooKeeper accepts at most 1 MB in one step, and larger steps would block the event loop for too long."""

_ATTEMPTS = 5
"""How often a topic is written if others change its configs at the same time."""

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
        has_topic_ids: bool = True,
    ):
        """Without `has_topic_ids` new topics get no id: older brokers of the cluster would lose it."""
        self._store = store
        self._random = random
        self._default_partitions = default_partitions
        self._default_replication_factor = default_replication_factor
        self._check_config = check_config
        self._has_topic_ids = has_topic_ids
        self._creating = asyncio.Lock()
        """Held from the check of a name until the topic exists: the store itself accepts names that collide."""

    # ---- creating

    async def create_topic(self, spec: TopicSpec, *, validate_only: bool = False) -> TopicAssignment:
        """Creates a topic and returns it. With `validate_only`, only returns it, with a meaningless id."""
        (result,) = await self.create_topics([spec], validate_only=validate_only)
        if isinstance(result, HeadraceError):
            raise result
        return result

    async def create_topics(
        self,
        specs: Sequence[TopicSpec],
        *,
        validate_only: bool = False,
        on_planned: Callable[[TopicAssignment], None] = lambda _: None,
        on_created: Callable[[TopicSpec], None] = lambda _: None,
    ) -> list[TopicAssignment | HeadraceError]:
        """Creates topics. Returns for each the created topic, or the error why it was not created.

        Writes many topics in one step, because every step waits for the disk. `on_planned` is called for each valid
        topic before it is written, and may refuse it with a HeadraceError. `on_created` is called for each created
        topic, before the brokers create its logs.
        """
        async with self._creating:
            try:
                names = TopicNames(await self._store.children(znodes.TOPICS))
                brokers = await read_brokers(self._store)
            except StoreError as error:
                return [error for _ in specs]
            results = []
            for spec in specs:
                results.append(await self._plan(spec, names, brokers))
                await asyncio.sleep(0)  # other requests go first, however many topics there are
            if not validate_only:
                _refuse_planned(results, on_planned)
                await self._write_all(specs, results, on_created)
            return results

    async def _write_all(
        self,
        specs: Sequence[TopicSpec],
        results: list[TopicAssignment | HeadraceError],
        on_created: Callable[[TopicSpec], None],
    ) -> None:
        """Writes the planned topics. Replaces those that another broker has created meanwhile by an error."""
        planned = [
            (index, specs[index], result) for index, result in enumerate(results) if isinstance(result, TopicAssignment)
        ]
        for first in range(0, len(planned), _TOPICS_PER_WRITE):
            together = planned[first : first + _TOPICS_PER_WRITE]
            written = await self._write([(spec, assignment) for _, spec, assignment in together])
            for (index, spec, _), result in zip(together, written, strict=True):
                results[index] = result
                if isinstance(result, TopicAssignment):
                    on_created(spec)

    async def _plan(
        self, spec: TopicSpec, names: "TopicNames", brokers: Mapping[int, BrokerInfo]
    ) -> TopicAssignment | HeadraceError:
        """Returns the topic to create, or the error why it cannot be created."""
        try:
            if spec.name == _CLUSTER_METADATA_TOPIC:
                raise InvalidRequestError(f"Creation of internal topic {spec.name} is prohibited.")
            check_topic_name(spec.name)
            if names.contains(spec.name):
                raise await self._exists_error(spec.name)
            names.check_collision(spec.name)
            replicas = self._replicas_of(spec, brokers)
            self._check_config(spec.name, spec.configs)
        except HeadraceError as error:
            return error
        names.add(spec.name)
        return TopicAssignment(
            spec.name,
            random_uuid(self._random) if self._has_topic_ids else ZERO_UUID,
            {partition: ReplicaAssignment(tuple(ids)) for partition, ids in replicas.items()},
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
        return assign_replicas(_racks(brokers), partitions, factor, self._random)

    async def _write(
        self, planned: Sequence[tuple[TopicSpec, TopicAssignment]]
    ) -> list[TopicAssignment | HeadraceError]:
        """Writes topics in one step. If another broker has created one of them meanwhile, writes each on its own."""
        for _ in range(_ATTEMPTS - 1):
            results = await self._try_to_write(planned)
            # The configs of a topic that does not exist were created or deleted meanwhile: try again.
            if len(planned) > 1 or not isinstance(results[0], NodeExists | NoNode):
                return results
        return await self._try_to_write(planned)

    async def _try_to_write(
        self, planned: Sequence[tuple[TopicSpec, TopicAssignment]]
    ) -> list[TopicAssignment | HeadraceError]:
        try:
            operations = [operation for topic in planned for operation in await self._operations(*topic)]
            await self._store.multi(operations)
        except (NodeExists, NoNode) as error:
            if len(planned) > 1:
                return [result for topic in planned for result in await self._write([topic])]
            return [await self._why_not_written(planned[0][0].name, error)]
        except StoreError as error:
            return [error for _ in planned]  # topics of an earlier step exist
        return [assignment for _, assignment in planned]

    async def _why_not_written(self, name: str, error: StoreError) -> HeadraceError:
        try:
            exists = await self._store.exists(znodes.topic_path(name)) is not None
            return await self._exists_error(name) if exists else error
        except StoreError as failure:
            return failure

    async def _operations(self, spec: TopicSpec, assignment: TopicAssignment) -> list[Operation]:
        """Returns the operations that create a topic. Its own node is last: who sees it also finds its configs."""
        entity = ConfigEntity.topic(spec.name)
        data = znodes.encode_config(spec.configs)
        topic = Create(znodes.topic_path(spec.name), znodes.encode_topic(assignment))
        # Configs can exist without a topic: written beforehand, or left over from an interrupted deletion.
        if await self._store.exists(entity.path) is not None:
            return [Set(entity.path, data), notification(entity), topic]
        if spec.configs:
            return [Create(entity.path, data), notification(entity), topic]
        return [Create(entity.path, data), topic]  # without a notification, brokers assume the defaults

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
                _racks(brokers),
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


def _refuse_planned(
    results: list[TopicAssignment | HeadraceError], on_planned: Callable[[TopicAssignment], None]
) -> None:
    """Replaces topics that `on_planned` refuses by its error."""
    for index, result in enumerate(results):
        if isinstance(result, TopicAssignment):
            try:
                on_planned(result)
            except HeadraceError as error:
                results[index] = error


class TopicNames:
    """The names of all topics, and of the topics about to be created."""

    def __init__(self, names: Iterable[str]):
        self._names = set(names)
        self._by_metric_name: dict[str, str] | None = None

    def contains(self, name: str) -> bool:
        return name in self._names

    def check_collision(self, name: str) -> None:
        """Raises InvalidTopicError if another topic has the same metric name: `.` becomes `_` there."""
        if "." not in name and "_" not in name:
            return
        if self._by_metric_name is None:
            self._by_metric_name = {topic.replace(".", "_"): topic for topic in self._names}
        existing = self._by_metric_name.get(name.replace(".", "_"))
        if existing is not None:
            raise InvalidTopicError(
                f"Topic '{name}' collides with existing topic: {existing}. ('.' and '_' are the same in metric names.)"
            )

    def add(self, name: str) -> None:
        self._names.add(name)
        if self._by_metric_name is not None:
            self._by_metric_name[name.replace(".", "_")] = name


def _unknown(topic: str) -> UnknownTopicOrPartitionError:
    return UnknownTopicOrPartitionError(f"Topic '{topic}' does not exist.")


def _racks(brokers: Mapping[int, BrokerInfo]) -> dict[int, str | None]:
    return {broker.id: broker.rack for broker in brokers.values()}


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
