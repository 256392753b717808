"""Sends fetch requests: keeps one request in flight to each broker that has data for this consumer.

    send_requests()  -->  a task per broker:  plan -> send -> put the response into the buffer -> plan ...
                                              nothing to fetch: wait for the next call of send_requests()

- A partition is fetched while less than `_ROUNDS_AHEAD` times `max.partition.fetch.bytes` of it are buffered. So the
  next response is on its way while the user processes the last one.
- Nothing is fetched while `queued.max.messages.kbytes` are buffered in total, so memory stays bounded.
- While some partitions of a broker are full, the others are not fetched before one of them runs low. Few large
  responses cost less than many small ones, and compete less with the user's thread for the GIL.
- Fetches use separate connections, because a broker handles the requests of a connection in order, and a fetch may wait
  for records.

Owner: the loop. A partition's response is used only if the partition still has the version it was requested under.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple

from headrace.client.consumer.errors import OffsetsLostError, RecordTooLargeError
from headrace.client.consumer.fetch_buffer import CompletedFetch, FetchBuffer
from headrace.client.consumer.fetch_messages import LAST_VERSION_WITH_NAMES, to_fetched_records, uses_topic_ids
from headrace.client.consumer.fetch_session_handler import FetchSessionHandler, RequestedPartition
from headrace.client.consumer.offset_fetcher import OffsetFetcher
from headrace.client.consumer.partition_state import FetchState, PartitionState
from headrace.client.consumer.subscription_state import SubscriptionState
from headrace.client.errors import error_for, is_stale_metadata
from headrace.client.metadata import Metadata
from headrace.common.backoff import Backoff
from headrace.common.errors import (
    CorruptRecordError,
    FetchSessionIdNotFoundError,
    FetchSessionTopicIdError,
    InconsistentTopicIdError,
    InvalidFetchSessionEpochError,
    KafkaError,
    OffsetOutOfRangeError,
    UnknownTopicIdError,
    UnsupportedVersionError,
)
from headrace.common.types import TopicPartition
from headrace.net.broker_pool import BrokerPool, Node
from headrace.protocol import ApiKey
from headrace.protocol.messages.fetch import FetchResponse, PartitionData
from headrace.records import DEFAULT_MAX_INFLATED_BYTES

_logger = logging.getLogger(__name__)

PURPOSE = "fetch"
_ROUNDS_AHEAD = 3
_MIN_WAIT_MS = 5
_POSITION_PENDING = (FetchState.OFFSET_QUERY, FetchState.OFFSET_WAIT, FetchState.VALIDATE_WAIT)
_SESSION_ERRORS = (
    FetchSessionIdNotFoundError.code,
    InvalidFetchSessionEpochError.code,
    FetchSessionTopicIdError.code,
)
_TOPIC_ID_ERRORS = (UnknownTopicIdError.code, InconsistentTopicIdError.code)


class FetchLimits(NamedTuple):
    """The configuration of fetch requests."""

    min_bytes: int = 1
    max_bytes: int = 52_428_800
    max_wait_ms: int = 500
    max_partition_bytes: int = 1_048_576
    max_queued_bytes: int = 65_536 * 1024
    check_crcs: bool = True
    max_inflated_bytes: int = DEFAULT_MAX_INFLATED_BYTES
    read_committed: bool = False
    sessions: bool = True
    partition_eof: bool = False
    rack: str = ""
    metadata_max_age_ms: float = 300_000


class _InFlight(NamedTuple):
    """One partition of a request in flight."""

    state: PartitionState
    version: int
    request: RequestedPartition


class _FetchPlan(NamedTuple):
    """The next request to one broker."""

    partitions: dict[TopicPartition, _InFlight]
    is_brief: bool
    """True if more partitions of this broker can be fetched soon: their buffer is full, or their position is not known
    yet. As there is one request at a time, this one must not wait long for records."""


class Fetcher:
    """The fetch tasks of a consumer, one per broker."""

    def __init__(
        self,
        pool: BrokerPool,
        metadata: Metadata,
        subscription: SubscriptionState,
        buffer: FetchBuffer,
        offset_fetcher: OffsetFetcher,
        limits: FetchLimits,
        backoff: Backoff,
        on_data: Callable[[], None],
    ):
        """`on_data` is called when the buffer has new data."""
        self._pool = pool
        self._metadata = metadata
        self._subscription = subscription
        self._buffer = buffer
        self._offset_fetcher = offset_fetcher
        self._limits = limits
        self._backoff = backoff
        self._on_data = on_data
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._wakeups: dict[int, asyncio.Event] = {}
        self._sessions: dict[int, FetchSessionHandler] = {}
        self._in_flight: dict[TopicPartition, int] = {}
        """Partitions in flight, with the version they were requested under."""
        self._timer: asyncio.TimerHandle | None = None
        self._has_news = False
        self._closed = False

    def send_requests(self) -> None:
        """Starts or wakes the task of each broker that has partitions to fetch."""
        if self._closed:
            return
        with self._subscription.lock:
            plans = self._plans()
        for node_id in plans:
            self._wake_task(node_id)

    def _wake_task(self, node_id: int) -> None:
        """Wakes the task of a broker, or starts it if there is none."""
        if node_id not in self._tasks:
            self._wakeups[node_id] = asyncio.Event()
            self._tasks[node_id] = self._loop.create_task(self._fetch_from(node_id))
        else:
            self._wakeups[node_id].set()

    # ---- planning

    def _plans(self) -> dict[int, _FetchPlan]:
        """Returns the partitions to fetch now, by node id. The caller holds the lock."""
        now = self._loop.time()
        view = self._metadata.view
        full = self._buffer.size_in_bytes >= self._limits.max_queued_bytes and not self._make_room()
        round_bytes = self._limits.max_partition_bytes
        plans: dict[int, _FetchPlan] = {}
        skipped: dict[int, int] = {}  # number of skipped partitions by node id
        running_low: set[int] = set()
        position_pending: set[Node | None] = set()
        retry_at = float("inf")
        for state in self._subscription.states():
            tp = state.tp
            if state.state in _POSITION_PENDING:
                position_pending.add(view.leader(tp))
            if not state.is_fetchable or self._in_flight.get(tp) == state.version:
                continue
            info = view.partition(tp)
            if info is None or info.leader not in view.nodes:
                self._metadata.request_update((tp.topic,))
                continue
            if not self._offset_fetcher.check_leader(state, info.leader_epoch):
                position_pending.add(view.nodes[info.leader])
                continue
            if state.retry_at > now:
                retry_at = min(retry_at, state.retry_at)
                continue
            node_id = self._read_replica(state, info.leader, now)
            buffered = self._buffer.buffered_bytes(tp)
            if full or buffered >= _ROUNDS_AHEAD * round_bytes or self._buffer.has_error(tp):
                skipped[node_id] = skipped.get(node_id, 0) + 1
                continue
            if buffered < round_bytes // 2:
                running_low.add(node_id)
            if node_id not in plans:
                plans[node_id] = _FetchPlan({}, False)
            request = RequestedPartition(
                view.topic_id(tp.topic), state.fetch_offset, self._limits.max_partition_bytes, state.leader_epoch
            )
            plans[node_id].partitions[tp] = _InFlight(state, state.version, request)
        if skipped:
            self._buffer.notify_when_drained(round_bytes * min(skipped.values()))
        self._wake_at(retry_at)
        brief_nodes = skipped.keys() | {node.id for node in position_pending if node is not None}
        return {
            node_id: plan._replace(is_brief=node_id in brief_nodes)
            for node_id, plan in plans.items()
            if node_id in running_low or node_id not in skipped
        }

    def _make_room(self) -> bool:
        """Drops the buffered data of paused partitions to make room for others. Returns True if there is room now."""
        for state in self._subscription.states():
            if state.paused and state.state is FetchState.ACTIVE and self._buffer.buffered_bytes(state.tp):
                state.rewind()
        self._buffer.drop_stale()
        return self._buffer.size_in_bytes < self._limits.max_queued_bytes

    def _read_replica(self, state: PartitionState, leader: int, now: float) -> int:
        """Returns the node to fetch from: the leader, or the preferred read replica (KIP-392)."""
        if state.preferred_replica >= 0:
            if state.preferred_until > now and state.preferred_replica in self._metadata.view.nodes:
                return state.preferred_replica
            state.clear_preferred_replica()
        return leader

    def _wake_at(self, wake_time: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if wake_time != float("inf"):
            self._timer = self._loop.call_at(wake_time, self.send_requests)

    # ---- the task of one broker

    async def _fetch_from(self, node_id: int) -> None:
        """Fetches from one broker until the broker is no longer part of the cluster."""
        wakeup = self._wakeups[node_id]
        session = self._sessions.setdefault(node_id, FetchSessionHandler(self._limits.sessions))
        failures = empty_responses = 0
        try:
            while not self._closed and node_id in self._metadata.view.nodes:
                wakeup.clear()
                with self._subscription.lock:
                    plans = self._plans()
                    plan = plans.pop(node_id, None)
                    if plan is not None:
                        for tp, partition in plan.partitions.items():
                            self._in_flight[tp] = partition.version
                for other_node_id in plans:
                    # The last response may have named a preferred read replica.
                    self._wake_task(other_node_id)
                if plan is None:
                    empty_responses = 0
                    self._notify()
                    await wakeup.wait()
                    continue
                try:
                    response = await self._send(node_id, session, plan, empty_responses)
                except KafkaError as error:
                    session.handle_error()
                    self._clear_in_flight(plan)
                    failures = self._broker_failed(node_id, plan, error, failures)
                    await asyncio.sleep(self._backoff.wait_seconds(failures - 1))
                    continue
                except BaseException:
                    session.handle_error()
                    self._clear_in_flight(plan)
                    raise
                failures = 0
                session.handle_response(response.session_id, response.error_code)
                has_records = self._handle_response(node_id, plan, response)
                empty_responses = 0 if has_records or not plan.is_brief else empty_responses + 1
        except asyncio.CancelledError:
            raise
        except Exception:
            _logger.exception("Fetching from broker %d failed; a new task starts", node_id)
            raise
        finally:
            self._notify()
            del self._tasks[node_id], self._wakeups[node_id]
            self._sessions.pop(node_id, None)
            if not self._closed:
                self._loop.call_soon(self.send_requests)

    async def _send(
        self, node_id: int, session: FetchSessionHandler, plan: _FetchPlan, empty_responses: int
    ) -> FetchResponse:
        if not self._pool.is_ready(node_id, PURPOSE):
            self._notify()
            await self._pool.connect(node_id, PURPOSE)
        version = self._pool.version(node_id, ApiKey.FETCH)
        requested = {tp: partition.request for tp, partition in plan.partitions.items()}
        by_id = uses_topic_ids(version, requested.values())
        request = session.build_request(requested, by_id)
        limits = self._limits
        request.max_wait_ms = limits.max_wait_ms
        if plan.is_brief:
            request.max_wait_ms = min(limits.max_wait_ms, _MIN_WAIT_MS << min(empty_responses, 10))
        request.min_bytes = limits.min_bytes
        request.max_bytes = min(limits.max_bytes, max(1, limits.max_queued_bytes - self._buffer.size_in_bytes))
        request.isolation_level = 1 if limits.read_committed else 0
        request.rack_id = limits.rack
        max_version = None if by_id else LAST_VERSION_WITH_NAMES
        if self._pool.is_ready(node_id, PURPOSE):
            # Send the next request before waking the user's thread, which competes for the GIL.
            response_future = self._pool.send_now(node_id, request, max_version=max_version, purpose=PURPOSE)
            self._notify()
            response: FetchResponse = await response_future
        else:
            self._notify()
            response = await self._pool.send(node_id, request, max_version=max_version, purpose=PURPOSE)
        return response

    def _notify(self) -> None:
        """Wakes a waiting poll if the buffer has new data."""
        if self._has_news:
            self._has_news = False
            self._on_data()

    def _clear_in_flight(self, plan: _FetchPlan) -> None:
        for tp, partition in plan.partitions.items():
            if self._in_flight.get(tp) == partition.version:
                del self._in_flight[tp]

    def _broker_failed(self, node_id: int, plan: _FetchPlan, error: KafkaError, failures: int) -> int:
        """Handles a request without a response: another broker may be the leader now."""
        _logger.log(
            logging.INFO if not failures else logging.DEBUG, "Fetch from broker %d failed, retrying: %s", node_id, error
        )
        self._metadata.request_update({tp.topic for tp in plan.partitions})
        with self._subscription.lock:
            for partition in plan.partitions.values():
                if partition.state.preferred_replica == node_id:
                    partition.state.clear_preferred_replica()
                if isinstance(error, UnsupportedVersionError) and partition.state.version == partition.version:
                    self._add_to_buffer(CompletedFetch(partition.state, error=error))
        self._notify()
        return failures + 1

    # ---- responses

    def _handle_response(self, node_id: int, plan: _FetchPlan, response: FetchResponse) -> bool:
        """Handles each partition of a response. Returns True if there were records."""
        names = {partition.request.topic_id: tp.topic for tp, partition in plan.partitions.items()}
        endpoints = {
            node.node_id: Node(node.node_id, node.host, node.port, node.rack) for node in response.node_endpoints
        }
        has_records = False
        with self._subscription.lock:
            self._clear_in_flight(plan)
            if response.error_code and not response.responses:
                self._handle_top_level_error(plan, response.error_code)
                return False
            without_news = dict(plan.partitions) if self._limits.partition_eof else {}
            for topic in response.responses:
                name = topic.topic or names.get(topic.topic_id, "")
                for response_partition in topic.partitions:
                    tp = TopicPartition(name, response_partition.partition_index)
                    partition = plan.partitions.get(tp)
                    without_news.pop(tp, None)
                    if partition is None or partition.state.version != partition.version:
                        continue
                    if response_partition.error_code:
                        self._partition_failed(node_id, partition, response_partition, endpoints)
                    elif self._buffer_records(partition, response_partition):
                        has_records = True
            for partition in without_news.values():
                # No news in this session, but the user may have reached the end again after a seek.
                if partition.state.version == partition.version:
                    self._check_end(partition.state)
        return has_records

    def _buffer_records(self, partition: _InFlight, response_partition: PartitionData) -> bool:
        """Puts records into the buffer. Returns True if there are any."""
        state, limits = partition.state, self._limits
        state.high_watermark = response_partition.high_watermark
        state.last_stable_offset = response_partition.last_stable_offset
        if response_partition.log_start_offset >= 0:
            state.log_start_offset = response_partition.log_start_offset
        if response_partition.preferred_read_replica >= 0:
            state.set_preferred_replica(
                response_partition.preferred_read_replica, self._loop.time() + limits.metadata_max_age_ms / 1000
            )
        has_records = False
        records = to_fetched_records(
            state.tp,
            response_partition,
            state.fetch_offset,
            read_committed=limits.read_committed,
            check_crcs=limits.check_crcs,
            max_inflated_bytes=limits.max_inflated_bytes,
        )
        if records is not None and records.has_batches:
            has_records = True
            self._add_to_buffer(CompletedFetch(state, records))
            state.fetched(records.end_offset)
        elif records is not None:
            error = RecordTooLargeError(state.tp, state.fetch_offset, limits.max_partition_bytes)
            self._add_to_buffer(CompletedFetch(state, error=error))
        self._check_end(state)
        state.failures = 0
        return has_records

    def _check_end(self, state: PartitionState) -> None:
        if self._limits.partition_eof and state.reached_end(self._limits.read_committed):
            self._add_to_buffer(CompletedFetch(state, eof_offset=state.eof_offset))

    def _add_to_buffer(self, entry: CompletedFetch) -> None:
        self._buffer.put(entry)
        self._has_news = True

    def _handle_top_level_error(self, plan: _FetchPlan, code: int) -> None:
        """Handles a top-level error. The session is already reset, so the next request is a full one."""
        error = error_for(code)
        _logger.debug("Fetch failed: %s", error)
        if code in _SESSION_ERRORS:
            return
        if code in _TOPIC_ID_ERRORS:
            self._metadata.request_update({tp.topic for tp in plan.partitions})
        for partition in plan.partitions.values():
            if partition.state.version == partition.version:
                self._back_off(partition.state)

    def _back_off(self, state: PartitionState) -> None:
        state.back_off(self._loop.time() + self._backoff.wait_seconds(state.failures))

    def _partition_failed(
        self, node_id: int, partition: _InFlight, response_partition: PartitionData, endpoints: dict[int, Node]
    ) -> None:
        state, code = partition.state, response_partition.error_code
        error = error_for(code)
        assert error is not None
        if code == OffsetOutOfRangeError.code:
            self._handle_out_of_range(node_id, partition)
        elif is_stale_metadata(error):
            _logger.debug("Partition %s: fetch from broker %d failed: %s", state.tp, node_id, error)
            state.clear_preferred_replica()
            leader = response_partition.current_leader
            leader_is_known = leader is not None and self._metadata.note_leader(
                state.tp, leader.leader_id, leader.leader_epoch, endpoints.get(leader.leader_id)
            )
            if not leader_is_known:
                self._metadata.request_update((state.tp.topic,))
                self._back_off(state)
        elif error.retriable and not isinstance(error, CorruptRecordError):
            self._back_off(state)
        else:
            self._add_to_buffer(
                CompletedFetch(state, error=type(error)(f"{state.tp} at offset {state.fetch_offset}: {error}"))
            )
            self._back_off(state)

    def _handle_out_of_range(self, node_id: int, partition: _InFlight) -> None:
        state = partition.state
        info = self._metadata.view.partition(state.tp)
        if state.preferred_replica >= 0 or (info is not None and info.leader != node_id):
            # A follower may not have this offset yet, or no longer: fetch from the leader (KIP-392).
            state.clear_preferred_replica()
            self._back_off(state)
        elif info is not None and info.leader_epoch > partition.request.leader_epoch:
            # The answer is that of a former leader: validate the position with the new one.
            self._back_off(state)
        elif self._buffer.has(state.tp):
            # The user has not consumed the buffered records before this offset.
            self._back_off(state)
        elif not self._offset_fetcher.reset(state, f"fetch position {state.fetch_offset} is out of range"):
            self._add_to_buffer(CompletedFetch(state, error=OffsetsLostError(state.tp, state.fetch_offset)))
            self._back_off(state)
        else:
            self._loop.call_soon(self._offset_fetcher.send_requests)

    async def close(self) -> None:
        self._closed = True
        self._wake_at(float("inf"))
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
