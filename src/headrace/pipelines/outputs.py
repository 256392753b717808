"""Turns a batch's output frames into one frame of records, in order per key. Driver only.

All topics of a batch are written at once, because each write costs one transaction per task:

    topic string, key binary, value binary [, headers]         the rows of all outputs
      -> shuffled by key into a fixed number of tasks, sorted by `_at`, `_seq`

Invariant: a replayed batch has the same tasks with the same rows. Timing has no influence on them.
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING

from headrace.pipelines.dead_letters import check_dead_letters, dead_letter_key, dead_letter_value
from headrace.pipelines.pipeline import AT, DEAD_LETTERS, SEQ, SOURCE, Pipeline, PipelineError, Table, Topic

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_NOT_IN_JSON = ("key", "headers", AT, SEQ, SOURCE)
_RAW_TYPES = ("binary", "string")


def topic_frames(pipeline: Pipeline, frames: Mapping[str, "DataFrame"]) -> list["DataFrame"]:
    """Returns the outputs of a batch that go to topics, as frames of records."""
    return [
        dead_letter_records(place, frame) if output == DEAD_LETTERS else records(output, place, frame)
        for output, frame in frames.items()
        for place in pipeline.outputs[output]
        if isinstance(place, Topic)
    ]


def table_frames(pipeline: Pipeline, frames: Mapping[str, "DataFrame"]) -> list[tuple[Table, "DataFrame"]]:
    """Returns the outputs of a batch that go to tables, without the runner's own columns."""
    return [
        (place, frame.drop(AT, SEQ, SOURCE))
        for output, frame in frames.items()
        for place in pipeline.outputs[output]
        if isinstance(place, Table)
    ]


def check_outputs(pipeline: Pipeline, frames: Mapping[str, "DataFrame"]) -> None:
    for output, frame in frames.items():
        if output not in pipeline.outputs:
            output_names = ", ".join(pipeline.outputs)
            raise PipelineError(
                f"pipeline {pipeline.name} returned an unknown output {output!r}; expected one of: {output_names}"
            )
        if not hasattr(frame, "columns"):
            raise PipelineError(
                f"pipeline {pipeline.name}, output {output!r}: expected a data frame, not {type(frame).__name__}"
            )
        if output == DEAD_LETTERS:
            check_dead_letters(frame)


def records(output: str, topic: Topic, frame: "DataFrame") -> "DataFrame":
    """Returns an output frame as records: topic, key, value, headers (if the frame has them), `_at`, `_seq`."""
    from pyspark.sql import functions as sf

    if topic.name is None and "topic" not in frame.columns:
        raise PipelineError(f"output {output!r} routes by the column 'topic', which the frame does not have")
    where = sf.col("topic") if topic.name is None else sf.lit(topic.name)
    return frame.select(
        where.cast("string").alias("topic"),
        _key(output, topic, frame).alias("key"),
        _value(topic, frame).alias("value"),
        *([sf.col("headers")] if "headers" in frame.columns else []),
        _order_column(frame, AT).alias(AT),
        _order_column(frame, SEQ).alias(SEQ),
    )


def dead_letter_records(topic: Topic, frame: "DataFrame") -> "DataFrame":
    """Returns rows with a `reason` as dead letters."""
    from pyspark.sql import functions as sf

    return frame.select(
        sf.lit(topic.name).alias("topic"),
        dead_letter_key().cast("binary").alias("key"),
        dead_letter_value(sf.col("reason").cast("string")).cast("binary").alias("value"),
        _order_column(frame, AT).alias(AT),
        _order_column(frame, SEQ).alias(SEQ),
    )


def _key(output: str, topic: Topic, frame: "DataFrame") -> "Column":
    from pyspark.sql import functions as sf

    name = topic.key or "key"
    if name not in frame.columns:
        if topic.key is not None:
            raise PipelineError(f"output {output!r}: the key column {name!r} is not in the frame")
        return sf.lit(None).cast("binary")
    return _bytes(frame, name)


def _value(topic: Topic, frame: "DataFrame") -> "Column":
    from pyspark.sql import functions as sf

    if "value" in frame.columns:
        return _bytes(frame, "value")
    excluded = (*_NOT_IN_JSON, "topic") if topic.name is None else _NOT_IN_JSON
    # A column named `key` is left out of the value; a column that `Topic.key` names is not.
    columns = [name for name in frame.columns if name not in excluded or name == topic.key]
    return sf.to_json(sf.struct(*(sf.col(f"`{name}`") for name in columns))).cast("binary")


def _bytes(frame: "DataFrame", name: str) -> "Column":
    """Returns a column as bytes: text as UTF-8, nested types as JSON, all other types as text."""
    from pyspark.sql import functions as sf
    from pyspark.sql.types import ArrayType, MapType, StructType

    column, kind = sf.col(f"`{name}`"), frame.schema[name].dataType
    if isinstance(kind, StructType | ArrayType | MapType):
        column = sf.to_json(column)
    elif kind.simpleString() not in _RAW_TYPES:
        column = column.cast("string")
    return column.cast("binary")


def _order_column(frame: "DataFrame", name: str) -> "Column":
    from pyspark.sql import functions as sf

    return (sf.col(name) if name in frame.columns else sf.lit(None)).cast("long")


def merge_records(frames: Sequence["DataFrame"], partitions: int, *, ordered: bool) -> "DataFrame":
    """Merges all records into one frame that is ready to write."""
    from pyspark.sql import functions as sf

    rows = reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), frames)
    if ordered:
        # Rows without a key need no order; their position spreads them over the tasks.
        spread = sf.when(sf.col("key").isNull(), sf.col(AT))
        rows = rows.repartition(partitions, sf.col("key"), spread).sortWithinPartitions(AT, SEQ)
    return rows.drop(AT, SEQ)
