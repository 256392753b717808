"""Takes records out of the fetch buffer, for whoever polls: as rows, as portions for iteration, as an Arrow table.

Belongs to the thread that polls. The lock is held for looking and for moving the position, not for decoding, which may
run the user's deserializers: whether an entry is still wanted is looked at again afterwards.
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
_SMALLEST_RECORD = 7


@dataclass(slots=True)
class CollectedRecords:
    """Decoded records of one partition that have not been returned to the user."""

    state: PartitionState
    version: int
    records: list[ConsumerRecord]
    next_offset: int
    """The position after the last of them."""
    leader_epoch: int
    index: int = 0
    """The index in `records` of the next record, when iteration returns them one by one."""


class FetchCollector:
    """See the module."""

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
        self._left: list[CollectedRecords] = []
        """Records that iteration took and did not get to: the next ones of their partitions."""

    def collect(self, max_records: int) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Up to so many records of any partitions; moves their positions behind them."""
        found: dict[TopicPartition, list[ConsumerRecord]] = {}
        lock = self._subscription.lock
        while max_records > 0:
            portion = self.collect_partition(max_records, quietly=bool(found))
            if portion is None:
                break
            with lock:
                if portion.state.version != portion.version:
                    continue
                self._subscription.consumed(portion.state, portion.next_offset, portion.leader_epoch)
            if portion.records:
                tp = portion.state.tp
                if tp in found:
                    found[tp] += portion.records
                else:
                    found[tp] = portion.records
                max_records -= len(portion.records)
        return found

    def collect_partition(self, max_records: int, quietly: bool = False) -> CollectedRecords | None:
        """Records of the next partition, maybe none; None if nothing is there. Moves no position. Raises what stands in
        the way of the next record, unless `quietly`."""
        if self._left and (left := self._take_left(max_records)) is not None:
            return left
        lock = self._subscription.lock
        while True:
            with lock:
                entry = self._buffer.next()
            if entry is None or (quietly and entry.records is None):
                return None
            if entry.records is None:
                self._special(entry)
                continue
            fetched = entry.records
            try:
                records = fetched.take(max_records, self._key_deserializer, self._value_deserializer)
            except (KafkaError, Undecodable) as error:
                if quietly:
                    return None
                raise self._explain(entry, fetched, error) from (error.__cause__ or error)
            except BaseException:
                # Somewhere within the records, in the user's own code: they are fetched again.
                self.rewind(entry.state, entry.version)
                raise
            with lock:
                if fetched.is_done:
                    self._buffer.done(entry)
            self.traffic.note(entry.state.tp, len(records), entry.size if fetched.is_done else 0)
            return CollectedRecords(entry.state, entry.version, records, fetched.next_offset, fetched.leader_epoch)

    def put_back(self, collected: CollectedRecords) -> None:
        """Takes back the records from `index` on. They are collected next, unless the position changes before."""
        self._left.append(replace(collected, records=collected.records[collected.index :], index=0))

    def _take_left(self, max_records: int) -> CollectedRecords | None:
        with self._subscription.lock:
            self._left = [portion for portion in self._left if portion.state.version == portion.version]
            found = next((portion for portion in self._left if portion.state.is_fetchable), None)
        if found is None:
            return None
        self._left.remove(found)
        if len(found.records) <= max_records:
            return found
        self.put_back(replace(found, index=max_records))
        return replace(
            found, records=found.records[:max_records], next_offset=found.records[max_records - 1].offset + 1
        )

    def _special(self, entry: CompletedFetch) -> None:
        """Raises an error that came, or tells of a partition's end."""
        with self._subscription.lock:
            self._buffer.done(entry)
        if entry.error is not None:
            raise entry.error
        if self._on_eof is not None:
            self._on_eof(entry.state.tp, entry.eof_offset)

    def _explain(self, entry: CompletedFetch, fetched: FetchedRecords, error: Exception) -> KafkaError:
        tp = entry.state.tp
        if isinstance(error, Undecodable):
            return RecordDeserializationError(tp, error.offset, error.field)
        # The bytes may have been hurt on the way: they are fetched again.
        self.rewind(entry.state, entry.version)
        return CorruptBatchError(tp, fetched.next_offset, error)

    def rewind(self, state: PartitionState, version: int) -> None:
        """Forgets what was fetched and not handed out: reading goes on at the position."""
        with self._subscription.lock:
            if state.version == version and state.has_position:
                state.rewind()
        self._subscription.changed()

    def collect_arrow(self, max_records: int | None = None) -> "pa.Table":
        """Everything that is there, or up to so many records, as columns; positions move behind them."""
        from headrace.client.consumer.arrow_tables import TableBuilder

        for portion in self._left:  # rows, of which no columns can be made
            self.rewind(portion.state, portion.version)
        self._left.clear()
        left = _NO_LIMIT if max_records is None else max_records
        table = TableBuilder()
        lock = self._subscription.lock
        room = self._buffer.size_in_bytes
        while left > 0:
            with lock:
                entry = self._buffer.next()
                size = 0 if entry is None else self._buffer.waiting_bytes(entry.state.tp)
            # More may come all the time, maybe quicker than it is taken: what was there at first is enough.
            if entry is None or (len(table) and (entry.records is None or room <= 0)):
                break
            if entry.records is None:
                self._special(entry)
                continue
            fetched = entry.records
            size, rows = _expected(entry.state.fetch_offset - fetched.next_offset, size, left)
            try:
                count = fetched.take_columns(table.columns(entry.state.tp, size, rows), left)
            except KafkaError as error:
                if len(table):
                    break
                raise self._explain(entry, fetched, error) from error
            with lock:
                if entry.is_stale:
                    table.take_back(entry.state.tp, count)
                    continue
                self._subscription.consumed(entry.state, fetched.next_offset, fetched.leader_epoch)
                if fetched.is_done:
                    self._buffer.done(entry)
                    room -= entry.size
            table.added(count)
            self.traffic.note(entry.state.tp, count, entry.size if fetched.is_done else 0)
            left -= count
        return table.finish()


def _expected(offsets: int, size: int, wanted: int) -> tuple[int, int]:
    """About how many bytes and records will be taken of what waits for a partition: as many as are wanted at most, and
    not every offset need have a record."""
    rows = max(1, min(offsets, size // _SMALLEST_RECORD))
    return (size * wanted // rows, wanted) if wanted < rows else (size, rows)
