"""The streams that a flow reads: `format("headrace")` with the options of a `Topic`. Driver only."""

from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING

from headrace.pipelines.pipeline import AT, SOURCE, SOURCE_COLUMNS, Flow, Topic
from headrace.spark.options import SourceOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
"""`_at` is the partition before the offset: 15 bits and 48 bits are more than either ever has."""


def read_source(spark: "SparkSession", form: str, topic: Topic, options: Mapping[str, str]) -> "DataFrame":
    """The stream of one source, with the place of each row in it."""
    from pyspark.sql import functions as sf

    columns = [name for name in _TYPES if name in topic.columns]
    chosen = source_options(topic, options)
    SourceOptions.parse(chosen, streaming=True)  # what is wrong is told here, and not by a worker of Spark's
    reader = spark.readStream.format(form).options(**chosen)
    stream = reader.schema(", ".join(f"{name} {_TYPES[name]}" for name in columns)).load()
    if "partition" in columns and "offset" in columns:
        place = sf.shiftleft(sf.col("partition").cast("long"), _OFFSET_BITS) + sf.col("offset")
        stream = stream.withColumn(AT, place)
    return stream


def read_sources(spark: "SparkSession", form: str, flow: Flow, options: Mapping[str, str]) -> "DataFrame":
    """The sources of a flow as one stream, whose rows know their source if there are several."""
    from pyspark.sql import functions as sf

    streams = {name: read_source(spark, form, topic, options) for name, topic in flow.sources.items()}
    if len(streams) == 1:
        return next(iter(streams.values()))
    marked = [stream.withColumn(SOURCE, sf.lit(name)) for name, stream in streams.items()]
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), marked)


def source_options(topic: Topic, options: Mapping[str, str]) -> dict[str, str]:
    """The options of a source: what the run says for all, over it what the topic says."""
    of_topic = {"subscribe": topic.name} if topic.name is not None else {"subscribePattern": str(topic.pattern)}
    headers = {"includeHeaders": "true"} if "headers" in topic.columns else {}
    return {**_DEFAULTS, **options, **of_topic, **headers, **topic.options}


assert set(SOURCE_COLUMNS) < set(_TYPES)
