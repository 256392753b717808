"""Every option of Spark's connector with both formats: both return the same rows, or both reject it.

Messages and exception classes differ (Spark wraps exceptions of a Python source). The tests check that both fail, and
that our message names the option to change. Where Spark's connector fails in `load`, ours does too, unless the error
depends on whether the frame is a batch: a Python source learns that later.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.spark.formats import BASE_MS, HEADRACE, KAFKA, Failed, Formats, finish

TOPIC = "options-topic"
OTHER = "options-other"


def offsets(zero: int, one: int) -> str:
    return json.dumps({TOPIC: {"0": zero, "1": one}})


@pytest.fixture(scope="module")
def filled(formats: Formats) -> Iterator[Formats]:
    """Numbers 0 to 9 in two partitions, one second apart, and 100 to 102 in another topic."""
    from headrace.admin import NewTopic

    formats.admin.create_topics([NewTopic(TOPIC, 2, 1), NewTopic(OTHER, 1, 1)])
    formats.send_numbers(TOPIC, range(10), 2)
    formats.send_numbers(OTHER, range(100, 103))
    yield formats
    formats.admin.delete_topics([TOPIC, OTHER])


SUBSCRIBED = {"subscribe": TOPIC}

# Batches that both formats accept.
GOOD: list[dict[str, object]] = [
    {"subscribe": f"{TOPIC},{OTHER}"},
    {"subscribe": f" {TOPIC} , {OTHER} "},
    {"SUBSCRIBE": TOPIC},
    {"subscribePattern": "options-.*"},
    {"subscribepattern": "options-(topic|none)"},
    {"assign": json.dumps({TOPIC: [0]})},
    {"assign": json.dumps({TOPIC: [0, 7]})},  # missing partitions are ignored
    {"assign": json.dumps({TOPIC: [0, 1], OTHER: [0]})},
    {**SUBSCRIBED, "startingOffsets": "EARLIEST", "endingOffsets": "LATEST"},
    {**SUBSCRIBED, "startingoffsets": offsets(1, -2), "endingoffsets": offsets(-1, 2)},
    {**SUBSCRIBED, "startingOffsetsByTimestamp": offsets(BASE_MS + 4_000, BASE_MS)},
    {**SUBSCRIBED, "startingTimestamp": BASE_MS + 3_000, "endingTimestamp": BASE_MS + 7_000},
    {
        **SUBSCRIBED,
        "startingOffsetsByTimestamp": offsets(BASE_MS + 99_000, BASE_MS),
        "startingOffsetsByTimestampStrategy": "LATEST",
    },
    {**SUBSCRIBED, "endingOffsetsByTimestamp": offsets(BASE_MS + 4_000, BASE_MS + 99_000)},
    {**SUBSCRIBED, "includeHeaders": "true"},
    {**SUBSCRIBED, "includeHeaders": "TRUE", "failOnDataLoss": "FALSE"},
    {**SUBSCRIBED, "minPartitions": 7},
    {**SUBSCRIBED, "maxRecordsPerPartition": 2},
    {**SUBSCRIBED, "groupIdPrefix": "mine"},
    {**SUBSCRIBED, "kafka.group.id": "mine"},
    {**SUBSCRIBED, "kafka.client.id": "mine", "kafka.fetch.min.bytes": 1, "kafka.isolation.level": "read_committed"},
    {**SUBSCRIBED, "kafka.max.partition.fetch.bytes": 64, "kafka.max.poll.records": 1},
    {**SUBSCRIBED, "kafkaConsumer.pollTimeoutMs": 5_000, "fetchOffset.numRetries": 2, "fetchOffset.retryIntervalMs": 9},
    {**SUBSCRIBED, "maxOffsetsPerTrigger": 3},  # ignored in batches
    {**SUBSCRIBED, "not.an.option": "whatever"},
]

# Batches that both formats reject, and a word of our message.
BAD: list[tuple[dict[str, object], str]] = [
    ({}, "subscribe"),
    ({"subscribe": TOPIC, "subscribePattern": "x"}, "subscribe"),
    ({"subscribe": TOPIC, "assign": json.dumps({TOPIC: [0]})}, "assign"),
    ({"subscribe": ""}, "subscribe"),
    ({"subscribe": ","}, "subscribe"),
    ({"subscribePattern": ""}, "subscribePattern"),
    ({"assign": ""}, "assign"),
    ({"assign": "not json"}, "assign"),
    ({"assign": json.dumps({TOPIC: "0"})}, "assign"),
    ({**SUBSCRIBED, "kafka.bootstrap.servers": None}, "kafka.bootstrap.servers"),
    ({**SUBSCRIBED, "startingOffsets": "latest"}, "startingOffsets"),
    ({**SUBSCRIBED, "startingOffsets": offsets(-1, 0)}, "startingOffsets"),
    ({**SUBSCRIBED, "startingOffsets": "nowhere"}, "startingOffsets"),
    ({**SUBSCRIBED, "startingOffsets": "{"}, "startingOffsets"),
    ({**SUBSCRIBED, "startingOffsets": json.dumps({TOPIC: {"0": 0}})}, "startingOffsets"),
    ({**SUBSCRIBED, "startingOffsets": json.dumps({TOPIC: {"0": 0, "1": 0, "2": 0}})}, "startingOffsets"),
    ({**SUBSCRIBED, "endingOffsets": "earliest"}, "endingOffsets"),
    ({**SUBSCRIBED, "endingOffsets": offsets(-2, 3)}, "endingOffsets"),
    ({**SUBSCRIBED, "endingOffsets": json.dumps({TOPIC: {"0": 0}})}, "endingOffsets"),
    ({**SUBSCRIBED, "startingTimestamp": "soon"}, "startingTimestamp"),
    ({**SUBSCRIBED, "startingTimestamp": -5}, "startingTimestamp"),
    ({**SUBSCRIBED, "startingOffsetsByTimestamp": "{"}, "startingOffsetsByTimestamp"),
    ({**SUBSCRIBED, "startingTimestamp": BASE_MS + 99_000}, "startingOffsetsByTimestampStrategy"),
    ({**SUBSCRIBED, "startingOffsetsByTimestampStrategy": "guess"}, "startingOffsetsByTimestampStrategy"),
    ({**SUBSCRIBED, "minPartitions": 0}, "minPartitions"),
    ({**SUBSCRIBED, "minPartitions": "many"}, "minPartitions"),
    ({**SUBSCRIBED, "maxRecordsPerPartition": 0}, "maxRecordsPerPartition"),
    ({**SUBSCRIBED, "failOnDataLoss": "perhaps"}, "failOnDataLoss"),
    ({**SUBSCRIBED, "includeHeaders": "perhaps"}, "includeHeaders"),
    ({**SUBSCRIBED, "kafka.auto.offset.reset": "latest"}, "kafka.auto.offset.reset"),
    ({**SUBSCRIBED, "kafka.key.deserializer": "x"}, "kafka.key.deserializer"),
    ({**SUBSCRIBED, "kafka.value.deserializer": "x"}, "kafka.value.deserializer"),
    ({**SUBSCRIBED, "kafka.enable.auto.commit": "true"}, "kafka.enable.auto.commit"),
    ({**SUBSCRIBED, "kafka.interceptor.classes": "x"}, "kafka.interceptor.classes"),
    ({**SUBSCRIBED, "kafka.isolation.level": "read_something"}, "isolation.level"),
    ({"subscribe": "options-missing"}, "options-missing"),
    (
        {
            **SUBSCRIBED,
            "startingOffsets": offsets(3, 3),
            "endingOffsets": offsets(99, 99),
            "kafkaConsumer.pollTimeoutMs": 3_000,
        },
        "failOnDataLoss",
    ),
]


def test_both_formats_accept(filled: Formats) -> None:
    for options in GOOD:
        theirs, ours = (filled.outcome(lambda n=name, o=options: filled.load(n, **o)) for name in (KAFKA, HEADRACE))
        assert not isinstance(theirs, Failed), (options, theirs)
        assert ours == theirs, options


@pytest.mark.parametrize("bad", BAD, ids=[f"{number}-{word}" for number, (_, word) in enumerate(BAD)])
def test_both_formats_reject(filled: Formats, bad: tuple[dict[str, object], str]) -> None:
    options, word = bad
    theirs, ours = (filled.outcome(lambda n=name: filled.load(n, **options)) for name in (KAFKA, HEADRACE))
    assert isinstance(theirs, Failed), theirs
    assert isinstance(ours, Failed), ours
    assert ours.names(word), ours
    if "in a batch" not in ours.text:
        assert (ours.stage, theirs.stage) != ("run", "load"), "rejected later than by Spark's connector"


# Streams that both formats reject.
BAD_STREAMS: list[tuple[dict[str, object], str]] = [
    ({"endingOffsets": "latest"}, "endingOffsets"),
    ({"endingOffsetsByTimestamp": offsets(1, 1)}, "endingOffsetsByTimestamp"),
    ({"maxOffsetsPerTrigger": "few"}, "maxOffsetsPerTrigger"),
    ({"minOffsetsPerTrigger": 9, "maxOffsetsPerTrigger": 3}, "minOffsetsPerTrigger"),
    ({"maxTriggerDelay": "later", "minOffsetsPerTrigger": 1}, "maxTriggerDelay"),
    ({"startingOffsets": json.dumps({TOPIC: {"0": 0}})}, "startingOffsets"),
    ({"startingOffsets": offsets(99, 99)}, "failOnDataLoss"),
]


@pytest.mark.parametrize("bad", BAD_STREAMS, ids=[f"{number}-{word}" for number, (_, word) in enumerate(BAD_STREAMS)])
def test_both_formats_reject_for_streams(filled: Formats, bad: tuple[dict[str, object], str], tmp_path: Path) -> None:
    options, word = bad

    def run(name: str) -> Any:
        try:
            frame = filled.load_stream(name, subscribe=TOPIC, **options)
            return filled.run_stream(frame, tmp_path / name).numbers
        except Exception as error:  # noqa: BLE001
            return Failed("run", str(error))

    theirs, ours = run(KAFKA), run(HEADRACE)
    assert isinstance(theirs, Failed), theirs
    assert isinstance(ours, Failed), ours
    assert ours.names(word), ours


# Writes that both formats reject: schema, one row, options, and a word of our message.
BAD_WRITES: list[tuple[str, tuple[Any, ...], dict[str, object], str]] = [
    ("key string", ("k",), {"topic": OTHER}, "value"),
    ("value int", (1,), {"topic": OTHER}, "value"),
    ("value string, key int", ("v", 1), {"topic": OTHER}, "key"),
    ("value string", ("v",), {}, "topic"),
    ("value string, topic int", ("v", 1), {}, "topic"),
    ("value string, topic string", ("v", None), {}, "topic"),
    ("value string, partition string", ("v", "0"), {"topic": OTHER}, "partition"),
    ("value string, headers string", ("v", "h"), {"topic": OTHER}, "headers"),
    ("value string", ("v",), {"topic": OTHER, "kafka.key.serializer": "x"}, "kafka.key.serializer"),
    ("value string", ("v",), {"topic": OTHER, "kafka.value.serializer": "x"}, "kafka.value.serializer"),
    ("value string", ("v",), {"topic": OTHER, "kafka.bootstrap.servers": None}, "kafka.bootstrap.servers"),
]


@pytest.mark.parametrize("bad", BAD_WRITES, ids=[f"{number}-{each[-1]}" for number, each in enumerate(BAD_WRITES)])
def test_both_formats_reject_for_writes(
    filled: Formats, bad: tuple[str, tuple[Any, ...], dict[str, object], str], tmp_path: Path
) -> None:
    schema, row, options, word = bad
    before = len(filled.values(OTHER))

    def run(name: str) -> Any:
        try:
            filled.write(name, filled.frame([row], schema), **options)
        except Exception as error:  # noqa: BLE001
            return Failed("run", str(error))
        return None

    theirs, ours = run(KAFKA), run(HEADRACE)
    assert isinstance(theirs, Failed), theirs
    assert isinstance(ours, Failed), ours
    assert ours.names(word), ours
    assert len(filled.values(OTHER)) == before


def test_unknown_columns_and_modes(filled: Formats, tmp_path: Path) -> None:
    """Unknown columns are ignored; modes that would replace a topic are rejected."""
    topic = filled.new_topic()
    frame = filled.frame([("v", 1)], "value string, other int")
    for name in (KAFKA, HEADRACE):
        filled.write(name, frame, topic=topic)
        for mode in ("overwrite", "ignore"):
            writer = frame.write.format(name).mode(mode).options(**filled.options({"topic": topic}))
            with pytest.raises(Exception, match=r"(?i)append"):
                writer.save()
        finish(filled.copy_stream(filled.load_stream(name, subscribe=topic), name, tmp_path / name, topic=topic))
    assert filled.values(topic) == [b"v", b"v"]
