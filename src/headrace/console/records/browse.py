"""Pages of a topic's records: from the newest backward, or forward from the oldest, an offset or a time.

Records of several partitions are merged by timestamp; within a partition they keep their order, whatever their
timestamps. A page ends after `limit` records, or, if few records match the filters, after some work; its cursor
continues. The cursor has a position per partition, so that new records do not move the pages.

Going backward, a page reads blocks of offsets that end at the cursor. A compacted topic has few records in many
offsets, so blocks grow while they bring less than wanted.
"""

import base64
import binascii
import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from headrace.client.consumer.batch_reader import EARLIEST, LATEST, BatchReader, FetchedBatches
from headrace.common.clock import Clock
from headrace.console.decoders.registry import DecoderRegistry
from headrace.console.records.rows import Row, has_transactions, rows_of
from headrace.console.search.conditions import FilterError
from headrace.console.search.query import RecordQuery
from headrace.console.search.row_filter import RowFilter

__all__ = ["Browser", "Cursor", "Page"]

_FETCH_BYTES = 1024 * 1024
_WORK_SECONDS = 3.0
"""A page with few matches ends after this time."""
_BLOCK_BYTES = 8 * 1024 * 1024
_MAX_BLOCK = 1_000_000


@dataclass(frozen=True)
class Cursor:
    """Where the next page begins. Forward: the next offset of each partition; backward: the end of what is left."""

    backward: bool
    positions: dict[int, int]

    def encode(self) -> str:
        fields = [int(self.backward), sorted(self.positions.items())]
        return base64.urlsafe_b64encode(json.dumps(fields, separators=(",", ":")).encode()).decode()

    @classmethod
    def decode(cls, text: str) -> "Cursor":
        """Raises FilterError if the text is not a cursor."""
        try:
            backward, positions = json.loads(base64.urlsafe_b64decode(text.encode()))
            cursor = cls(bool(backward), {int(partition): int(offset) for partition, offset in positions})
        except (binascii.Error, UnicodeError, ValueError, TypeError, OverflowError, RecursionError):
            raise FilterError("cursor: expected the cursor of an earlier response") from None
        if any(not 0 <= number < 2**63 for item in cursor.positions.items() for number in item):
            raise FilterError("cursor: offsets out of range")
        return cursor


@dataclass
class Page:
    """Records in the order of display."""

    rows: list[Row]
    cursor: Cursor | None
    """None at the end."""
    starts: dict[int, int]
    ends: dict[int, int]


@dataclass
class _Found:
    """What a page has read of one partition: matching records in reading order."""

    rows: list[Row] = field(default_factory=list)
    position: int = 0
    """Everything before it (backward: from it on) has been read."""
    taken: int = 0


class Browser:
    """Reads pages of one topic. `with_control` shows transaction markers."""

    def __init__(
        self,
        reader: BatchReader,
        query: RecordQuery,
        decoders: DecoderRegistry,
        clock: Clock,
        *,
        with_control: bool = False,
    ):
        self._reader = reader
        self._query = query
        self._clock = clock
        self._with_control = with_control
        self._filter = RowFilter(
            query.parsed_conditions(), decoders.get(query.key_decoder), decoders.get(query.value_decoder)
        )
        self._deadline = 0.0

    async def page(self, limit: int, cursor: Cursor | None = None) -> Page:
        """Returns the first page, or the one at a cursor."""
        self._deadline = self._clock.monotonic() + _WORK_SECONDS
        partitions = await self._partitions()
        starts = await self._reader.offsets(dict.fromkeys(partitions, EARLIEST))
        ends = await self._reader.offsets(dict.fromkeys(partitions, LATEST), self._query.read_committed)
        backward = self._query.start == "newest" if cursor is None else cursor.backward
        if cursor is not None:
            positions = {partition: cursor.positions.get(partition, -1) for partition in partitions}
        else:
            positions = await self._first_positions(starts, ends)
        for partition, position in positions.items():
            # A partition without a position is done. Retention moves the start, a lost topic the end.
            done = starts[partition] if backward else ends[partition]
            positions[partition] = done if position < 0 else min(max(position, starts[partition]), ends[partition])
        found = {partition: _Found(position=position) for partition, position in positions.items()}
        for partition, one in found.items():
            if backward:
                await self._backward(partition, one, starts[partition], limit)
            else:
                await self._forward(partition, one, ends[partition], limit)
        rows = _merge(found.values(), limit, backward)
        return Page(rows, self._cursor_after(found, starts, ends, backward), starts, ends)

    async def _partitions(self) -> list[int]:
        known = await self._reader.partitions()
        if self._query.partitions is None:
            return known
        missing = sorted(set(self._query.partitions) - set(known))
        if missing:
            raise FilterError(f"partition: topic {self._query.topic!r} has no partition {missing[0]}")
        return sorted(set(self._query.partitions))

    async def _first_positions(self, starts: dict[int, int], ends: dict[int, int]) -> dict[int, int]:
        query = self._query
        if query.start == "offset":
            return {partition: max(query.offset, start) for partition, start in starts.items()}
        if query.start == "time" and query.time_ms is not None:
            at = await self._reader.offsets(dict.fromkeys(starts, query.time_ms))
            return {partition: offset if offset >= 0 else ends[partition] for partition, offset in at.items()}
        return dict(ends if query.start == "newest" else starts)

    # ---- reading one partition

    async def _forward(self, partition: int, found: _Found, end: int, limit: int) -> None:
        while found.position < end and len(found.rows) < limit and not self._is_late():
            fetched = await self._fetch(partition, found.position)
            if fetched is None:
                found.position = end
                return
            found.rows += [row for row in await self._matching(fetched) if row.offset < end]
            found.position = min(fetched.next_offset, end)

    async def _backward(self, partition: int, found: _Found, start: int, limit: int) -> None:
        block = limit
        while found.position > start and len(found.rows) < limit and not self._is_late():
            first = max(start, found.position - block)
            rows: list[Row] = []
            position, size = first, 0
            while position < found.position:
                fetched = await self._fetch(partition, position)
                if fetched is None:
                    break
                rows += [row for row in await self._matching(fetched) if row.offset < found.position]
                # Only the newest can get onto the page.
                del rows[: max(0, len(rows) - limit)]
                position = fetched.next_offset
                size += sum(batch.size_in_bytes for batch in fetched.batches)
            found.rows += reversed(rows)
            found.position = first
            block = min(4 * block, _MAX_BLOCK) if size < _BLOCK_BYTES else block

    def _is_late(self) -> bool:
        return self._clock.monotonic() >= self._deadline

    async def _fetch(self, partition: int, offset: int) -> FetchedBatches | None:
        """Returns the batches from an offset on; None if there are none any more."""
        (fetched,) = await self._reader.fetch({partition: offset}, max_bytes=_FETCH_BYTES)
        if fetched.out_of_range or not fetched.batches:
            return None
        return fetched

    async def _matching(self, fetched: FetchedBatches) -> list[Row]:
        return [row for row in await self._rows(fetched) if self._matches(row)]

    async def _rows(self, fetched: FetchedBatches) -> list[Row]:
        return await visible_rows(self._reader, fetched, self._query, self._with_control, _FETCH_BYTES)

    def _matches(self, row: Row) -> bool:
        return matches(self._query, self._filter, row)

    # ---- the end of a page

    def _cursor_after(
        self, found: dict[int, _Found], starts: dict[int, int], ends: dict[int, int], backward: bool
    ) -> Cursor | None:
        positions = {}
        for partition, one in found.items():
            position = one.position
            if one.taken < len(one.rows):
                rest = one.rows[one.taken]
                position = rest.offset + 1 if backward else rest.offset
            if position > starts[partition] if backward else position < ends[partition]:
                positions[partition] = position
        return Cursor(backward, positions) if positions else None


async def visible_rows(
    reader: BatchReader, fetched: FetchedBatches, query: RecordQuery, with_control: bool, max_bytes: int
) -> list[Row]:
    """Returns the records of a response. The aborted transactions are fetched only if there are transactions."""
    aborted: Iterable[tuple[int, int]] = ()
    if has_transactions(fetched):
        (with_aborted,) = await reader.fetch(
            {fetched.partition: fetched.fetch_offset}, max_bytes=max_bytes, read_committed=True
        )
        aborted = with_aborted.aborted
        # The same view of both: a transaction that ended meanwhile counts as open.
        fetched = replace(fetched, last_stable_offset=min(fetched.last_stable_offset, with_aborted.last_stable_offset))
    return list(rows_of(fetched, aborted, read_committed=query.read_committed, with_control=with_control))


def matches(query: RecordQuery, row_filter: RowFilter, row: Row) -> bool:
    """Returns whether a record is selected. Markers are, unless there are conditions."""
    if query.time_ms is not None and row.timestamp < query.time_ms:
        return False
    if query.to_time_ms is not None and row.timestamp >= query.to_time_ms:
        return False
    if not row_filter:
        return True
    record = row.record
    return row.control is None and row_filter.matches(record.key, record.value, record.headers)


def _merge(found: Iterable[_Found], limit: int, backward: bool) -> list[Row]:
    """Returns the next records of all partitions by timestamp, in the order of each partition. Counts the taken
    ones."""
    merged: list[Row] = []
    sources = [one for one in found if one.rows]
    choose = max if backward else min
    while sources and len(merged) < limit:
        source = choose(sources, key=lambda one: one.rows[one.taken].timestamp)
        merged.append(source.rows[source.taken])
        source.taken += 1
        if source.taken == len(source.rows):
            sources.remove(source)
    return merged
