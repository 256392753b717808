"""Fetches and decodes one range of a partition's offsets into Arrow arrays; used by `range_client`.

`RangeFetcher` runs on the event loop and keeps one fetch in flight ahead of the caller. `RangeDecoder` runs in the
caller's thread. `fetch_once` sends one Fetch request without a fetch session.

Invariant: retriable errors are retried until no data has arrived for `patience_ms`; an offset that the log does not
have is an error immediately.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Generator
from typing import TYPE_CHECKING, NamedTuple

from headrace.client.consumer.errors import OffsetsLostError, RecordTooLargeError
from headrace.client.consumer.fetch_session_handler import FetchSessionHandler, RequestedPartition
from headrace.client.core import ClientCore
from headrace.client.errors import KafkaTimeoutError, error_for, is_stale_metadata
from headrace.common.errors import (
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

__all__ = ["RangeColumns", "RangeDecoder", "RangeFetcher", "fetch_once"]

_PURPOSE = "fetch"
_FIRST_WITH_TOPIC_IDS = 13
_LAST_WITH_NAMES = 12
_PROBE_ROWS = 64
"""Rows that are decoded first, to learn how large they are."""
_MOST_ROWS = 100_000
_ROW_BYTES = 32
"""What a row takes beside its key and value."""


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


class RangeFetcher:
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
        wanted = RequestedPartition(topic_id, offset, settings.max_partition_fetch_bytes, info.leader_epoch)
        reply = await fetch_once(
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


async def fetch_once(
    core: ClientCore,
    node_id: int,
    version: int | None,
    wanted: dict[TopicPartition, RequestedPartition],
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
    request = FetchSessionHandler(enabled=False).plan(wanted, by_id)
    request.max_wait_ms = int(max_wait_ms)
    request.min_bytes = min_bytes
    request.max_bytes = max_bytes
    request.isolation_level = 1 if core.settings.isolation_level == "read_committed" else 0
    request.rack_id = core.settings.client_rack
    reply: FetchResponse = await core.pool.send(
        node_id, request, max_version=None if by_id else _LAST_WITH_NAMES, purpose=purpose
    )
    return reply


class RangeDecoder:
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
