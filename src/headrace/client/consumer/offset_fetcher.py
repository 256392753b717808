"""Looks up the positions of partitions: committed offsets, offsets by timestamp, and validation after a leader change.

    OFFSET_QUERY  --send_requests()-->  OFFSET_WAIT  --response-->  ACTIVE at an offset
                                                     --error----->  OFFSET_QUERY again, after a backoff
    VALIDATE_WAIT --send_requests()-->  OffsetForLeaderEpoch        ACTIVE; at another offset if the log was truncated
                                                                    (KIP-320)

Owner: the loop. A response is dropped if the partition's version has changed since the request, for example by a seek.
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

_FIRST_VERSION_FOR_CONSUMERS = 3
"""The first version of OffsetForLeaderEpoch that does not need authorization for the cluster."""
_CONSUMER = -1

VersionedStates = list[tuple[PartitionState, int]]
"""Partitions, and their versions when the request was sent."""


class CommittedOffsets(Protocol):
    """Fetches committed offsets. `CommitRequestManager` implements it."""

    async def committed(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]: ...


class OffsetFetcher:
    """Finds and validates the positions of all assigned partitions."""

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
        """`on_positions_found` is called when partitions can be fetched, `on_error` with an error for the user."""
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
        """Sends requests for all partitions that need an offset or a validation now."""
        if self._closed:
            return
        now = self._loop.time()
        committed: VersionedStates = []
        by_timestamp: VersionedStates = []
        validated: VersionedStates = []
        retry_at = float("inf")
        view = self._metadata.view
        without_leader: set[str] = set()
        with self._subscription.lock:
            for state in self._subscription.states():
                needs_offset = state.state is FetchState.OFFSET_QUERY
                if not needs_offset and (
                    state.state is not FetchState.VALIDATE_WAIT or self._validating.get(state) == state.version
                ):
                    continue
                is_committed = needs_offset and state.query is COMMITTED_OFFSET
                if state.retry_at > now:
                    retry_at = min(retry_at, state.retry_at)
                elif not is_committed and view.leader(state.tp) is None:
                    # A metadata update calls this method again.
                    without_leader.add(state.tp.topic)
                elif needs_offset:
                    state.query_sent()
                    (committed if is_committed else by_timestamp).append((state, state.version))
                else:
                    self._validating[state] = state.version
                    validated.append((state, state.version))
        if without_leader:
            self._metadata.request_update(without_leader)
        if committed:
            self._start_task(self._fetch_committed(committed))
        if by_timestamp:
            self._start_task(self._list_offsets(by_timestamp))
        if validated:
            self._start_task(self._validate(validated))
        self._wake_at(retry_at)

    def _start_task(self, work: "asyncio._CoroutineLike[None]") -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_finished)

    def _task_finished(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _logger.error("Offset lookup failed; the partitions concerned are not fetched", exc_info=error)
        self._on_positions_found()
        self.send_requests()

    def _wake_at(self, wake_time: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if wake_time != float("inf"):
            self._timer = self._loop.call_at(wake_time, self.send_requests)

    def _retry_at(self, state: PartitionState) -> float:
        return self._loop.time() + self._backoff.wait_seconds(state.failures)

    def _retry(self, state: PartitionState, error: Exception) -> None:
        """Schedules another attempt. The caller holds the lock and has checked the version."""
        if isinstance(error, KafkaError) and error.retriable:
            _logger.debug("Partition %s: offset lookup failed, retrying: %s", state.tp, error)
        else:
            self._on_error(state.tp, error)
        state.retry_query(self._retry_at(state))

    # ---- committed offsets

    async def _fetch_committed(self, states: VersionedStates) -> None:
        committed: dict[TopicPartition, OffsetAndMetadata | None] = {}
        failure: Exception | None = None
        if self._committed is not None:
            try:
                committed = await self._committed.committed([state.tp for state, _ in states])
            except KafkaError as error:
                failure = error
        with self._subscription.lock:
            for state, version in states:
                if state.version != version:
                    continue
                if failure is not None:
                    self._retry(state, failure)
                elif (offset := committed.get(state.tp)) is not None:
                    state.seek(offset.offset, offset.leader_epoch)
                else:
                    self.reset(state, "no committed offset")

    def reset(self, state: PartitionState, reason: str) -> bool:
        """Applies `auto.offset.reset`. Returns False if it is none. The caller holds the lock."""
        query = self._reset_strategy.query(self._clock.time_ms())
        if query is not None:
            _logger.info("Partition %s: resetting the position to %s: %s", state.tp, query, reason)
            state.query_offset(query)
            return True
        if state.state is FetchState.OFFSET_WAIT:
            self._retry(
                state,
                NoOffsetForPartitionError(
                    f"Undefined offset with no reset policy for partition {state.tp}: {reason}, and "
                    "auto.offset.reset is none"
                ),
            )
        return False

    # ---- offsets by timestamp

    async def _list_offsets(self, states: VersionedStates) -> None:
        timestamps: dict[TopicPartition, int] = {}
        starts: dict[TopicPartition, int] = {}
        queries: dict[TopicPartition, OffsetQuery] = {}
        for state, _ in states:
            assert state.query is not None
            queries[state.tp] = state.query
            timestamps[state.tp] = LATEST if state.query.kind == "tail" else state.query.timestamp
            if state.query.kind == "tail":
                starts[state.tp] = EARLIEST
        view = self._metadata.view
        listed, errors = await list_offsets_once(self._pool, view, timestamps, self._read_committed)
        if starts:
            log_starts, failures = await list_offsets_once(self._pool, view, starts, self._read_committed)
            errors.update(failures)
        else:
            log_starts = {}
        self._refresh_metadata(errors)
        with self._subscription.lock:
            for state, version in states:
                tp = state.tp
                if state.version != version:
                    continue
                if tp in errors:
                    self._retry(state, errors[tp])
                elif tp not in listed:
                    state.retry_query(self._retry_at(state))
                else:
                    self._apply_listed_offset(state, queries[tp], listed[tp], log_starts.get(tp), view.leader_epoch(tp))

    def _apply_listed_offset(
        self,
        state: PartitionState,
        query: OffsetQuery,
        listed: ListOffsetData,
        log_start: ListOffsetData | None,
        leader_epoch: int,
    ) -> None:
        if listed.offset < 0:
            # No record has this timestamp or a later one: start at the end.
            state.query_offset(LATEST_OFFSET)
            return
        offset = listed.offset
        if query.kind == "tail" and log_start is not None:
            offset = max(log_start.offset, offset - query.tail)
        state.seek(offset)
        state.validated(max(leader_epoch, listed.leader_epoch))

    def _refresh_metadata(self, errors: dict[TopicPartition, KafkaError]) -> None:
        stale = {tp.topic for tp, error in errors.items() if is_stale_metadata(error)}
        if stale:
            self._metadata.request_update(stale)

    # ---- validation (KIP-320)

    async def _validate(self, states: VersionedStates) -> None:
        view = self._metadata.view
        by_partition = {state.tp: (state, version) for state, version in states}
        nodes, errors = group_by_leader(view, by_partition)
        try:
            await asyncio.gather(
                *(
                    self._validate_with(node_id, [by_partition[tp] for tp in tps], errors, view.leader_epoch)
                    for node_id, tps in nodes.items()
                )
            )
        finally:
            self._refresh_metadata(errors)
            with self._subscription.lock:
                for state, version in states:
                    if self._validating.get(state) == version:
                        del self._validating[state]
                    if state.tp in errors and state.version == version and state.state is FetchState.VALIDATE_WAIT:
                        _logger.debug("Partition %s: validation failed, retrying: %s", state.tp, errors[state.tp])
                        state.back_off(self._retry_at(state))

    async def _validate_with(
        self,
        node_id: int,
        states: VersionedStates,
        errors: dict[TopicPartition, KafkaError],
        epoch_of: Callable[[TopicPartition], int],
    ) -> None:
        topics: dict[str, list[OffsetForLeaderPartition]] = {}
        epochs = {}
        with self._subscription.lock:
            for state, _ in states:
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
            topics=[OffsetForLeaderTopic(topic=name, partitions=partitions) for name, partitions in topics.items()],
        )
        by_partition = {state.tp: (state, version) for state, version in states}
        try:
            response: OffsetForLeaderEpochResponse = await self._pool.send(
                node_id, request, min_version=_FIRST_VERSION_FOR_CONSUMERS
            )
        except UnsupportedVersionError:
            with self._subscription.lock:
                for state, version in states:
                    if state.version == version:
                        state.validated(epochs[state.tp])
            return
        except KafkaError as error:
            errors.update(dict.fromkeys(by_partition, error))
            return
        with self._subscription.lock:
            for topic in response.topics:
                for partition in topic.partitions:
                    tp = TopicPartition(topic.topic, partition.partition)
                    if tp not in by_partition:
                        continue
                    state, version = by_partition[tp]
                    if state.version != version or state.state is not FetchState.VALIDATE_WAIT:
                        continue
                    failure = error_for(partition.error_code)
                    if failure is None:
                        self._handle_epoch_end_offset(state, partition.leader_epoch, partition.end_offset, epochs[tp])
                    elif failure.retriable:
                        errors[tp] = failure
                    else:
                        self._on_error(tp, failure)
                        state.back_off(self._retry_at(state))

    def _handle_epoch_end_offset(self, state: PartitionState, epoch: int, end_offset: int, leader_epoch: int) -> None:
        """Compares the position with the end offset of the last consumed epoch in the leader's log."""
        if epoch >= 0 and end_offset >= state.position:
            state.validated(leader_epoch)
            return
        end_is_known = epoch >= 0 and end_offset >= 0
        if self._reset_strategy.is_none:
            divergent = OffsetAndMetadata(end_offset, "", epoch) if end_is_known else None
            self._on_error(state.tp, TruncatedError(state.tp, state.position, divergent))
            state.back_off(self._retry_at(state))
        elif end_is_known:
            _logger.warning(
                "Partition %s: truncation detected: the log ends at %d, below position %d; resetting to the log end",
                state.tp,
                end_offset,
                state.position,
            )
            state.seek(end_offset, epoch)
            state.validated(leader_epoch)
        else:
            self.reset(state, f"the leader does not know the epoch of the records up to position {state.position}")

    def check_leader(self, state: PartitionState, leader_epoch: int) -> bool:
        """Returns True if the partition can be fetched from the leader of this epoch. Otherwise starts to validate the
        position. The caller holds the lock."""
        if leader_epoch in (state.leader_epoch, NO_EPOCH):
            return True
        if state.position_epoch == NO_EPOCH:
            state.validated(leader_epoch)
            return True
        if state.leader_epoch == NO_EPOCH and leader_epoch < state.position_epoch:
            # The position was committed, or sought to, with a later epoch: this leader was replaced, and may lack the
            # records before the position.
            self._loop.call_soon(self._metadata.note_leader_epoch, state.tp, state.position_epoch)
            return False
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
