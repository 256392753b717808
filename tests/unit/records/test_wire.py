"""Varints, murmur2 and CRC-32C: known values and invalid input."""

from collections.abc import Callable

import pytest

from headrace.common.errors import CorruptRecordError
from headrace.records import (
    crc32c,
    decode_varint,
    decode_varlong,
    encode_varint,
    encode_varlong,
    murmur2,
    partition_for_key,
)


@pytest.mark.parametrize(
    ("value", "encoded"),
    # From Kafka's ByteUtilsTest.
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (-65, "8101"),
        (8191, "fe7f"),
        (-8192, "ff7f"),
        (8192, "808001"),
        (-8193, "818001"),
        (1048575, "feff7f"),
        (-1048576, "ffff7f"),
        (1048576, "80808001"),
        (-1048577, "81808001"),
        (134217727, "feffff7f"),
        (-134217728, "ffffff7f"),
        (134217728, "8080808001"),
        (-134217729, "8180808001"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
    ],
)
def test_varints_of_kafkas_own_tests(value: int, encoded: str) -> None:
    data = bytes.fromhex(encoded)
    assert encode_varint(value) == data
    assert encode_varlong(value) == data
    assert decode_varint(data) == (value, len(data))
    assert decode_varlong(data) == (value, len(data))


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (17179869183, "feffffff7f"),
        (17179869184, "808080808001"),
        (-(2**63), "ffffffffffffffffff01"),
        (2**63 - 1, "feffffffffffffffff01"),
    ],
)
def test_varlongs_of_kafkas_own_tests(value: int, encoded: str) -> None:
    data = bytes.fromhex(encoded)
    assert encode_varlong(value) == data
    assert decode_varlong(data) == (value, len(data))


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1])
def test_varints_have_32_bits(value: int) -> None:
    with pytest.raises(OverflowError):
        encode_varint(value)


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1])
def test_varlongs_have_64_bits(value: int) -> None:
    with pytest.raises(OverflowError):
        encode_varlong(value)


@pytest.mark.parametrize(
    ("decode", "encoded", "problem"),
    [
        (decode_varint, b"", "cut short"),
        (decode_varint, b"\x80", "cut short"),
        (decode_varint, b"\xff\xff\xff\xff", "cut short"),
        (decode_varint, b"\xff\xff\xff\xff\x1f", "too long"),
        (decode_varint, b"\xff\xff\xff\xff\xff\x01", "too long"),
        (decode_varlong, b"", "cut short"),
        (decode_varlong, b"\xff" * 9, "cut short"),
        (decode_varlong, b"\xff" * 9 + b"\x02", "too long"),
        (decode_varlong, b"\xff" * 10 + b"\x01", "too long"),
    ],
)
@pytest.mark.parametrize("before", [b"", b"\x80\x01"])
def test_rejects_incomplete_and_overlong_varints(
    decode: Callable[..., object], encoded: bytes, problem: str, before: bytes
) -> None:
    with pytest.raises(CorruptRecordError, match=f"^varint at byte {len(before)} is {problem}$") as raised:
        decode(before + encoded, len(before))
    assert raised.value.position == len(before)


@pytest.mark.parametrize("position", [-1, 3, 2**62])
def test_rejects_varint_outside_data(position: int) -> None:
    for decode in (decode_varint, decode_varlong):
        with pytest.raises(CorruptRecordError, match=f"^varint at byte {position} is cut short$"):
            decode(b"\0\0\0", position)


@pytest.mark.parametrize(
    ("key", "hashed"),
    # From Kafka's UtilsTest.
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
        (b"", 275646681),
    ],
)
def test_murmur2_of_kafkas_tests(key: bytes, hashed: int) -> None:
    assert murmur2(key) == hashed
    assert murmur2(bytearray(key)) == murmur2(memoryview(key)) == hashed


def test_partitions_of_keys() -> None:
    assert [partition_for_key(key, 1000) for key in (b"", b"a", b"ab", b"abc", b"123456789")] == [
        681,
        524,
        434,
        107,
        566,
    ]
    assert partition_for_key(b"foobar", 1) == 0


@pytest.mark.parametrize("partitions", [0, -1])
def test_rejects_invalid_partition_count(partitions: int) -> None:
    with pytest.raises(ValueError, match=f"partitions must be at least 1: {partitions}"):
        partition_for_key(b"key", partitions)


def test_crc32c_of_known_data() -> None:
    # From RFC 3720, B.4, and the check value of the CRC catalogue.
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(bytes(range(32))) == 0x46DD794E
    assert crc32c(b"") == 0
