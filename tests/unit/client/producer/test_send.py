"""`send` up to the open batch: serialization, validation and choice of the partition."""

from typing import Any

import pytest
from tests.support.client.producer_batches import OpenBatchAppender, rows_of

from headrace.client.errors import IllegalArgumentError, SerializationError
from headrace.client.producer._batch import FutureRecordMetadata
from headrace.client.producer._send import TopicQueues
from headrace.client.producer.interceptors import Interceptors, OutgoingRecord
from headrace.client.producer.serializers import prepare
from headrace.client.types import RecordMetadata
from headrace.common.errors import ConfigError, KafkaError


def test_partitions_keys_like_java() -> None:
    appender = OpenBatchAppender(partitions=7)
    for number in range(7):
        appender.open(number)
    for key, value in {b"21": -973932308, b"foobar": -790332482}.items():
        future = appender.send("t", b"v", key=key)
        assert f"t-{(value & 0x7FFFFFFF) % 7}," in repr(future)


def test_uses_sticky_partition_without_key() -> None:
    appender = OpenBatchAppender(partitions=3)
    for number in range(3):
        appender.open(number)
    appender._topics["t"].sticky = appender._topics["t"].queues[2]
    assert "t-2," in repr(appender.send("t", b"v"))
    appender._ignore_keys = True
    assert "t-2," in repr(appender.send("t", b"v", key=b"21"))


def test_calls_custom_partitioner() -> None:
    appender = OpenBatchAppender(partitions=3)
    appender.open(1)
    asked: list[Any] = []
    appender._partitioner = lambda key, partitions, available: asked.append((key, partitions, available)) or 1
    assert "t-1," in repr(appender.send("t", b"v", key=b"k"))
    assert asked == [(b"k", [0, 1, 2], [0, 1, 2])]
    appender._partitioner = lambda *_: 3
    with pytest.raises(IllegalArgumentError, match="partition 3"):
        appender.send("t", b"v")


def test_explicit_partition_takes_precedence() -> None:
    appender = OpenBatchAppender(partitions=2)
    appender.open(1)
    appender._partitioner = lambda *_: 0
    assert "t-1," in repr(appender.send("t", b"v", key=b"k", partition=1))
    record: Any = appender.send("t", b"v", partition=5)
    assert record.partition == 5
    assert not appender._choose_partition(record)
    with pytest.raises(IllegalArgumentError):
        appender.send("t", b"v", partition=-1)


def test_unknown_topic_needs_metadata() -> None:
    appender = OpenBatchAppender()
    record: Any = appender.send("other", b"v", key=b"21")
    assert (record.topic, record.value, record.key, record.partition) == ("other", b"v", b"21", -1)
    assert not appender._choose_partition(record)
    queues = TopicQueues("other")
    queues.set_leaders([1, 1, 1])
    appender._topics["other"] = queues
    assert appender._choose_partition(record)
    assert record.partition == (-973932308 & 0x7FFFFFFF) % 3


def test_uses_injected_clock_for_timestamps() -> None:
    appender = OpenBatchAppender()
    batch = appender.open()
    appender.send("t", b"v")
    assert rows_of(batch)[0][2] == appender.clock.time_ms()
    with pytest.raises(IllegalArgumentError):
        appender.send("t", b"v", timestamp_ms=-1)


def test_serializes_key_and_value() -> None:
    class Upper:
        def serialize(self, topic: str, data: str) -> bytes:
            return f"{topic}:{data}".upper().encode()

    appender = OpenBatchAppender()
    batch = appender.open()
    appender._key_serializer = prepare(str.encode)
    appender._value_serializer = prepare(Upper())
    appender.send("t", "v", key="k")
    assert rows_of(batch)[0][:2] == (b"k", b"T:V")
    with pytest.raises(SerializationError, match="key serializer failed for topic 't'"):
        appender.send("t", "v", key=3)


def test_serializer_may_add_headers() -> None:
    class Typed:
        def serialize(self, topic: str, headers: list[tuple[str, bytes]], data: object) -> bytes:
            headers.append(("type", type(data).__name__.encode()))
            return f"{topic}:{data}".encode()

    appender = OpenBatchAppender()
    batch = appender.open()
    appender._value_serializer = prepare(Typed())
    given = [("h", b"1")]
    appender.send("t", 5, headers=given)
    appender.send("t", "v", headers={"h": b"2"})
    appender.send("t", None)
    assert [(value, headers) for _, value, _, headers in rows_of(batch)] == [
        (b"t:5", [("h", b"1"), ("type", b"int")]),
        (b"t:v", [("h", b"2"), ("type", b"str")]),
        (b"t:None", [("type", b"NoneType")]),
    ]
    assert given == [("h", b"1")]


def test_rejects_invalid_serializers() -> None:
    assert prepare(None) is None
    with pytest.raises(ConfigError, match="a serializer must be a function or have a method `serialize`, not int"):
        prepare(5)


class Named(str):
    def __str__(self) -> str:
        return "another"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"topic": b"t"}, "Topic names must be str, not bytes"),
        ({"topic": None}, "Topic names must be str, not NoneType"),
        ({"partition": "0"}, "partition must be an int .*, not str"),
        ({"partition": 0.0}, "partition must be an int .*, not float"),
        ({"timestamp_ms": 1.5}, "timestamp_ms must be an int .milliseconds since 1970., not float"),
        ({"headers": 5}, "not iterable"),
        ({"headers": ["name"]}, "a header must be a pair of a name and bytes or None, not 'name'"),
        ({"headers": [("name", b"1", b"2")]}, "a header must be a pair"),
    ],
)
def test_rejects_arguments_of_wrong_type(arguments: dict[str, Any], words: str) -> None:
    appender = OpenBatchAppender()
    appender.open()
    with pytest.raises(TypeError, match=words):
        appender.send(**{"topic": "t", "value": b"v", **arguments})


@pytest.mark.parametrize("arguments", [{"partition": 2**31}, {"timestamp_ms": 2**63}, {"timestamp_ms": -(2**70)}])
def test_rejects_arguments_out_of_range(arguments: dict[str, Any]) -> None:
    appender = OpenBatchAppender()
    appender.open()
    with pytest.raises(ValueError, match=r"=-?[0-9]+ is not valid"):
        appender.send("t", b"v", **arguments)


def test_accepts_topic_of_str_subclass() -> None:
    appender = OpenBatchAppender()
    appender.open()
    assert isinstance(appender.send(Named("t"), b"v"), FutureRecordMetadata)


def test_rejects_str_value_with_hint_at_serializer() -> None:
    appender = OpenBatchAppender()
    appender.open()
    with pytest.raises(TypeError, match="value_serializer"):
        appender.send("t", "text")
    with pytest.raises(TypeError, match="key_serializer"):
        appender.send("t", b"v", key=5)
    with pytest.raises(TypeError, match="header"):
        appender.send("t", b"v", headers=[("h", "text")])
    assert isinstance(appender.send("t", bytearray(b"v"), key=memoryview(b"k")), FutureRecordMetadata)


def test_send_raises_error_of_check_state() -> None:
    appender = OpenBatchAppender()
    appender.open()

    def shut() -> None:
        raise KafkaError("shut")

    appender._check_state = shut
    with pytest.raises(KafkaError, match="shut"):
        appender.send("t", b"v")


def test_refused_record_returns_failed_future() -> None:
    appender = OpenBatchAppender()
    results: list[Any] = []
    record: Any = appender.send(
        "other", b"v", on_delivery=lambda error, metadata: results.append((error, metadata.topic))
    )
    error = KafkaError("no")
    future = record.fail(error)
    assert future.failed()
    assert results == [(error, "other")]


def test_interceptors_see_records_and_failures() -> None:
    acknowledged: list[Any] = []

    class Interceptor:
        def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
            return record._replace(value=record.value.upper())

        def on_acknowledgement(self, metadata: RecordMetadata | None, error: BaseException | None) -> None:
            acknowledged.append((metadata, type(error)))

    appender = OpenBatchAppender()
    batch = appender.open()
    appender._interceptors = Interceptors([Interceptor()])
    appender._value_serializer = prepare(str.encode)
    delivered: list[Any] = []
    future = appender.send("t", "value", on_delivery=lambda error, metadata: delivered.append(metadata))
    assert rows_of(batch)[0][1] == b"VALUE"
    batch.complete(7, -1)
    assert delivered == [future.get(timeout_ms=0)]
    assert acknowledged == [(delivered[0], type(None))]
    with pytest.raises(IllegalArgumentError):
        appender.send("t", "value", partition=-1)
    assert acknowledged[1:] == [(None, IllegalArgumentError)]
