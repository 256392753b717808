"""The data source that Spark sees: `format("headrace")`. It creates readers and writers, which check their options.

Runs in short-lived Python processes that the driver starts for planning. The object is pickled on its way there, so it
contains nothing but the options. Heavy modules are imported on use.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from collections.abc import MutableMapping

__all__ = ["HeadraceDataSource"]


class HeadraceDataSource(DataSource):
    """`format("headrace")`. It has the options, columns and defaults of Spark's Kafka connector. See docs/spark.md."""

    options: "MutableMapping[str, str]"

    @classmethod
    def name(cls) -> str:
        return "headrace"

    def schema(self) -> StructType:
        """Returns the columns that are read without `.schema(...)`. Spark calls this in `load()`, so invalid options
        fail there."""
        from headrace.spark.options import SourceOptions
        from headrace.spark.schema import source_schema

        return source_schema(SourceOptions.parse(self.options).include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        from headrace.spark.batch import BatchReader

        return BatchReader(dict(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        from headrace.spark.mapped_stream import MAPPING_OPTION, MappedStreamReader
        from headrace.spark.stream import StreamReader
        from headrace.spark.task_stream import TASK_OPTION, TaskStreamReader

        if TASK_OPTION in self.options:
            return TaskStreamReader(dict(self.options))
        if MAPPING_OPTION in self.options:
            return MappedStreamReader(dict(self.options), schema)
        return StreamReader(dict(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from headrace.spark.sink import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        from headrace.spark.sink import stream_writer

        return stream_writer(self.options, schema, overwrite)
