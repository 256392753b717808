"""Streams whose records are changed before Spark sees them. tests/integration/pipelines runs one."""

import pickle

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from headrace.common.errors import ConfigError
from headrace.spark.mapped_stream import MAPPING_OPTION, MappedStreamReader, RecordMapping, encode_mapping, with_schema


def test_reader_reads_the_columns_that_the_function_needs() -> None:
    mapping = RecordMapping(lambda records: records, ("value", "offset"))
    options = {"kafka.bootstrap.servers": "none:1", "subscribe": "t", MAPPING_OPTION: encode_mapping(mapping)}
    reader = MappedStreamReader(options, StructType([StructField("n", LongType())]))
    copy = pickle.loads(pickle.dumps(reader))
    for each in (reader, copy):
        assert each._schema.names == ["value", "offset"]
        assert each._load().columns == ("value", "offset")
        assert each._mapped_schema.names == ["n"]


def test_rows_get_the_types_of_the_schema() -> None:
    rows = pa.record_batch({"other": ["x"], "n": pa.array([1], pa.int64())})
    assert with_schema(rows, pa.schema({"n": pa.int32()})).to_pylist() == [{"n": 1}]
    with pytest.raises(ConfigError, match="returned no column m, k"):
        with_schema(rows, pa.schema({"m": pa.int32(), "n": pa.int32(), "k": pa.int32()}))
    with pytest.raises(ConfigError, match="a column of another type: Failed to parse string"):
        with_schema(rows, pa.schema({"other": pa.int32()}))
