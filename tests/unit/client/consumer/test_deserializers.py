"""Deserializers, and the signatures that a deserializer may have."""

import pytest

from headrace.client.consumer.deserializers import (
    DoubleDeserializer,
    IntegerDeserializer,
    JsonDeserializer,
    LongDeserializer,
    StringDeserializer,
    prepare,
)
from headrace.client.producer.serializers import (
    DoubleSerializer,
    IntegerSerializer,
    JsonSerializer,
    LongSerializer,
    StringSerializer,
)
from headrace.common.errors import ConfigError
from headrace.records import FetchedRecords, encode_rows


def value_of(deserializer, data):
    raw = bytes(encode_rows([(None, data, 1, [("h", b"x")])]))
    return FetchedRecords("t", 0, raw, 0).take(1, None, prepare(deserializer))[0].value


@pytest.mark.parametrize(
    ("serializer", "deserializer", "value"),
    [
        (StringSerializer(), StringDeserializer(), "Grüße"),
        (StringSerializer("latin-1"), StringDeserializer("latin-1"), "Grüße"),
        (JsonSerializer(), JsonDeserializer(), {"a": [1, 2.5, None, "ü"]}),
        (IntegerSerializer(), IntegerDeserializer(), -5),
        (LongSerializer(), LongDeserializer(), 2**40),
        (DoubleSerializer(), DoubleDeserializer(), 0.25),
    ],
)
def test_reads_serialized_values(serializer, deserializer, value):
    assert value_of(deserializer, serializer.serialize("t", value)) == value
    assert value_of(deserializer, None) is None


def test_supported_signatures():
    class Two:
        def deserialize(self, topic, data):
            return topic, data

    class Three:
        def deserialize(self, topic, headers, data):
            return topic, headers, data

    class Any:
        def deserialize(self, *arguments):
            return arguments

    assert value_of(Two(), b"v") == ("t", b"v")
    assert value_of(Three(), b"v") == ("t", [("h", b"x")], b"v")
    assert value_of(Any(), b"v") == ("t", [("h", b"x")], b"v")
    assert value_of(bytes.upper, b"v") == b"V"
    assert value_of(None, b"v") == b"v"


def test_rejects_other_objects():
    with pytest.raises(ConfigError, match=r"a deserializer must be a function .* not int"):
        prepare(5)
