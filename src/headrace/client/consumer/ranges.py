"""Reads stretches of partitions whose begin and end are known: what a batch engine does, which keeps positions itself.

    client = RangeClient({"bootstrap.servers": "localhost:9092"})
    client.offsets({tp: EARLIEST}), client.offsets({tp: LATEST})
    for columns in client.read(tp, 0, 1000):        # Arrow arrays, a few MB each
        ...

No group, no subscription, no position that lives on. A thread of its own runs the loop; `RangeFetch` keeps one fetch
under way while the caller works on the last reply, and asks for nothing behind the end. Decoding happens in the
caller's thread.

Invariants: records come in order, each once; an offset that the log does not have (any more) raises
`OffsetOutOfRangeError`, and is never passed over silently; whatever another attempt may mend is tried again until
nothing has come for `patience_ms`.
"""

import asyncio
import logging
from bisect import bisect_left
from collections.abc import Generator, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from headrace.client.background import LoopThread
from headrace.client.consumer.errors import CorruptBatchError, OffsetsLostError, RecordTooLargeError
from headrace.client.consumer.fetch_sessions import FetchSession, Wanted
from headrace.client.consumer.list_offsets import EARLIEST, LATEST, by_leader, find_offsets
from headrace.client.consumer_keys import CONSUMER_KEYS
from headrace.client.core import ClientCore
from headrace.client.errors import KafkaTimeoutError, error_for, is_stale_metadata
from headrace.client.metadata import check_name
from headrace.client.settings import ClientSettings
from headrace.common.errors import (
    CorruptRecordError,
    KafkaError,
    LeaderNotAvailableError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from headrace.common.ids import ZERO_UUID
from headrace.common.types import TopicPartition
from headrace.protocol import ApiKey
from headrace.protocol.messages.fetch import FetchResponse, PartitionData
from headrace.records import FetchedRecords

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["EARLIEST", "LATEST", "RangeClient", "RangeColumns"]

logger = logging.getLogger(__name__)

_PURPOSE = "fetch"
_WAIT_PURPOSE = "wait"
_LONGEST_WAIT_AFTER_ERROR_SECONDS = 0.02
_FIRST_WITH_TOPIC_IDS = 13
_LAST_WITH_NAMES = 12
_PROBE_ROWS = 64
"""Rows that are decoded first, to learn how large they are."""
_MOST_ROWS = 100_000


class RangeColumns(NamedTuple):
    """Records as Arrow arrays, of one length."""

    keys: "pa.Array"
    values: "pa.Array"
    headers: "pa.Array"
    offsets: "pa.Array"
    timestamps: "pa.Array"
    timestamp_types: "pa.Array"

    def __len__(self) -> int:
        return len(self.offsets)


class RangeClient:
    """See the module. For one thread at a time; settings are the consumer's."""

    def __init__(self, settings: Mapping[str, object]):
        self.settings = ClientSettings.load(CONSUMER_KEYS, settings)
        self._thread = LoopThread("headrace-ranges")
        try:
            self._core = self._thread.run(self._make())
        except BaseException:
            self._thread.stop()
            raise

    async def _make(self) -> ClientCore:
        return ClientCore(self.settings, allow_auto_create=False)

    def close(self) -> None:
        """May be called twice."""
        if self._thread.is_alive:
            self._thread.run(self._core.close())
            self._thread.stop()

    # The cluster

    def _timeout(self, timeout_ms: float | None) -> float:
        return float(self.settings.default_api_timeout_ms if timeout_ms is None else timeout_ms)

    def topics(self, timeout_ms: float | None = None) -> list[str]:
        """The names of all topics; asks the cluster. Internal ones too, unless `exclude.internal.topics` is set."""
        view = self._thread.run(self._core.metadata.update_all(self._timeout(timeout_ms)))
        return sorted(view.names(include_internal=not self.settings.exclude_internal_topics))

    def partitions(self, topics: Iterable[str], timeout_ms: float | None = None) -> dict[str, list[int]]:
        """The numbers of the partitions of topics; asks the cluster. Topics that do not exist are left out. Raises the
        error of a topic that may not be seen."""
        names = sorted(set(topics))
        for name in names:
            check_name(name)
        if not names:
            return {}
        view = self._thread.run(self._core.metadata.update(names, self._timeout(timeout_ms)))
        found: dict[str, list[int]] = {}
        for name in names:
            info = view.topic(name)
            if info is None or (info.error is UnknownTopicOrPartitionError and not info.partitions):
                continue
            if info.error is not None and not info.partitions:
                raise info.error(f"topic {name}: {(info.error.__doc__ or '').strip()}")
            found[name] = [each.partition for each in info.partitions]
        return found

    def offsets(
        self, wanted: Mapping[TopicPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Offsets at timestamps, or at EARLIEST or LATEST; -1 where no record is as new. With `read_committed` the
        latest is the first offset of an open transaction."""
        if not wanted:
            return {}
        found = self._thread.run(
            find_offsets(
                self._core.pool,
                self._core.metadata,
                wanted,
                read_committed=self.settings.isolation_level == "read_committed",
                timeout_ms=self._timeout(timeout_ms),
                backoff=self._core.backoff,
            )
        )
        return {tp: each.offset for tp, each in found.items()}

    def wait_for_records(self, positions: Mapping[TopicPartition, int], timeout_ms: float) -> bool:
        """Waits until a partition has records from its position on, or what keeps it from telling; False if time is up
        before. With `read_committed` records of open transactions do not count."""
        return self._thread.run(self._wait_for_records(positions, timeout_ms))

    async def _wait_for_records(self, positions: Mapping[TopicPartition, int], timeout_ms: float) -> bool:
        view, loop = self._core.metadata.view, self._core.loop
        nodes, _ = by_leader(view, positions)
        if not nodes:
            await asyncio.sleep(timeout_ms / 1000)
            return False
        waiting = {
            loop.create_task(self._wait_at(node_id, {tp: positions[tp] for tp in tps}, timeout_ms))
            for node_id, tps in nodes.items()
        }
        try:
            while waiting:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                if any(task.result() for task in done):
                    return True
            return False
        finally:
            for task in waiting:
                task.cancel()

    async def _wait_at(self, node_id: int, positions: Mapping[TopicPartition, int], timeout_ms: float) -> bool:
        """Has a broker hold a fetch back until it has something. As little as possible is asked for, since it is not
        looked at."""
        core, view = self._core, self._core.metadata.view
        try:
            await core.pool.connect(node_id, _WAIT_PURPOSE)
            version = core.pool.version(node_id, ApiKey.FETCH)
            wanted = {
                tp: Wanted(view.topic_id(tp.topic), offset, 1, view.leader_epoch(tp))
                for tp, offset in positions.items()
            }
            reply = await _fetch(core, node_id, version, wanted, timeout_ms, 1, 1, _WAIT_PURPOSE)
        except KafkaError as error:
            logger.debug("broker %d does not tell of new records: %s", node_id, error)
            await asyncio.sleep(_LONGEST_WAIT_AFTER_ERROR_SECONDS)
            return True
        return bool(reply.error_code) or any(
            part.error_code or part.records for topic in reply.responses for part in topic.partitions
        )

    # Records

    def read(
        self,
        tp: TopicPartition,
        start: int,
        end: int,
        *,
        patience_ms: float = 120_000,
        target_bytes: int = 2 * 1024 * 1024,
        timestamp_unit: str = "us",
    ) -> Generator[RangeColumns, None, None]:
        """The records from `start` to before `end`, in portions of about `target_bytes` each.

        Raises OffsetOutOfRangeError if the log does not have `start`, or loses what comes next; `offset` of it tells
        where. Raises KafkaTimeoutError if nothing comes for `patience_ms`.
        """
        fetch = RangeFetch(self._core, tp, start, end, patience_ms)
        portions = _Portions(end, target_bytes, timestamp_unit)
        try:
            while True:
                try:
                    fetched = self._thread.run(fetch.next())
                except KafkaError:
                    # What came before it is good, and the caller may know how to go on behind.
                    yield from portions.finish()
                    raise
                if fetched is None:
                    break
                try:
                    yield from portions.decode(fetched)
                except CorruptRecordError as error:
                    # Maybe only the reply was hurt: once more from there, with nothing handed out twice.
                    if not self._thread.run(fetch.again(fetched.next_offset)):
                        raise CorruptBatchError(tp, fetched.next_offset, error) from error
            yield from portions.finish()
        finally:
            if self._thread.is_alive:
                self._thread.call(fetch.stop)


class RangeFetch:
    """The fetches of one stretch, one ahead of the caller. Owned by the loop."""

    def __init__(self, core: ClientCore, tp: TopicPartition, start: int, end: int, patience_ms: float):
        self._core = core
        self._tp = tp
        self._position = start
        self._end = end
        self._patience_ms = patience_ms
        self._ahead: asyncio.Task[FetchedRecords] | None = None
        self._replica = -1
        """Another replica than the leader that the leader wants to be asked (KIP-392)."""
        self._repeated_at = -1

    async def next(self) -> FetchedRecords | None:
        """The next reply that has batches; None when all offsets up to the end are passed."""
        if self._ahead is None and self._position < self._end:
            self._start_next()
        if self._ahead is None:
            return None
        fetched = await self._ahead
        self._position = fetched.end_offset
        self._ahead = None
        if self._position < self._end:
            self._start_next()
        return fetched

    def _start_next(self) -> None:
        self._ahead = self._core.loop.create_task(self._fetch(self._position))

    async def again(self, offset: int) -> bool:
        """Fetches once more from an offset whose bytes were corrupt; False if that was tried before."""
        if self._repeated_at == offset:
            return False
        self._repeated_at = offset
        self.stop()
        self._position = offset
        return True

    def stop(self) -> None:
        if self._ahead is not None:
            self._ahead.cancel()
            self._ahead = None

    async def _fetch(self, offset: int) -> FetchedRecords:
        """The reply from an offset on that has at least one batch. Tries until nothing has come for long."""
        failures = 0
        last: KafkaError | None = None
        try:
            async with asyncio.timeout(self._patience_ms / 1000):
                while True:
                    # Raises if there is no such topic, when brokers have been saying so for a while.
                    await self._core.metadata.topic(self._tp.topic, self._patience_ms)
                    try:
                        part = await self._ask(offset)
                        found = self._take(offset, part)
                        if found is not None:
                            return found
                        failures, last = 0, None
                        continue
                    except KafkaError as error:
                        self._replica = -1
                        if not error.retriable or isinstance(error, KafkaTimeoutError):
                            raise
                        last = error
                        if is_stale_metadata(error):
                            self._core.metadata.request_update((self._tp.topic,))
                    await asyncio.sleep(self._core.backoff.wait_seconds(failures))
                    failures += 1
        except TimeoutError as error:
            if isinstance(error, KafkaError):
                raise
            why = f"; the last error: {last}" if last is not None else ""
            raise KafkaTimeoutError(
                f"nothing came of {self._tp} from offset {offset} (to be read up to {self._end}) for "
                f"{self._patience_ms:.0f} ms{why}"
            ) from last

    async def _ask(self, offset: int) -> PartitionData:
        core, tp = self._core, self._tp
        view = core.metadata.view
        info = view.partition(tp)
        if info is None:
            raise UnknownTopicOrPartitionError(f"topic {tp.topic} has no partition {tp.partition}")
        if info.leader not in view.nodes:
            raise LeaderNotAvailableError(f"partition {tp} has no leader now")
        node_id = self._replica if self._replica in view.nodes else info.leader
        await core.pool.connect(node_id, _PURPOSE)
        version = core.pool.version(node_id, ApiKey.FETCH)
        topic_id = view.topic_id(tp.topic)
        settings = core.settings
        wanted = Wanted(topic_id, offset, settings.max_partition_fetch_bytes, info.leader_epoch)
        reply = await _fetch(
            core,
            node_id,
            version,
            {tp: wanted},
            settings.fetch_max_wait_ms,
            settings.fetch_min_bytes,
            settings.fetch_max_bytes,
            _PURPOSE,
        )
        failed = error_for(reply.error_code)
        if failed is not None:
            raise failed
        for topic in reply.responses:
            for part in topic.partitions:
                if part.partition_index == tp.partition:
                    return self._checked(offset, part, node_id == info.leader)
        raise LeaderNotAvailableError(f"the reply of broker {node_id} does not have {tp}")

    def _checked(self, offset: int, part: PartitionData, is_leader: bool) -> PartitionData:
        error = error_for(part.error_code)
        if error is None:
            return part
        if isinstance(error, OffsetOutOfRangeError):
            if is_leader:
                raise OffsetsLostError(self._tp, offset)
            # A follower may not have it yet, or no more: the leader decides.
            raise LeaderNotAvailableError(f"a follower of {self._tp} does not have offset {offset}")
        raise type(error)(f"{self._tp} at offset {offset}: {error}")

    def _take(self, offset: int, part: PartitionData) -> FetchedRecords | None:
        """The records of a reply; None if there are none yet."""
        if part.preferred_read_replica >= 0:
            self._replica = part.preferred_read_replica
        if not part.records:
            return None
        assert isinstance(part.records, bytes | bytearray | memoryview)
        settings = self._core.settings
        aborted = None
        if settings.isolation_level == "read_committed" and part.aborted_transactions:
            aborted = [(each.producer_id, each.first_offset) for each in part.aborted_transactions]
        found = FetchedRecords(self._tp.topic, self._tp.partition, part.records, offset, aborted, settings.check_crcs)
        if not found.has_batches:
            raise RecordTooLargeError(self._tp, offset, settings.max_partition_fetch_bytes)
        return found


async def _fetch(
    core: ClientCore,
    node_id: int,
    version: int | None,
    wanted: dict[TopicPartition, Wanted],
    max_wait_ms: float,
    min_bytes: int,
    max_bytes: int,
    purpose: str,
) -> FetchResponse:
    """One fetch outside of any session."""
    by_id = (
        version is not None
        and version >= _FIRST_WITH_TOPIC_IDS
        and all(each.topic_id != ZERO_UUID for each in wanted.values())
    )
    request = FetchSession(enabled=False).plan(wanted, by_id)
    request.max_wait_ms = int(max_wait_ms)
    request.min_bytes = min_bytes
    request.max_bytes = max_bytes
    request.isolation_level = 1 if core.settings.isolation_level == "read_committed" else 0
    request.rack_id = core.settings.client_rack
    reply: FetchResponse = await core.pool.send(
        node_id, request, max_version=None if by_id else _LAST_WITH_NAMES, purpose=purpose
    )
    return reply


class _Portions:
    """Collects records of several replies into Arrow arrays of the wanted size. Belongs to the caller's thread."""

    def __init__(self, end: int, target_bytes: int, timestamp_unit: str):
        from headrace.records.arrow import ArrowDecoder

        self._end = end
        self._target = target_bytes
        self._decoder = ArrowDecoder(timestamp_unit, size_hint=target_bytes)

    def decode(self, fetched: FetchedRecords) -> Generator[RangeColumns, None, None]:
        """The portions that are full with what a reply has; the rest is kept."""
        decoder = self._decoder
        while not fetched.is_done and fetched.next_offset < self._end:
            rows = len(decoder)
            size = decoder.size_in_bytes + rows * _ROW_BYTES
            if size >= self._target or rows >= _MOST_ROWS:
                yield self._take()
                continue
            # Few at first, then more: rows that are larger than those before do not make a portion too large.
            wanted = int((self._target - size) * rows / size) + 1 if rows else _PROBE_ROWS
            fetched.take_columns(decoder, min(wanted, max(_PROBE_ROWS, 3 * rows), _MOST_ROWS - rows))

    def finish(self) -> Generator[RangeColumns, None, None]:
        if len(self._decoder) and len(last := self._take()):
            yield last

    def _take(self) -> RangeColumns:
        keys, values, headers, offsets, timestamps, types = self._decoder.finish_arrays()
        columns = RangeColumns(keys, values, headers, offsets, timestamps, types)
        found = memoryview(offsets.buffers()[1]).cast("b").cast("q")
        if found[len(offsets) - 1] >= self._end:
            kept = bisect_left(found, self._end, hi=len(offsets))
            columns = RangeColumns(*(each.slice(0, kept) for each in columns))
        return columns


_ROW_BYTES = 32
"""What a row takes beside its key and value."""
