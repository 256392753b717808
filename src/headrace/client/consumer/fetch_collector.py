"""Collects records from the fetch buffer: as lists, one partition at a time for iteration, or as an Arrow table.

Belongs to the thread that polls. The lock is held while looking for a fetch and while moving the position, but not
while decoding, which may run user deserializers. So a fetch is checked again after decoding: it may be stale by then.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headrace.client.consumer.errors import CorruptBatchError, RecordDeserializationError
from headrace.client.consumer.fetch_buffer import CompletedFetch, FetchBuffer
from headrace.client.consumer.partition_state import PartitionState
from headrace.client.consumer.subscription_state import SubscriptionState
from headrace.client.traffic import Traffic
from headrace.common.errors import KafkaError
from headrace.common.types import TopicPartition
from headrace.records import ConsumerRecord, FetchedRecords, Undecodable

if TYPE_CHECKING:
    import pyarrow as pa

_NO_LIMIT = 2**31 - 1
_MIN_RECORD_BYTES = 7


@dataclass(slots=True, eq=False)
class CollectedRecords:
    """Decoded records of one partition that have not been returned to the user."""

    state: PartitionState
    version: int
    records: list[ConsumerRecord[Any, Any]]
    next_offset: int
    """The position after the last of them."""
    leader_epoch: int
    index: int = 0
    """The index in `records` of the next record, when iteration returns them one by one."""


class FetchCollector:
    """Decodes completed fetches for the thread that polls."""

    def __init__(
        self,
        subscription: SubscriptionState,
        buffer: FetchBuffer,
        key_deserializer: Any = None,
        value_deserializer: Any = None,
        on_eof: Callable[[TopicPartition, int], object] | None = None,
    ):
        self._subscription = subscription
        self._buffer = buffer
        self._key_deserializer = key_deserializer
        self._value_deserializer = value_deserializer
        self._on_eof = on_eof
        self.traffic = Traffic()
        self._put_back_records: list[CollectedRecords] = []
        """Records that iteration has put back: the next records of their partitions."""

    def collect(self, max_records: int) -> dict[TopicPartition, list[ConsumerRecord[Any, Any]]]:
        """Returns at most `max_records` records of any partitions and moves the positions."""
        records: dict[TopicPartition, list[ConsumerRecord[Any, Any]]] = {}
        lock = self._subscription.lock
        while max_records > 0:
            collected = self.collect_partition(max_records, quietly=bool(records))
            if collected is None:
                break
            with lock:
                if collected.state.version != collected.version:
                    continue
                self._subscription.consumed(collected.state, collected.next_offset, collected.leader_epoch)
            if collected.records:
                tp = collected.state.tp
                if tp in records:
                    records[tp] += collected.records
                else:
                    records[tp] = collected.records
                max_records -= len(collected.records)
        return records

    def collect_partition(self, max_records: int, quietly: bool = False) -> CollectedRecords | None:
        """Returns records of the next partition (the list may be empty), or None if the buffer is empty. Moves no
        position.

        Raises the error that prevents the next record from being returned. With `quietly` it returns None instead.
        """
        if self._put_back_records and (put_back := self._take_put_back(max_records)) is not None:
            return put_back
        lock = self._subscription.lock
        while True:
            with lock:
                fetch = self._buffer.next()
            if fetch is None or (quietly and fetch.records is None):
                return None
            if fetch.records is None:
                self._handle_without_records(fetch)
                continue
            fetched = fetch.records
            try:
                records = fetched.take(max_records, self._key_deserializer, self._value_deserializer)
            except (KafkaError, Undecodable) as error:
                if quietly:
                    return None
                raise self._to_user_error(fetch, fetched, error) from (error.__cause__ or error)
            except BaseException:
                # A deserializer was interrupted among the records: fetch them again.
                self.rewind(fetch.state, fetch.version)
                raise
            with lock:
                if fetched.is_done:
                    self._buffer.done(fetch)
            self.traffic.note(fetch.state.tp, len(records), fetch.size if fetched.is_done else 0)
            return CollectedRecords(fetch.state, fetch.version, records, fetched.next_offset, fetched.leader_epoch)

    def put_back(self, collected: CollectedRecords) -> None:
        """Takes back the records from `index` on. They are collected next, unless the position changes before."""
        self._put_back_records.append(replace(collected, records=collected.records[collected.index :], index=0))

    def _take_put_back(self, max_records: int) -> CollectedRecords | None:
        with self._subscription.lock:
            self._put_back_records = [
                collected for collected in self._put_back_records if collected.state.version == collected.version
            ]
            oldest = next((collected for collected in self._put_back_records if collected.state.is_fetchable), None)
        if oldest is None:
            return None
        self._put_back_records.remove(oldest)
        if len(oldest.records) <= max_records:
            return oldest
        self.put_back(replace(oldest, index=max_records))
        return replace(
            oldest, records=oldest.records[:max_records], next_offset=oldest.records[max_records - 1].offset + 1
        )

    def _handle_without_records(self, fetch: CompletedFetch) -> None:
        """Handles a fetch without records: raises its error, or calls `on_partition_eof`."""
        with self._subscription.lock:
            self._buffer.done(fetch)
        if fetch.error is not None:
            raise fetch.error
        if self._on_eof is not None:
            self._on_eof(fetch.state.tp, fetch.eof_offset)

    def _to_user_error(self, fetch: CompletedFetch, fetched: FetchedRecords, error: Exception) -> KafkaError:
        tp = fetch.state.tp
        if isinstance(error, Undecodable):
            return RecordDeserializationError(tp, error.offset, error.field)
        # The bytes may have been damaged in transit: fetch them again.
        self.rewind(fetch.state, fetch.version)
        return CorruptBatchError(tp, fetched.next_offset, error)

    def rewind(self, state: PartitionState, version: int) -> None:
        """Drops the records fetched beyond the position, so that they are fetched again."""
        with self._subscription.lock:
            if state.version == version and state.has_position:
                state.rewind()
        self._subscription.changed()

    def collect_arrow(self, max_records: int | None = None) -> "pa.Table":
        """Returns all buffered records, or at most `max_records`, as a table and moves the positions."""
        from headrace.client.consumer.arrow_tables import TableBuilder

        for collected in self._put_back_records:  # decoded to Python objects: fetch them again
            self.rewind(collected.state, collected.version)
        self._put_back_records.clear()
        remaining_records = _NO_LIMIT if max_records is None else max_records
        table = TableBuilder()
        lock = self._subscription.lock
        bytes_left = self._buffer.size_in_bytes
        while remaining_records > 0:
            with lock:
                fetch = self._buffer.next()
                size = 0 if fetch is None else self._buffer.buffered_bytes(fetch.state.tp)
            # Fetches may arrive faster than they are decoded: stop after the bytes that were buffered at the start.
            if fetch is None or (len(table) and (fetch.records is None or bytes_left <= 0)):
                break
            if fetch.records is None:
                self._handle_without_records(fetch)
                continue
            fetched = fetch.records
            size, rows = _estimate(fetch.state.fetch_offset - fetched.next_offset, size, remaining_records)
            try:
                count = fetched.take_columns(table.columns(fetch.state.tp, size, rows), remaining_records)
            except KafkaError as error:
                if len(table):
                    break
                raise self._to_user_error(fetch, fetched, error) from error
            with lock:
                if fetch.is_stale:
                    table.discard(fetch.state.tp, count)
                    continue
                self._subscription.consumed(fetch.state, fetched.next_offset, fetched.leader_epoch)
                if fetched.is_done:
                    self._buffer.done(fetch)
                    bytes_left -= fetch.size
            table.added(count)
            self.traffic.note(fetch.state.tp, count, fetch.size if fetched.is_done else 0)
            remaining_records -= count
        return table.finish()


def _estimate(offsets: int, size: int, max_records: int) -> tuple[int, int]:
    """Estimates how many bytes and records to take, at most `max_records`. Not every offset has a record."""
    rows = max(1, min(offsets, size // _MIN_RECORD_BYTES))
    return (size * max_records // rows, max_records) if max_records < rows else (size, rows)
