"""Records of fetched batches, with what only the batch says: producer, transaction, compression, markers.

The state of a record's transaction:

    open         the record is at or after the last stable offset
    aborted      the broker names the transaction as aborted, and no marker of the producer came before the record
    committed    otherwise

Pure.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from headrace.client.consumer.batch_reader import FetchedBatches
from headrace.records import Compression, ControlType, Record, RecordBatch, decode_rows, read_marker

__all__ = ["Row", "rows_of"]

_CONTROLS = {ControlType.COMMIT: "commit", ControlType.ABORT: "abort"}
_COMPRESSIONS = {codec.value: codec.name.lower() for codec in Compression}


@dataclass(frozen=True, slots=True)
class Row:
    """A record, or a transaction marker."""

    partition: int
    record: Record
    control: str | None
    """`commit` or `abort` for a marker, `other` for control records of a quorum."""
    transaction: str | None
    """The state of the transaction."""
    producer_id: int
    producer_epoch: int
    sequence: int
    compression: str | None

    @property
    def offset(self) -> int:
        return self.record.offset

    @property
    def timestamp(self) -> int:
        return self.record.timestamp


def has_transactions(fetched: FetchedBatches) -> bool:
    """Returns True if the state of some record depends on the aborted transactions."""
    return any(batch.is_transactional and not batch.is_control for batch in fetched.batches)


def rows_of(
    fetched: FetchedBatches,
    aborted: Iterable[tuple[int, int]],
    *,
    read_committed: bool,
    with_control: bool,
) -> Iterator[Row]:
    """Yields the records from the fetch offset on. With `read_committed`, those of committed transactions only."""
    ends = _AbortedTransactions(aborted)
    for batch in fetched.batches:
        if batch.is_control:
            control = ends.marker(batch)
            state = None
        else:
            control = None
            state = _state(batch, fetched.last_stable_offset, ends)
        if batch.next_offset <= fetched.fetch_offset or (control is not None and not with_control):
            continue
        if read_committed and state in ("open", "aborted"):
            continue
        compression = _COMPRESSIONS.get(batch.codec) if batch.is_compressed else None
        for record in decode_rows(batch.records(), fetched.fetch_offset):
            yield Row(
                fetched.partition,
                record,
                control,
                state,
                batch.producer_id,
                batch.producer_epoch,
                batch.base_sequence + (record.offset - batch.base_offset) if batch.base_sequence >= 0 else -1,
                compression,
            )


def _state(batch: RecordBatch, last_stable_offset: int, ends: "_AbortedTransactions") -> str | None:
    if not batch.is_transactional:
        return None
    if 0 <= last_stable_offset <= batch.base_offset:
        return "open"
    return "aborted" if ends.covers(batch) else "committed"


class _AbortedTransactions:
    """The aborted transactions of a response, ended by their markers."""

    def __init__(self, aborted: Iterable[tuple[int, int]]):
        self._begun: dict[int, list[int]] = {}
        for producer_id, first_offset in sorted(aborted, key=lambda one: one[1]):
            self._begun.setdefault(producer_id, []).append(first_offset)

    def covers(self, batch: RecordBatch) -> bool:
        firsts = self._begun.get(batch.producer_id, ())
        return len(firsts) > 0 and firsts[0] <= batch.base_offset

    def marker(self, batch: RecordBatch) -> str:
        """Returns the kind of a control batch. An abort marker ends the producer's first aborted transaction."""
        marker = read_marker(batch.records())
        if marker is None:
            return "other"
        if marker.control_type is ControlType.ABORT and self.covers(batch):
            self._begun[batch.producer_id].pop(0)
        return _CONTROLS[marker.control_type]
