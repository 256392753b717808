"""Parses and checks the options and columns of the sink.

Pure: no connection. Runs in the driver when it plans a write. The result is pickled to the tasks. Names and rules are
the same as in Spark's Kafka connector, with a few more options for exactly-once delivery.

Invariant: errors that can be detected before the first row are reported here.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructType

from headrace.client.config.producer import PRODUCER_KEYS
from headrace.client.producer.config import check_config
from headrace.common.errors import ConfigError
from headrace.spark.options import SINK_OPTIONS, SOURCE_OPTIONS, check_option_names, client_config, lower_keys

__all__ = ["COLUMNS", "MANAGED_BY_SINK", "SinkOptions", "check_columns", "sink_options"]

MANAGED_BY_SINK: dict[str, str] = {
    "key.serializer": "keys are written unchanged: cast the column 'key' to string or binary",
    "value.serializer": "values are written unchanged: cast the column 'value' to string or binary",
    "transactional.id": "the sink creates one for each task; set the option 'sinkName' to change the names",
    "interceptor.classes": "interceptors do not support Arrow rows",
}
"""Kafka configs that cannot be set for a write, and why."""

COLUMNS: dict[str, str] = {
    "topic": "a string",
    "key": "a string or binary",
    "value": "a string or binary",
    "partition": "an int",
    "headers": "array<struct<key:string,value:binary>>",
}
"""The columns that are written, and their types. Other columns are ignored, as in Spark's connector."""

_DEFAULTS = {"transaction.timeout.ms": "900000", "max.block.ms": "120000"}
"""A transaction is open for as long as a task writes: the default is the maximum that brokers allow by default."""
_GUARANTEES = {"exactly-once": True, "at-least-once": False}


@dataclass(frozen=True)
class SinkOptions:
    """The checked options of a write."""

    producer_config: Mapping[str, str]
    """Producer configs by Kafka's names."""
    admin_config: Mapping[str, str]
    topic: str | None = None
    """The topic of all rows, or None if the column `topic` names the topic of each row."""
    exactly_once: bool = True
    query_id: str | None = None
    batch_id: int | None = None
    sink_name: str = ""


def sink_options(options: Mapping[str, str], streaming: bool) -> SinkOptions:
    """Parses and checks the options of a write."""
    check_option_names(options, [*SINK_OPTIONS, *SOURCE_OPTIONS])
    lowered = lower_keys(options)
    config = {**_DEFAULTS, **client_config(lowered, "producer", MANAGED_BY_SINK)}
    exactly_once = _guarantee(lowered)
    if not exactly_once and "kafka.transaction.timeout.ms" not in lowered:
        config.pop("transaction.timeout.ms")
    _check(config, exactly_once)
    topic = lowered.get("topic")
    if topic is not None and not topic:
        raise ConfigError("the option 'topic' is empty: expected a topic name for all rows")
    query_id, batch_id = lowered.get("queryid"), lowered.get("batchid")
    if streaming and (query_id is not None or batch_id is not None):
        raise ConfigError("the options 'queryId' and 'batchId' apply only to batch writes: a stream has its own")
    if (query_id is None) != (batch_id is None):
        raise ConfigError("the options 'queryId' and 'batchId' must be set together: expected both or neither")
    if query_id is not None and not exactly_once:
        raise ConfigError("the options 'queryId' and 'batchId' require deliveryGuarantee 'exactly-once'")
    return SinkOptions(
        producer_config=config,
        admin_config=client_config(lowered, "admin"),
        topic=topic,
        exactly_once=exactly_once,
        query_id=query_id,
        batch_id=None if batch_id is None else _batch_id(batch_id),
        sink_name=lowered.get("sinkname", topic or ""),
    )


def _guarantee(options: Mapping[str, str]) -> bool:
    text = options.get("deliveryguarantee", "exactly-once")
    exactly_once = _GUARANTEES.get(text.strip().lower().replace("_", "-"))
    if exactly_once is None:
        raise ConfigError(
            f"the option 'deliveryGuarantee' is {text!r}: expected " + " or ".join(map(repr, _GUARANTEES))
        )
    return exactly_once


def _batch_id(text: str) -> int:
    if not text.strip().isdigit():
        raise ConfigError(f"the option 'batchId' is {text!r}: expected a batch number of at least 0")
    return int(text)


def _check(config: Mapping[str, str], exactly_once: bool) -> None:
    """Runs the producer's own checks in the driver."""
    try:
        transactional = {"transactional_id": "-"} if exactly_once else {}
        check_config(PRODUCER_KEYS.load(config, **transactional))
    except ConfigError as error:
        hint = (
            "; set the option deliveryGuarantee to 'at-least-once' to write without transactions"
            if exactly_once
            else ""
        )
        raise ConfigError(f"the options for Kafka's producer (kafka.*): {error}{hint}") from None


def check_columns(schema: StructType, options: SinkOptions) -> None:
    """Raises if the data frame lacks a column that a record needs, or a column has a wrong type. Names are
    case-sensitive."""
    columns: dict[str, DataType] = {field.name: field.dataType for field in schema.fields}
    if "value" not in columns:
        raise ConfigError(f"the data frame has no column 'value'; its columns: {_names(schema)}")
    if options.topic is None and "topic" not in columns:
        raise ConfigError(
            "no topic to write to: expected the option 'topic', or a column 'topic' with the topic of each row; "
            f"the data frame's columns: {_names(schema)}"
        )
    for name, expected in COLUMNS.items():
        kind = columns.get(name)
        if kind is not None and not _fits(name, kind):
            raise ConfigError(f"the column '{name}' has type {kind.simpleString()}: expected {expected}")


def _names(schema: StructType) -> str:
    return ", ".join(repr(name) for name in schema.names) or "no columns"


def _fits(name: str, kind: DataType) -> bool:
    if name in ("key", "value"):
        return isinstance(kind, StringType | BinaryType)
    if name == "topic":
        return isinstance(kind, StringType)
    if name == "partition":
        return isinstance(kind, IntegerType)
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = kind.elementType.fields
    return (
        [field.name for field in fields] == ["key", "value"]
        and isinstance(fields[0].dataType, StringType)
        and isinstance(fields[1].dataType, BinaryType)
    )
