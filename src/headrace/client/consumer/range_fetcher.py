"""Fetches and decodes one range of a partition's offsets into Arrow arrays, for `range_client`.

`RangeFetcher` runs on the event loop and keeps one fetch in flight ahead of the caller. `RangeDecoder` runs in the
caller's thread. `fetch_once` sends one Fetch request without a fetch session.

Invariant: retriable errors are retried until no data has arrived for `patience_ms`. An offset out of the log's range is
an error immediately.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Generator
from typing import TYPE_CHECKING, NamedTuple

from headrace.client.config.types import ConsumerConfig
from headrace.client.consumer.errors import OffsetsLostError, RecordTooLargeError
from headrace.client.consumer.fetch_messages import LAST_VERSION_WITH_NAMES, to_fetched_records, uses_topic_ids
from headrace.client.consumer.fetch_session_handler import FetchSessionHandler, RequestedPartition
from headrace.client.core import ClientCore
from headrace.client.errors import KafkaTimeoutError, error_for, is_stale_metadata
from headrace.common.errors import (
    KafkaError,
    LeaderNotAvailableError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from headrace.common.types import TopicPartition
from headrace.protocol import ApiKey
from headrace.protocol.messages.fetch import FetchResponse, PartitionData
from headrace.records import FetchedRecords

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["RangeColumns", "RangeDecoder", "RangeFetcher", "fetch_once"]

_PURPOSE = "fetch"
_PROBE_ROWS = 64
"""Rows to decode first, to learn their size."""
_MAX_ROWS = 100_000
_ROW_BYTES = 32
"""The bytes of a row in addition to key and value."""


class RangeColumns(NamedTuple):
    """Records as Arrow arrays of equal length."""

    keys: "pa.Array"
    values: "pa.Array"
    headers: "pa.Array"
    offsets: "pa.Array"
    timestamps: "pa.Array"
    timestamp_types: "pa.Array"

    def __len__(self) -> int:
        return len(self.offsets)


class RangeFetcher:
    """Fetches one range of offsets, one response ahead of the caller. Owner: the loop."""

    def __init__(self, core: ClientCore[ConsumerConfig], tp: TopicPartition, start: int, end: int, patience_ms: float):
        self._core = core
        self._tp = tp
        self._position = start
        self._end = end
        self._patience_ms = patience_ms
        self._next_response: asyncio.Task[FetchedRecords] | None = None
        self._replica = -1
        """The preferred read replica (KIP-392), -1 for none."""
        self._repeated_at = -1

    async def next(self) -> FetchedRecords | None:
        """Returns the next response with batches, or None at the end of the range."""
        if self._next_response is None and self._position < self._end:
            self._prefetch()
        if self._next_response is None:
            return None
        fetched = await self._next_response
        self._position = fetched.end_offset
        self._next_response = None
        if self._position < self._end:
            self._prefetch()
        return fetched

    def _prefetch(self) -> None:
        self._next_response = self._core.loop.create_task(self._fetch(self._position))

    async def fetch_again(self, offset: int) -> bool:
        """Fetches again from an offset whose batch was corrupt. Returns False after a second attempt."""
        if self._repeated_at == offset:
            return False
        self._repeated_at = offset
        self.stop()
        self._position = offset
        return True

    def stop(self) -> None:
        if self._next_response is not None:
            self._next_response.cancel()
            self._next_response = None

    async def _fetch(self, offset: int) -> FetchedRecords:
        """Returns the first response from `offset` on with at least one batch. Retries up to `patience_ms`."""
        failures = 0
        last: KafkaError | None = None
        try:
            async with asyncio.timeout(self._patience_ms / 1000):
                while True:
                    # Raises if brokers have reported for a while that the topic does not exist.
                    await self._core.metadata.topic(self._tp.topic, self._patience_ms)
                    try:
                        partition = await self._send_fetch(offset)
                        records = self._take(offset, partition)
                        if records is not None:
                            return records
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
            last_error = f"; the last error: {last}" if last is not None else ""
            raise KafkaTimeoutError(
                f"No records of partition {self._tp} from offset {offset} (end {self._end}) arrived within "
                f"{self._patience_ms:.0f} ms{last_error}"
            ) from last

    async def _send_fetch(self, offset: int) -> PartitionData:
        core, tp = self._core, self._tp
        view = core.metadata.view
        info = view.partition(tp)
        if info is None:
            raise UnknownTopicOrPartitionError(f"topic {tp.topic} has no partition {tp.partition}")
        if info.leader not in view.nodes:
            raise LeaderNotAvailableError(f"partition {tp} has no leader at the moment")
        node_id = self._replica if self._replica in view.nodes else info.leader
        await core.pool.connect(node_id, _PURPOSE)
        version = core.pool.version(node_id, ApiKey.FETCH)
        topic_id = view.topic_id(tp.topic)
        config = core.config
        requested = RequestedPartition(topic_id, offset, config.max_partition_fetch_bytes, info.leader_epoch)
        response = await fetch_once(
            core,
            node_id,
            version,
            {tp: requested},
            config.fetch_max_wait_ms,
            config.fetch_min_bytes,
            config.fetch_max_bytes,
            _PURPOSE,
        )
        failed = error_for(response.error_code)
        if failed is not None:
            raise failed
        for topic in response.responses:
            for partition in topic.partitions:
                if partition.partition_index == tp.partition:
                    return self._check_error(offset, partition, node_id == info.leader)
        raise LeaderNotAvailableError(f"the response of broker {node_id} does not contain {tp}")

    def _check_error(self, offset: int, partition: PartitionData, is_leader: bool) -> PartitionData:
        error = error_for(partition.error_code)
        if error is None:
            return partition
        if isinstance(error, OffsetOutOfRangeError):
            if is_leader:
                raise OffsetsLostError(self._tp, offset)
            # A follower may not have this offset yet, or no longer: fetch from the leader.
            raise LeaderNotAvailableError(f"the follower of partition {self._tp} does not have offset {offset}")
        raise type(error)(f"{self._tp} at offset {offset}: {error}")

    def _take(self, offset: int, partition: PartitionData) -> FetchedRecords | None:
        """Returns the records of a response, or None if there are none yet."""
        if partition.preferred_read_replica >= 0:
            self._replica = partition.preferred_read_replica
        config = self._core.config
        records = to_fetched_records(
            self._tp,
            partition,
            offset,
            read_committed=config.isolation_level == "read_committed",
            check_crcs=config.check_crcs,
            max_inflated_bytes=config.fetch_max_inflated_bytes,
        )
        if records is not None and not records.has_batches:
            raise RecordTooLargeError(self._tp, offset, config.max_partition_fetch_bytes)
        return records


async def fetch_once(
    core: ClientCore[ConsumerConfig],
    node_id: int,
    version: int | None,
    partitions: dict[TopicPartition, RequestedPartition],
    max_wait_ms: float,
    min_bytes: int,
    max_bytes: int,
    purpose: str,
    read_committed: bool | None = None,
) -> FetchResponse:
    """Sends one Fetch request without a fetch session. The isolation level is that of the configuration, unless
    `read_committed` says otherwise."""
    if read_committed is None:
        read_committed = core.config.isolation_level == "read_committed"
    by_id = uses_topic_ids(version, partitions.values())
    request = FetchSessionHandler(enabled=False).build_request(partitions, by_id)
    request.max_wait_ms = int(max_wait_ms)
    request.min_bytes = min_bytes
    request.max_bytes = max_bytes
    request.isolation_level = 1 if read_committed else 0
    request.rack_id = core.config.client_rack
    response: FetchResponse = await core.pool.send(
        node_id, request, max_version=None if by_id else LAST_VERSION_WITH_NAMES, purpose=purpose
    )
    return response


class RangeDecoder:
    """Decodes the records of several responses into Arrow arrays of the target size. Runs in the caller's thread."""

    def __init__(self, end: int, target_bytes: int, timestamp_unit: str):
        from headrace.records.arrow import ArrowDecoder

        self._end = end
        self._target = target_bytes
        self._decoder = ArrowDecoder(timestamp_unit, size_hint=target_bytes)

    def decode(self, fetched: FetchedRecords) -> Generator[RangeColumns, None, None]:
        """Yields columns of about the target size. Keeps the remaining rows for the next response."""
        decoder = self._decoder
        while not fetched.is_done and fetched.next_offset < self._end:
            rows = len(decoder)
            size = decoder.size_in_bytes + rows * _ROW_BYTES
            if size >= self._target or rows >= _MAX_ROWS:
                yield self._finish_columns()
                continue
            # Start small and grow: larger rows than before must not exceed the target size by much.
            rows_to_take = int((self._target - size) * rows / size) + 1 if rows else _PROBE_ROWS
            fetched.take_columns(decoder, min(rows_to_take, max(_PROBE_ROWS, 3 * rows), _MAX_ROWS - rows))

    def finish(self) -> Generator[RangeColumns, None, None]:
        """Yields the remaining rows."""
        if len(self._decoder) and len(last := self._finish_columns()):
            yield last

    def _finish_columns(self) -> RangeColumns:
        keys, values, headers, offsets, timestamps, types = self._decoder.finish_arrays()
        columns = RangeColumns(keys, values, headers, offsets, timestamps, types)
        offset_values = memoryview(offsets.buffers()[1]).cast("b").cast("q")
        if offset_values[len(offsets) - 1] >= self._end:
            count = bisect_left(offset_values, self._end, hi=len(offsets))
            columns = RangeColumns(*(array.slice(0, count) for array in columns))
        return columns
