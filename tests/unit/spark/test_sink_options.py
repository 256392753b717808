"""Options and columns of the sink: defaults and errors."""

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
)

from headrace.common.errors import ConfigError
from headrace.spark.sink import batch_writer
from headrace.spark.sink_options import SinkOptions, check_columns, sink_options

BOOTSTRAP = {"kafka.bootstrap.servers": "localhost:9092"}


def options(**given: str) -> SinkOptions:
    return sink_options({**BOOTSTRAP, **{name.replace("__", "."): value for name, value in given.items()}}, False)


TYPES = {
    "string": StringType(),
    "binary": BinaryType(),
    "int": IntegerType(),
    "long": LongType(),
    "double": DoubleType(),
    "headers": ArrayType(StructType().add("key", StringType()).add("value", BinaryType())),
    "text_headers": ArrayType(StructType().add("key", StringType()).add("value", StringType())),
    "texts": ArrayType(StringType()),
    "map": MapType(StringType(), BinaryType()),
}


def struct(text: str) -> StructType:
    """Returns the schema of "name type, name type"."""
    schema = StructType()
    for column in text.split(", "):
        name, kind = column.split(" ")
        schema.add(name, TYPES[kind])
    return schema


def test_defaults_are_exactly_once_with_the_longest_timeout() -> None:
    found = options()
    assert found.exactly_once
    assert found.producer_config["transaction.timeout.ms"] == "900000"
    assert found.topic is None


def test_option_names_are_case_insensitive() -> None:
    found = sink_options(
        {"KAFKA.Bootstrap.Servers": "a:1", "TOPIC": "t", "QueryId": "q", "BATCHID": "4", "SinkName": "s"}, False
    )
    assert (found.topic, found.query_id, found.batch_id, found.sink_name) == ("t", "q", 4, "s")


def test_topic_is_the_default_sink_name() -> None:
    assert options(topic="orders").sink_name == "orders"
    assert options().sink_name == ""


@pytest.mark.parametrize("text", ["at-least-once", "AT_LEAST_ONCE", " at-least-once "])
def test_at_least_once(text: str) -> None:
    found = options(deliveryGuarantee=text)
    assert not found.exactly_once
    assert "transaction.timeout.ms" not in found.producer_config


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"deliveryGuarantee": "maybe"}, "'maybe': expected 'exactly-once' or 'at-least-once'"),
        ({"topic": ""}, "'topic' is empty"),
        ({"queryId": "q"}, "must be set together"),
        ({"batchId": "1"}, "must be set together"),
        ({"queryId": "q", "batchId": "x"}, "'batchId' is 'x'"),
        ({"queryId": "q", "batchId": "1", "deliveryGuarantee": "at-least-once"}, "require deliveryGuarantee"),
        ({"kafka__key__serializer": "x"}, "kafka.key.serializer.*cast the column 'key'"),
        ({"kafka__value__serializer": "x"}, "kafka.value.serializer.*cast the column 'value'"),
        ({"kafka__transactional__id": "x"}, "kafka.transactional.id.*sinkName"),
        ({"kafka__acks": "1"}, "acks.*at-least-once"),
        ({"kafka__linger__ms": "soon"}, "linger.ms"),
        ({"kafka__no__such__key": "1"}, "no.such.key"),
    ],
)
def test_rejects_invalid_options(given: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        options(**given)


def test_bootstrap_servers_are_required() -> None:
    with pytest.raises(ConfigError, match=r"kafka\.bootstrap\.servers"):
        sink_options({"topic": "t"}, False)


def test_rejects_batch_ids_for_streams() -> None:
    with pytest.raises(ConfigError, match="a stream has its own"):
        sink_options({**BOOTSTRAP, "queryId": "q", "batchId": "1"}, True)


def test_ignores_consumer_configs() -> None:
    assert "max.poll.records" not in options(kafka__max__poll__records="5", subscribe="x").producer_config


@pytest.mark.parametrize(
    "columns",
    [
        "value string",
        "value binary, key string, topic string, partition int, other double",
        "key binary, value binary, headers headers",
    ],
)
def test_accepts_valid_columns(columns: str) -> None:
    check_columns(struct(columns), options(topic="t"))


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ("key string", "no column 'value'; its columns: 'key'"),
        ("Value string", "no column 'value'"),
        ("value int", "'value' has type int: expected a string or binary"),
        ("value string, key long", "'key' has type bigint"),
        ("value string, topic int", "'topic' has type int: expected a string"),
        ("value string, partition long", "'partition' has type bigint: expected an int"),
        ("value string, headers map", "'headers' has type map"),
        ("value string, headers text_headers", "'headers' has type array"),
        ("value string, headers texts", "'headers' has type array<string>: expected array<struct"),
    ],
)
def test_rejects_invalid_columns(columns: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        check_columns(struct(columns), options(topic="t"))


def test_topic_comes_from_option_or_column() -> None:
    check_columns(struct("value string, topic string"), options())
    with pytest.raises(ConfigError, match="no topic to write to"):
        check_columns(struct("value string"), options())


def test_rejects_overwrite() -> None:
    with pytest.raises(ConfigError, match="append"):
        batch_writer({**BOOTSTRAP, "topic": "t"}, struct("value string"), True)


def test_misspelled_option_is_named() -> None:
    options = {"kafka.bootstrap.servers": "localhost:9092", "topics": "orders"}
    with pytest.raises(ConfigError, match="unknown option 'topics': did you mean 'topic'"):
        sink_options(options, streaming=False)
