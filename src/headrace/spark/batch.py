"""The batch reader: resolves offsets once, when Spark plans the query, and splits them into tasks.

`partitions` and `pushFilters` run in the driver's planner. `read` runs in tasks, which receive a pickled copy.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from headrace.spark.fetch import RangePartition, quick_ack, read_range, report_loss
from headrace.spark.filters import Bounds, bounds_of
from headrace.spark.metadata import Cluster
from headrace.spark.offsets import Offsets, SpecificOffsets
from headrace.spark.options import SourceOptions
from headrace.spark.planning import OffsetRange, ranges_between, split_ranges
from headrace.spark.schema import selected_columns

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BatchReader"]


class _FilterCallback:
    """The value of `reader.pushFilters`. Spark rejects a reader that overrides this method while
    `spark.sql.python.filterPushdown.enabled` is off, and calls it when it is on. This object looks like a method that
    is not overridden, and still accepts the filters."""

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, accept: Callable[[list[Filter]], Iterable[Filter]]):
        self._accept = accept

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._accept(filters)


class BatchReader(DataSourceReader):
    """Reads a fixed range of offsets of every partition."""

    def __init__(self, options: dict[str, str], schema: StructType):
        self._options = SourceOptions.parse(options, streaming=False)
        self._schema = schema
        self._bounds = Bounds()
        selected_columns(schema)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        quick_ack()

    @property
    def pushFilters(self) -> "_FilterCallback":  # noqa: N802 - Spark's name
        return _FilterCallback(self._accept_filters)

    def _accept_filters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Uses filters only if the user declared, with `pushFilters`, that the frame is used once. Spark 4.3 reuses the
        last plan of a frame, so another use of the frame would miss rows that these filters exclude."""
        if self._options.push_filters:
            self._bounds = bounds_of(filters)
        return filters

    def partitions(self) -> list[InputPartition]:
        options, cluster = self._options, Cluster(self._options)
        tps = cluster.partitions()
        start, end = cluster.start(tps), cluster.end(tps)
        ranges = self._filtered(cluster, ranges_between(start, self._within_log(cluster, end)))
        return [
            RangePartition.of(offset_range)
            for offset_range in split_ranges(ranges, options.min_partitions, options.max_records_per_partition)
        ]

    def _within_log(self, cluster: Cluster, end: Offsets) -> Offsets:
        """Limits the end offsets that a user gave to the end of the log."""
        if not isinstance(self._options.ending, SpecificOffsets):
            return end
        latest = cluster.latest(end)
        for tp in sorted(end):
            if end[tp] > latest[tp]:
                report_loss(self._options, f"{tp} ends at offset {latest[tp]}, but 'endingOffsets' is {end[tp]}")
        return {tp: min(offset, latest[tp]) for tp, offset in end.items()}

    def _filtered(self, cluster: Cluster, ranges: list[OffsetRange]) -> list[OffsetRange]:
        """Narrows ranges to the offsets that can pass the query's filters."""
        bounds = self._bounds
        narrowed = [bounds.narrow(offset_range) for offset_range in ranges if bounds.includes(offset_range.tp)]
        if bounds.time_ms is None or not narrowed:
            return narrowed
        first = cluster.at_times({offset_range.tp: bounds.time_ms for offset_range in narrowed})
        return [
            offset_range._replace(start=max(offset_range.start, first[offset_range.tp]))
            for offset_range in narrowed
            if first[offset_range.tp] >= 0
        ]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return read_range(self._options, self._schema, partition)
