"""The streams that a flow reads: `format("headrace")` with the options of a `Topic`. Driver only."""

from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING

from headrace.pipelines.pipeline import AT, SOURCE, SOURCE_COLUMNS, Flow, Setting, Topic
from headrace.spark.mapped_stream import MAPPING_OPTION, RecordMapping, encode_mapping
from headrace.spark.options import SourceOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

_TYPES = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key: string, value: binary>>",
}
_DEFAULTS = {"startingOffsets": "earliest", "kafka.isolation.level": "read_committed"}
_OFFSET_BITS = 48
"""`_at` is the partition (15 bits) followed by the offset (48 bits); neither ever needs more."""


def read_source(
    spark: "SparkSession",
    source_format: str,
    topic: Topic,
    options: Mapping[str, str],
    settings: Mapping[str, Setting] | None = None,
) -> "DataFrame":
    """Returns the stream of one source, with the position `_at` of each row. `settings` are those of the pipeline."""
    from pyspark.sql import functions as sf

    columns = [name for name in _TYPES if name in topic.columns]
    all_options = source_options(topic, options)
    SourceOptions.parse(all_options, streaming=True)  # report invalid options here rather than in a Spark worker
    reader = spark.readStream.format(source_format).options(**all_options)
    if topic.parse is not None:
        return _read_parsed(reader, topic, settings or {})
    stream = reader.schema(", ".join(f"{name} {_TYPES[name]}" for name in columns)).load()
    if "partition" in columns and "offset" in columns:
        position = sf.shiftleft(sf.col("partition").cast("long"), _OFFSET_BITS) + sf.col("offset")
        stream = stream.withColumn(AT, position)
    return stream


def _read_parsed(reader: "DataStreamReader", topic: Topic, settings: Mapping[str, Setting]) -> "DataFrame":
    """Returns the stream of a source with `parse`, which has no `_at`."""
    parse = topic.parse
    assert parse is not None
    mapping = RecordMapping(lambda records: parse(records, settings), topic.columns)
    return reader.option(MAPPING_OPTION, encode_mapping(mapping)).schema(topic.parsed_columns).load()


def read_sources(
    spark: "SparkSession",
    source_format: str,
    flow: Flow,
    options: Mapping[str, str],
    settings: Mapping[str, Setting] | None = None,
) -> "DataFrame":
    """Returns the sources of a flow as one stream. If there are several, the column `_source` names each row's
    source."""
    from pyspark.sql import functions as sf

    streams = {
        name: read_source(spark, source_format, topic, options, settings) for name, topic in flow.sources.items()
    }
    if len(streams) == 1:
        return next(iter(streams.values()))
    marked = [stream.withColumn(SOURCE, sf.lit(name)) for name, stream in streams.items()]
    return reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), marked)


def source_options(topic: Topic, options: Mapping[str, str]) -> dict[str, str]:
    """Returns the options of a source. Options of the topic override options of the run."""
    subscription = {"subscribe": topic.name} if topic.name is not None else {"subscribePattern": str(topic.pattern)}
    headers = {"includeHeaders": "true"} if "headers" in topic.columns else {}
    return {**_DEFAULTS, **options, **subscription, **headers, **topic.options}


assert set(SOURCE_COLUMNS) < set(_TYPES)
