"""Varints, hashes and checksums compared with the reference and with other projects."""

import crc32c as crc32c_package
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.support.records import reference_batch as reference
from tests.support.records.other_clients import kafka_python_murmur2

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

int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
# On both sides of the values at which a varint grows by a byte.
edges = sorted({sign * (1 << bits) + step for bits in range(64) for sign in (1, -1) for step in (-1, 0, 1)})


def test_varint_at_the_edges() -> None:
    for value in [edge for edge in edges if -(2**31) <= edge < 2**31]:
        assert encode_varint(value) == reference.varint(value)
        assert decode_varint(encode_varint(value)) == (value, len(reference.varint(value)))


def test_varlong_at_the_edges() -> None:
    for value in [edge for edge in edges if -(2**63) <= edge < 2**63]:
        assert encode_varlong(value) == reference.varlong(value)
        assert decode_varlong(encode_varlong(value)) == (value, len(reference.varlong(value)))


@given(int32s, st.binary(max_size=4), st.binary(max_size=4))
def test_varint_anywhere_in_a_buffer(value: int, before: bytes, behind: bytes) -> None:
    encoded = encode_varint(value)
    assert encoded == reference.varint(value)
    assert decode_varint(before + encoded + behind, len(before)) == (value, len(before) + len(encoded))


@given(int64s, st.binary(max_size=4), st.binary(max_size=4))
def test_varlong_anywhere_in_a_buffer(value: int, before: bytes, behind: bytes) -> None:
    encoded = encode_varlong(value)
    assert encoded == reference.varlong(value)
    assert decode_varlong(before + encoded + behind, len(before)) == (value, len(before) + len(encoded))


@given(st.binary(max_size=12))
@example(b"\xff\xff\xff\xff\x0f")
@example(b"\xff\xff\xff\xff\x10")
@example(b"\x80\x80\x80\x80\x00")
@example(b"\x80\x80\x80\x80\x80\x00")
def test_decodes_any_bytes_like_reference(data: bytes) -> None:
    for decode, bits in ((decode_varint, 32), (decode_varlong, 64)):
        try:
            expected = reference.read_varint(data, 0, bits)
        except reference.Malformed:
            with pytest.raises(CorruptRecordError, match=r"varint at byte 0 is (cut short|too long)"):
                decode(data)
        else:
            assert decode(data) == expected


@given(st.binary(max_size=100))
def test_murmur2_matches_kafka(key: bytes) -> None:
    assert murmur2(key) == reference.murmur2(key)
    assert murmur2(key) == reference.signed(kafka_python_murmur2(key), 32)


@given(st.binary(max_size=100), st.integers(1, 2**31 - 1))
def test_partition_is_the_positive_hash_modulo(key: bytes, partitions: int) -> None:
    assert partition_for_key(key, partitions) == (kafka_python_murmur2(key) & 0x7FFFFFFF) % partitions


@given(st.binary(max_size=200), st.integers(0, 200))
def test_crc32c_at_once_and_in_pieces(data: bytes, cut: int) -> None:
    assert crc32c(data) == reference.crc32c(data) == crc32c_package.crc32c(data)
    assert crc32c(data[cut:], crc32c(data[:cut])) == crc32c(data)
