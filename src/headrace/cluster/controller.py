"""The controller: the one broker that decides who leads which partition.

Every broker runs one; whoever makes the ephemeral node /controller is active, and takes the next controller epoch in
the same step. All work is done by one task, one event at a time, so an event sees and leaves a whole state:

    watches of the store, answers of brokers, requests -> queue -> event -> state machines -> store -> brokers

Watches only say that something has changed; the event reads again, and sets the watch again. When it takes over, or
when the store refuses a change that should be possible, a controller loads everything anew: nothing that matters is
only in its memory. What it does in office is in `term` and `requests`.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, TypeVar

from headrace.cluster import controller_requests, znodes
from headrace.cluster.commands import BrokerChannel, Command, CommandResult, LeaderAndIsr, StopReplica
from headrace.cluster.config_store import ConfigEntity, ConfigStore
from headrace.cluster.controller_context import ControllerContext
from headrace.cluster.controller_requests import IsrChange
from headrace.cluster.controller_term import ControllerTerm, Watches
from headrace.cluster.fenced_store import ControllerMoved, FencedStore
from headrace.cluster.leader_election import Election
from headrace.cluster.store import (
    BadVersion,
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
from headrace.cluster.znodes import Leadership
from headrace.common.clock import Clock
from headrace.common.errors import HeadraceError, KafkaError, NotControllerError
from headrace.common.types import TopicPartition

_logger = logging.getLogger(__name__)

T = TypeVar("T")

UNCLEAN_ELECTION_KEY = "unclean.leader.election.enable"
RETRY_SECONDS = 1.0
"""How long a controller that the store failed waits before it stands for election again."""


class Controller:
    def __init__(
        self,
        store: CoordinationStore,
        broker_id: int,
        channel: BrokerChannel,
        clock: Clock,
        *,
        unclean_default: Callable[[], bool] = lambda: False,
    ):
        """`unclean_default` is what holds for topics that do not set `unclean.leader.election.enable`."""
        self.broker_id = broker_id
        self._store = store
        self._channel = channel
        self._clock = clock
        self._configs = ConfigStore(store)
        self._unclean_default = unclean_default
        self._term: ControllerTerm | None = None
        self._known_controller: int | None = None
        self._events: deque[tuple[str, Callable[[], Awaitable[None]]]] = deque()
        self._answers: set[asyncio.Future[Any]] = set()
        self._awake = asyncio.Event()
        self._idle = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._stopped = False
        self._watches = Watches(
            brokers=lambda _: self._enqueue_look("brokers changed", ControllerTerm.look_at_brokers),
            topics=lambda _: self._enqueue_look("topics changed", ControllerTerm.look_at_topics),
            topic=self._topic_changed,
            deletions=lambda _: self._enqueue_look("deletions changed", ControllerTerm.look_at_deletions),
            log_dirs=lambda _: self._enqueue_look("log directories changed", ControllerTerm.look_at_log_dirs),
        )

    # ---- for the broker

    @property
    def is_active(self) -> bool:
        return self._term is not None

    @property
    def epoch(self) -> int:
        """The epoch of this controller's term of office; 0 if it is not active."""
        return self._term.context.epoch if self._term is not None else 0

    @property
    def active_id(self) -> int | None:
        """The broker that was controller when this one last looked."""
        return self._known_controller

    @property
    def context(self) -> ControllerContext:
        """What the active controller knows, to look at. Raises NotControllerError if this is not it."""
        return self._active().context

    async def start(self) -> None:
        """Takes part in elections from now on. The broker should be registered already."""
        self._store.add_session_listener(self._on_session)
        self._task = asyncio.create_task(self._run(), name=f"controller-{self.broker_id}")
        self._enqueue("elect", self._elect, once=True)

    async def stop(self) -> None:
        """Ends the task and gives up the office, so that another broker can take it at once."""
        self._stopped = True
        if self._retry is not None:
            self._retry.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        self._idle.set()
        for answer in self._answers:
            if not answer.done():
                answer.set_exception(NotControllerError(f"the controller of broker {self.broker_id} has stopped"))
        await self._leave_office()

    async def wait_idle(self) -> None:
        """Until no event is waiting or being worked on."""
        await self._idle.wait()

    async def elect_leaders(
        self, election: Election, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, KafkaError | None]:
        """Elects preferred leaders, or with Election.UNCLEAN whoever is there, for these partitions or all. Returns an
        error for each that got no new leader; of all partitions only those that needed one are reported."""
        return await self._ask(
            "elect leaders", lambda: controller_requests.elect_leaders(self._active(), election, partitions)
        )

    async def alter_isr(
        self, broker_id: int, broker_epoch: int, changes: Mapping[TopicPartition, IsrChange]
    ) -> dict[TopicPartition, Leadership | KafkaError]:
        """A leader's request to change ISRs (KIP-497). Returns what each partition has now, or why it stays."""
        return await self._ask(
            "alter ISR", lambda: controller_requests.alter_isr(self._active(), broker_id, broker_epoch, changes)
        )

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> set[TopicPartition]:
        """Takes leadership away from a broker that is about to stop. Returns the replicated partitions that it still
        leads, as no other replica could."""
        return await self._ask(
            "controlled shutdown", lambda: controller_requests.shut_down(self._active(), broker_id, broker_epoch)
        )

    def unclean_election_enabled(self, topic: str | None = None) -> None:
        """The setting was turned on for a topic, or for all: partitions without a leader may get one now."""

        async def retry(term: ControllerTerm) -> None:
            await term.partitions.elect_missing(None if topic is None else term.context.partitions_of(topic))

        self._enqueue_look(f"unclean election enabled for {topic or 'all topics'}", retry)

    # ---- the task

    def _enqueue(self, name: str, work: Callable[[], Awaitable[None]], *, once: bool = False) -> None:
        """`once`: not if an event of this name is waiting already."""
        if self._stopped or (once and any(waiting == name for waiting, _ in self._events)):
            return
        self._events.append((name, work))
        self._idle.clear()
        self._awake.set()

    def _enqueue_look(self, name: str, look: Callable[[ControllerTerm], Awaitable[None]], *, once: bool = True) -> None:
        """An event that concerns the active controller only."""

        async def event() -> None:
            if self._term is not None:
                await look(self._term)

        self._enqueue(name, event, once=once)

    async def _ask(self, name: str, work: Callable[[], Awaitable[T]]) -> T:
        """Does work as an event, and waits for what comes of it."""
        if self._stopped:
            raise NotControllerError(f"the controller of broker {self.broker_id} has stopped")
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        async def event() -> None:
            if answer.done():
                return
            try:
                result = await work()
            except KafkaError as error:
                _set_exception(answer, error)
            except Exception as error:
                _set_exception(answer, NotControllerError(f"{name} failed: {error}"))
                raise
            else:
                if not answer.done():
                    answer.set_result(result)

        self._enqueue(name, event)
        self._answers.add(answer)
        try:
            return await answer
        finally:
            self._answers.discard(answer)

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
                    self._term.batch.send()
            except ControllerMoved as error:
                _logger.info("%s; broker %d steps down", error, self.broker_id)
                self._drop_reign()
                self._enqueue("elect", self._elect, once=True)
            except Exception as error:
                _logger.error(
                    "event %r failed, starting over: %s", name, error, exc_info=not isinstance(error, HeadraceError)
                )
                await self._start_over()

    async def _start_over(self) -> None:
        """After a failure nobody knows what of the state in memory is true: gives up the office and stands for election
        again, a little later, or another broker does."""
        await self._leave_office()
        loop = asyncio.get_running_loop()
        self._retry = loop.call_later(RETRY_SECONDS, lambda: self._enqueue("elect", self._elect, once=True))

    def _active(self) -> ControllerTerm:
        if self._term is None:
            raise NotControllerError(f"broker {self.broker_id} is not the controller")
        return self._term

    # ---- election

    async def _elect(self) -> None:
        while self._term is None:
            try:
                data, stat = await self._store.get(znodes.CONTROLLER, self._controller_changed)
            except NoNode:
                pass
            else:
                if stat.ephemeral_owner != self._store.session_id:
                    self._known_controller = znodes.decode_controller(data)
                    return
                # Left over from a term of office that ended in trouble with the store.
                await self._remove_own_node()
            fenced = await self._take_office()
            if fenced is None:
                continue
            _logger.info("broker %d is the controller, epoch %d", self.broker_id, fenced.epoch)
            self._known_controller = self.broker_id
            self._term = ControllerTerm(
                self.broker_id,
                self._store,
                fenced,
                self._channel,
                watches=self._watches,
                on_answer=self._on_answer,
                unclean_allowed=self._unclean_allowed,
            )
            # Also sees to it that a node which is gone already is noticed.
            self._enqueue("controller changed", self._look_at_controller, once=True)
            await self._term.take_over()

    async def _take_office(self) -> FencedStore | None:
        """Makes /controller and raises the epoch, in one step. None if another was quicker."""
        data, stat = await self._store.get(znodes.CONTROLLER_EPOCH)
        epoch = znodes.decode_controller_epoch(data) + 1
        node = znodes.encode_controller(self.broker_id, self._clock.time_ms())
        try:
            _, after = await self._store.multi(
                [
                    Create(znodes.CONTROLLER, node, ephemeral=True),
                    Set(znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(epoch), stat.version),
                ]
            )
        except (NodeExists, BadVersion):
            return None
        assert isinstance(after, Stat)
        return FencedStore(self._store, epoch, after.version)

    async def _leave_office(self) -> None:
        if self._term is None:
            return
        self._drop_reign()
        try:
            await self._remove_own_node()
        except StoreError as error:
            _logger.info("the store did not take the controller's leave: %s", error)

    async def _remove_own_node(self) -> None:
        try:
            _, stat = await self._store.get(znodes.CONTROLLER)
            if stat.ephemeral_owner == self._store.session_id:
                await self._store.delete(znodes.CONTROLLER, stat.version)
        except (NoNode, BadVersion):
            return

    def _controller_changed(self, _: WatchEvent) -> None:
        self._enqueue("controller changed", self._look_at_controller, once=True)

    async def _look_at_controller(self) -> None:
        if self._term is not None:
            stat = await self._store.exists(znodes.CONTROLLER, self._controller_changed)
            if stat is not None and stat.ephemeral_owner == self._store.session_id:
                return
            _logger.info("broker %d is not the controller any more", self.broker_id)
            self._drop_reign()
        await self._elect()

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            # At once: an event that is being worked on must not send anything more.
            self._drop_reign()
        self._enqueue("elect", self._elect, once=True)

    def _drop_reign(self) -> None:
        if self._term is not None:
            term, self._term = self._term, None
            self._known_controller = None
            term.end()

    # ---- events

    def _topic_changed(self, event: WatchEvent) -> None:
        topic = event.path.removeprefix(f"{znodes.TOPICS}/")
        self._enqueue_look(f"topic {topic} changed", lambda term: term.look_at_topic(topic))

    def _on_answer(self, broker_id: int, command: Command, result: CommandResult) -> None:
        if result.error_code:
            _logger.warning("broker %d refused a %s: error %d", broker_id, type(command).__name__, result.error_code)
        if self._term is None or not self._term.is_current(broker_id, command):
            return
        if isinstance(command, StopReplica):
            if any(one.delete for one in command.partitions):
                self._enqueue_look(
                    "replicas deleted", lambda term: term.replicas_deleted(broker_id, command, result), once=False
                )
        elif isinstance(command, LeaderAndIsr) and self._term.tells_of_log_dirs(broker_id, result):
            self._enqueue_look(
                "replicas started", lambda term: term.replicas_started(broker_id, command, result), once=False
            )

    async def _unclean_allowed(self, topic: str) -> bool:
        config = await self._configs.get(ConfigEntity.topic(topic))
        value = config.get(UNCLEAN_ELECTION_KEY)
        return self._unclean_default() if value is None else value.strip().lower() == "true"


def _set_exception(answer: asyncio.Future[Any], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
