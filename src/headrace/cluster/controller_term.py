"""One term of the active controller: its context, its state machines, and its event handlers.

A term starts when the broker is elected and ends when it resigns. The controller's task calls one method at a time.
Each method adds its commands for brokers to `batch`.
"""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, replace
from itertools import islice

from headrace.cluster import znodes
from headrace.cluster.bulk_reads import read_many
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
from headrace.cluster.leader_balance import partitions_to_rebalance
from headrace.cluster.leader_election import Election
from headrace.cluster.partition_state_machine import PartitionStateMachine
from headrace.cluster.reassignment import PartitionReassignment
from headrace.cluster.replica_state_machine import ReplicaStateMachine
from headrace.cluster.store import BadVersion, CoordinationStore, Delete, NoNode, Set, Watch
from headrace.cluster.topic_deletion_manager import TopicDeletionManager
from headrace.cluster.znodes import TopicAssignment
from headrace.common.errors import KafkaStorageError
from headrace.common.ids import ZERO_UUID, Uuid
from headrace.common.types import TopicPartition

_logger = logging.getLogger(__name__)

_MAX_LOGGED_PARTITIONS = 10
"""How many partitions a log line names."""


@dataclass(frozen=True)
class Watches:
    """The controller's callbacks for changes in the store."""

    brokers: Watch
    topics: Watch
    topic: Watch
    deletions: Watch
    log_dirs: Watch
    isr_changes: Watch
    preferred_election: Watch
    reassignment: Watch


class ControllerTerm:
    """The active controller's context, state machines and event handlers during one controller epoch."""

    def __init__(
        self,
        broker_id: int,
        store: CoordinationStore,
        fenced: FencedStore,
        channel: BrokerChannel,
        *,
        watches: Watches,
        on_result: Callable[[int, Command, CommandResult], None],
        unclean_allowed: Callable[[str], Awaitable[bool]],
        new_topic_id: Callable[[], Uuid] | None = None,
    ):
        """Topics without an id get one from `new_topic_id`, if given."""
        self.store = store
        self.fenced = fenced
        self.channel = channel
        self.context = ControllerContext(broker_id)
        self.context.epoch = fenced.epoch
        self.batch = CommandBatch(self.context, channel, on_result)
        self.partitions = PartitionStateMachine(self.context, fenced, self.batch, unclean_allowed)
        self.replicas = ReplicaStateMachine(self.context, fenced, self.batch)
        self.deletion_manager = TopicDeletionManager(
            self.context, store, fenced, self.batch, self.partitions, self.replicas
        )
        self.reassignment = PartitionReassignment(
            self.context, store, fenced, self.batch, self.partitions, self.replicas, watches.reassignment
        )
        self._watches = watches
        self._new_topic_id = new_topic_id
        self._channel_brokers: set[int] = set()
        """The brokers that the channel sends commands to."""

    def on_controller_resignation(self) -> None:
        """Ends the term: nothing is written and no commands are sent any more, not even by a running event."""
        self.fenced.close()
        self.batch.close()
        for broker_id in self._channel_brokers:
            self.channel.remove_broker(broker_id)
        self._channel_brokers.clear()

    def _add_to_channel(self, broker: BrokerInfo) -> None:
        if not self.batch.closed:
            self._channel_brokers.add(broker.id)
            self.channel.add_broker(broker)

    def _remove_from_channel(self, broker_id: int) -> None:
        if broker_id in self._channel_brokers:
            self._channel_brokers.discard(broker_id)
            self.channel.remove_broker(broker_id)

    # ---- failover

    async def on_controller_failover(self) -> None:
        """Loads the context, sets all watches, sends every broker the full state, and resumes unfinished work."""
        context = self.context
        context.brokers = await self._read_brokers()
        topics = await read_many(await self.store.children(znodes.TOPICS, self._watches.topics), self._read_topic)
        context.topics = {name: assignment for name, assignment in topics.items() if assignment is not None}
        for tp, state in (await self.fenced.read_leaderships(context.partitions())).items():
            if isinstance(state, znodes.DamagedNode):
                _logger.error("Partition %s cannot have a leader: %s", tp, state)
                context.damaged_partitions.add(tp)
            elif state is not None:
                context.leaderships[tp] = state
        marked = await self.store.children(znodes.DELETE_TOPICS, self._watches.deletions)
        context.topics_to_be_deleted = {topic for topic in marked if topic in context.topics}
        await self._delete_marks_of_unknown_topics([topic for topic in marked if topic not in context.topics])
        for broker in context.brokers.values():
            self._add_to_channel(broker)
        await self.replicas.initialize_states()
        await self.partitions.initialize_states()
        # Brokers must know each other before followers start to fetch from leaders.
        self.batch.add_update_metadata()
        await self.batch.send()
        # New leaders first: until then their partitions are not available.
        await self.partitions.trigger_online_state_change()
        await self.batch.send()
        self.batch.add_full_metadata(context.brokers)
        online = [replica for replica, status in context.replica_status.items() if status is ReplicaStatus.ONLINE]
        await self.replicas.handle_state_changes(online, ReplicaStatus.ONLINE)
        offline = [
            replica
            for replica, status in context.replica_status.items()
            if status is ReplicaStatus.OFFLINE and not context.is_queued_for_deletion(replica.tp)
        ]
        await self.replicas.handle_state_changes(offline, ReplicaStatus.OFFLINE)
        await self.deletion_manager.resume()
        await self.process_log_dir_events()
        await self.process_isr_changes()
        await self._resume_reassignments()
        await self.process_preferred_election()
        self._log_takeover()

    async def _resume_reassignments(self) -> None:
        context = self.context
        context.reassigned_partitions = set(await self.reassignment.in_progress(list(context.partitions())))
        resumed = context.reassigned_partitions - await self.reassignment.process_node()
        if resumed:
            _logger.info("Resuming the reassignment of %d partitions: %s", len(resumed), _name_some(sorted(resumed)))
        await self.reassignment.resume(resumed)

    def _log_takeover(self) -> None:
        context = self.context
        leaderless = [tp for tp, status in context.partition_status.items() if status is not PartitionStatus.ONLINE]
        _logger.info(
            "Controller %d (epoch %d) has taken over: brokers %s, %d topics, %d partitions, %d without a leader%s; %d "
            "topics are being deleted",
            context.controller_id,
            context.epoch,
            list(context.brokers),
            len(context.topics),
            len(context.partition_status),
            len(leaderless),
            f" ({_name_some(leaderless)})" if leaderless else "",
            len(context.topics_to_be_deleted),
        )

    async def _read_brokers(self) -> dict[int, BrokerInfo]:
        names = await self.store.children(znodes.BROKER_IDS, self._watches.brokers)
        brokers = (await read_many(names, self._read_broker)).values()
        return {broker.id: broker for broker in sorted(filter(None, brokers), key=lambda broker: broker.id)}

    async def _read_broker(self, name: str) -> BrokerInfo | None:
        try:
            data, stat = await self.store.get(f"{znodes.BROKER_IDS}/{name}", self._watches.brokers)
            return znodes.decode_broker(int(name), data, stat.czxid) if name.isdecimal() else None
        except NoNode:
            return None
        except znodes.DamagedNode as error:
            _logger.error("Ignoring broker %s, its registration is unreadable: %s", name, error)
            return None

    async def _read_topic(self, topic: str) -> TopicAssignment | None:
        damaged_topics = self.context.damaged_topics
        damaged_topics.discard(topic)
        try:
            data, stat = await self.store.get(znodes.topic_path(topic), self._watches.topic)
            assignment = znodes.decode_topic(topic, data)
            if assignment.topic_id == ZERO_UUID and self._new_topic_id is not None:
                return await self._assign_topic_id(replace(assignment, topic_id=self._new_topic_id()), stat.version)
            return assignment
        except NoNode:
            return None
        except znodes.DamagedNode as error:
            # One unreadable topic must not keep the other topics from getting leaders.
            _logger.error("Ignoring topic %s, its assignment is unreadable: %s", topic, error)
            damaged_topics.add(topic)
            return None

    async def _assign_topic_id(self, assignment: TopicAssignment, version: int) -> TopicAssignment | None:
        """Writes the id of a topic that was created with `inter.broker.protocol.version` below 2.8, as Kafka does."""
        topic = assignment.topic
        try:
            await self.fenced.multi([Set(znodes.topic_path(topic), znodes.encode_topic(assignment), version)])
        except BadVersion:
            return await self._read_topic(topic)
        _logger.info("Topic %s had no id; it has id %s now", topic, assignment.topic_id)
        return assignment

    # ---- brokers

    async def process_broker_change(self) -> None:
        """Compares the registered brokers with the context.

        A broker with a new epoch has restarted: it counts as failed, then as new.
        """
        context = self.context
        registered = await self._read_brokers()
        failed = {
            broker_id
            for broker_id, broker in context.brokers.items()
            if broker_id not in registered or registered[broker_id].epoch != broker.epoch
        }
        started = [broker for broker in registered.values() if broker.id in failed or broker.id not in context.brokers]
        updated = [
            broker
            for broker in registered.values()
            if broker.id not in failed and broker != context.brokers.get(broker.id)
        ]
        if failed:
            await self._on_broker_failure(failed)
        if started:
            await self._on_broker_startup(started)
        for broker in updated:
            if broker not in started:
                context.brokers[broker.id] = broker
                self._add_to_channel(broker)
                self.batch.add_update_metadata()

    async def _on_broker_failure(self, broker_ids: Collection[int]) -> None:
        context = self.context
        led = Counter(state.leader for state in context.leaderships.values())
        _logger.info(
            "Brokers failed or stopped: %s; electing new leaders for the %d partitions that they led",
            sorted(broker_ids),
            sum(led[broker_id] for broker_id in broker_ids),
        )
        for broker_id in broker_ids:
            del context.brokers[broker_id]
            context.shutting_down.discard(broker_id)
            context.replicas_on_offline_dirs.pop(broker_id, None)
            self._remove_from_channel(broker_id)
        self.batch.add_update_metadata()
        await self._on_replicas_become_offline(context.replicas_on(broker_ids))

    async def _on_broker_startup(self, brokers: Collection[BrokerInfo]) -> None:
        _logger.info("Brokers started: %s", ", ".join(f"{broker.id} (epoch {broker.epoch})" for broker in brokers))
        context = self.context
        for broker in brokers:
            context.brokers[broker.id] = broker
            context.shutting_down.discard(broker.id)
            self._add_to_channel(broker)
        ids = [broker.id for broker in brokers]
        self.batch.add_update_metadata()
        await self.batch.send()
        self.batch.add_full_metadata(ids)
        await self._on_replicas_become_online(context.replicas_on(ids))

    async def _on_replicas_become_online(self, replicas: Collection[Replica]) -> None:
        deleted = (ReplicaStatus.DELETION_STARTED, ReplicaStatus.DELETION_SUCCESSFUL)
        startable = [replica for replica in replicas if self.context.replica_status.get(replica) not in deleted]
        await self.replicas.handle_state_changes(startable, ReplicaStatus.ONLINE)
        await self.partitions.trigger_online_state_change()
        await self.reassignment.complete()
        await self.deletion_manager.resume({replica.tp.topic for replica in replicas})

    async def _on_replicas_become_offline(self, replicas: Collection[Replica]) -> None:
        """Handles failed brokers or log directories: elects new leaders, then shrinks ISRs."""
        context = self.context
        remaining = [replica for replica in replicas if not context.is_queued_for_deletion(replica.tp)]
        leaderless = [
            tp
            for tp, broker_id in remaining
            if tp in context.leaderships
            and context.leaderships[tp].leader == broker_id
            and context.partition_status.get(tp) is PartitionStatus.ONLINE
        ]
        await self.partitions.handle_state_changes(leaderless, PartitionStatus.OFFLINE)
        await self.partitions.trigger_online_state_change()
        await self.batch.send()  # new leaders first: until then their partitions are not available
        await self.replicas.handle_state_changes(remaining, ReplicaStatus.OFFLINE)
        await self.deletion_manager.on_replica_deletion_failure(
            [replica for replica in replicas if context.is_queued_for_deletion(replica.tp)]
        )
        await self.deletion_manager.resume()

    # ---- topics

    async def process_topic_change(self) -> None:
        """Detects created topics, and topics whose nodes were removed by another program."""
        context = self.context
        names = set(await self.store.children(znodes.TOPICS, self._watches.topics))
        for topic in [topic for topic in context.topics if topic not in names]:
            _logger.warning("Topic %s was removed from the store without a deletion; dropping it", topic)
            context.remove_topic(topic)
        context.damaged_topics &= names
        new: list[TopicPartition] = []
        for name, assignment in (await read_many(sorted(names - context.topics.keys()), self._read_topic)).items():
            if assignment is not None:
                context.topics[name] = assignment
                new += context.partitions_of(name)
        await self._on_new_partition_creation(new)

    async def process_partition_modifications(self, topic: str) -> None:
        """Detects partitions that were added to a topic."""
        context = self.context
        if topic not in context.topics:
            return
        assignment = await self._read_topic(topic)
        if assignment is None or topic in context.topics_to_be_deleted:
            return
        existing = context.topics[topic]
        added = {
            partition: replicas
            for partition, replicas in assignment.partitions.items()
            if partition not in existing.partitions
        }
        if added:
            context.topics[topic] = replace(existing, partitions={**existing.partitions, **added})
            await self._on_new_partition_creation([TopicPartition(topic, partition) for partition in added])

    async def _on_new_partition_creation(self, tps: Collection[TopicPartition]) -> None:
        if not tps:
            return
        _logger.info("%d new partitions: %s", len(tps), _name_some(tps))
        context = self.context
        replicas = context.replicas_of(tps)
        await self.partitions.handle_state_changes(list(tps), PartitionStatus.NEW)
        await self.replicas.handle_state_changes(replicas, ReplicaStatus.NEW)
        await self.partitions.handle_state_changes(list(tps), PartitionStatus.ONLINE)
        online: list[Replica] = []
        offline: list[Replica] = []
        for replica in replicas:
            (online if context.is_replica_online(replica.broker_id, replica.tp) else offline).append(replica)
        await self.replicas.handle_state_changes(online, ReplicaStatus.ONLINE)
        await self.replicas.handle_state_changes(offline, ReplicaStatus.OFFLINE)

    # ---- deletion

    async def process_topic_deletions(self) -> None:
        """Starts to delete topics that were marked under /admin/delete_topics."""
        context = self.context
        marked = await self.store.children(znodes.DELETE_TOPICS, self._watches.deletions)
        if any(topic not in context.topics for topic in marked):
            # A topic may have been created and marked since this controller last read the topics.
            await self.process_topic_change()
        await self._delete_marks_of_unknown_topics([topic for topic in marked if topic not in context.topics])
        # A deletion ends the reassignments of the topic: all of its replicas are deleted, also the new ones.
        context.reassigned_partitions = {tp for tp in context.reassigned_partitions if tp.topic not in marked}
        await self.deletion_manager.add(topic for topic in marked if topic in context.topics)

    async def _delete_marks_of_unknown_topics(self, topics: Iterable[str]) -> None:
        for topic in topics:
            if topic in self.context.damaged_topics:
                continue  # it exists; the deletion waits until its assignment is readable
            _logger.info("Topic %s is marked for deletion but does not exist; removing the mark", topic)
            try:
                await self.fenced.multi([Delete(znodes.delete_topic_path(topic))])
            except NoNode:
                continue

    # ---- responses of brokers

    def is_current(self, broker_id: int, command: Command) -> bool:
        """Returns True if a response belongs to this controller epoch and to the broker's current epoch."""
        if command.controller_epoch != self.context.epoch:
            return False
        broker = self.context.brokers.get(broker_id)
        return broker is not None and broker.epoch == command.broker_epoch

    async def process_stop_replica_response(self, broker_id: int, command: StopReplica, result: CommandResult) -> None:
        if not self.is_current(broker_id, command):
            return
        tps = [
            partition.tp
            for partition in command.partitions
            if partition.delete and self.context.is_queued_for_deletion(partition.tp)
        ]
        await self.deletion_manager.on_replicas_deleted(Replica(tp, broker_id) for tp in tps if not result.error_of(tp))
        await self.deletion_manager.on_replica_deletion_failure(
            [Replica(tp, broker_id) for tp in tps if result.error_of(tp)]
        )
        await self.deletion_manager.resume()

    def reports_log_dir_change(self, broker_id: int, result: CommandResult) -> bool:
        """Returns True if a response reports a failed log directory, or may report that one is online again."""
        return bool(
            self.context.replicas_on_offline_dirs.get(broker_id)
            or KafkaStorageError.code in result.partition_errors.values()
        )

    async def process_leader_and_isr_response(
        self, broker_id: int, command: LeaderAndIsr, result: CommandResult
    ) -> None:
        """Records which replicas are offline because their log directory failed, and which are online again."""
        if not self.is_current(broker_id, command):
            return
        context = self.context
        tps = {state.tp for state in command.partitions if context.has_partition(state.tp)}
        failed = {tp for tp in tps if result.error_of(tp) == KafkaStorageError.code}
        offline = context.replicas_on_offline_dirs.setdefault(broker_id, set())
        newly_failed = failed - offline
        recovered = {tp for tp in tps & offline if not result.error_of(tp)}
        offline |= failed
        offline -= recovered
        if newly_failed:
            _logger.warning(
                "Broker %d: %d replicas are offline, their log directory failed: %s",
                broker_id,
                len(newly_failed),
                _name_some(sorted(newly_failed)),
            )
            await self._on_replicas_become_offline([Replica(tp, broker_id) for tp in sorted(newly_failed)])
        if recovered:
            _logger.info("Broker %d: %d replicas are online again", broker_id, len(recovered))
            await self._on_replicas_become_online([Replica(tp, broker_id) for tp in sorted(recovered)])

    # ---- log directories

    async def process_log_dir_events(self) -> None:
        """Handles brokers' notifications of failed log directories.

        Sends such a broker a LeaderAndIsr for all its replicas. Its response names the offline replicas. It includes
        offline replicas of deleted topics: the deletion waits for them.
        """
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
                offline = context.replicas_on_offline_dirs.get(broker_id, set())
                for replica in context.replicas_on([broker_id]):
                    if replica.tp in offline or not context.is_queued_for_deletion(replica.tp):
                        self.batch.add_leader_and_isr([broker_id], replica.tp)
                await self.batch.send()
            await self.fenced.delete_existing([path])

    # ---- ISR changes and elections that were requested through the store

    async def process_isr_changes(self) -> None:
        """Propagates ISRs that leaders have written themselves: brokers whose protocol version is below 2.7."""
        names = await self.store.children(znodes.ISR_CHANGES, self._watches.isr_changes)
        if not names:
            return
        paths = [f"{znodes.ISR_CHANGES}/{name}" for name in names]
        changed = await self._read_partitions(paths)
        known = [tp for tp in changed if self.context.has_partition(tp)]
        await self.partitions.refresh(known)
        await self.reassignment.complete()
        self.batch.add_update_metadata(known)
        await self.batch.send()
        await self.fenced.delete_existing(paths)

    async def process_requested_reassignments(self) -> None:
        """Starts the reassignments that an older tool has requested. The requests are deleted when they are done."""
        requested = await self.reassignment.process_node()
        if requested:
            _logger.info("Reassignment of %d partitions was requested", len(requested))

    async def process_preferred_election(self) -> None:
        """Elects the preferred leaders that an older tool has requested, then deletes the request."""
        if await self.store.exists(znodes.PREFERRED_ELECTION, self._watches.preferred_election) is None:
            return
        requested = await self._read_partitions([znodes.PREFERRED_ELECTION])
        _logger.info("Preferred leader election of %d partitions was requested", len(requested))
        await self.elect_preferred(requested)
        await self.fenced.delete_existing([znodes.PREFERRED_ELECTION])
        # Sets the watch again, and processes a request that was written meanwhile.
        await self.process_preferred_election()

    async def elect_preferred(self, tps: Iterable[TopicPartition]) -> None:
        """Elects the preferred leaders of partitions that have another leader."""
        context = self.context
        needed = [
            tp
            for tp in tps
            if tp in context.leaderships
            and context.has_partition(tp)
            and not context.is_queued_for_deletion(tp)
            and context.leaderships[tp].leader != context.assignment(tp).replicas[0]
        ]
        await self.partitions.handle_state_changes(needed, PartitionStatus.ONLINE, Election.PREFERRED_REPLICA)

    async def rebalance_leaders(self, percentage: int) -> None:
        """Moves leaders back to brokers that lead too few of the partitions whose preferred leader they are."""
        for broker_id, tps in partitions_to_rebalance(self.context, percentage).items():
            _logger.info(
                "Broker %d leads too few of its preferred partitions; making it leader of %d partitions again",
                broker_id,
                len(tps),
            )
            await self.elect_preferred(tps)

    async def _read_partitions(self, paths: Iterable[str]) -> list[TopicPartition]:
        """Returns the partitions that are listed in nodes, without duplicates."""

        async def read(path: str) -> list[TopicPartition]:
            try:
                data, _ = await self.store.get(path)
                return znodes.decode_partitions(path, data)
            except NoNode:
                return []
            except znodes.DamagedNode as error:
                _logger.error("%s", error)
                return []

        listed = await read_many(paths, read)
        return list(dict.fromkeys(tp for tps in listed.values() for tp in tps))


def _name_some(tps: Collection[TopicPartition]) -> str:
    """Returns the names of the first partitions for a log line."""
    names = ", ".join(map(str, islice(tps, _MAX_LOGGED_PARTITIONS)))
    return f"{names} ..." if len(tps) > _MAX_LOGGED_PARTITIONS else names
