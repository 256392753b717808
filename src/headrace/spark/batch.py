"""The batch read: offsets are resolved once, when Spark plans the query, and cut into tasks.

`partitions` and `pushFilters` run in the driver's planner, `read` in tasks, which get a pickled copy.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from headrace.spark.fetch import RangePartition, quick_ack, read_range
from headrace.spark.metadata import Cluster
from headrace.spark.options import SourceOptions
from headrace.spark.planning import ranges_between, split_ranges
from headrace.spark.schema import wanted_columns

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BatchReader"]


class BatchReader(DataSourceReader):
    """See the module."""

    def __init__(self, options: dict[str, str], schema: StructType):
        self._options = SourceOptions.parse(options, streaming=False)
        self._schema = schema
        wanted_columns(schema)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        quick_ack()

    def partitions(self) -> list[InputPartition]:
        options, cluster = self._options, Cluster(self._options)
        tps = cluster.partitions()
        start, end = cluster.start(tps), cluster.end(tps)
        ranges = ranges_between(start, end)
        return [
            RangePartition.of(each)
            for each in split_ranges(ranges, options.min_partitions, options.max_records_per_partition)
        ]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return read_range(self._options, self._schema, partition)
