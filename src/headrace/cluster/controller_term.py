"""One term of office of a controller: what it knows, and what it does about each event.

Made at an election and thrown away at the end. Every method is called by the controller's task, one at a time, and
leaves in `batch` what brokers are to be told.
"""

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, replace

from headrace.cluster import znodes
from headrace.cluster.command_batch import CommandBatch
from headrace.cluster.commands import (
    NO_LEADER,
    BrokerChannel,
    BrokerInfo,
    Command,
    CommandResult,
    LeaderAndIsr,
    StopReplica,
)
from headrace.cluster.controller_context import ControllerContext, PartitionStatus, Replica, ReplicaStatus
from headrace.cluster.fenced_store import FencedStore
from headrace.cluster.partition_state_machine import PartitionStateMachine
from headrace.cluster.replica_state_machine import ReplicaStateMachine
from headrace.cluster.store import CoordinationStore, Delete, NoNode, Watch
from headrace.cluster.topic_deletion_manager import TopicDeletionManager
from headrace.cluster.znodes import TopicAssignment
from headrace.common.errors import KafkaStorageError
from headrace.common.types import TopicPartition

_logger = logging.getLogger(__name__)

_SHOWN = 10
"""How many partitions a line of the log names."""


@dataclass(frozen=True)
class Watches:
    """What the store is to call when something changes."""

    brokers: Watch
    topics: Watch
    topic: Watch
    deletions: Watch
    log_dirs: Watch


class ControllerTerm:
    def __init__(
        self,
        broker_id: int,
        store: CoordinationStore,
        fenced: FencedStore,
        channel: BrokerChannel,
        *,
        watches: Watches,
        on_answer: Callable[[int, Command, CommandResult], None],
        unclean_allowed: Callable[[str], Awaitable[bool]],
    ):
        self.store = store
        self.fenced = fenced
        self.channel = channel
        self.context = ControllerContext(broker_id)
        self.context.epoch = fenced.epoch
        self.batch = CommandBatch(self.context, channel, on_answer)
        self.partitions = PartitionStateMachine(self.context, fenced, self.batch, unclean_allowed)
        self.replicas = ReplicaStateMachine(self.context, fenced, self.batch)
        self.deleter = TopicDeletionManager(self.context, store, fenced, self.batch, self.partitions, self.replicas)
        self._watches = watches

    def end(self) -> None:
        """Nothing is sent any more, not even by an event that is being worked on."""
        self.batch.close()
        for broker_id in self.context.brokers:
            self.channel.remove_broker(broker_id)

    # ---- taking over

    async def take_over(self) -> None:
        """Loads everything, sets all watches, tells every broker everything, and finishes what was begun."""
        context = self.context
        context.brokers = await self._read_brokers()
        for name in await self.store.children(znodes.TOPICS, self._watches.topics):
            assignment = await self._read_topic(name)
            if assignment is not None:
                context.topics[name] = assignment
        for tp in context.partitions():
            try:
                state = await self.fenced.read_leadership(tp)
            except znodes.DamagedNode as error:
                _logger.error("%s can have no leader: %s", tp, error)
                context.unreadable.add(tp)
            else:
                if state is not None:
                    context.leaderships[tp] = state
        marked = await self.store.children(znodes.DELETE_TOPICS, self._watches.deletions)
        context.to_delete = {topic for topic in marked if topic in context.topics}
        await self._drop_marks([topic for topic in marked if topic not in context.topics])
        for broker in context.brokers.values():
            self.channel.add_broker(broker)
        self.replicas.load()
        self.partitions.load()
        # Who the brokers are must be known before anybody is told to fetch from one of them.
        self.batch.metadata()
        self.batch.send()
        self.batch.full_metadata(context.brokers)
        online = [one for one, status in context.replica_status.items() if status is ReplicaStatus.ONLINE]
        await self.replicas.move(online, ReplicaStatus.ONLINE)
        await self.partitions.elect_missing()
        gone = [
            replica
            for replica, status in context.replica_status.items()
            if status is ReplicaStatus.OFFLINE and not context.is_to_delete(replica.tp)
        ]
        await self.replicas.move(gone, ReplicaStatus.OFFLINE)
        await self.deleter.resume()
        await self.look_at_log_dirs()

    async def _read_brokers(self) -> dict[int, BrokerInfo]:
        found: dict[int, BrokerInfo] = {}
        for name in await self.store.children(znodes.BROKER_IDS, self._watches.brokers):
            try:
                data, stat = await self.store.get(f"{znodes.BROKER_IDS}/{name}", self._watches.brokers)
                if name.isdecimal():
                    found[int(name)] = znodes.decode_broker(int(name), data, stat.czxid)
            except NoNode:
                continue
            except znodes.DamagedNode as error:
                _logger.error("broker %s is left out: %s", name, error)
        return dict(sorted(found.items()))

    async def _read_topic(self, topic: str) -> TopicAssignment | None:
        try:
            data, _ = await self.store.get(znodes.topic_path(topic), self._watches.topic)
            return znodes.decode_topic(topic, data)
        except NoNode:
            return None
        except znodes.DamagedNode as error:
            # One topic that cannot be read must not keep the others from having leaders.
            _logger.error("topic %s is left out: %s", topic, error)
            return None

    # ---- brokers come and go

    async def look_at_brokers(self) -> None:
        context = self.context
        now = await self._read_brokers()
        gone = {one for one in context.brokers if one not in now or now[one].epoch != context.brokers[one].epoch}
        come = [broker for broker in now.values() if broker.id in gone or broker.id not in context.brokers]
        moved = [
            broker for broker in now.values() if broker.id not in gone and broker != context.brokers.get(broker.id)
        ]
        if gone:
            await self._brokers_gone(gone)
        if come:
            await self._brokers_come(come)
        for broker in moved:
            if broker not in come:
                context.brokers[broker.id] = broker
                self.channel.add_broker(broker)
                self.batch.metadata()

    async def _brokers_gone(self, broker_ids: Collection[int]) -> None:
        _logger.info("brokers gone: %s", sorted(broker_ids))
        context = self.context
        for broker_id in broker_ids:
            del context.brokers[broker_id]
            context.shutting_down.discard(broker_id)
            context.failed_replicas.pop(broker_id, None)
            self.channel.remove_broker(broker_id)
        self.batch.metadata()
        await self._replicas_gone(context.replicas_on(broker_ids))

    async def _brokers_come(self, brokers: Collection[BrokerInfo]) -> None:
        _logger.info("brokers come: %s", [broker.id for broker in brokers])
        context = self.context
        for broker in brokers:
            context.brokers[broker.id] = broker
            context.shutting_down.discard(broker.id)
            self.channel.add_broker(broker)
        ids = [broker.id for broker in brokers]
        self.batch.metadata()
        self.batch.send()
        self.batch.full_metadata(ids)
        await self._replicas_come(context.replicas_on(ids))

    async def _replicas_come(self, replicas: Collection[Replica]) -> None:
        deleted = (ReplicaStatus.DELETION_STARTED, ReplicaStatus.DELETION_SUCCESSFUL)
        startable = [one for one in replicas if self.context.replica_status.get(one) not in deleted]
        await self.replicas.move(startable, ReplicaStatus.ONLINE)
        await self.partitions.elect_missing()
        await self.deleter.resume({replica.tp.topic for replica in replicas})

    async def _replicas_gone(self, replicas: Collection[Replica]) -> None:
        """Brokers or log directories have failed: other leaders first, then smaller ISRs."""
        context = self.context
        standing = [one for one in replicas if not context.is_to_delete(one.tp)]
        leaderless = [
            tp
            for tp, broker_id in standing
            if tp in context.leaderships
            and context.leaderships[tp].leader == broker_id
            and context.partition_status.get(tp) is PartitionStatus.ONLINE
        ]
        await self.partitions.move(leaderless, PartitionStatus.OFFLINE)
        await self.partitions.elect_missing()
        await self.replicas.move(standing, ReplicaStatus.OFFLINE)
        await self.deleter.replicas_failed([one for one in replicas if context.is_to_delete(one.tp)])
        await self.deleter.resume()

    # ---- topics

    async def look_at_topics(self) -> None:
        context = self.context
        names = set(await self.store.children(znodes.TOPICS, self._watches.topics))
        for topic in [topic for topic in context.topics if topic not in names]:
            _logger.warning("the nodes of topic %s were removed by somebody else", topic)
            context.forget_topic(topic)
        new: list[TopicPartition] = []
        for name in sorted(names - context.topics.keys()):
            assignment = await self._read_topic(name)
            if assignment is not None:
                context.topics[name] = assignment
                new += context.partitions_of(name)
        await self._partitions_made(new)

    async def look_at_topic(self, topic: str) -> None:
        context = self.context
        if topic not in context.topics:
            return
        assignment = await self._read_topic(topic)
        if assignment is None or topic in context.to_delete:
            return
        known = context.topics[topic]
        added = {index: one for index, one in assignment.partitions.items() if index not in known.partitions}
        if added:
            context.topics[topic] = replace(known, partitions={**known.partitions, **added})
            await self._partitions_made([TopicPartition(topic, index) for index in added])

    async def _partitions_made(self, tps: Collection[TopicPartition]) -> None:
        if not tps:
            return
        shown = ", ".join(map(str, list(tps)[:_SHOWN]))
        _logger.info("%d new partitions: %s%s", len(tps), shown, " ..." if len(tps) > _SHOWN else "")
        context = self.context
        replicas = context.replicas_of(tps)
        await self.partitions.move(list(tps), PartitionStatus.NEW)
        await self.replicas.move(replicas, ReplicaStatus.NEW)
        await self.partitions.move(list(tps), PartitionStatus.ONLINE)
        online: list[Replica] = []
        offline: list[Replica] = []
        for one in replicas:
            (online if context.is_online(one.broker_id, one.tp) else offline).append(one)
        await self.replicas.move(online, ReplicaStatus.ONLINE)
        await self.replicas.move(offline, ReplicaStatus.OFFLINE)

    # ---- deletion

    async def look_at_deletions(self) -> None:
        context = self.context
        marked = await self.store.children(znodes.DELETE_TOPICS, self._watches.deletions)
        if any(topic not in context.topics for topic in marked):
            # A topic may have been made and marked since this controller last looked.
            await self.look_at_topics()
        await self._drop_marks([topic for topic in marked if topic not in context.topics])
        await self.deleter.add(topic for topic in marked if topic in context.topics)

    async def _drop_marks(self, topics: Iterable[str]) -> None:
        for topic in topics:
            _logger.info("topic %s, which is marked for deletion, does not exist", topic)
            try:
                await self.fenced.multi([Delete(znodes.delete_topic_path(topic))])
            except NoNode:
                continue

    # ---- answers of brokers

    def is_current(self, broker_id: int, command: Command) -> bool:
        """Whether an answer is for this term and from the broker's present life."""
        if command.controller_epoch != self.context.epoch:
            return False
        broker = self.context.brokers.get(broker_id)
        return broker is not None and broker.epoch == command.broker_epoch

    async def replicas_deleted(self, broker_id: int, command: StopReplica, result: CommandResult) -> None:
        if not self.is_current(broker_id, command):
            return
        asked = [one.tp for one in command.partitions if one.delete and self.context.is_to_delete(one.tp)]
        await self.deleter.replicas_deleted(Replica(tp, broker_id) for tp in asked if not result.error_of(tp))
        await self.deleter.replicas_failed([Replica(tp, broker_id) for tp in asked if result.error_of(tp)])
        await self.deleter.resume()

    def tells_of_log_dirs(self, broker_id: int, result: CommandResult) -> bool:
        """Whether an answer says that a log directory has failed, or may say that one is well again."""
        return bool(
            self.context.failed_replicas.get(broker_id) or KafkaStorageError.code in result.partition_errors.values()
        )

    async def replicas_started(self, broker_id: int, command: LeaderAndIsr, result: CommandResult) -> None:
        """A broker says which replicas it has no log for, as their directory has failed."""
        if not self.is_current(broker_id, command):
            return
        context = self.context
        tps = {state.tp for state in command.partitions if context.has_partition(state.tp)}
        failed = {tp for tp in tps if result.error_of(tp) == KafkaStorageError.code}
        known = context.failed_replicas.setdefault(broker_id, set())
        newly_failed = failed - known
        healed = {tp for tp in tps & known if not result.error_of(tp)}
        known |= failed
        known -= healed
        if newly_failed:
            await self._replicas_gone([Replica(tp, broker_id) for tp in sorted(newly_failed)])
        if healed:
            await self._replicas_come([Replica(tp, broker_id) for tp in sorted(healed)])

    # ---- log directories

    async def look_at_log_dirs(self) -> None:
        """Brokers leave word here when a log directory fails. Telling such a broker its leaders again makes it answer
        which replicas are lost."""
        context = self.context
        for name in await self.store.children(znodes.LOG_DIR_EVENTS, self._watches.log_dirs):
            path = f"{znodes.LOG_DIR_EVENTS}/{name}"
            try:
                data, _ = await self.store.get(path)
                broker_id = znodes.decode_log_dir_event(path, data)
            except NoNode:
                continue
            except znodes.DamagedNode as error:
                _logger.error("%s", error)
                broker_id = NO_LEADER
            if broker_id in context.brokers:
                for replica in context.replicas_on([broker_id]):
                    if not context.is_to_delete(replica.tp):
                        self.batch.leader_and_isr([broker_id], replica.tp)
                self.batch.send()
            await self.fenced.multi([Delete(path)])
