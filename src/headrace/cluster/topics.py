"""Creating and deleting topics, and adding partitions, as operations on the coordination store. The controller watches
the store and does the rest: it elects leaders and tells the brokers.

A topic comes into being with its settings in one step, so it is there whole or not at all. Deleting only marks it.
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

LONGEST_TOPIC_NAME = 249
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
BROKER_DEFAULT = -1
"""A number of partitions or replicas that is left to the broker."""

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")
_KAFKAS_OWN = "__cluster_metadata"

ConfigCheck = Callable[[str, Mapping[str, str]], None]
"""Raises if a topic cannot have these settings."""


def check_topic_name(name: str) -> None:
    """Raises InvalidTopicError for a name that no topic may have."""
    if not name:
        raise InvalidTopicError("a topic name has at least one character, not none")
    if name in (".", ".."):
        raise InvalidTopicError(f"{name!r} cannot name a topic: it stands for a directory")
    if len(name) > LONGEST_TOPIC_NAME:
        raise InvalidTopicError(
            f"a topic name has {LONGEST_TOPIC_NAME} characters at most, this one has {len(name)}: {name!r}"
        )
    if _LEGAL_NAME.fullmatch(name) is None:
        raise InvalidTopicError(
            f"a topic name is made of letters and digits of ASCII, '.', '_' and '-', this one is not: {name!r}"
        )
    if name == _KAFKAS_OWN:
        raise InvalidTopicError(f"{name!r} cannot name a topic: Kafka's own metadata log has that name")


def find_clash(name: str, topics: Iterable[str]) -> str | None:
    """A topic whose name differs only in `.` and `_`: both become `_` in the names of metrics."""
    if "." not in name and "_" not in name:
        return None
    unified = name.replace(".", "_")
    return next((other for other in topics if other.replace(".", "_") == unified), None)


def is_internal(name: str) -> bool:
    return name in INTERNAL_TOPICS


@dataclass(frozen=True)
class TopicSpec:
    name: str
    num_partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    assignment: Mapping[int, Sequence[int]] | None = None
    """Replicas by partition, instead of the two numbers above."""
    configs: Mapping[str, str] = field(default_factory=dict)


class TopicAdmin:
    """`check_config` raises if a topic cannot have the settings that it is given."""

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
        """From the check of a name to its topic: names that clash are not the same node, so the store takes both."""

    # ---- creating

    async def create_topic(self, new: TopicSpec, *, validate_only: bool = False) -> TopicAssignment:
        """Returns the topic as it was made, or, with `validate_only`, as it would be (its id then means nothing)."""
        check_topic_name(new.name)
        async with self._creating:
            return await self._create_topic(new, validate_only)

    async def _create_topic(self, new: TopicSpec, validate_only: bool) -> TopicAssignment:
        await self._check_name_is_free(new.name)
        brokers = await read_brokers(self._store)
        replicas = self._replicas_of(new, brokers)
        self._check_config(new.name, new.configs)
        assignment = TopicAssignment(
            new.name,
            random_uuid(self._random),
            {index: ReplicaAssignment(tuple(ids)) for index, ids in replicas.items()},
        )
        if not validate_only:
            await self._write(assignment, new.configs)
        return assignment

    async def _check_name_is_free(self, name: str) -> None:
        topics = await self._store.children(znodes.TOPICS)
        if name in topics:
            raise await self._exists_error(name)
        if (other := find_clash(name, topics)) is not None:
            raise InvalidTopicError(
                f"topic {name} would clash with {other}: '.' and '_' are the same in the names of metrics"
            )

    async def _exists_error(self, name: str) -> TopicAlreadyExistsError:
        if await self._store.exists(znodes.delete_topic_path(name)) is not None:
            return TopicAlreadyExistsError(f"topic {name} is still being deleted")
        return TopicAlreadyExistsError(f"there is a topic {name} already")

    def _replicas_of(self, new: TopicSpec, brokers: Mapping[int, BrokerInfo]) -> dict[int, tuple[int, ...]]:
        if new.assignment is not None:
            if new.num_partitions != BROKER_DEFAULT or new.replication_factor != BROKER_DEFAULT:
                raise InvalidRequestError(
                    f"topic {new.name} is given replicas for each partition, so its numbers of partitions and replicas "
                    f"must be {BROKER_DEFAULT}, not {new.num_partitions} and {new.replication_factor}"
                )
            return _check_manual_assignment(new.assignment, brokers)
        partitions = self._default_partitions() if new.num_partitions == BROKER_DEFAULT else new.num_partitions
        factor = new.replication_factor
        if factor == BROKER_DEFAULT:
            factor = self._default_replication_factor()
        return assign_replicas(list(brokers.values()), partitions, factor, self._random)

    async def _write(self, assignment: TopicAssignment, configs: Mapping[str, str]) -> None:
        path = znodes.topic_path(assignment.topic)
        entity = ConfigEntity.topic(assignment.topic)
        data = znodes.encode_config(configs)
        # Settings may be there without a topic: written beforehand, or left over by a deletion that was broken off.
        left_over = await self._store.exists(entity.path) is not None
        config: Operation = Set(entity.path, data) if left_over else Create(entity.path, data)
        try:
            # The topic last: who sees it finds its settings.
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
        """Raises a topic to `total` partitions; `assignments` are the replicas of those that are added."""
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
        try:
            data, stat = await self._store.get(znodes.topic_path(topic))
        except NoNode:
            raise _unknown(topic) from None
        if await self._store.exists(znodes.delete_topic_path(topic)) is not None:
            raise InvalidTopicError(f"topic {topic} is being deleted, and gets no more partitions")
        return znodes.decode_topic(topic, data), stat.version

    def _with_more_partitions(
        self,
        before: TopicAssignment,
        total: int,
        assignments: Sequence[Sequence[int]] | None,
        brokers: Mapping[int, BrokerInfo],
    ) -> TopicAssignment:
        count = len(before.partitions)
        if any(one.is_reassigned for one in before.partitions.values()):
            raise ReassignmentInProgressError(
                f"replicas of topic {before.topic} are being moved; it gets no partitions before that is done"
            )
        if total < count:
            raise InvalidPartitionsError(
                f"topic {before.topic} has {count} partitions and cannot be brought down to {total}"
            )
        if total == count:
            raise InvalidPartitionsError(f"topic {before.topic} has {count} partitions, as asked for: none to add")
        first_replicas = before.partitions[0].replicas
        if assignments is None:
            ids = sorted(brokers)
            start = next((place for place, broker in enumerate(ids) if broker >= first_replicas[0]), 0)
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
        partitions = {**before.partitions, **{index: ReplicaAssignment(ids) for index, ids in added.items()}}
        return TopicAssignment(before.topic, before.topic_id, partitions)

    # ---- deleting

    async def delete_topic(self, topic: str) -> None:
        """Marks a topic for deletion, which the controller then does; fine if it is marked already."""
        path = znodes.topic_path(topic)
        while True:
            try:
                data, stat = await self._store.get(path)
                # Writing the topic again, as it is, makes one who adds partitions at the same time look again.
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
    return UnknownTopicOrPartitionError(f"there is no topic {topic}")


def _check_manual_assignment(
    assignment: Mapping[int, Sequence[int]], brokers: Mapping[int, BrokerInfo]
) -> dict[int, tuple[int, ...]]:
    if not assignment:
        raise InvalidPartitionsError("a topic has at least one partition, no replicas are given for any")
    if sorted(assignment) != list(range(len(assignment))):
        raise InvalidReplicationAssignmentError(
            f"replicas must be given for the partitions from 0 to {len(assignment) - 1}, without a gap"
        )
    factor = len(assignment[0])
    return {index: _check_replicas(index, assignment[index], factor, brokers) for index in range(len(assignment))}


def _check_added_assignments(
    assignments: Sequence[Sequence[int]], count: int, total: int, factor: int, brokers: Mapping[int, BrokerInfo]
) -> dict[int, tuple[int, ...]]:
    if len(assignments) != total - count:
        raise InvalidReplicationAssignmentError(
            f"replicas are given for {len(assignments)} new partitions, and {total - count} are to be added"
        )
    return {
        index: _check_replicas(index, replicas, factor, brokers)
        for index, replicas in enumerate(assignments, start=count)
    }


def _check_replicas(
    index: int, replicas: Sequence[int], factor: int, brokers: Mapping[int, BrokerInfo]
) -> tuple[int, ...]:
    if not replicas:
        raise InvalidReplicationAssignmentError(
            f"partition {index} has an empty list of replicas: it needs at least one"
        )
    shown = ", ".join(map(str, replicas))
    if len(set(replicas)) != len(replicas):
        raise InvalidReplicationAssignmentError(
            f"a broker is named twice among the replicas of partition {index}: {shown}"
        )
    unknown = [str(replica) for replica in replicas if replica not in brokers]
    if unknown:
        raise InvalidReplicationAssignmentError(
            f"partition {index} has replicas on brokers that are not there: {', '.join(unknown)}"
        )
    if len(replicas) != factor:
        raise InvalidReplicationAssignmentError(
            f"all partitions of a topic have as many replicas as partition 0, which has {factor}: partition {index} "
            f"has {len(replicas)}"
        )
    return tuple(replicas)
