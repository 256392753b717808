"""The batch read: offsets are resolved once, when Spark plans the query, and cut into tasks.

`partitions` and `pushFilters` run in the driver's planner, `read` in tasks, which get a pickled copy.
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
from headrace.spark.schema import wanted_columns

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BatchReader"]


class _FilterTaker:
    """What `reader.pushFilters` is: Spark refuses a reader that has such a method while
    `spark.sql.python.filterPushdown.enabled` is off, and calls it when it is on. This looks like a method that is not
    overridden, and takes the filters if they come."""

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, take: Callable[[list[Filter]], Iterable[Filter]]):
        self._take = take

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._take(filters)


class BatchReader(DataSourceReader):
    """See the module."""

    def __init__(self, options: dict[str, str], schema: StructType):
        self._options = SourceOptions.parse(options, streaming=False)
        self._schema = schema
        self._bounds = Bounds()
        wanted_columns(schema)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        quick_ack()

    @property
    def pushFilters(self) -> "_FilterTaker":  # noqa: N802 - Spark's name
        return _FilterTaker(self._take_filters)

    def _take_filters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Spark 4.3 keeps for a frame what was planned for it last: with filters of one use of it, any other use would
        lack rows. So they count only where the user says that the frame is used once."""
        if self._options.push_filters:
            self._bounds = bounds_of(filters)
        return filters

    def partitions(self) -> list[InputPartition]:
        options, cluster = self._options, Cluster(self._options)
        tps = cluster.partitions()
        start, end = cluster.start(tps), cluster.end(tps)
        ranges = self._needed(cluster, ranges_between(start, self._checked(cluster, end)))
        return [
            RangePartition.of(each)
            for each in split_ranges(ranges, options.min_partitions, options.max_records_per_partition)
        ]

    def _checked(self, cluster: Cluster, end: Offsets) -> Offsets:
        """An end that a user gave lies within the log."""
        if not isinstance(self._options.ending, SpecificOffsets):
            return end
        latest = cluster.latest(end)
        for tp in sorted(end):
            if end[tp] > latest[tp]:
                report_loss(self._options, f"{tp} ends at offset {latest[tp]}, and 'endingOffsets' has {end[tp]}")
        return {tp: min(offset, latest[tp]) for tp, offset in end.items()}

    def _needed(self, cluster: Cluster, ranges: list[OffsetRange]) -> list[OffsetRange]:
        """What the query's filters leave of ranges."""
        bounds = self._bounds
        needed = [bounds.narrow(each) for each in ranges if bounds.needs(each.tp)]
        if bounds.time_ms is None or not needed:
            return needed
        first = cluster.at_times({each.tp: bounds.time_ms for each in needed})
        return [each._replace(start=max(each.start, first[each.tp])) for each in needed if first[each.tp] >= 0]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return read_range(self._options, self._schema, partition)
