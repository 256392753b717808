"""The serializers of the package."""

from headrace.client.producer.serializers import (
    DoubleSerializer,
    IntegerSerializer,
    JsonSerializer,
    LongSerializer,
    StringSerializer,
)


def test_serializers_equal_java() -> None:
    assert StringSerializer().serialize("t", "ü") == "ü".encode()
    assert StringSerializer("latin-1").serialize("t", "ü") == b"\xfc"
    assert IntegerSerializer().serialize("t", -2) == b"\xff\xff\xff\xfe"
    assert LongSerializer().serialize("t", 2**40) == (2**40).to_bytes(8, "big")
    assert DoubleSerializer().serialize("t", 1.0) == bytes.fromhex("3ff0000000000000")
    assert JsonSerializer().serialize("t", {"a": [1, None, "ü"]}) == '{"a":[1,null,"ü"]}'.encode()
    for serializer in (StringSerializer(), IntegerSerializer(), LongSerializer(), DoubleSerializer(), JsonSerializer()):
        assert serializer.serialize("t", None) is None
