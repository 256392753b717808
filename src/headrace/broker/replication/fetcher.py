"""Replicates partitions from one leader: one task that fetches, appends and truncates.

    loop   ask for leader epochs (below 2.7) → fetch → append → truncate diverging logs → reset what is out of range

- The fetch offset of a partition is always its log end offset. A response counts only if the partition has the leader
  epoch and the log end of the request: the controller may have changed the role meanwhile.
- The leader tells where the logs diverge: in fetch responses (KIP-595), or below `inter.broker.protocol.version` 2.7 in
  answers to OffsetForLeaderEpoch, before the first fetch in a leader epoch.
- A follower adopts the leader's high watermark, up to its own log end, and the leader's log start offset.
- An offset out of the leader's range: if the leader's log ends before this one (after an unclean election), this one
  is truncated to the leader's end. If it starts later, this one restarts there, and again at the start of the batch
  that contains the leader's log start. Otherwise the fetch is repeated.
- A partition with an error is delayed by `replica.fetch.backoff.ms`; if the leader has not learned its role yet, first
  by a shorter time, which doubles. A partition with an old leader epoch waits for the
  controller's next LeaderAndIsr.
- Only this task appends to and truncates the logs of its partitions, as long as this broker follows in that epoch.

Owned by the broker's loop.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from headrace.broker.config.replication import FetcherConfig
from headrace.broker.partition import Partition
from headrace.broker.replication.fetch_session import ReplicaFetchSession, RequestedPartition
from headrace.broker.replication.truncation import UNDEFINED, EpochEnd, start_of_first_batch, truncation_to
from headrace.common.errors import (
    CorruptRecordError,
    FencedLeaderEpochError,
    FetchSessionIdNotFoundError,
    FetchSessionTopicIdError,
    HeadraceError,
    InconsistentTopicIdError,
    InvalidFetchSessionEpochError,
    InvalidRecordError,
    KafkaError,
    KafkaStorageError,
    NotLeaderForPartitionError,
    OffsetOutOfRangeError,
    UnknownLeaderEpochError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    for_code,
)
from headrace.common.ids import ZERO_UUID, Uuid
from headrace.common.types import Buffer, TopicPartition
from headrace.protocol import Message
from headrace.protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData, ReplicaState
from headrace.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from headrace.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from headrace.storage.log import Log

_logger = logging.getLogger(__name__)

_FIRST_WITH_TOPIC_IDS = 13
_LAST_WITHOUT_TOPIC_IDS = 12
_LATEST, _EARLIEST = -1, -2
_NEVER = math.inf
_TURN_SECONDS = 0.002
"""How long responses are processed before other work of the loop gets its turn."""
_RESCAN_SECONDS = 0.5
"""How often all partitions are checked for changes that the fetcher did not make itself, such as retention."""
_FEW_PARTITIONS = 64

_FIRST_BACKOFF_MS = 50
"""A new leader usually learns its role within milliseconds."""

_SESSION_ERRORS = (FetchSessionIdNotFoundError, FetchSessionTopicIdError, InvalidFetchSessionEpochError)
"""Errors after which a new fetch session can be started at once."""
_EXPECTED = (
    InconsistentTopicIdError,
    NotLeaderForPartitionError,
    UnknownLeaderEpochError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
"""Errors while leader and follower learn a change at different times."""


class BrokerClient(Protocol):
    """Sends requests to other brokers."""

    async def send(
        self,
        broker_id: int,
        request: Message,
        *,
        purpose: str = "",
        timeout_ms: float | None = None,
        min_version: int | None = None,
        max_version: int | None = None,
    ) -> Any: ...


class FollowerLogs(Protocol):
    """What a fetcher does with the logs of this broker."""

    def append_as_follower(self, partition: Partition, data: PartitionData) -> None:
        """Appends fetched records, and adopts the leader's high watermark and log start offset."""
        ...

    async def truncate(
        self, offsets: Mapping[TopicPartition, int], is_current: Callable[[TopicPartition], bool], *, fully: bool
    ) -> Mapping[TopicPartition, KafkaStorageError | None]:
        """Truncates logs. Returns those that were, with the error if one failed."""
        ...


class FollowerThrottle(Protocol):
    """Limits the bytes of throttled replicas (`follower.replication.throttled.rate`)."""

    def is_throttled(self, tp: TopicPartition) -> bool: ...

    @property
    def is_exceeded(self) -> bool: ...

    def record(self, size: int) -> None: ...


class FetchState:
    """One partition of a fetcher, in one leader epoch."""

    __slots__ = (
        "delayed_until",
        "failures",
        "in_sync",
        "is_failing",
        "is_truncating",
        "leader_epoch",
        "partition",
        "topic_id",
    )

    def __init__(self, partition: Partition, is_truncating: bool):
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.topic_id: Uuid = partition.topic_id or ZERO_UUID
        self.is_truncating = is_truncating
        """True until the leader was asked where the logs diverge. False if fetch responses tell it."""
        self.delayed_until = 0.0
        self.failures = 0
        """The number of fetches in a row that failed because the leader has not learned its role yet."""
        self.is_failing = False
        """True if the last append failed."""
        self.in_sync = False
        """True if the last fetch reached the leader's high watermark. A throttle does not delay it."""

    @property
    def tp(self) -> TopicPartition:
        return self.partition.tp

    @property
    def log(self) -> Log | None:
        """The log, as long as this broker follows in the same leader epoch."""
        partition = self.partition
        return partition.log if partition.leader_epoch == self.leader_epoch and not partition.is_leader else None


class ReplicaFetcher:
    """Fetches some of the partitions that this broker follows from one leader. `start` it once, then `close`."""

    def __init__(
        self,
        leader_id: int,
        fetcher_id: int,
        *,
        node_id: int,
        client: BrokerClient,
        logs: FollowerLogs,
        config: FetcherConfig,
        broker_epoch: Callable[[], int],
        throttle: FollowerThrottle | None = None,
    ):
        self.leader_id = leader_id
        self.purpose = f"fetcher-{fetcher_id}"
        self._node_id = node_id
        self._client = client
        self._logs = logs
        self._config = config
        self._broker_epoch = broker_epoch
        self._throttle = throttle
        self._states: dict[TopicPartition, FetchState] = {}
        self._changed: set[TopicPartition] = set()
        """The partitions that may differ from those in the fetch session."""
        self._session = ReplicaFetchSession()
        self._wake = asyncio.Event()
        self._scanned_at = 0.0
        self._failing = False
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._states)

    def __str__(self) -> str:
        return f"{self.purpose} of broker {self._node_id} from leader {self.leader_id}"

    # ---- partitions

    def add(self, partition: Partition) -> None:
        """Fetches a partition from now on; starts again if its leader epoch has changed."""
        state = self._states.get(partition.tp)
        if (
            state is None
            or state.partition is not partition
            or state.leader_epoch != partition.leader_epoch
            or state.delayed_until == _NEVER
        ):
            log = partition.log
            asks_first = not self._config.truncates_on_fetch or log is None or log.epochs.latest_epoch == UNDEFINED
            self._states[partition.tp] = FetchState(partition, asks_first)
            self._changed.add(partition.tp)
            self._wake.set()

    def remove(self, tp: TopicPartition) -> None:
        if self._states.pop(tp, None) is not None:
            self._changed.add(tp)

    def wake(self) -> None:
        """Tries again at once, because the leader may be reachable now."""
        self._wake.set()

    # ---- running

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=str(self))

    async def close(self) -> None:
        """Stops fetching. An append or a truncation in progress is completed first."""
        self._states.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            self._wake.clear()  # before the step: a partition that is added meanwhile must not wait for the next pause
            try:
                if not await self._step():
                    await self._pause(self._idle_seconds())
            except HeadraceError as error:
                self._session.failed()
                if not self._failing:  # log it once: it is tried again all the time
                    self._failing = True
                    _logger.warning("Replica %s: cannot fetch %d partitions, will retry: %s", self, len(self), error)
                await self._pause(self._config.backoff_ms / 1000)
            except Exception:
                self._session.failed()
                _logger.exception("Replica %s: fetching failed with an internal error, will retry", self)
                await self._pause(self._config.backoff_ms / 1000)

    async def _pause(self, seconds: float) -> None:
        """Waits until there may be something to do, at most for some time."""
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return

    def _idle_seconds(self) -> float:
        now = self._now()
        delays = [state.delayed_until - now for state in self._states.values() if state.delayed_until > now]
        return max(0.001, min([*delays, self._config.backoff_ms / 1000]))

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    async def _step(self) -> bool:
        """Truncates, fetches and appends once. Returns False if there is nothing to fetch now."""
        await self._ask_for_epochs()
        sent = self._next_request()
        if sent is None:
            return False
        response: FetchResponse = await self._send(sent, self._fetch_version())
        self._session.responded(response.session_id, response.error_code)
        if response.error_code:
            self._changed |= self._states.keys()
            error = for_code(response.error_code)
            if error not in _SESSION_ERRORS:
                raise error(f"broker {self.leader_id} responds to fetches with {error.name}")
            _logger.info("Replica %s: starting a new fetch session: %s", self, error.__name__)
            return True
        if self._failing:
            self._failing = False
            _logger.info("Replica %s: fetching again", self)
        await self._process(response)
        return True

    async def _send(self, request: Message, version: int) -> Any:
        return await self._client.send(
            self.leader_id, request, purpose=self.purpose, timeout_ms=self._config.timeout_ms, max_version=version
        )

    def _delay(self, state: FetchState, *, briefly: bool = False) -> None:
        """Fetches a partition again after the back-off. With `briefly`, it begins with a short one and doubles."""
        backoff_ms = self._config.backoff_ms
        if briefly:
            backoff_ms = min(backoff_ms, _FIRST_BACKOFF_MS * 2 ** min(state.failures, 16))
            state.failures += 1
        state.delayed_until = self._now() + backoff_ms / 1000
        self._changed.add(state.tp)

    def _is_current(self, tp: TopicPartition, state: FetchState) -> bool:
        return self._states.get(tp) is state and state.log is not None

    # ---- fetching

    def _fetch_version(self) -> int:
        version = self._config.fetch_version
        return version if self._uses_ids else min(version, _LAST_WITHOUT_TOPIC_IDS)

    @property
    def _uses_ids(self) -> bool:
        return self._config.fetch_version >= _FIRST_WITH_TOPIC_IDS and all(
            state.topic_id.int for state in self._states.values()
        )

    def _next_request(self) -> FetchRequest | None:
        """Returns the next fetch; None if no partition can be fetched now."""
        now = self._now()
        session = self._session
        is_scan = session.is_full or len(self._states) <= _FEW_PARTITIONS or now - self._scanned_at >= _RESCAN_SECONDS
        if is_scan:
            self._scanned_at = now
        # A copy, because a failed flush may take the partitions of a log directory offline.
        changed = [*{**self._states, **session.partitions}] if is_scan else [*self._changed]
        requested: dict[TopicPartition, RequestedPartition] = {}
        forgotten: list[TopicPartition] = []
        must_throttle = self._throttle is not None and self._throttle.is_exceeded
        for tp in changed:
            state = self._states.get(tp)
            log = state.log if state is not None else None
            if (
                state is None
                or log is None
                or state.is_truncating
                or state.delayed_until > now
                or (must_throttle and not state.in_sync and self._throttle and self._throttle.is_throttled(tp))
                or not self._is_flushed(state, log)
            ):
                forgotten.append(tp)
            else:
                requested[tp] = self._requested(state, log)
        self._changed = {tp for tp in self._changed if tp not in requested and tp in self._states}
        if not requested and not (session.partitions.keys() - set(forgotten)):
            return None
        by_id = self._uses_ids
        if not session.is_full and by_id != session.by_id:
            session.failed()
            return self._next_request()
        request = session.build(requested, forgotten, by_id)
        config = self._config
        request.replica_id = self._node_id
        request.replica_state = ReplicaState(replica_id=self._node_id, replica_epoch=self._broker_epoch())
        request.max_wait_ms = config.wait_max_ms
        request.min_bytes = config.min_bytes
        request.max_bytes = config.response_max_bytes
        return request

    def _is_flushed(self, state: FetchState, log: Log) -> bool:
        """Flushes what a failed append may have left unflushed, since a fetch tells the leader that this broker has all
        records before its offset. Delays the partition and returns False if that fails."""
        try:
            log.flush_if_overdue()
        except KafkaStorageError as error:
            _logger.debug("Partition %s: cannot flush, fetching later: %s", state.tp, error)
            self._delay(state)
            return False
        return True

    def _requested(self, state: FetchState, log: Log) -> RequestedPartition:
        return RequestedPartition(
            state.topic_id,
            log.log_end_offset,
            log.log_start_offset,
            state.leader_epoch,
            log.epochs.latest_epoch if self._config.truncates_on_fetch else UNDEFINED,
            self._config.max_bytes,
        )

    # ---- responses

    async def _process(self, response: FetchResponse) -> None:
        names = {state.topic_id: tp.topic for tp, state in self._states.items()} if self._session.by_id else {}
        diverging: dict[TopicPartition, tuple[FetchState, EpochEnd]] = {}
        out_of_range: list[FetchState] = []
        across_start: dict[TopicPartition, tuple[FetchState, PartitionData, int]] = {}
        turn_ends = self._now() + _TURN_SECONDS
        for topic in response.responses:
            name = names.get(topic.topic_id, "") if self._session.by_id else topic.topic
            for data in topic.partitions:
                tp = TopicPartition(name, data.partition_index)
                state, requested = self._states.get(tp), self._session.partitions.get(tp)
                if state is None or requested is None or not self._matches(state, requested):
                    continue
                if data.error_code:
                    if data.error_code == OffsetOutOfRangeError.code:
                        out_of_range.append(state)
                    else:
                        self._handle_error(state, for_code(data.error_code))
                elif data.diverging_epoch is not None and data.diverging_epoch.epoch >= 0:
                    end = EpochEnd(data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
                    diverging[tp] = state, end
                elif (start := self._append(state, data)) is not None:
                    across_start[tp] = state, data, start
                if self._now() >= turn_ends:
                    await asyncio.sleep(0)
                    turn_ends = self._now() + _TURN_SECONDS
        if diverging:
            await self._truncate_diverging(diverging)
        if out_of_range:
            await self._reset(out_of_range)
        if across_start:
            await self._restart_at_batches(across_start)

    @staticmethod
    def _matches(state: FetchState, requested: RequestedPartition) -> bool:
        log = state.log
        return (
            log is not None
            and requested.leader_epoch == state.leader_epoch
            and requested.fetch_offset == log.log_end_offset
        )

    def _append(self, state: FetchState, data: PartitionData) -> int | None:
        """Appends fetched records. Returns the offset at which the log must be restarted before, if necessary."""
        tp = state.tp
        self._changed.add(tp)
        try:
            self._logs.append_as_follower(state.partition, data)
        except KafkaStorageError as error:
            if not state.is_failing:  # log it once: it is tried again all the time
                state.is_failing = True
                _logger.error("Partition %s: cannot append records of leader %d: %s", tp, self.leader_id, error)
            self._delay(state)
            return None
        except (CorruptRecordError, InvalidRecordError) as error:
            log = state.partition.log
            start = start_of_first_batch(log, _bytes_of(data)) if log is not None else None
            if start is not None:
                return start
            if not state.is_failing:
                state.is_failing = True
                _logger.error("Partition %s: leader %d sent invalid records, will retry: %s", tp, self.leader_id, error)
            self._delay(state)
            return None
        state.is_failing, state.failures = False, 0
        log = state.partition.log
        state.in_sync = log is not None and log.log_end_offset >= data.high_watermark
        if self._throttle is not None and data.records and self._throttle.is_throttled(tp):
            self._throttle.record(len(data.records))
        return None

    def _handle_error(self, state: FetchState, error: type[KafkaError]) -> None:
        if error is FencedLeaderEpochError:
            _logger.info(
                "Partition %s: leader %d has a newer epoch than %d; waiting for the controller",
                state.tp,
                self.leader_id,
                state.leader_epoch,
            )
            # It stays here until the manager removes it: a fetcher without partitions ends.
            state.delayed_until = _NEVER
            self._changed.add(state.tp)
            return
        is_expected = issubclass(error, _EXPECTED)
        if not is_expected:
            _logger.warning(
                "Partition %s: leader %d responds to fetches with %s", state.tp, self.leader_id, error.__name__
            )
        self._delay(state, briefly=is_expected)

    # ---- truncating

    async def _ask_for_epochs(self) -> None:
        """Asks the leader where the logs of partitions in a new leader epoch diverge, and truncates them."""
        now = self._now()
        asking: dict[TopicPartition, FetchState] = {}
        without_epochs: dict[TopicPartition, int] = {}
        for tp, state in self._states.items():
            log = state.log
            if not state.is_truncating or log is None or state.delayed_until > now:
                continue
            if log.epochs.latest_epoch == UNDEFINED:
                if log.log_end_offset > log.high_watermark:
                    without_epochs[tp] = log.high_watermark
                else:
                    state.is_truncating = False
                    self._changed.add(tp)
            else:
                asking[tp] = state
        if without_epochs:
            # Without epochs nobody knows which records the leader has: only the committed ones are certain.
            await self._truncate({tp: (self._states[tp], offset, True) for tp, offset in without_epochs.items()})
        if asking:
            await self._truncate_diverging(await self._epoch_ends(asking))

    async def _epoch_ends(
        self, asking: Mapping[TopicPartition, FetchState]
    ) -> dict[TopicPartition, tuple[FetchState, EpochEnd]]:
        topics: dict[str, list[OffsetForLeaderPartition]] = {}
        for tp, state in asking.items():
            assert state.partition.log is not None
            topics.setdefault(tp.topic, []).append(
                OffsetForLeaderPartition(
                    partition=tp.partition,
                    current_leader_epoch=state.leader_epoch,
                    leader_epoch=state.partition.log.epochs.latest_epoch,
                )
            )
        request = OffsetForLeaderEpochRequest(
            replica_id=self._node_id,
            topics=[OffsetForLeaderTopic(topic=name, partitions=parts) for name, parts in topics.items()],
        )
        response: OffsetForLeaderEpochResponse = await self._send(request, self._config.epoch_version)
        ends: dict[TopicPartition, tuple[FetchState, EpochEnd]] = {}
        for topic in response.topics:
            for answer in topic.partitions:
                tp = TopicPartition(topic.topic, answer.partition)
                asked = asking.get(tp)
                if asked is None or not self._is_current(tp, asked):
                    continue
                if answer.error_code:
                    self._handle_error(asked, for_code(answer.error_code))
                else:
                    ends[tp] = asked, EpochEnd(answer.leader_epoch, answer.end_offset)
        return ends

    async def _truncate_diverging(self, ends: Mapping[TopicPartition, tuple[FetchState, EpochEnd]]) -> None:
        truncations: dict[TopicPartition, tuple[FetchState, int, bool]] = {}
        for tp, (state, end) in ends.items():
            log = state.log
            if log is not None:
                truncations[tp] = (state, *truncation_to(log, end))
        await self._truncate(truncations)

    async def _truncate(
        self, truncations: Mapping[TopicPartition, tuple[FetchState, int, bool]], *, fully: bool = False
    ) -> None:
        """Truncates logs to offsets. The flag tells if the follower need not ask again."""
        needed: dict[TopicPartition, int] = {}
        for tp, (state, offset, is_final) in truncations.items():
            log = state.log
            if log is None:
                continue
            if offset >= log.log_end_offset and not fully:
                self._truncated(state, log, is_final)
                continue
            needed[tp] = offset
            below = ", below its high watermark" if offset < log.high_watermark else ""
            _logger.log(
                logging.WARNING if below else logging.INFO,
                "Partition %s: truncating the log from %d to offset %d%s, because leader %d in epoch %d diverges there",
                tp,
                log.log_end_offset,
                offset,
                below,
                self.leader_id,
                state.leader_epoch,
            )
        if not needed:
            return
        results = await self._logs.truncate(needed, lambda tp: self._is_current(tp, truncations[tp][0]), fully=fully)
        for tp, error in results.items():
            state, _, is_final = truncations[tp]
            log = state.log
            if not self._is_current(tp, state) or log is None:
                continue
            if error is not None:
                _logger.error("Partition %s: cannot truncate the log, will retry: %s", tp, error)
                self._delay(state)
                continue
            self._truncated(state, log, is_final)

    def _truncated(self, state: FetchState, log: Log, is_final: bool) -> None:
        self._changed.add(state.tp)
        # This broker may have led an epoch without writing a record in it.
        log.epochs.truncate_from_end(log.log_end_offset)
        if is_final:
            state.is_truncating = False

    # ---- out of range

    async def _reset(self, states: list[FetchState]) -> None:
        """Truncates or restarts logs whose end is out of their leader's range."""
        ends = await self._leader_offsets(states, _LATEST)
        longer = {
            state.tp: (state, ends[state.tp], True)
            for state in states
            if state.tp in ends and state.log is not None and ends[state.tp] < state.log.log_end_offset
        }
        if longer:
            await self._truncate(longer)
        others = [state for state in states if state.tp in ends and state.tp not in longer]
        if not others:
            return
        starts = await self._leader_offsets(others, _EARLIEST)
        behind = {
            state.tp: (state, starts[state.tp], True)
            for state in others
            if state.tp in starts and state.log is not None and starts[state.tp] > state.log.log_end_offset
        }
        if behind:
            await self._truncate(behind, fully=True)
        for state in others:
            if state.tp in starts and state.tp not in behind and self._is_current(state.tp, state):
                self._delay(state)

    async def _restart_at_batches(
        self, restarts: Mapping[TopicPartition, tuple[FetchState, PartitionData, int]]
    ) -> None:
        """Restarts empty logs at the start of the fetched batches, and appends these."""
        starts = {tp: start for tp, (_, _, start) in restarts.items()}
        results = await self._logs.truncate(starts, lambda tp: self._is_current(tp, restarts[tp][0]), fully=True)
        for tp, error in results.items():
            state, data, start = restarts[tp]
            log = state.log
            if not self._is_current(tp, state) or log is None:
                continue
            if error is not None:
                _logger.error("Partition %s: cannot restart the log, will retry: %s", tp, error)
                self._delay(state)
            elif log.log_end_offset == start:
                _logger.info(
                    "Partition %s: restarted the log at offset %d: leader %d starts in the middle of a batch",
                    tp,
                    start,
                    self.leader_id,
                )
                self._append(state, data)

    async def _leader_offsets(self, states: Iterable[FetchState], timestamp: int) -> dict[TopicPartition, int]:
        """Returns the leader's log end or log start. A partition with an error is left out, and delayed."""
        by_tp = {state.tp: state for state in states if self._is_current(state.tp, state)}
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for tp, state in by_tp.items():
            topics.setdefault(tp.topic, []).append(
                ListOffsetsPartition(
                    partition_index=tp.partition, current_leader_epoch=state.leader_epoch, timestamp=timestamp
                )
            )
        request = ListOffsetsRequest(
            replica_id=self._node_id,
            topics=[ListOffsetsTopic(name=name, partitions=parts) for name, parts in topics.items()],
        )
        response: ListOffsetsResponse = await self._send(request, self._config.list_offsets_version)
        offsets: dict[TopicPartition, int] = {}
        for topic in response.topics:
            for found in topic.partitions:
                tp = TopicPartition(topic.name, found.partition_index)
                current = by_tp.get(tp)
                if current is None or not self._is_current(tp, current):
                    continue
                if found.error_code:
                    self._handle_error(current, for_code(found.error_code))
                else:
                    offsets[tp] = found.offset
        return offsets


def _bytes_of(data: PartitionData) -> Buffer:
    return data.records if isinstance(data.records, bytes | bytearray | memoryview) else b""
