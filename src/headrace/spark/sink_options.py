"""The options of the sink and the columns that it takes, read and checked.

Pure: no connection. Runs in the driver, when a write is planned; what comes out is pickled to the tasks. Names and
rules are those of Spark's Kafka connector, with a few options more, for exactly once.

Invariant: what can be known to be wrong before the first row is told here.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructType

from headrace.client.config.producer import PRODUCER_KEYS
from headrace.client.producer.config import check_settings
from headrace.common.errors import ConfigError
from headrace.spark.options import client_settings, lower_keys

__all__ = ["COLUMNS", "MANAGED_BY_SINK", "SinkOptions", "check_columns", "sink_options"]

MANAGED_BY_SINK: dict[str, str] = {
    "key.serializer": "keys are written as they are: cast the column 'key' to string or binary",
    "value.serializer": "values are written as they are: cast the column 'value' to string or binary",
    "transactional.id": "the sink makes one for each task; set the option 'sinkName' to have other names",
    "interceptor.classes": "interceptors see no rows that come as Arrow",
}
"""Kafka keys that a writing user may not set, and why."""

COLUMNS: dict[str, str] = {
    "topic": "a string",
    "key": "a string or binary",
    "value": "a string or binary",
    "partition": "an int",
    "headers": "array<struct<key:string,value:binary>>",
}
"""The columns that are written, and what they hold. Others are left out, as the connector does."""

_DEFAULTS = {"transaction.timeout.ms": "900000", "max.block.ms": "120000"}
"""A transaction is open for as long as a task writes: the most that brokers allow by default."""
_GUARANTEES = {"exactly-once": True, "at-least-once": False}


@dataclass(frozen=True)
class SinkOptions:
    """What a write was asked to do."""

    settings: Mapping[str, str]
    """Of the producer, by Kafka's names."""
    admin_settings: Mapping[str, str]
    topic: str | None = None
    """Where all rows go; without it, each row says."""
    exactly_once: bool = True
    query_id: str | None = None
    batch_id: int | None = None
    sink_name: str = ""


def sink_options(options: Mapping[str, str], streaming: bool) -> SinkOptions:
    given = lower_keys(options)
    settings = {**_DEFAULTS, **client_settings(given, "producer", MANAGED_BY_SINK)}
    exactly_once = _guarantee(given)
    if not exactly_once and "kafka.transaction.timeout.ms" not in given:
        settings.pop("transaction.timeout.ms")
    _check(settings, exactly_once)
    topic = given.get("topic")
    if topic is not None and not topic:
        raise ConfigError("the option 'topic' is empty: expected the name of the topic that all rows go to")
    query_id, batch_id = given.get("queryid"), given.get("batchid")
    if streaming and (query_id is not None or batch_id is not None):
        raise ConfigError("the options 'queryId' and 'batchId' are for batch writes: a stream has its own")
    if (query_id is None) != (batch_id is None):
        raise ConfigError("the options 'queryId' and 'batchId' belong together: expected both or none")
    if query_id is not None and not exactly_once:
        raise ConfigError("the options 'queryId' and 'batchId' are for deliveryGuarantee 'exactly-once'")
    return SinkOptions(
        settings=settings,
        admin_settings=client_settings(given, "admin"),
        topic=topic,
        exactly_once=exactly_once,
        query_id=query_id,
        batch_id=None if batch_id is None else _batch_id(batch_id),
        sink_name=given.get("sinkname", topic or ""),
    )


def _guarantee(given: Mapping[str, str]) -> bool:
    text = given.get("deliveryguarantee", "exactly-once")
    exactly_once = _GUARANTEES.get(text.strip().lower().replace("_", "-"))
    if exactly_once is None:
        raise ConfigError(
            f"the option 'deliveryGuarantee' is {text!r}: expected " + " or ".join(map(repr, _GUARANTEES))
        )
    return exactly_once


def _batch_id(text: str) -> int:
    if not text.strip().isdigit():
        raise ConfigError(f"the option 'batchId' is {text!r}: expected the number of a batch, 0 or more")
    return int(text)


def _check(settings: Mapping[str, str], exactly_once: bool) -> None:
    """Has the producer's own checks done, in the driver."""
    try:
        more = {"transactional_id": "-"} if exactly_once else {}
        check_settings(PRODUCER_KEYS.load(settings, **more))
    except ConfigError as error:
        hint = "; the option deliveryGuarantee 'at-least-once' writes without transactions" if exactly_once else ""
        raise ConfigError(f"the options for Kafka's producer (kafka.*): {error}{hint}") from None


def check_columns(schema: StructType, options: SinkOptions) -> None:
    """Raises if the data frame has not what a record needs. Columns are found by their exact names."""
    found: dict[str, DataType] = {each.name: each.dataType for each in schema.fields}
    if "value" not in found:
        raise ConfigError(f"the data frame has no column 'value': it has {_names(schema)}")
    if options.topic is None and "topic" not in found:
        raise ConfigError(
            "no topic to write to: expected the option 'topic', or a column 'topic' that names one for each row; "
            f"the data frame has {_names(schema)}"
        )
    for name, expected in COLUMNS.items():
        kind = found.get(name)
        if kind is not None and not _fits(name, kind):
            raise ConfigError(f"the column '{name}' holds {kind.simpleString()}: expected {expected}")


def _names(schema: StructType) -> str:
    return ", ".join(repr(each) for each in schema.names) or "no columns"


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
        [each.name for each in fields] == ["key", "value"]
        and isinstance(fields[0].dataType, StringType)
        and isinstance(fields[1].dataType, BinaryType)
    )
