"""What a batch writes to topics: the output frames made one frame of records, in order per key. Driver only.

All topics of a batch are written at once, since each write costs a transaction for each of its tasks:

    topic string, key binary, value binary [, headers]         rows of all outputs, one after the other
      -> shuffled by key into a fixed number of tasks, sorted by `_at`, `_seq`

Invariant: which rows a task writes depends on the rows alone, never on timing: a replayed batch has the same tasks.
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING

from headrace.pipelines.dead_letters import check_dead_letters, dead_letter_key, dead_letter_value
from headrace.pipelines.pipeline import AT, DEAD_LETTERS, SEQ, SOURCE, Pipeline, PipelineError, Table, Topic

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_NOT_IN_JSON = ("key", "headers", AT, SEQ, SOURCE)
_BY_VALUE = ("binary", "string")


def topic_frames(pipeline: Pipeline, frames: Mapping[str, "DataFrame"]) -> list["DataFrame"]:
    """What of a batch's outputs goes to topics, each as records."""
    return [
        dead_letter_records(place, frame) if output == DEAD_LETTERS else records(output, place, frame)
        for output, frame in frames.items()
        for place in pipeline.outputs[output]
        if isinstance(place, Topic)
    ]


def table_frames(pipeline: Pipeline, frames: Mapping[str, "DataFrame"]) -> list[tuple[Table, "DataFrame"]]:
    """What of a batch's outputs goes to tables, each as it was returned but for the runner's own columns."""
    return [
        (place, frame.drop(AT, SEQ, SOURCE))
        for output, frame in frames.items()
        for place in pipeline.outputs[output]
        if isinstance(place, Table)
    ]


def check_outputs(pipeline: Pipeline, frames: Mapping[str, "DataFrame"]) -> None:
    for output, frame in frames.items():
        if output not in pipeline.outputs:
            known = ", ".join(pipeline.outputs)
            raise PipelineError(f"pipeline {pipeline.name} returned an output {output!r}; it has: {known}")
        if not hasattr(frame, "columns"):
            raise PipelineError(f"pipeline {pipeline.name}, output {output!r}: {type(frame).__name__} is no data frame")
        if output == DEAD_LETTERS:
            check_dead_letters(frame)


def records(output: str, topic: Topic, frame: "DataFrame") -> "DataFrame":
    """The records that an output frame makes: topic, key, value, headers (if there are any), `_at`, `_seq`."""
    from pyspark.sql import functions as sf

    if topic.name is None and "topic" not in frame.columns:
        raise PipelineError(f"output {output!r} leaves the topic to its rows, but the frame has no column 'topic'")
    where = sf.col("topic") if topic.name is None else sf.lit(topic.name)
    return frame.select(
        where.cast("string").alias("topic"),
        _key(output, topic, frame).alias("key"),
        _value(topic, frame).alias("value"),
        *([sf.col("headers")] if "headers" in frame.columns else []),
        _order(frame, AT).alias(AT),
        _order(frame, SEQ).alias(SEQ),
    )


def dead_letter_records(topic: Topic, frame: "DataFrame") -> "DataFrame":
    """The records that rows with a `reason` make."""
    from pyspark.sql import functions as sf

    return frame.select(
        sf.lit(topic.name).alias("topic"),
        dead_letter_key().cast("binary").alias("key"),
        dead_letter_value(sf.col("reason").cast("string")).cast("binary").alias("value"),
        _order(frame, AT).alias(AT),
        _order(frame, SEQ).alias(SEQ),
    )


def _key(output: str, topic: Topic, frame: "DataFrame") -> "Column":
    from pyspark.sql import functions as sf

    name = topic.key or "key"
    if name not in frame.columns:
        if topic.key is not None:
            raise PipelineError(f"output {output!r}: its key is the column {name!r}, which the frame does not have")
        return sf.lit(None).cast("binary")
    return _bytes(frame, name)


def _value(topic: Topic, frame: "DataFrame") -> "Column":
    from pyspark.sql import functions as sf

    if "value" in frame.columns:
        return _bytes(frame, "value")
    own = (*_NOT_IN_JSON, "topic") if topic.name is None else _NOT_IN_JSON
    # A column named `key` is the record's key and not in the value, but one that `Topic.key` names stays in it.
    columns = [name for name in frame.columns if name not in own or name == topic.key]
    return sf.to_json(sf.struct(*(sf.col(f"`{name}`") for name in columns))).cast("binary")


def _bytes(frame: "DataFrame", name: str) -> "Column":
    """A column as bytes: text as UTF-8, structures as JSON, everything else as its text."""
    from pyspark.sql import functions as sf
    from pyspark.sql.types import ArrayType, MapType, StructType

    column, kind = sf.col(f"`{name}`"), frame.schema[name].dataType
    if isinstance(kind, StructType | ArrayType | MapType):
        column = sf.to_json(column)
    elif kind.simpleString() not in _BY_VALUE:
        column = column.cast("string")
    return column.cast("binary")


def _order(frame: "DataFrame", name: str) -> "Column":
    from pyspark.sql import functions as sf

    return (sf.col(name) if name in frame.columns else sf.lit(None)).cast("long")


def merge_records(frames: Sequence["DataFrame"], partitions: int, *, ordered: bool) -> "DataFrame":
    """The records of all frames, ready to write."""
    from pyspark.sql import functions as sf

    rows = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)
    if ordered:
        # Rows without a key need no order: they are spread by where they came from.
        spread = sf.when(sf.col("key").isNull(), sf.col(AT))
        rows = rows.repartition(partitions, sf.col("key"), spread).sortWithinPartitions(AT, SEQ)
    return rows.drop(AT, SEQ)
