"""The guarantees that every change of the coordination store keeps, checked when the change is made.

- the ISR changes only by compare-and-set, is a subset of the assignment, and contains the leader
- leader epochs, controller epochs and partition epochs never go back; one leader per epoch
- a controller that was replaced changes no leader
- an ISR change comes from the controller, or from the leader itself (`inter.broker.protocol.version` below 2.7)

Remembers all states of all partitions, so that the states of brokers can be compared with them.
"""

import re
from collections.abc import Callable, Sequence

from headrace.cluster import znodes
from headrace.cluster.node_tree import Change
from headrace.cluster.store import ANY_VERSION, Operation, Set, Watch, WatchEvent
from headrace.cluster.znodes import Leadership
from headrace.common.ids import ZERO_UUID
from headrace.common.types import TopicPartition
from headrace.testing.simulation.cluster import SimulatedCluster, broker_name
from headrace.testing.simulation.history import InvariantViolation

_STATE = re.compile(r"/brokers/topics/([^/]+)/partitions/(\d+)/state")


class StoreInvariants:
    """The checks of all changes of the store. Keeps the first violation."""

    def __init__(self, cluster: SimulatedCluster):
        self._server = cluster.store_server
        self.tree = cluster.store_server.store._shared.tree
        self.leaderships: dict[str, Leadership] = {}
        """The current state of each partition, by the path of its node."""
        self.states: dict[tuple[str, str, int], Leadership] = {}
        """All states that a partition has ever had, by topic id, path and partition epoch."""
        self.topic_ids: dict[str, dict[str, None]] = {}
        """All ids that a topic name has ever had."""
        self.violation: InvariantViolation | None = None
        self._leaders: dict[tuple[str, str, int], int] = {}
        """The leader of each epoch, by topic id, path and leader epoch."""
        self._controller = 0
        """The session that was elected last. It may write until another one is, also while it resigns."""
        self._writer = 0
        """The session of the change in progress."""
        self._watch()

    def _watch(self) -> None:
        tree = self.tree
        prepare, apply = tree.prepare, tree.apply

        def checked_prepare(operations: Sequence[Operation], session_id: int, now_ms: int) -> Change:
            change = prepare(operations, session_id, now_ms)
            self._writer = session_id
            self._note(lambda: self._check_operations(operations))
            return change

        def checked_apply(change: Change) -> list[tuple[int, Watch, WatchEvent]]:
            self._note(lambda: self._check_change(change))
            return apply(change)

        tree.prepare = checked_prepare  # type: ignore[method-assign]
        tree.apply = checked_apply  # type: ignore[method-assign]

    def _note(self, check: Callable[[], None]) -> None:
        """Keeps a violation: the store's node must not fail because of it."""
        try:
            check()
        except InvariantViolation as violation:
            self.violation = self.violation or violation

    # ---- changes

    def _check_operations(self, operations: Sequence[Operation]) -> None:
        for operation in operations:
            if isinstance(operation, Set) and _STATE.fullmatch(operation.path) and operation.version == ANY_VERSION:
                raise InvariantViolation(f"{operation.path} was written without compare-and-set")

    def _check_change(self, change: Change) -> None:
        if change.nodes.get(znodes.CONTROLLER_EPOCH) is not None:
            self._controller = self._writer
        for path, node in change.nodes.items():
            match = _STATE.fullmatch(path)
            if match is None:
                continue
            if node is None:
                self.leaderships.pop(path, None)
                continue
            tp = TopicPartition(match[1], int(match[2]))
            self._check_leadership(path, tp, znodes.decode_leadership(tp, node.data, node.version))

    def _check_leadership(self, path: str, tp: TopicPartition, after: Leadership) -> None:
        before = self.leaderships.get(path)
        self.leaderships[path] = after
        topic = self.topic(tp.topic)
        topic_id = topic.id if topic is not None else ""
        self.topic_ids.setdefault(tp.topic, {})[topic_id] = None
        self.states[topic_id, path, after.partition_epoch] = after
        changed = f"{tp}: {before} -> {after}"
        if topic is not None and not set(after.isr) <= set(topic.replicas(tp.partition)):
            raise InvariantViolation(
                f"The ISR is no subset of the assignment {topic.replicas(tp.partition)}: {changed}"
            )
        if not after.isr or (after.leader != -1 and after.leader not in after.isr):
            raise InvariantViolation(f"The leader is not in sync: {changed}")
        is_election = before is None or after.leader_epoch != before.leader_epoch or after.leader != before.leader
        current_epoch = znodes.decode_controller_epoch(self.tree.get(znodes.CONTROLLER_EPOCH)[0])
        if is_election and after.controller_epoch != current_epoch:
            raise InvariantViolation(f"A controller was replaced (epoch {current_epoch}), but wrote {changed}")
        if before is not None:
            if after.leader_epoch < before.leader_epoch or after.controller_epoch < before.controller_epoch:
                raise InvariantViolation(f"An epoch went back: {changed}")
            if after.leader != before.leader and after.leader_epoch <= before.leader_epoch:
                raise InvariantViolation(f"A leader without an epoch of its own: {changed}")
        if after.leader != -1 and self.leader_of(topic_id, path, after.leader_epoch, after.leader) != after.leader:
            raise InvariantViolation(f"Two leaders in one epoch: {changed}")
        self._check_writer(after.leader, changed, is_election=is_election)

    def _check_writer(self, leader: int, changed: str, *, is_election: bool) -> None:
        writer = self._server.owner_of(self._writer)
        if self._writer == self._controller:
            return
        if is_election or writer != broker_name(leader):
            raise InvariantViolation(f"{writer} is neither controller nor leader, but wrote {changed}")

    # ---- for checks of brokers

    def leader_of(self, topic_id: str, path: str, leader_epoch: int, leader: int) -> int:
        """Returns the leader of an epoch: the first one that was seen, which is `leader` if it is new."""
        return self._leaders.setdefault((topic_id, path, leader_epoch), leader)

    def topics(self) -> "list[Topic]":
        return [topic for name in self.tree.children(znodes.TOPICS) if (topic := self.topic(name)) is not None]

    def topic(self, name: str) -> "Topic | None":
        if self.tree.exists(znodes.topic_path(name)) is None:
            return None
        data, stat = self.tree.get(znodes.topic_path(name))
        return Topic(name, data, stat.czxid)


class Topic:
    """A topic of the store."""

    def __init__(self, name: str, data: bytes, czxid: int):
        assignment = znodes.decode_topic(name, data)
        self.name = name
        self.id = str(assignment.topic_id) if assignment.topic_id != ZERO_UUID else f"created by {czxid}"
        """Tells it from other topics with the same name. Topics have ids from protocol version 2.8 on."""
        self.partitions = {number: tuple(found.replicas) for number, found in assignment.partitions.items()}

    def replicas(self, partition: int) -> tuple[int, ...]:
        return self.partitions.get(partition, ())
