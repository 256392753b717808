"""Options of the source: defaults, errors, and the client configs."""

import pytest

from headrace.common.errors import ConfigError
from headrace.common.types import TopicPartition
from headrace.spark.offsets import Earliest, Latest, SpecificOffsets, SpecificTimestamps, Timestamp
from headrace.spark.options import SourceOptions, client_config, parse_duration_ms

BASE = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}


def parse(streaming: bool | None = False, **options: str) -> SourceOptions:
    return SourceOptions.parse({**BASE, **options}, streaming=streaming)


def test_defaults() -> None:
    found = parse()
    assert (found.starting, found.ending) == (Earliest(), Latest())
    assert parse(True).starting == Latest()
    assert found.fail_on_data_loss
    assert not found.include_headers
    assert found.max_trigger_delay_ms == 15 * 60_000
    assert found.poll_timeout_ms == 120_000
    assert found.min_partitions is found.max_records_per_partition is None
    assert found.config["bootstrap.servers"] == "localhost:9092"


def test_option_names_are_case_insensitive() -> None:
    found = SourceOptions.parse({"Kafka.Bootstrap.Servers": "a:1", "SUBSCRIBE": "t", "minpartitions": "3"})
    assert found.min_partitions == 3
    assert found.subscription.topics == ("t",)


def test_subscriptions() -> None:
    assert parse(subscribe=" b, a ,,b").subscription.topics == ("a", "b")
    assign = {"kafka.bootstrap.servers": "x:1", "assign": '{"t": [0, 2]}'}
    assert SourceOptions.parse(assign).subscription.partitions == {TopicPartition("t", 0), TopicPartition("t", 2)}
    pattern = {"kafka.bootstrap.servers": "x:1", "subscribePattern": "a.*"}
    assert SourceOptions.parse(pattern).subscription.pattern == "a.*"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "expected one of the options 'assign', 'subscribe', 'subscribePattern'"),
        ({"subscribe": "a", "subscribePattern": "b"}, "'subscribe' and 'subscribePattern' are set together"),
        ({"subscribe": " , "}, "'subscribe' is ','"),
        ({"subscribePattern": " "}, "'subscribePattern' is empty"),
        ({"subscribePattern": "("}, "not a regular expression"),
        ({"assign": "orders"}, "expected JSON such as"),
        ({"assign": "{}"}, "contains no partition"),
        ({"assign": '{"t": 1}'}, "expected JSON such as"),
    ],
)
def test_rejects_invalid_subscriptions(options: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words.replace("(", r"\(")):
        SourceOptions.parse({"kafka.bootstrap.servers": "x:1", **options})


def test_bootstrap_servers_are_required() -> None:
    with pytest.raises(ConfigError, match=r"'kafka\.bootstrap\.servers' is missing"):
        SourceOptions.parse({"subscribe": "orders"})


def test_precedence_of_timestamps_and_offsets() -> None:
    offsets = {"startingOffsets": '{"orders": {"0": 5}}', "endingOffsets": '{"orders": {"0": -1}}'}
    times = {"startingOffsetsByTimestamp": '{"orders": {"0": 7}}', "endingOffsetsByTimestamp": '{"orders": {"0": 8}}'}
    time = {"startingTimestamp": "9", "endingTimestamp": "10"}
    tp = TopicPartition("orders", 0)
    found = parse(**offsets)
    assert (found.starting, found.ending) == (SpecificOffsets({tp: 5}), SpecificOffsets({tp: -1}))
    found = parse(**offsets, **times)
    assert (found.starting, found.ending) == (SpecificTimestamps({tp: 7}), SpecificTimestamps({tp: 8}))
    found = parse(**offsets, **times, **time)
    assert (found.starting, found.ending) == (Timestamp(9), Timestamp(10))


@pytest.mark.parametrize(
    ("streaming", "options", "words"),
    [
        (False, {"startingOffsets": "latest"}, "'startingOffsets' cannot be 'latest'"),
        (False, {"startingOffsets": '{"orders": {"0": -1}}'}, r"cannot be latest \(-1\) for orders-0"),
        (False, {"endingOffsets": "earliest"}, "'endingOffsets' cannot be 'earliest'"),
        (False, {"endingOffsets": '{"orders": {"0": -2}}'}, r"cannot be earliest \(-2\)"),
        (False, {"startingOffsets": '{"orders": {"0": -3}}'}, "offset -3"),
        (False, {"startingOffsets": "newest"}, "expected JSON"),
        (False, {"startingOffsets": '{"orders": 5}'}, "expected JSON"),
        (False, {"startingOffsets": '{"orders": {"0": "x"}}'}, "expected JSON"),
        (False, {"startingOffsets": '{"orders": {"zero": 1}}'}, "expected JSON"),
        (False, {"startingTimestamp": "noon"}, "expected a whole number"),
        (True, {"endingOffsets": "latest"}, "'endingOffsets' cannot be set for a stream"),
        (True, {"endingTimestamp": "1"}, "'endingTimestamp' cannot be set for a stream"),
        (True, {"endingOffsetsByTimestamp": '{"orders": {"0": 1}}'}, "cannot be set for a stream"),
        (True, {"minOffsetsPerTrigger": "10", "maxOffsetsPerTrigger": "9"}, "is higher than"),
        (None, {"minPartitions": "0"}, "'minPartitions' is '0': expected a whole number of at least 1"),
        (None, {"minPartitions": "many"}, "'minPartitions' is 'many'"),
        (None, {"maxRecordsPerPartition": "-1"}, "'maxRecordsPerPartition' is '-1'"),
        (None, {"maxOffsetsPerTrigger": "0"}, "'maxOffsetsPerTrigger'"),
        (None, {"failOnDataLoss": "maybe"}, "expected 'true' or 'false'"),
        (None, {"includeHeaders": "1"}, "expected 'true' or 'false'"),
        (None, {"startingOffsetsByTimestampStrategy": "earliest"}, "expected 'error' or 'latest'"),
        (None, {"maxTriggerDelay": "soon"}, "expected a duration such as"),
        (None, {"kafka.auto.offset.reset": "earliest"}, "startingOffsets"),
        (None, {"kafka.key.deserializer": "x"}, "cannot be set: keys are binary"),
        (None, {"kafka.value.deserializer": "x"}, "cannot be set: values are binary"),
        (None, {"kafka.enable.auto.commit": "true"}, "commits no offsets"),
        (None, {"kafka.interceptor.classes": "x"}, "cannot be set"),
        (None, {"kafka.fetch.min.byte": "1"}, r"did you mean 'fetch\.min\.bytes'"),
    ],
)
def test_rejects_invalid_options(streaming: bool | None, options: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse(streaming, **options)


def test_ignores_stream_options_in_batches(caplog: pytest.LogCaptureFixture) -> None:
    assert parse(False, maxOffsetsPerTrigger="5").max_offsets_per_trigger == 5
    assert "'maxOffsetsPerTrigger' applies only to streams" in caplog.text


def test_client_config_ignores_configs_of_other_clients() -> None:
    options = {**BASE, "kafka.fetch.min.bytes": "7", "kafka.acks": "all", "kafka.metrics.recording.level": "INFO"}
    assert client_config(options) == {"bootstrap.servers": "localhost:9092", "fetch.min.bytes": "7"}
    assert client_config(options, "producer") == {"bootstrap.servers": "localhost:9092", "acks": "all"}
    with pytest.raises(ConfigError, match=r"'kafka\.acks' cannot be set: no"):
        client_config(options, "producer", {"acks": "no"})


def test_group_id_is_the_default_client_id(caplog: pytest.LogCaptureFixture) -> None:
    assert parse().config["client.id"] == "headrace-spark"
    assert parse(groupIdPrefix="reports").config["client.id"] == "reports"
    found = parse(groupIdPrefix="reports", **{"kafka.group.id": "billing"})
    assert found.config["client.id"] == "billing"
    assert "'groupIdPrefix' is ignored" in caplog.text
    assert parse(**{"kafka.client.id": "me"}).config["client.id"] == "me"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("100ms", 100),
        ("2s", 2000),
        ("15m", 900_000),
        ("3min", 180_000),
        ("1h", 3_600_000),
        ("1d", 86_400_000),
        ("7", 7),
    ],
)
def test_durations(text: str, expected: int) -> None:
    assert parse_duration_ms("maxTriggerDelay", text) == expected


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("subscibe", "subscribe"),
        ("startingOffset", "startingOffsets"),
        ("bootstrap.servers", "kafka.bootstrap.servers"),
    ],
)
def test_misspelled_option_is_named(name: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown option '{name}': did you mean '{meant}'"):
        parse(**{name: "x"})


def test_options_of_spark_are_ignored() -> None:
    parse(checkpointLocation="/tmp/c", path="x", queryName="q", mergeSchema="true")
