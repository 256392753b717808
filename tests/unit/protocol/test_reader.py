"""Decoding: each rule of the wire format with valid and invalid bytes."""

import array

import pytest

from headrace.common.ids import ZERO_UUID, Uuid
from headrace.protocol import Message, ProtocolError, decode, encode
from headrace.protocol.message import BOOL, BYTES, INT32, RECORDS, STRING, UUID, field
from headrace.protocol.messages.api_versions import ApiVersionsRequest
from headrace.protocol.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest
from headrace.protocol.messages.fetch import FetchRequest, ReplicaState
from headrace.protocol.messages.metadata import MetadataRequest
from headrace.protocol.messages.produce import ProduceRequest


class Inner(Message):
    number: int = field(INT32, "0+")


class Sample(Message, versions="0-2", flexible="2+"):
    """Version 0 and 1 with plain lengths, 2 with compact ones and tags."""

    name: str | None = field(STRING, "0+", nullable="1+")
    flag: bool = field(BOOL, "1-1")
    inner: list[Inner] | None = field([Inner], "0+", nullable="1+")
    data: bytes = field(BYTES, "0+")
    mark: str | None = field(STRING, "2+", nullable="2+", tag=1, default=None)
    struct: Inner | None = field(Inner, "2+", tag=3)


class Empty(Message):
    later: int = field(INT32, "1+")


class Hollow(Message, versions="0-1"):
    hollow: list[Empty] = field([Empty], "0+")


V0 = b"\0\2ab" + b"\0\0\0\1" + b"\0\0\0\7" + b"\0\0\0\3xyz"
V2 = b"\3ab" + b"\2\0\0\0\7\0" + b"\4xyz"


def test_plain_and_compact_lengths() -> None:
    expected = Sample(name="ab", inner=[Inner(number=7)], data=b"xyz")
    assert decode(Sample, 0, V0) == expected
    assert decode(Sample, 2, V2 + b"\0") == expected


def test_nulls() -> None:
    assert decode(Sample, 1, b"\xff\xff\1\xff\xff\xff\xff\0\0\0\0") == Sample(name=None, flag=True, inner=None)
    assert decode(Sample, 2, b"\0\0\1\0") == Sample(name=None, inner=None)
    # As in Kafka, any negative length is null.
    assert decode(Sample, 1, b"\xff\xfe\0\x80\0\0\0\0\0\0\0").name is None


def test_any_nonzero_byte_is_true() -> None:
    assert decode(Sample, 1, b"\0\0\x05\0\0\0\0\0\0\0\0").flag is True


def test_nullable_structs() -> None:
    cursor = Cursor(topic_name="t", partition_index=3)
    for request in (DescribeTopicPartitionsRequest(cursor=cursor), DescribeTopicPartitionsRequest(cursor=None)):
        assert decode(DescribeTopicPartitionsRequest, 0, encode(request, 0)) == request


def test_tags() -> None:
    known = b"\2" + b"\1\3\3mk"[:2] + b"\3mk" + b"\3\5\0\0\0\x09\0"
    read = decode(Sample, 2, V2 + known)
    assert (read.mark, read.struct) == ("mk", Inner(number=9))


def test_ignores_unknown_tags() -> None:
    tags = b"\3" + b"\0\4abcd" + b"\1\2\2m" + b"\x80\x01\1z"
    assert decode(Sample, 2, V2 + tags).mark == "m"
    # Also in nested structs and in requests of real clients.
    nested = b"\3ab" + b"\2\0\0\0\7\1\5\2zz" + b"\4xyz" + b"\0"
    assert decode(Sample, 2, nested).inner == [Inner(number=7)]
    encoded = encode(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3)
    assert decode(ApiVersionsRequest, 3, encoded[:-1] + b"\1\x09\1z").client_software_name == "x"


def test_accepts_tags_in_any_order() -> None:
    assert decode(Sample, 2, V2 + b"\2" + b"\1\2\2a" + b"\1\2\2b").mark == "b"
    read = decode(Sample, 2, V2 + b"\2" + b"\3\5\0\0\0\x09\0" + b"\1\2\2a")
    assert (read.mark, read.struct) == ("a", Inner(number=9))


def test_rejects_tag_with_wrong_size() -> None:
    with pytest.raises(ProtocolError, match="Sample v2: mark: 1 bytes too many in the tagged field"):
        decode(Sample, 2, V2 + b"\1" + b"\1\3\2az")
    with pytest.raises(ProtocolError, match="Sample v2: mark: 5 bytes expected, but 1 are left"):
        decode(Sample, 2, V2 + b"\1" + b"\1\2\6abcdefgh")
    with pytest.raises(ProtocolError, match="Sample v2: tags: 200 bytes expected, but 1 are left"):
        decode(Sample, 2, V2 + b"\1" + b"\x0c\xc8\1a")


@pytest.mark.parametrize(
    ("version", "data", "expected"),
    [
        (0, b"", "name: 2 bytes expected, but 0 are left (at byte 0)"),
        (0, b"\0\5ab", "name: 5 bytes expected, but 2 are left (at byte 2)"),
        (0, b"\xff\xff", "name: null, where a value must be (at byte 2)"),
        (0, b"\xff\x80", "name: a length of -128 (at byte 2)"),
        (0, b"\0\1\xff", "name: a string that is not UTF-8: invalid start byte at byte 0 of it (at byte 2)"),
        (0, b"\0\0\x7f\xff\xff\xff\0\0", "inner: an array of 2147483647 elements, but 2 bytes are left (at byte 6)"),
        (0, b"\0\0\0\0\0\2\0\0\0\1\0", "inner: an array of 2 elements, but 5 bytes are left (at byte 6)"),
        (0, b"\0\0\xff\xff\xff\xff", "inner: null, where a value must be (at byte 6)"),
        (0, b"\0\0\0\0\0\0\0\0\1\0\0", "data: 256 bytes expected, but 1 are left (at byte 10)"),
        (2, b"\0\xff\xff\xff\xff\x0f", "inner: an array of 4294967294 elements, but 0 bytes are left (at byte 6)"),
        (2, b"\0\xff\xff\xff\xff\x10", "inner: a varint of more than 32 bits (at byte 5)"),
        (2, b"\0\xff\xff\xff\xff\xff\x01", "inner: a varint of more than 32 bits (at byte 5)"),
        (2, b"\x80\x80\x04", "name: a string of 65535 bytes; 32767 are allowed (at byte 3)"),
        (2, b"\0\0\0", "data: null, where a value must be (at byte 3)"),
        (2, b"\0\0\1", "tags: 1 bytes expected, but 0 are left (at byte 3)"),
    ],
)
def test_errors_name_problem_and_position(version: int, data: bytes, expected: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        decode(Sample, version, data)
    assert str(caught.value) == f"Sample v{version}: {expected}"


def test_errors_name_the_element() -> None:
    encoded = b"\xff\xff\0\1\0\0\0\5" + b"\0\0\0\2" + b"\0\1a\0\0\0\0" + b"\0\1b\0\0\0\1" + b"\0\0\0\3\0\0\1\0xx"
    with pytest.raises(ProtocolError, match=r"ProduceRequest v3: topic_data\[1\].partition_data\[0\].records: 256 "):
        decode(ProduceRequest, 3, encoded)
    with pytest.raises(ProtocolError, match=r"MetadataRequest v0: topics\[1\].name: a string that is not UTF-8"):
        decode(MetadataRequest, 0, b"\0\0\0\2\0\1a\0\1\xff")


def test_limits_array_of_empty_elements() -> None:
    with pytest.raises(ProtocolError, match="hollow: an array of 2147483647 elements, but 0 bytes are left"):
        decode(Hollow, 0, b"\x7f\xff\xff\xff")


def test_rejects_unknown_versions() -> None:
    for version in (-1, 3, 2**40):
        with pytest.raises(ProtocolError, match=f"Sample has no version {version}; supported versions: 0-2"):
            decode(Sample, version, b"")
    with pytest.raises(TypeError, match="Inner is a nested struct of a message"):
        decode(Inner, 0, b"\0\0\0\0")
    for other in (int, 5, Message):
        with pytest.raises(TypeError, match="is not a message class"):
            decode(other, 0, b"")  # type: ignore[type-var, arg-type]


@pytest.mark.parametrize("position", [-1, len(V0) + 1, 2**60])
def test_rejects_position_outside_frame(position: int) -> None:
    with pytest.raises(ProtocolError, match=f"position {position} in a frame of {len(V0)} bytes"):
        decode(Sample, 0, V0, position)


def test_absent_tagged_struct_is_none() -> None:
    assert decode(FetchRequest, 15, encode(FetchRequest(), 15)).replica_state is None
    sent = FetchRequest(replica_state=ReplicaState(replica_id=2))
    assert decode(FetchRequest, 15, encode(sent, 15)) == sent
    # A struct with only defaults is equivalent to an absent one and is not written.
    assert encode(FetchRequest(replica_state=ReplicaState()), 15) == encode(FetchRequest(), 15)


class Records(Message, versions="0-0"):
    records: memoryview | bytes | None = field(RECORDS, "0+", nullable="0+")
    topic_id: Uuid = field(UUID, "0+")


def test_records_are_views_of_the_frame() -> None:
    encoded = encode(Records(records=b"abcdef"), 0)
    frame = bytearray(b"..") + encoded
    read = decode(Records, 0, memoryview(frame), 2).records
    assert isinstance(read, memoryview)
    assert bytes(read) == b"abcdef"
    read[0:1] = b"X"
    assert frame[6:12] == b"Xbcdef"
    assert decode(Records, 0, bytes(encoded)).records.readonly  # type: ignore[union-attr]
    assert decode(Records, 0, encode(Records(records=None), 0)).records is None
    assert decode(Records, 0, encode(Records(records=b""), 0)).records == b""


def test_accepts_any_contiguous_buffer() -> None:
    encoded = encode(Records(records=b"abcdef"), 0) + b"\0\0"
    numbers = array.array("i", encoded)
    for buffer in (numbers, memoryview(numbers), memoryview(encoded).cast("B", (7, 4))):
        assert decode(Records, 0, buffer).records == b"abcdef"  # type: ignore[arg-type]
    with pytest.raises(BufferError):
        decode(Records, 0, memoryview(encoded)[::2])
    with pytest.raises(TypeError):
        decode(Records, 0, "text")  # type: ignore[arg-type]


def test_releases_frame_after_error() -> None:
    frame = bytearray(V0)
    with pytest.raises(ProtocolError):
        decode(Sample, 0, memoryview(frame)[:5])
    frame += b"x"


def test_ids() -> None:
    made = Uuid.parse("AQIDBAUGBwgJCgsMDQ4PEA")
    read = decode(Records, 0, encode(Records(topic_id=made), 0)).topic_id
    assert read == made
    assert type(read) is Uuid
    assert (str(read), hash(read), read.is_safe, read.version) == (str(made), hash(made), made.is_safe, made.version)
    assert decode(Records, 0, encode(Records(), 0)).topic_id is ZERO_UUID
