"""Finds where to read: committed offsets, offsets by time, and whether a new leader still has what was read.

    OFFSET_QUERY  --work()-->  OFFSET_WAIT  --the answer-->  ACTIVE at an offset
                                            --an error--->   OFFSET_QUERY again, later
    VALIDATE_WAIT --work()-->  OffsetForLeaderEpoch          ACTIVE, or elsewhere if the log was cut (KIP-320)

Owned by the loop. Answers go by a partition's version: one that comes after a seek is dropped.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from headrace.client.consumer.auto_offset_reset_strategy import AutoOffsetResetStrategy
from headrace.client.consumer.errors import TruncatedError
from headrace.client.consumer.list_offsets import EARLIEST, LATEST, ListOffsetData, group_by_leader, list_offsets_once
from headrace.client.consumer.partition_state import (
    COMMITTED_OFFSET,
    LATEST_OFFSET,
    NO_EPOCH,
    FetchState,
    OffsetQuery,
    PartitionState,
)
from headrace.client.consumer.subscription_state import SubscriptionState
from headrace.client.errors import NoOffsetForPartitionError, error_for, is_stale_metadata
from headrace.client.metadata import Metadata
from headrace.client.types import OffsetAndMetadata
from headrace.common.backoff import Backoff
from headrace.common.clock import Clock
from headrace.common.errors import KafkaError, UnsupportedVersionError
from headrace.common.types import TopicPartition
from headrace.net.broker_pool import BrokerPool
from headrace.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

_logger = logging.getLogger(__name__)

_FIRST_FOR_CONSUMERS = 3
"""The version of OffsetForLeaderEpoch that asks for no rights on the cluster."""
_CONSUMER = -1

Asked = list[tuple[PartitionState, int]]
"""Partitions, and their versions when they were asked about."""


class CommittedOffsets(Protocol):
    async def committed(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]: ...


class OffsetFetcher:
    """See the module."""

    def __init__(
        self,
        pool: BrokerPool,
        metadata: Metadata,
        subscription: SubscriptionState,
        *,
        committed: CommittedOffsets | None,
        reset_strategy: AutoOffsetResetStrategy,
        read_committed: bool,
        backoff: Backoff,
        clock: Clock,
        on_positions_found: Callable[[], None],
        on_error: Callable[[TopicPartition, Exception], None],
    ):
        """`found` is called when a partition can be read from, `failed` with an error for the user."""
        self._pool = pool
        self._metadata = metadata
        self._subscription = subscription
        self._committed = committed
        self._reset_strategy = reset_strategy
        self._read_committed = read_committed
        self._backoff = backoff
        self._clock = clock
        self._on_positions_found = on_positions_found
        self._on_error = on_error
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._validating: dict[PartitionState, int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def send_requests(self) -> None:
        """Asks everything that is to be asked now."""
        if self._closed:
            return
        now = self._loop.time()
        committed: Asked = []
        by_time: Asked = []
        validated: Asked = []
        later = float("inf")
        view = self._metadata.view
        unknown: set[str] = set()
        with self._subscription.lock:
            for state in self._subscription.states():
                asks = state.state is FetchState.OFFSET_QUERY
                if not asks and (
                    state.state is not FetchState.VALIDATE_WAIT or self._validating.get(state) == state.version
                ):
                    continue
                is_committed = asks and state.query is COMMITTED_OFFSET
                if state.retry_at > now:
                    later = min(later, state.retry_at)
                elif not is_committed and view.leader(state.tp) is None:
                    # Metadata calls again as soon as it knows more.
                    unknown.add(state.tp.topic)
                elif asks:
                    state.query_sent()
                    (committed if is_committed else by_time).append((state, state.version))
                else:
                    self._validating[state] = state.version
                    validated.append((state, state.version))
        if unknown:
            self._metadata.request_update(unknown)
        if committed:
            self._start(self._find_committed(committed))
        if by_time:
            self._start(self._find_by_time(by_time))
        if validated:
            self._start(self._validate(validated))
        self._wake_at(later)

    def _start(self, work: "asyncio._CoroutineLike[None]") -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _logger.error("looking for offsets failed", exc_info=error)
        self._on_positions_found()
        self.send_requests()

    def _wake_at(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if at != float("inf"):
            self._timer = self._loop.call_at(at, self.send_requests)

    def _retry_at(self, state: PartitionState) -> float:
        return self._loop.time() + self._backoff.wait_seconds(state.failures)

    def _ask_again(self, state: PartitionState, error: Exception) -> None:
        """The caller holds the lock and knows that the answer is not stale."""
        if isinstance(error, KafkaError) and error.retriable:
            _logger.debug("no offset for %s yet: %s", state.tp, error)
        else:
            self._on_error(state.tp, error)
        state.retry_query(self._retry_at(state))

    # Committed offsets

    async def _find_committed(self, asked: Asked) -> None:
        found: dict[TopicPartition, OffsetAndMetadata | None] = {}
        failure: Exception | None = None
        if self._committed is not None:
            try:
                found = await self._committed.committed([state.tp for state, _ in asked])
            except KafkaError as error:
                failure = error
        with self._subscription.lock:
            for state, version in asked:
                if state.version != version:
                    continue
                if failure is not None:
                    self._ask_again(state, failure)
                elif (offset := found.get(state.tp)) is not None:
                    state.seek(offset.offset, offset.leader_epoch)
                else:
                    self.reset(state, f"there is no committed offset for {state.tp}")

    def reset(self, state: PartitionState, why: str) -> bool:
        """Goes by `auto.offset.reset`; False if that says that it is an error. The caller holds the lock."""
        query = self._reset_strategy.query(self._clock.time_ms())
        if query is not None:
            _logger.info("%s: reading begins at %s", why, query)
            state.query_offset(query)
            return True
        if state.state is FetchState.OFFSET_WAIT:
            self._ask_again(state, NoOffsetForPartitionError(f"{why}, and auto.offset.reset is none"))
        return False

    # Offsets by time

    async def _find_by_time(self, asked: Asked) -> None:
        wanted: dict[TopicPartition, int] = {}
        starts: dict[TopicPartition, int] = {}
        queries: dict[TopicPartition, OffsetQuery] = {}
        for state, _ in asked:
            assert state.query is not None
            queries[state.tp] = state.query
            wanted[state.tp] = LATEST if state.query.kind == "tail" else state.query.timestamp
            if state.query.kind == "tail":
                starts[state.tp] = EARLIEST
        view = self._metadata.view
        found, errors = await list_offsets_once(self._pool, view, wanted, self._read_committed)
        if starts:
            begins, failures = await list_offsets_once(self._pool, view, starts, self._read_committed)
            errors.update(failures)
        else:
            begins = {}
        self._refresh(errors)
        with self._subscription.lock:
            for state, version in asked:
                tp = state.tp
                if state.version != version:
                    continue
                if tp in errors:
                    self._ask_again(state, errors[tp])
                elif tp not in found:
                    state.retry_query(self._retry_at(state))
                else:
                    self._take(state, queries[tp], found[tp], begins.get(tp), view.leader_epoch(tp))

    def _take(
        self,
        state: PartitionState,
        query: OffsetQuery,
        found: ListOffsetData,
        begin: ListOffsetData | None,
        leader_epoch: int,
    ) -> None:
        if found.offset < 0:
            # Nothing is as new as that: the end.
            state.query_offset(LATEST_OFFSET)
            return
        offset = found.offset
        if query.kind == "tail" and begin is not None:
            offset = max(begin.offset, offset - query.tail)
        state.seek(offset)
        state.validated(max(leader_epoch, found.leader_epoch))

    def _refresh(self, errors: dict[TopicPartition, KafkaError]) -> None:
        stale = {tp.topic for tp, error in errors.items() if is_stale_metadata(error)}
        if stale:
            self._metadata.request_update(stale)

    # Validation

    async def _validate(self, asked: Asked) -> None:
        view = self._metadata.view
        states = {state.tp: (state, version) for state, version in asked}
        nodes, errors = group_by_leader(view, states)
        try:
            await asyncio.gather(
                *(
                    self._validate_at(node_id, [states[tp] for tp in tps], errors, view.leader_epoch)
                    for node_id, tps in nodes.items()
                )
            )
        finally:
            self._refresh(errors)
            with self._subscription.lock:
                for state, version in asked:
                    if self._validating.get(state) == version:
                        del self._validating[state]
                    if state.tp in errors and state.version == version and state.state is FetchState.VALIDATE_WAIT:
                        _logger.debug("position of %s not validated yet: %s", state.tp, errors[state.tp])
                        state.back_off(self._retry_at(state))

    async def _validate_at(
        self,
        node_id: int,
        asked: Asked,
        errors: dict[TopicPartition, KafkaError],
        epoch_of: Callable[[TopicPartition], int],
    ) -> None:
        topics: dict[str, list[OffsetForLeaderPartition]] = {}
        epochs = {}
        with self._subscription.lock:
            for state, _ in asked:
                epochs[state.tp] = epoch_of(state.tp)
                topics.setdefault(state.tp.topic, []).append(
                    OffsetForLeaderPartition(
                        partition=state.tp.partition,
                        current_leader_epoch=epochs[state.tp],
                        leader_epoch=state.position_epoch,
                    )
                )
        request = OffsetForLeaderEpochRequest(
            replica_id=_CONSUMER,
            topics=[OffsetForLeaderTopic(topic=name, partitions=parts) for name, parts in topics.items()],
        )
        states = {state.tp: (state, version) for state, version in asked}
        try:
            reply: OffsetForLeaderEpochResponse = await self._pool.send(
                node_id, request, min_version=_FIRST_FOR_CONSUMERS
            )
        except UnsupportedVersionError:
            with self._subscription.lock:
                for state, version in asked:
                    if state.version == version:
                        state.validated(epochs[state.tp])
            return
        except KafkaError as error:
            errors.update(dict.fromkeys(states, error))
            return
        with self._subscription.lock:
            for topic in reply.topics:
                for part in topic.partitions:
                    tp = TopicPartition(topic.topic, part.partition)
                    if tp not in states:
                        continue
                    state, version = states[tp]
                    if state.version != version or state.state is not FetchState.VALIDATE_WAIT:
                        continue
                    failure = error_for(part.error_code)
                    if failure is None:
                        self._compare(state, part.leader_epoch, part.end_offset, epochs[tp])
                    elif failure.retriable:
                        errors[tp] = failure
                    else:
                        self._on_error(tp, failure)
                        state.back_off(self._retry_at(state))

    def _compare(self, state: PartitionState, epoch: int, end_offset: int, leader_epoch: int) -> None:
        """The leader says where the epoch of the last record that was read ends in its log."""
        if epoch >= 0 and end_offset >= state.position:
            state.validated(leader_epoch)
            return
        known = epoch >= 0 and end_offset >= 0
        if self._reset_strategy.is_none:
            divergent = OffsetAndMetadata(end_offset, "", epoch) if known else None
            self._on_error(state.tp, TruncatedError(state.tp, state.position, divergent))
            state.back_off(self._retry_at(state))
        elif known:
            _logger.warning(
                "%s: the log was truncated to offset %d, below the position %d: reading goes on there",
                state.tp,
                end_offset,
                state.position,
            )
            state.seek(end_offset, epoch)
            state.validated(leader_epoch)
        else:
            self.reset(state, f"the leader of {state.tp} does not know of what was read up to {state.position}")

    def check_leader(self, state: PartitionState, leader_epoch: int) -> bool:
        """Whether the leader of this epoch can be fetched from; otherwise it is asked first. The caller holds the
        lock."""
        if leader_epoch <= state.leader_epoch or leader_epoch == NO_EPOCH:
            return True
        if state.position_epoch == NO_EPOCH:
            state.validated(leader_epoch)
            return True
        if state.state is FetchState.ACTIVE:
            state.validate()
            self._loop.call_soon(self.send_requests)
        return False

    async def close(self) -> None:
        self._closed = True
        self._wake_at(float("inf"))
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
