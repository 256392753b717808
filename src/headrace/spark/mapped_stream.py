"""A stream whose records are changed by a function before Spark sees them.

    mapping = encode_mapping(RecordMapping(parse, ("value", "offset")))
    spark.readStream.format("headrace").options(**options, **{MAPPING_OPTION: mapping}).schema("id string, n bigint")

The function gets record batches with the source's columns, in the Python worker that fetched them, and returns record
batches with the columns of the schema. So only these columns become rows of the JVM, and a function that aggregates
saves most of them. It must not depend on how the records are divided into batches.
"""

import base64
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from headrace.common.errors import ConfigError
from headrace.spark.fetch import read_range
from headrace.spark.metadata import Cluster
from headrace.spark.schema import columns_schema
from headrace.spark.stream import StreamReader

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["MAPPING_OPTION", "MappedStreamReader", "RecordMapping", "encode_mapping", "with_schema"]

MAPPING_OPTION = "headrace.mapping"
"""The option with the pickled mapping. It is for Headrace's own use."""


@dataclass(frozen=True)
class RecordMapping:
    """The function, and the source's columns that it needs."""

    function: "Callable[[pa.RecordBatch], pa.RecordBatch]"
    columns: tuple[str, ...]


def encode_mapping(mapping: RecordMapping) -> str:
    """Returns the value of `MAPPING_OPTION`."""
    from pyspark import cloudpickle

    content: bytes = cloudpickle.dumps(mapping)  # type: ignore[no-untyped-call]
    return base64.b64encode(content).decode()


class MappedStreamReader(StreamReader):
    """Plans batches like every stream, and applies the mapping in the tasks."""

    def __init__(self, options: dict[str, str], schema: StructType, cluster: Cluster | None = None):
        self._mapping = options[MAPPING_OPTION]
        self._mapped_schema = schema
        source_options = {name: value for name, value in options.items() if name != MAPPING_OPTION}
        super().__init__(source_options, columns_schema(self._load().columns), cluster)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_mapping": self._mapping, "_mapped_schema": self._mapped_schema}

    def _load(self) -> RecordMapping:
        from pyspark import cloudpickle

        mapping: RecordMapping = cloudpickle.loads(base64.b64decode(self._mapping))
        return mapping

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        from pyspark.sql.pandas.types import to_arrow_schema

        function = self._load().function
        schema = to_arrow_schema(self._mapped_schema, timezone="UTC")
        for records in read_range(self._options, self._schema, partition):
            yield with_schema(function(records), schema)


def with_schema(rows: "pa.RecordBatch", schema: "pa.Schema") -> "pa.RecordBatch":
    """Returns rows with exactly these columns and types. Raises if a column is missing or has another type."""
    import pyarrow as pa

    missing = [name for name in schema.names if name not in rows.schema.names]
    if missing:
        raise ConfigError(f"the function of a source returned no column {', '.join(missing)}")
    try:
        return pa.RecordBatch.from_arrays([rows.column(field.name).cast(field.type) for field in schema], schema=schema)
    except pa.ArrowException as error:
        raise ConfigError(f"the function of a source returned a column of another type: {error}") from error
