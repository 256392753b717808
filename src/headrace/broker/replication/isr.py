"""Changes of the in-sync replicas: from the leader to the controller, or to the coordination store.

Both ways are Kafka's; `inter.broker.protocol.version` selects one of them:

    from 2.7 on   `AlterPartitionManager`: AlterPartition requests to the active controller (KIP-497)
    below         `StoreIsrManager`: the leader writes the partition's state node by compare-and-set, and tells the
                  controller with a node under /isr_change_notification, so that all brokers learn it

- `submit` sends a change. `on_answer` is called with the result on the event loop, and returns False if the change must
  be sent again, unless the partition has abandoned it meanwhile.
- A partition has at most one change in flight. `submit` refuses another one; the leader proposes it again later.

Owned by the broker's loop.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NamedTuple, Protocol

from headrace.broker.partition import Partition
from headrace.cluster import znodes
from headrace.cluster.controller_requests import IsrChange
from headrace.cluster.store import BadVersion, CoordinationStore, NoNode
from headrace.cluster.znodes import Leadership
from headrace.common.errors import (
    HeadraceError,
    InvalidUpdateVersionError,
    KafkaError,
    UnknownTopicOrPartitionError,
)
from headrace.common.timing_wheel import Timer
from headrace.common.types import TopicPartition

_logger = logging.getLogger(__name__)

RETRY_MS = 50
"""Kafka's pause before a change is sent again."""
PROPAGATION_CHECK_MS = 2_500
LINGER_MS = 5_000
"""A notification is sent when there was no other change for this time, so that it has many of them."""
MAX_WAIT_MS = 60_000
"""A notification is sent at least in this interval as long as there are changes."""

OnAnswer = Callable[[Partition, IsrChange, Leadership | KafkaError], bool]


class AlterPartitionSender(Protocol):
    """Sends ISR changes to the active controller, wherever it is."""

    async def alter_partition(
        self, changes: Mapping[TopicPartition, IsrChange]
    ) -> dict[TopicPartition, Leadership | KafkaError]:
        """Returns the new state of each partition, or why the change failed. Raises KafkaError if all failed."""
        ...


class _Submitted(NamedTuple):
    partition: Partition
    change: IsrChange


class AlterPartitionManager:
    """Sends ISR changes to the controller, all that are waiting in one request, one request at a time."""

    def __init__(self, controller: AlterPartitionSender, timer: Timer, on_answer: OnAnswer):
        self._controller = controller
        self._timer = timer
        self._on_answer = on_answer
        self._waiting: dict[TopicPartition, _Submitted] = {}
        """All changes without a final answer, including those in flight."""
        self._task: asyncio.Task[None] | None = None
        self._retry_pending = False
        self._failing = False
        self._closed = False

    def submit(self, partition: Partition, change: IsrChange) -> bool:
        """Sends a change, after the request in flight. Returns False if another one of the partition is waiting."""
        earlier = self._waiting.get(partition.tp)
        if self._closed or (earlier is not None and (self._is_sending or _is_wanted(earlier))):
            return False
        self._waiting[partition.tp] = _Submitted(partition, change)
        self._send()
        return True

    @property
    def _is_sending(self) -> bool:
        return self._task is not None and not self._task.done()

    def _send(self) -> None:
        if self._is_sending or self._retry_pending or self._closed:
            return
        self._waiting = {tp: submitted for tp, submitted in self._waiting.items() if _is_wanted(submitted)}
        if self._waiting:
            self._task = asyncio.create_task(self._request(), name="alter-partition")

    async def _request(self) -> None:
        sent = dict(self._waiting)  # with all changes of the current iteration of the event loop
        answers: Mapping[TopicPartition, Leadership | KafkaError] = {}
        try:
            answers = await self._controller.alter_partition({tp: change for tp, (_, change) in sent.items()})
            self._failing = False
        except HeadraceError as error:
            if not self._failing:  # log it once: it is sent again until a controller answers
                self._failing = True
                _logger.warning(
                    "Cannot send the ISR changes of %d partitions to the controller, will retry: %s", len(sent), error
                )
        except Exception:
            # Without another try these changes, and with them the high watermarks, would wait forever.
            _logger.exception("The ISR changes of %d partitions failed with an internal error, will retry", len(sent))
        must_retry = False
        for tp, submitted in sent.items():
            answer = answers.get(tp)
            if answer is None or not self._on_answer(*submitted, answer):
                must_retry = True
            elif self._waiting.get(tp) is submitted:
                del self._waiting[tp]
        self._task = None
        if must_retry:
            self._retry_pending = True
            self._timer.add(RETRY_MS, self._retry)
        else:
            self._send()

    def _retry(self) -> None:
        self._retry_pending = False
        self._send()

    async def close(self) -> None:
        """Stops sending. The changes without an answer may or may not happen."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


def _is_wanted(submitted: _Submitted) -> bool:
    return submitted.partition.pending_isr is submitted.change


class StoreIsrManager:
    """Writes ISR changes to the coordination store by compare-and-set, and notifies the controller."""

    def __init__(
        self,
        store: CoordinationStore,
        node_id: int,
        timer: Timer,
        on_answer: OnAnswer,
        *,
        now_ms: Callable[[], int],
        controller_epoch: Callable[[], int],
    ):
        """`controller_epoch` returns the epoch of the controller whose commands this broker follows."""
        self._store = store
        self._node_id = node_id
        self._timer = timer
        self._on_answer = on_answer
        self._now_ms = now_ms
        self._controller_epoch = controller_epoch
        self._waiting: dict[TopicPartition, _Submitted] = {}
        self._changed: dict[TopicPartition, None] = {}
        """The partitions whose changes the controller has not been told."""
        self._last_change_ms = self._last_notification_ms = now_ms()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        timer.add(PROPAGATION_CHECK_MS, self._propagate)

    def submit(self, partition: Partition, change: IsrChange) -> bool:
        """Writes a change. Returns False if another one of the partition is waiting."""
        if self._closed or partition.tp in self._waiting:
            return False
        self._waiting[partition.tp] = submitted = _Submitted(partition, change)
        self._run(submitted)
        return True

    def _run(self, submitted: _Submitted) -> None:
        if self._closed or not _is_wanted(submitted):
            self._waiting.pop(submitted.partition.tp, None)
            return
        self._start(self._change(submitted))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _change(self, submitted: _Submitted) -> None:
        partition, change = submitted
        answer: Leadership | KafkaError
        try:
            answer = await self._write(partition.tp, change)
            self._changed[partition.tp] = None
            self._last_change_ms = self._now_ms()
        except KafkaError as error:
            answer = error
        except HeadraceError as error:
            answer = KafkaError(str(error))
        if self._on_answer(partition, change, answer):
            self._waiting.pop(partition.tp, None)
        else:
            self._timer.add(RETRY_MS, lambda: self._run(submitted))

    async def _write(self, tp: TopicPartition, change: IsrChange) -> Leadership:
        wanted = Leadership(self._node_id, change.leader_epoch, change.isr, self._controller_epoch())
        try:
            stat = await self._store.set(
                znodes.state_path(tp), znodes.encode_leadership(wanted), change.partition_epoch
            )
        except NoNode as error:
            raise UnknownTopicOrPartitionError(f"Partition {tp} does not exist") from error
        except BadVersion as error:
            data, stat = await self._store.get(znodes.state_path(tp))
            stored = znodes.decode_leadership(tp, data, stat.version)
            # The node may already have this change: its first write took effect, but the answer was lost.
            if (stored.leader, stored.leader_epoch, stored.isr) != (self._node_id, change.leader_epoch, change.isr):
                raise InvalidUpdateVersionError(
                    f"The state of partition {tp} has version {stat.version}, not {change.partition_epoch}"
                ) from error
            return stored
        return Leadership(self._node_id, change.leader_epoch, change.isr, wanted.controller_epoch, stat.version)

    def _propagate(self) -> None:
        """Tells the controller the changed partitions, many at a time."""
        if self._closed:
            return
        now_ms = self._now_ms()
        if self._changed and (
            now_ms - self._last_change_ms >= LINGER_MS or now_ms - self._last_notification_ms >= MAX_WAIT_MS
        ):
            changed, self._changed = self._changed, {}
            self._last_notification_ms = now_ms
            self._start(self._notify(list(changed)))
        self._timer.add(PROPAGATION_CHECK_MS, self._propagate)

    async def _notify(self, changed: list[TopicPartition]) -> None:
        try:
            await self._store.create(
                f"{znodes.ISR_CHANGES}/{znodes.ISR_CHANGE_PREFIX}", znodes.encode_isr_change(changed), sequential=True
            )
        except HeadraceError as error:
            _logger.warning("Cannot tell the controller about %d changed ISRs, will retry: %s", len(changed), error)
            self._changed = {**dict.fromkeys(changed), **self._changed}

    async def close(self) -> None:
        self._closed = True
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


IsrManager = AlterPartitionManager | StoreIsrManager
