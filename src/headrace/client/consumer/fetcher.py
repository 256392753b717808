"""Fetches: keeps one request at each broker that has something for this consumer, ahead of what the user takes.

    kick()  -->  a task for each broker:  plan -> send -> sort the reply into the buffer -> plan ...
                                          nothing to ask for: waits for the next kick

A partition is asked for while less than `_ROUNDS_AHEAD` times `max.partition.fetch.bytes` of it wait in the buffer, and
nothing is asked for while `queued.max.messages.kbytes` wait in all: so the next round is under way while the user works
on the last one, and memory stays bounded. While some partitions of a broker have that much, it is not asked for the
others before one of these runs low: few large replies cost less than many small ones, and take fewer turns at the GIL
from the user's thread. Fetches have connections of their own, since a broker holds back whatever stands behind a fetch
that waits for records.

Owned by the loop. A reply is sorted in only if its partition has the version that it was asked under.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple

from headrace.client.consumer.errors import OffsetsLostError, RecordTooLargeError
from headrace.client.consumer.fetch_buffer import CompletedFetch, FetchBuffer
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
from headrace.common.ids import ZERO_UUID
from headrace.common.types import TopicPartition
from headrace.net.broker_pool import BrokerPool, Node
from headrace.protocol import ApiKey
from headrace.protocol.messages.fetch import FetchResponse, PartitionData
from headrace.records import FetchedRecords

_logger = logging.getLogger(__name__)

PURPOSE = "fetch"
_ROUNDS_AHEAD = 3
_FIRST_WITH_TOPIC_IDS = 13
_LAST_WITH_NAMES = 12
_SHORTEST_WAIT_MS = 5
_SOON = (FetchState.OFFSET_QUERY, FetchState.OFFSET_WAIT, FetchState.VALIDATE_WAIT)
_SESSION_ERRORS = (
    FetchSessionIdNotFoundError.code,
    InvalidFetchSessionEpochError.code,
    FetchSessionTopicIdError.code,
)
_OTHER_ID_ERRORS = (UnknownTopicIdError.code, InconsistentTopicIdError.code)


class FetchLimits(NamedTuple):
    """What the settings say about fetching."""

    min_bytes: int = 1
    max_bytes: int = 52_428_800
    max_wait_ms: int = 500
    max_partition_bytes: int = 1_048_576
    max_queued_bytes: int = 65_536 * 1024
    check_crcs: bool = True
    read_committed: bool = False
    sessions: bool = True
    partition_eof: bool = False
    rack: str = ""
    metadata_max_age_ms: float = 300_000


class _Asked(NamedTuple):
    """One partition of a request under way."""

    state: PartitionState
    version: int
    wanted: RequestedPartition


class _Plan(NamedTuple):
    asked: dict[TopicPartition, _Asked]
    is_brief: bool
    """More partitions of this broker can be asked for soon: there is enough of them in the buffer just now, or their
    positions are not known yet. As there is one request at a time, this one must not wait for long."""


class Fetcher:
    """See the module."""

    def __init__(
        self,
        pool: BrokerPool,
        metadata: Metadata,
        subscription: SubscriptionState,
        buffer: FetchBuffer,
        offset_fetcher: OffsetFetcher,
        limits: FetchLimits,
        backoff: Backoff,
        arrived: Callable[[], None],
    ):
        """`arrived` is called when there is something new in the buffer."""
        self._pool = pool
        self._metadata = metadata
        self._subscription = subscription
        self._buffer = buffer
        self._offset_fetcher = offset_fetcher
        self._limits = limits
        self._backoff = backoff
        self._arrived = arrived
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._kicks: dict[int, asyncio.Event] = {}
        self._sessions: dict[int, FetchSessionHandler] = {}
        self._under_way: dict[TopicPartition, int] = {}
        """The version that each partition was last asked under, while there is no reply."""
        self._timer: asyncio.TimerHandle | None = None
        self._news = False
        self._closed = False

    def send_requests(self) -> None:
        """Something changed: there may be more to ask for."""
        if self._closed:
            return
        with self._subscription.lock:
            plans = self._plans()
        for node_id in plans:
            self._rouse(node_id)

    def _rouse(self, node_id: int) -> None:
        """There is something to ask a broker for."""
        if node_id not in self._tasks:
            self._kicks[node_id] = asyncio.Event()
            self._tasks[node_id] = self._loop.create_task(self._serve(node_id))
        else:
            self._kicks[node_id].set()

    # What to ask for

    def _plans(self) -> dict[int, _Plan]:
        """What each broker is to be asked for now. The caller holds the lock."""
        now = self._loop.time()
        view = self._metadata.view
        full = self._buffer.size_in_bytes >= self._limits.max_queued_bytes and not self._make_room()
        round_bytes = self._limits.max_partition_bytes
        plans: dict[int, _Plan] = {}
        starved: dict[int, int] = {}  # how many partitions of a broker are left out
        pressing: set[int] = set()
        hurried: set[Node | None] = set()
        later = float("inf")
        for state in self._subscription.states():
            tp = state.tp
            if state.state in _SOON:
                hurried.add(view.leader(tp))
            if not state.is_fetchable or self._under_way.get(tp) == state.version:
                continue
            info = view.partition(tp)
            if info is None or info.leader not in view.nodes:
                self._metadata.request_update((tp.topic,))
                continue
            if not self._offset_fetcher.check_leader(state, info.leader_epoch):
                hurried.add(view.nodes[info.leader])
                continue
            if state.retry_at > now:
                later = min(later, state.retry_at)
                continue
            node_id = self._source(state, info.leader, now)
            waiting = self._buffer.waiting_bytes(tp)
            if full or waiting >= _ROUNDS_AHEAD * round_bytes or self._buffer.has_error(tp):
                starved[node_id] = starved.get(node_id, 0) + 1
                continue
            if waiting < round_bytes // 2:
                pressing.add(node_id)
            if node_id not in plans:
                plans[node_id] = _Plan({}, False)
            wanted = RequestedPartition(
                view.topic_id(tp.topic), state.fetch_offset, self._limits.max_partition_bytes, state.leader_epoch
            )
            plans[node_id].asked[tp] = _Asked(state, state.version, wanted)
        if starved:
            self._buffer.call_when_taken(round_bytes * min(starved.values()))
        self._wake_at(later)
        brief = starved.keys() | {node.id for node in hurried if node is not None}
        return {
            node_id: plan._replace(is_brief=node_id in brief)
            for node_id, plan in plans.items()
            if node_id in pressing or node_id not in starved
        }

    def _make_room(self) -> bool:
        """Partitions that are paused give up what they hold, which nobody will take soon: others need the room."""
        for state in self._subscription.states():
            if state.paused and state.state is FetchState.ACTIVE and self._buffer.waiting_bytes(state.tp):
                state.rewind()
        self._buffer.drop_stale()
        return self._buffer.size_in_bytes < self._limits.max_queued_bytes

    def _source(self, state: PartitionState, leader: int, now: float) -> int:
        """The broker to fetch from: the leader, or the replica that it has named (KIP-392)."""
        if state.preferred_replica >= 0:
            if state.preferred_until > now and state.preferred_replica in self._metadata.view.nodes:
                return state.preferred_replica
            state.clear_preferred_replica()
        return leader

    def _wake_at(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if at != float("inf"):
            self._timer = self._loop.call_at(at, self.send_requests)

    # One broker

    async def _serve(self, node_id: int) -> None:
        """The task of one broker; it ends when the broker is no longer known."""
        kicks = self._kicks[node_id]
        session = self._sessions.setdefault(node_id, FetchSessionHandler(self._limits.sessions))
        failures = empty = 0
        try:
            while not self._closed and node_id in self._metadata.view.nodes:
                kicks.clear()
                with self._subscription.lock:
                    plans = self._plans()
                    plan = plans.pop(node_id, None)
                    if plan is not None:
                        for tp, asked in plan.asked.items():
                            self._under_way[tp] = asked.version
                for other in plans:
                    # The last reply may have told of a better broker for a partition.
                    self._rouse(other)
                if plan is None:
                    empty = 0
                    self._tell()
                    await kicks.wait()
                    continue
                try:
                    reply = await self._ask(node_id, session, plan, empty)
                except KafkaError as error:
                    session.failed()
                    self._forget(plan)
                    failures = self._broker_failed(node_id, plan, error, failures)
                    await asyncio.sleep(self._backoff.wait_seconds(failures - 1))
                    continue
                except BaseException:
                    session.failed()
                    self._forget(plan)
                    raise
                failures = 0
                session.answered(reply.session_id, reply.error_code)
                got = self._sort(node_id, plan, reply)
                empty = 0 if got or not plan.is_brief else empty + 1
        except asyncio.CancelledError:
            raise
        except Exception:
            _logger.exception("fetching from broker %d failed", node_id)
            raise
        finally:
            self._tell()
            del self._tasks[node_id], self._kicks[node_id]
            self._sessions.pop(node_id, None)
            if not self._closed:
                self._loop.call_soon(self.send_requests)

    async def _ask(self, node_id: int, session: FetchSessionHandler, plan: _Plan, empty: int) -> FetchResponse:
        if not self._pool.is_ready(node_id, PURPOSE):
            self._tell()
            await self._pool.connect(node_id, PURPOSE)
        version = self._pool.version(node_id, ApiKey.FETCH)
        by_id = (
            version is not None
            and version >= _FIRST_WITH_TOPIC_IDS
            and all(asked.wanted.topic_id != ZERO_UUID for asked in plan.asked.values())
        )
        request = session.plan({tp: asked.wanted for tp, asked in plan.asked.items()}, by_id)
        limits = self._limits
        request.max_wait_ms = limits.max_wait_ms
        if plan.is_brief:
            request.max_wait_ms = min(limits.max_wait_ms, _SHORTEST_WAIT_MS << min(empty, 10))
        request.min_bytes = limits.min_bytes
        request.max_bytes = min(limits.max_bytes, max(1, limits.max_queued_bytes - self._buffer.size_in_bytes))
        request.isolation_level = 1 if limits.read_committed else 0
        request.rack_id = limits.rack
        max_version = None if by_id else _LAST_WITH_NAMES
        if self._pool.is_ready(node_id, PURPOSE):
            # First the next round, then the user: who wakes up takes the time that the request would need.
            asked = self._pool.send_now(node_id, request, max_version=max_version, purpose=PURPOSE)
            self._tell()
            reply: FetchResponse = await asked
        else:
            self._tell()
            reply = await self._pool.send(node_id, request, max_version=max_version, purpose=PURPOSE)
        return reply

    def _tell(self) -> None:
        """Wakes the user if something has come."""
        if self._news:
            self._news = False
            self._arrived()

    def _forget(self, plan: _Plan) -> None:
        for tp, asked in plan.asked.items():
            if self._under_way.get(tp) == asked.version:
                del self._under_way[tp]

    def _broker_failed(self, node_id: int, plan: _Plan, error: KafkaError, failures: int) -> int:
        """No reply: another broker may lead the partitions now."""
        _logger.log(
            logging.INFO if not failures else logging.DEBUG, "no reply to a fetch from broker %d: %s", node_id, error
        )
        self._metadata.request_update({tp.topic for tp in plan.asked})
        with self._subscription.lock:
            for asked in plan.asked.values():
                if asked.state.preferred_replica == node_id:
                    asked.state.clear_preferred_replica()
                if isinstance(error, UnsupportedVersionError) and asked.state.version == asked.version:
                    self._put(CompletedFetch(asked.state, error=error))
        self._tell()
        return failures + 1

    # What came

    def _sort(self, node_id: int, plan: _Plan, reply: FetchResponse) -> bool:
        """Puts a reply's parts where they belong; whether there was anything."""
        names = {asked.wanted.topic_id: tp.topic for tp, asked in plan.asked.items()}
        endpoints = {each.node_id: Node(each.node_id, each.host, each.port, each.rack) for each in reply.node_endpoints}
        got = False
        with self._subscription.lock:
            self._forget(plan)
            if reply.error_code and not reply.responses:
                self._refused(plan, reply.error_code)
                return False
            silent = dict(plan.asked) if self._limits.partition_eof else {}
            for topic in reply.responses:
                name = topic.topic or names.get(topic.topic_id, "")
                for part in topic.partitions:
                    tp = TopicPartition(name, part.partition_index)
                    asked = plan.asked.get(tp)
                    silent.pop(tp, None)
                    if asked is None or asked.state.version != asked.version:
                        continue
                    if part.error_code:
                        self._partition_failed(node_id, asked, part, endpoints)
                    elif self._take(asked, part):
                        got = True
            for asked in silent.values():
                # Nothing new since the last reply of the session, but the user may have come back to the end.
                if asked.state.version == asked.version:
                    self._look_for_end(asked.state)
        return got

    def _take(self, asked: _Asked, part: PartitionData) -> bool:
        """Whether there were records."""
        state, limits = asked.state, self._limits
        state.high_watermark = part.high_watermark
        state.last_stable_offset = part.last_stable_offset
        if part.log_start_offset >= 0:
            state.log_start_offset = part.log_start_offset
        if part.preferred_read_replica >= 0:
            state.set_preferred_replica(
                part.preferred_read_replica, self._loop.time() + limits.metadata_max_age_ms / 1000
            )
        got = False
        if part.records:
            assert isinstance(part.records, bytes | bytearray | memoryview)
            aborted = None
            if limits.read_committed and part.aborted_transactions:
                aborted = [(each.producer_id, each.first_offset) for each in part.aborted_transactions]
            records = FetchedRecords(
                state.tp.topic, state.tp.partition, part.records, state.fetch_offset, aborted, limits.check_crcs
            )
            if records.has_batches:
                got = True
                self._put(CompletedFetch(state, records))
                state.fetched(records.end_offset)
            else:
                self._put(
                    CompletedFetch(
                        state, error=RecordTooLargeError(state.tp, state.fetch_offset, limits.max_partition_bytes)
                    )
                )
        self._look_for_end(state)
        state.failures = 0
        return got

    def _look_for_end(self, state: PartitionState) -> None:
        if self._limits.partition_eof and state.reached_end(self._limits.read_committed):
            self._put(CompletedFetch(state, eof_offset=state.eof_offset))

    def _put(self, entry: CompletedFetch) -> None:
        self._buffer.put(entry)
        self._news = True

    def _refused(self, plan: _Plan, code: int) -> None:
        """An error for the whole request. The session has been told; the next request is a full one."""
        error = error_for(code)
        _logger.debug("a fetch was refused: %s", error)
        if code in _SESSION_ERRORS:
            return
        if code in _OTHER_ID_ERRORS:
            self._metadata.request_update({tp.topic for tp in plan.asked})
        for asked in plan.asked.values():
            if asked.state.version == asked.version:
                self._hold_back(asked.state)

    def _hold_back(self, state: PartitionState) -> None:
        state.back_off(self._loop.time() + self._backoff.wait_seconds(state.failures))

    def _partition_failed(self, node_id: int, asked: _Asked, part: PartitionData, endpoints: dict[int, Node]) -> None:
        state, code = asked.state, part.error_code
        error = error_for(code)
        assert error is not None
        if code == OffsetOutOfRangeError.code:
            self._out_of_range(node_id, state)
        elif is_stale_metadata(error):
            _logger.debug("fetching %s from broker %d: %s", state.tp, node_id, error)
            state.clear_preferred_replica()
            leader = part.current_leader
            known = leader is not None and self._metadata.note_leader(
                state.tp, leader.leader_id, leader.leader_epoch, endpoints.get(leader.leader_id)
            )
            if not known:
                self._metadata.request_update((state.tp.topic,))
                self._hold_back(state)
        elif error.retriable and not isinstance(error, CorruptRecordError):
            self._hold_back(state)
        else:
            self._put(CompletedFetch(state, error=type(error)(f"{state.tp} at offset {state.fetch_offset}: {error}")))
            self._hold_back(state)

    def _out_of_range(self, node_id: int, state: PartitionState) -> None:
        info = self._metadata.view.partition(state.tp)
        if state.preferred_replica >= 0 or (info is not None and info.leader != node_id):
            # A follower may not have it yet, or no more: the leader decides (KIP-392).
            state.clear_preferred_replica()
            self._hold_back(state)
        elif self._buffer.has(state.tp):
            # The user still has records to take that lie before it.
            self._hold_back(state)
        elif not self._offset_fetcher.reset(state, f"{state.tp} has no offset {state.fetch_offset}"):
            self._put(CompletedFetch(state, error=OffsetsLostError(state.tp, state.fetch_offset)))
            self._hold_back(state)
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
