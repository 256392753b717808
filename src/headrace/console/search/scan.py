"""Reads the records of a query as Arrow columns, and counts what it has read. Blocking; runs in the scan process.

Memory: the columns of one response (a few MB), and the fetch that runs ahead. No Python object is made for a record
that is not selected.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from headrace.client.consumer.range_client import EARLIEST, LATEST, RangeClient
from headrace.common.clock import Clock
from headrace.common.errors import OffsetOutOfRangeError, UnknownTopicOrPartitionError
from headrace.common.extras import requires_extra
from headrace.common.types import TopicPartition
from headrace.console.decoders.registry import DecoderRegistry
from headrace.console.search.column_filter import ColumnFilter
from headrace.console.search.query import RecordQuery
from headrace.console.search.ranges import Part, parts_of, plan_parts

with requires_extra("arrow"):
    import pyarrow as pa
    import pyarrow.compute as pc

__all__ = ["Progress", "Scan", "Selected"]

_FETCH_BYTES = 4 * 1024 * 1024
_PART_BYTES = 128 * 1024 * 1024
"""A part has about this many bytes: its last fetch brings more than is needed, which then costs little."""
_GUESSED_RECORD_BYTES = 128
_FIRST_PART_OFFSETS = 20_000
"""The size of the first parts if the newest records are read first: the first matches come soon."""


@dataclass
class Progress:
    """How far a scan has come."""

    total: int = 0
    """The offsets to read. Compacted topics have fewer records."""
    done: int = 0
    scanned_records: int = 0
    scanned_bytes: int = 0
    matched: int = 0
    lost: int = 0
    """Offsets that retention deleted before the scan reached them."""
    started: float = 0.0

    def as_json(self, now: float) -> dict[str, Any]:
        seconds = max(now - self.started, 1e-3)
        per_second = self.done / seconds
        return {
            "scanned_records": self.scanned_records,
            "scanned_bytes": self.scanned_bytes,
            "matched": self.matched,
            "total_records": self.total,
            "percent": 100.0 if self.total == 0 else round(100 * self.done / self.total, 2),
            "records_per_second": round(self.scanned_records / seconds, 1),
            "remaining_seconds": round((self.total - self.done) / per_second, 1) if per_second > 0 else None,
            "lost_records": self.lost,
        }


class Selected(NamedTuple):
    """The selected records of one response. The columns may have more rows."""

    partition: int
    columns: dict[str, pa.Array]
    rows: pa.Array | None
    """The numbers of the selected rows; None for all."""

    @property
    def size(self) -> int:
        return len(self.columns["offset"]) if self.rows is None else len(self.rows)

    def taken(self) -> dict[str, pa.Array]:
        """Returns the columns of the selected rows."""
        if self.rows is None:
            return self.columns
        return {name: column.take(self.rows) for name, column in self.columns.items()}


class Scan:
    """One scan. One thread uses it."""

    def __init__(self, config: dict[str, Any], query: RecordQuery, decoders: DecoderRegistry, clock: Clock):
        self._query = query
        self._clock = clock
        self._filter = ColumnFilter(
            query.parsed_conditions(), decoders.get(query.key_decoder), decoders.get(query.value_decoder)
        )
        self._client = RangeClient(
            {
                "fetch.max.wait.ms": 100,
                "max.partition.fetch.bytes": _FETCH_BYTES,
                **config,
                "isolation.level": "read_committed" if query.read_committed else "read_uncommitted",
            }
        )
        self.progress = Progress(started=clock.monotonic())

    def close(self) -> None:
        self._client.close()

    def run(self) -> Iterator[Selected | None]:
        """Yields the selected records. Yields None where nothing was selected, so that progress can be reported."""
        parts = self._plan()
        for part in parts:
            yield from self._read(part)

    def _plan(self) -> Iterator[Part]:
        query = self._query
        known = self._client.partitions([query.topic]).get(query.topic)
        if known is None:
            raise UnknownTopicOrPartitionError(f"Topic {query.topic!r} does not exist")
        wanted = known if query.partitions is None else sorted(query.partitions)
        missing = sorted(set(wanted) - set(known))
        if missing:
            raise UnknownTopicOrPartitionError(f"Topic {query.topic!r} has no partition {missing[0]}")
        if query.offsets is not None:
            parts = parts_of(query.offsets)
            self.progress.total = sum(part.end - part.start for part in parts)
            return iter(parts)
        ranges = self._ranges(wanted)
        self.progress.total = sum(max(end - start, 0) for start, end in ranges.values())
        newest_first = query.start == "newest"
        size = _FIRST_PART_OFFSETS if newest_first else _PART_BYTES // _GUESSED_RECORD_BYTES
        return plan_parts(ranges, size, newest_first, _PART_BYTES // _GUESSED_RECORD_BYTES)

    def _ranges(self, partitions: list[int]) -> dict[int, tuple[int, int]]:
        query, client = self._query, self._client
        tps = {TopicPartition(query.topic, partition): partition for partition in partitions}
        starts = client.offsets(dict.fromkeys(tps, EARLIEST))
        ends = client.offsets(dict.fromkeys(tps, LATEST))
        from_time = {} if query.time_ms is None else client.offsets(dict.fromkeys(tps, query.time_ms))
        ranges = {}
        for tp, partition in tps.items():
            start, end = starts[tp], ends[tp]
            if query.start == "offset":
                start = max(start, query.offset)
            if tp in from_time:
                start = end if from_time[tp] < 0 else max(start, from_time[tp])
            ranges[partition] = (start, end)
        return ranges

    def _read(self, part: Part) -> Iterator[Selected | None]:
        tp = TopicPartition(self._query.topic, part.partition)
        position = part.start
        while position < part.end:
            try:
                for columns in self._client.read(tp, position, part.end, timestamp_unit="ms"):
                    last = columns.offsets[len(columns) - 1].as_py()
                    yield self._select(part.partition, columns)
                    self.progress.done += last + 1 - position
                    position = last + 1
                break
            except OffsetOutOfRangeError:
                # Retention has deleted records since the scan began.
                earliest = self._client.offsets({tp: EARLIEST})[tp]
                if earliest <= position:
                    raise
                lost = min(earliest, part.end) - position
                self.progress.lost += lost
                self.progress.done += lost
                position += lost
        self.progress.done += max(part.end - position, 0)

    def _select(self, partition: int, read: Any) -> Selected | None:
        progress, query = self.progress, self._query
        progress.scanned_records += len(read)
        progress.scanned_bytes += read.keys.nbytes + read.values.nbytes
        columns = {
            "offset": read.offsets,
            "timestamp": read.timestamps,
            "timestamp_type": read.timestamp_types,
            "key": read.keys,
            "value": read.values,
            "headers": read.headers,
        }
        rows = self._filter.select(read.keys, read.values, read.headers)
        bounds = [
            compare(read.timestamps.cast(pa.int64()), limit)
            for compare, limit in ((pc.greater_equal, query.time_ms), (pc.less, query.to_time_ms))
            if limit is not None
        ]
        for mask in bounds:
            in_time = pc.indices_nonzero(mask)
            rows = in_time if rows is None else rows.filter(pc.is_in(rows, value_set=in_time))
        selected = Selected(partition, columns, rows)
        progress.matched += selected.size
        return selected if selected.size else None
