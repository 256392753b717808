"""The controller: the broker that elects the leader of every partition.

Every broker runs a controller. The broker that creates the ephemeral node /controller is the active one, and increments
the controller epoch in the same step. One task processes one event at a time, so every event sees a consistent state:

    store watches, broker responses, requests -> queue -> event -> state machines -> store -> brokers

- A watch only signals a change. Its event reads the node again and sets the watch again.
- The controller reloads everything after an election, and when the store rejects a change that should succeed. So no
  essential state is only in memory.
- `controller_term` handles the events of the active controller, `controller_requests` the requests of brokers.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from headrace.cluster import controller_requests, znodes
from headrace.cluster.commands import BrokerChannel, Command, CommandResult, LeaderAndIsr, StopReplica
from headrace.cluster.config_store import ConfigEntity, ConfigStore
from headrace.cluster.controller_context import ControllerContext
from headrace.cluster.controller_requests import IsrChange
from headrace.cluster.controller_term import ControllerTerm, Watches
from headrace.cluster.fenced_store import ControllerMoved, FencedStore
from headrace.cluster.leader_balance import FIRST_CHECK_SECONDS, LeaderBalanceConfig
from headrace.cluster.leader_election import Election
from headrace.cluster.store import (
    BadVersion,
    ConnectionLoss,
    CoordinationStore,
    Create,
    NodeExists,
    NoNode,
    SessionState,
    Set,
    Stat,
    StoreError,
    WatchEvent,
)
from headrace.cluster.znodes import Leadership, ProducerIdBlock, ReplicaAssignment
from headrace.common.clock import Clock
from headrace.common.errors import HeadraceError, KafkaError, NotControllerError
from headrace.common.ids import Uuid
from headrace.common.types import TopicPartition

_logger = logging.getLogger(__name__)

T = TypeVar("T")

UNCLEAN_ELECTION_KEY = "unclean.leader.election.enable"
RETRY_SECONDS = 1.0
"""How long a controller waits after a store failure before it takes part in an election again."""


class Controller:
    """A broker's controller: elects the active controller and runs its event queue."""

    def __init__(
        self,
        store: CoordinationStore,
        broker_id: int,
        channel: BrokerChannel,
        clock: Clock,
        *,
        unclean_default: Callable[[], bool] = lambda: False,
        balance: LeaderBalanceConfig | None = None,
        new_topic_id: Callable[[], Uuid] | None = None,
        leaders_write_isr: bool = False,
    ):
        """`unclean_default` returns the value for topics that do not set `unclean.leader.election.enable`.

        Without `balance`, leaders are not moved back to their preferred brokers automatically. Topics without an id get
        one from `new_topic_id`, if given. With `leaders_write_isr`, leaders change ISRs in the store themselves.
        """
        self.broker_id = broker_id
        self._store = store
        self._channel = channel
        self._clock = clock
        self._configs = ConfigStore(store)
        self._unclean_default = unclean_default
        self._balance = balance
        self._new_topic_id = new_topic_id
        self._leaders_write_isr = leaders_write_isr
        self._balance_timer: asyncio.TimerHandle | None = None
        self._term: ControllerTerm | None = None
        self._active_controller_id: int | None = None
        self._events: deque[tuple[str, Callable[[], Awaitable[None]]]] = deque()
        self._pending_results: set[asyncio.Future[Any]] = set()
        self._awake = asyncio.Event()
        self._idle = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._stopped = False
        self._watches = Watches(
            brokers=lambda _: self._enqueue_if_active("broker change", ControllerTerm.process_broker_change),
            topics=lambda _: self._enqueue_if_active("topic change", ControllerTerm.process_topic_change),
            topic=self._on_topic_node_event,
            deletions=lambda _: self._enqueue_if_active("topic deletion", ControllerTerm.process_topic_deletions),
            log_dirs=lambda _: self._enqueue_if_active("log directory event", ControllerTerm.process_log_dir_events),
            isr_changes=lambda _: self._enqueue_if_active("ISR change", ControllerTerm.process_isr_changes),
            preferred_election=lambda _: self._enqueue_if_active(
                "preferred replica election", ControllerTerm.process_preferred_election
            ),
            reassignment=lambda _: self._enqueue_if_active(
                "requested reassignment", ControllerTerm.process_requested_reassignments
            ),
        )

    # ---- public interface

    @property
    def is_active(self) -> bool:
        return self._term is not None

    @property
    def epoch(self) -> int:
        """The controller epoch of this broker, or 0 if it is not the active controller."""
        return self._term.context.epoch if self._term is not None else 0

    @property
    def active_id(self) -> int | None:
        """The id of the active controller, as of the last read of /controller."""
        return self._active_controller_id

    @property
    def context(self) -> ControllerContext:
        """The context of the active controller, read-only. Raises NotControllerError if this broker is not active."""
        return self._active().context

    async def start(self) -> None:
        """Starts to take part in elections. Call it after the broker has registered."""
        self._store.add_session_listener(self._on_session_state)
        self._task = asyncio.create_task(self._run(), name=f"controller-{self.broker_id}")
        self._enqueue("elect", self._elect, once=True)

    async def stop(self) -> None:
        """Stops the event task and deletes /controller, so that another broker can take over at once."""
        self._stopped = True
        if self._retry is not None:
            self._retry.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        self._idle.set()
        for result in self._pending_results:
            if not result.done():
                result.set_exception(NotControllerError(f"The controller of broker {self.broker_id} has stopped"))
        await self._give_up_controllership()

    async def wait_idle(self) -> None:
        """Waits until no event is queued or running."""
        await self._idle.wait()

    async def elect_leaders(
        self, election: Election, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, KafkaError | None]:
        """Elects preferred leaders, or with Election.UNCLEAN any online replica, for the given partitions or for all.

        Returns None or the error for each partition. Without `partitions`, the result has only partitions that
        need an election.
        """
        return await self._run_as_event(
            "elect leaders", lambda: controller_requests.elect_leaders(self._active(), election, partitions)
        )

    async def alter_isr(
        self, broker_id: int, broker_epoch: int, changes: Mapping[TopicPartition, IsrChange]
    ) -> dict[TopicPartition, Leadership | KafkaError]:
        """Changes ISRs for a leader (KIP-497). Returns the new state, or the error, of each partition."""

        async def alter() -> dict[TopicPartition, Leadership | KafkaError]:
            term = self._active()
            results = await controller_requests.alter_isr(term, broker_id, broker_epoch, changes)
            if not term.context.reassigned_partitions.isdisjoint(changes):
                self._enqueue_if_active("reassignment", lambda term: term.reassignment.complete())
            return results

        return await self._run_as_event("alter ISR", alter)

    async def alter_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[int] | None], *, allow_replication_factor_change: bool = True
    ) -> dict[TopicPartition, KafkaError | None]:
        """Moves partitions to other replicas; None cancels a reassignment (KIP-455). Returns None or the error of each
        partition. The reassignments are in progress then."""
        return await self._run_as_event(
            "alter reassignments",
            lambda: self._active().reassignment.alter(
                targets, allow_replication_factor_change=allow_replication_factor_change
            ),
        )

    async def list_reassignments(
        self, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, ReplicaAssignment]:
        """Returns the reassignments in progress: all, or those of some partitions."""

        async def list_them() -> dict[TopicPartition, ReplicaAssignment]:
            return await self._active().reassignment.in_progress(partitions)

        return await self._run_as_event("list reassignments", list_them)

    async def topic_names(self, topic_ids: Collection[Uuid]) -> dict[Uuid, str]:
        """Returns the names of topics by id, without topics that do not exist."""

        async def find() -> dict[Uuid, str]:
            topics = self._active().context.topics.values()
            return {topic.topic_id: topic.topic for topic in topics if topic.topic_id in topic_ids}

        return await self._run_as_event("topic names", find)

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> set[TopicPartition]:
        """Moves leadership away from a broker that is shutting down. Returns the replicated partitions that it still
        leads because no other replica is eligible."""
        return await self._run_as_event(
            "controlled shutdown",
            lambda: controller_requests.controlled_shutdown(self._active(), broker_id, broker_epoch),
        )

    async def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> ProducerIdBlock:
        """Allocates a block of producer ids for a broker (KIP-730)."""
        return await self._run_as_event(
            "allocate producer ids",
            lambda: controller_requests.allocate_producer_ids(self._active(), broker_id, broker_epoch),
        )

    def unclean_election_enabled(self, topic: str | None = None) -> None:
        """Retries elections after `unclean.leader.election.enable` was turned on for a topic, or for all."""

        async def retry(term: ControllerTerm) -> None:
            await term.partitions.trigger_online_state_change(
                None if topic is None else term.context.partitions_of(topic)
            )

        self._enqueue_if_active(f"unclean election enabled for {topic or 'all topics'}", retry)

    # ---- event queue

    def _enqueue(self, name: str, work: Callable[[], Awaitable[None]], *, once: bool = False) -> None:
        """Queues an event. With `once`, does nothing if an event with this name is already queued."""
        if self._stopped or (once and any(queued == name for queued, _ in self._events)):
            return
        self._events.append((name, work))
        self._idle.clear()
        self._awake.set()

    def _enqueue_if_active(
        self, name: str, process: Callable[[ControllerTerm], Awaitable[None]], *, once: bool = True
    ) -> None:
        """Queues an event that only the active controller processes."""

        async def event() -> None:
            if self._term is not None:
                await process(self._term)

        self._enqueue(name, event, once=once)

    async def _run_as_event(self, name: str, work: Callable[[], Awaitable[T]]) -> T:
        """Queues work as an event and returns its result."""
        if self._stopped:
            raise NotControllerError(f"The controller of broker {self.broker_id} has stopped")
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        async def event() -> None:
            if future.done():
                return
            try:
                result = await work()
            except KafkaError as error:
                _set_exception(future, error)
            except Exception as error:
                _set_exception(future, NotControllerError(f"Controller request '{name}' failed: {error}"))
                raise
            else:
                if not future.done():
                    future.set_result(result)

        self._enqueue(name, event)
        self._pending_results.add(future)
        try:
            return await future
        finally:
            self._pending_results.discard(future)

    async def _run(self) -> None:
        while True:
            if not self._events:
                self._idle.set()
                self._awake.clear()
                await self._awake.wait()
            name, work = self._events.popleft()
            try:
                await work()
                if self._term is not None:
                    await self._term.batch.send()
            except ControllerMoved as error:
                _logger.info("Broker %d resigns as controller: %s", self.broker_id, error)
                self._resign()
                self._enqueue("elect", self._elect, once=True)
            except Exception as error:
                _logger.error(
                    "Broker %d: controller event '%s' failed; resigning, next election in %.0f s: %s",
                    self.broker_id,
                    name,
                    RETRY_SECONDS,
                    error,
                    exc_info=not isinstance(error, HeadraceError),
                )
                await self._resign_and_retry()

    async def _resign_and_retry(self) -> None:
        """Resigns after a failure, because the state in memory may be wrong.

        Takes part in an election again after RETRY_SECONDS. Another broker may win it.
        """
        await self._give_up_controllership()
        loop = asyncio.get_running_loop()
        self._retry = loop.call_later(RETRY_SECONDS, lambda: self._enqueue("elect", self._elect, once=True))

    def _active(self) -> ControllerTerm:
        if self._term is None:
            raise NotControllerError(f"Broker {self.broker_id} is not the active controller")
        return self._term

    # ---- election

    async def _elect(self) -> None:
        while self._term is None:
            try:
                data, stat = await self._store.get(znodes.CONTROLLER, self._on_controller_node_event)
            except NoNode:
                pass
            else:
                if stat.ephemeral_owner != self._store.session_id:
                    active_id = znodes.decode_controller(data)
                    if active_id != self._active_controller_id:
                        _logger.info("Broker %d: the active controller is broker %d", self.broker_id, active_id)
                    self._active_controller_id = active_id
                    return
                # Left over from a term that ended with a store failure.
                await self._delete_own_controller_node()
            fenced = await self._register_as_controller()
            if fenced is None:
                continue
            _logger.info("Broker %d is the active controller with epoch %d", self.broker_id, fenced.epoch)
            self._active_controller_id = self.broker_id
            self._term = ControllerTerm(
                self.broker_id,
                self._store,
                fenced,
                self._channel,
                watches=self._watches,
                on_result=self._on_command_result,
                unclean_allowed=self._unclean_allowed,
                new_topic_id=self._new_topic_id,
            )
            self._term.context.leaders_write_isr = self._leaders_write_isr
            # Sets a watch on /controller, and notices if the node is already gone.
            self._enqueue("controller change", self._process_controller_change, once=True)
            self._schedule_balance_check(FIRST_CHECK_SECONDS)
            await self._term.on_controller_failover()

    async def _register_as_controller(self) -> FencedStore | None:
        """Creates /controller and increments the epoch in one step. Returns None if another broker was faster."""
        data, stat = await self._store.get(znodes.CONTROLLER_EPOCH)
        epoch = znodes.decode_controller_epoch(data) + 1
        node = znodes.encode_controller(self.broker_id, self._clock.time_ms())
        try:
            _, epoch_stat = await self._store.multi(
                [
                    Create(znodes.CONTROLLER, node, ephemeral=True),
                    Set(znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(epoch), stat.version),
                ]
            )
        except (NodeExists, BadVersion):
            return None
        except ConnectionLoss as error:
            _logger.warning("Broker %d: the result of the controller election was lost: %s", self.broker_id, error)
            return await self._recognize_own_election(node, epoch)
        assert isinstance(epoch_stat, Stat)
        return FencedStore(self._store, epoch, epoch_stat.version)

    async def _recognize_own_election(self, node: bytes, epoch: int) -> FencedStore | None:
        """Returns the result of an election whose response was lost; None if this broker did not win it."""
        try:
            data, stat = await self._store.get(znodes.CONTROLLER)
            epoch_data, epoch_stat = await self._store.get(znodes.CONTROLLER_EPOCH)
        except NoNode:
            return None
        if stat.ephemeral_owner != self._store.session_id or data != node:
            return None
        if znodes.decode_controller_epoch(epoch_data) != epoch:
            return None
        return FencedStore(self._store, epoch, epoch_stat.version)

    async def _give_up_controllership(self) -> None:
        if self._term is None:
            return
        self._resign()
        try:
            await self._delete_own_controller_node()
        except StoreError as error:
            _logger.info(
                "Broker %d: cannot delete %s on resignation, it stays until the session ends: %s",
                self.broker_id,
                znodes.CONTROLLER,
                error,
            )

    async def _delete_own_controller_node(self) -> None:
        try:
            _, stat = await self._store.get(znodes.CONTROLLER)
            if stat.ephemeral_owner == self._store.session_id:
                await self._store.delete(znodes.CONTROLLER, stat.version)
        except (NoNode, BadVersion):
            return

    def _on_controller_node_event(self, _: WatchEvent) -> None:
        self._enqueue("controller change", self._process_controller_change, once=True)

    async def _process_controller_change(self) -> None:
        if self._term is not None:
            stat = await self._store.exists(znodes.CONTROLLER, self._on_controller_node_event)
            if stat is not None and stat.ephemeral_owner == self._store.session_id:
                return
            _logger.info("Broker %d is no longer the controller", self.broker_id)
            self._resign()
        await self._elect()

    def _on_session_state(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            # Immediately: a running event must not send any more commands.
            if self._term is not None:
                _logger.warning(
                    "Broker %d lost its session with the coordination store and is no longer the controller",
                    self.broker_id,
                )
            self._resign()
        self._enqueue("elect", self._elect, once=True)

    def _resign(self) -> None:
        if self._balance_timer is not None:
            self._balance_timer.cancel()
        if self._term is not None:
            term, self._term = self._term, None
            self._active_controller_id = None
            term.on_controller_resignation()

    # ---- events

    def _schedule_balance_check(self, seconds: float) -> None:
        balance = self._balance
        if balance is None or not balance.enable:
            return

        async def check(term: ControllerTerm) -> None:
            try:
                await term.rebalance_leaders(balance.percentage)
            finally:
                if term is self._term:
                    self._schedule_balance_check(balance.check_interval_seconds)

        self._balance_timer = asyncio.get_running_loop().call_later(
            seconds, lambda: self._enqueue_if_active("leader balance", check)
        )

    def _on_topic_node_event(self, event: WatchEvent) -> None:
        topic = event.path.removeprefix(f"{znodes.TOPICS}/")
        self._enqueue_if_active(
            f"partition modifications of {topic}", lambda term: term.process_partition_modifications(topic)
        )

    def _on_command_result(self, broker_id: int, command: Command, result: CommandResult) -> None:
        if result.error_code:
            _logger.warning(
                "Broker %d rejected a %s of controller %d: error code %d",
                broker_id,
                type(command).__name__,
                self.broker_id,
                result.error_code,
            )
        if self._term is None or not self._term.is_current(broker_id, command):
            return
        if isinstance(command, StopReplica):
            if any(partition.delete for partition in command.partitions):
                self._enqueue_if_active(
                    "StopReplica response",
                    lambda term: term.process_stop_replica_response(broker_id, command, result),
                    once=False,
                )
        elif isinstance(command, LeaderAndIsr) and self._term.reports_log_dir_change(broker_id, result):
            self._enqueue_if_active(
                "LeaderAndIsr response",
                lambda term: term.process_leader_and_isr_response(broker_id, command, result),
                once=False,
            )

    async def _unclean_allowed(self, topic: str) -> bool:
        config = await self._configs.get(ConfigEntity.topic(topic))
        value = config.get(UNCLEAN_ELECTION_KEY)
        return self._unclean_default() if value is None else value.strip().lower() == "true"


def _set_exception(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
