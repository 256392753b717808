"""Encoding: frames, parts, and messages that cannot be encoded."""

import uuid
from enum import IntEnum
from typing import Any

import pytest

from headrace.common.ids import Uuid
from headrace.protocol import Message, decode, encode, encode_request, encode_response
from headrace.protocol.message import BOOL, BYTES, FLOAT64, INT8, INT16, INT32, INT64, STRING, UINT16, UUID, field
from headrace.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from headrace.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from headrace.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from headrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData


class Inner(Message):
    number: int = field(INT32, "0+")


class Every(Message, versions="0-1", flexible="1+"):
    flag: bool = field(BOOL, "0+")
    tiny: int = field(INT8, "0+")
    short: int = field(INT16, "0+")
    port: int = field(UINT16, "0+")
    number: int = field(INT32, "0+")
    large: int = field(INT64, "0+")
    ratio: float = field(FLOAT64, "0+")
    topic_id: Uuid = field(UUID, "0+")
    name: str = field(STRING, "0+")
    data: bytes = field(BYTES, "0+")
    inner: Inner = field(Inner, "0+")
    inners: list[Inner] = field([Inner], "0+")
    names: list[str] = field([STRING], "0+")
    extra: bytes = field(BYTES, "1+", tag=2)


class Slice:
    def __init__(self, size: int):
        self.size = size

    def __len__(self) -> int:
        return self.size


def fetch_response(*records: Any) -> FetchResponse:
    partitions = [PartitionData(partition_index=index, records=each) for index, each in enumerate(records)]
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])


def test_encodes_response_frame() -> None:
    assert encode_response(HeartbeatResponse(error_code=27), 0, 9) == b"\0\0\0\6\0\0\0\x09\0\x1b"
    assert encode_response(HeartbeatResponse(error_code=27), 4, -1) == (b"\0\0\0\x0c\xff\xff\xff\xff\0\0\0\0\0\0\x1b\0")


def test_the_response_header_of_api_versions_has_no_tags() -> None:
    message = ApiVersionsResponse(api_keys=[ApiVersion(api_key=18, min_version=0, max_version=4)])
    for version in range(5):
        frame = encode_response(message, version, 5)
        assert isinstance(frame, bytes)
        assert frame[8:] == encode(message, version)


def test_encodes_request_frame() -> None:
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    body = encode(request, 0)
    assert encode_request(request, 0, 9, "me") == b"\0\0\0\x16\0\x0c\0\0\0\0\0\x09\0\2me" + body
    flexible = encode_request(request, 4, 9, None)
    assert flexible == b"\0\0\0\x15\0\x0c\0\4\0\0\0\x09\xff\xff\0" + encode(request, 4)


@pytest.mark.parametrize("version", [11, 12])
def test_slices_become_parts_of_the_frame(version: int) -> None:
    first, second = Slice(100_000), Slice(7)
    parts = encode_response(fetch_response(first, second, b"bytes"), version, 3)
    assert isinstance(parts, list)
    assert [part for part in parts if not isinstance(part, bytes)] == [first, second]
    assert parts[1] is first
    joined = b"".join(part if isinstance(part, bytes) else b"r" * len(part) for part in parts)
    assert int.from_bytes(joined[:4], "big") == len(joined) - 4
    position = 8 + (version >= 12)
    expected = fetch_response(b"r" * 100_000, b"r" * 7, b"bytes")
    assert decode(FetchResponse, version, joined, position) == expected
    assert joined == encode_response(expected, version, 3)


def test_encodes_frame_of_many_parts() -> None:
    slices = [Slice(number % 3) for number in range(500)]
    parts = encode_response(fetch_response(*slices), 12, 3)
    assert isinstance(parts, list)
    # Empty parts are omitted.
    assert [part for part in parts if isinstance(part, Slice)] == [each for each in slices if each.size]
    assert int.from_bytes(bytes(parts[0])[:4], "big") == sum(map(len, parts)) - 4  # type: ignore[arg-type]
    assert isinstance(encode_response(fetch_response(Slice(0)), 12, 3), bytes)


def test_slices_only_in_responses() -> None:
    with pytest.raises(TypeError, match=r"partitions\[0\].records: bytes expected, not Slice"):
        encode(fetch_response(Slice(5)), 12)
    for wrong in ("text", [1], 5, {}):
        with pytest.raises(TypeError, match=r"partitions\[0\].records: bytes or a slice expected, not "):
            encode_response(fetch_response(wrong), 12, 3)


def test_rejects_frame_that_is_too_large() -> None:
    with pytest.raises(ValueError, match=r"records: 2147483648 is too long"):
        encode_response(fetch_response(Slice(2**31)), 12, 1)
    with pytest.raises(ValueError, match="a frame of 2147483751 bytes exceeds the maximum of 2147483647"):
        encode_response(fetch_response(Slice(2**30), Slice(2**30)), 12, 1)


@pytest.mark.parametrize("size", [0, 1, 900, 1024, 5000, 3_000_000])
def test_buffer_grows(size: int) -> None:
    data = PartitionProduceData(index=1, records=bytes(size))
    message = ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=[data] * 3)])
    for version in (3, 9):
        encoded = encode(message, version)
        assert decode(ProduceRequest, version, encoded) == message
        assert encode_request(message, version, 1, "c").endswith(encoded)


def test_tagged_fields_of_any_size() -> None:
    for size in (0, 1, 126, 127, 128, 16_382, 16_383, 16_384, 3_000_000):
        message = Every(extra=bytes(size))
        assert decode(Every, 1, encode(message, 1)) == message
    endpoints = [NodeEndpoint(node_id=number, host="host" * 8, port=1) for number in range(20)]
    response = FetchResponse(node_endpoints=endpoints)
    assert decode(FetchResponse, 16, encode(response, 16)) == response
    partition = PartitionData(current_leader=LeaderIdAndEpoch(leader_id=3, leader_epoch=4))
    response = FetchResponse(responses=[FetchableTopicResponse(partitions=[partition])])
    assert decode(FetchResponse, 16, encode(response, 16)) == response


def test_skips_fields_that_version_lacks() -> None:
    assert encode(Every(extra=b"x"), 0) == encode(Every(), 0)


class Number(IntEnum):
    FIVE = 5


class Index:
    def __index__(self) -> int:
        return 7


def test_parses_values() -> None:
    plain = uuid.UUID(int=5)
    message = Every(
        flag=1,  # type: ignore[arg-type]
        tiny=Number.FIVE,
        short=True,
        number=Index(),  # type: ignore[arg-type]
        ratio=3,
        topic_id=plain,  # type: ignore[arg-type]
        data=bytearray(b"x"),  # type: ignore[arg-type]
        names=("a", "b"),  # type: ignore[arg-type]
    )
    read = decode(Every, 0, encode(message, 0))
    assert read == Every(
        flag=True, tiny=5, short=1, number=7, ratio=3.0, topic_id=Uuid(int=5), data=b"x", names=["a", "b"]
    )


@pytest.mark.parametrize("name", ["flag", "tiny", "number", "ratio", "topic_id", "name", "data", "inner", "inners"])
def test_rejects_none_in_field_that_is_not_nullable(name: str) -> None:
    with pytest.raises(TypeError, match=f"Every v0: {name}: a value that is not null expected, not None"):
        encode(Every(**{name: None}), 0)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("flag", "x", "an int expected, not str"),
        ("number", 1.5, "an int expected, not float"),
        ("number", "5", "an int expected, not str"),
        ("ratio", "5", "a float expected, not str"),
        ("topic_id", b"0" * 16, "a Uuid expected, not bytes"),
        ("name", b"x", "a str expected, not bytes"),
        ("data", "x", "bytes expected, not str"),
        ("inner", Every(), "a Inner expected, not Every"),
        ("inner", 5, "a Inner expected, not int"),
        ("inners", Inner(), "a list expected, not Inner"),
        ("inners", "x", "a list expected, not str"),
        ("inners", [Inner(), None], "a Inner expected, not None"),
        ("inners", [Every()], "a Inner expected, not Every"),
        ("names", ["a", None], "a str expected, not None"),
        ("names", {"a"}, "a list expected, not set"),
    ],
)
def test_rejects_values_of_wrong_type(name: str, value: Any, expected: str) -> None:
    with pytest.raises(TypeError, match=f"Every v0: {name}: {expected}"):
        encode(Every(**{name: value}), 0)


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("flag", 0, 1),
        ("tiny", -(2**7), 2**7 - 1),
        ("short", -(2**15), 2**15 - 1),
        ("port", 0, 2**16 - 1),
        ("number", -(2**31), 2**31 - 1),
        ("large", -(2**63), 2**63 - 1),
    ],
)
def test_rejects_numbers_out_of_range(name: str, low: int, high: int) -> None:
    for good in (low, high):
        assert getattr(decode(Every, 0, encode(Every(**{name: good}), 0)), name) == good
    for bad in (low - 1, high + 1, 2**64, -(2**64)):
        with pytest.raises(ValueError, match=f"Every v0: {name}: {bad} is not between {low} and {high}"):
            encode(Every(**{name: bad}), 0)


def test_rejects_strings_that_cannot_be_encoded() -> None:
    for version in (0, 1):
        assert decode(Every, version, encode(Every(name="x" * 32767), version)).name == "x" * 32767
        with pytest.raises(ValueError, match="name: the string has 32768 bytes; at most 32767 are allowed"):
            encode(Every(name="é" * 16384), version)
        with pytest.raises(ValueError, match="name: the string cannot be encoded as UTF-8"):
            encode(Every(name="\ud800"), version)
    with pytest.raises(ValueError, match="client_id: the string has 40000 bytes"):
        encode_request(Every(), 0, 1, "c" * 40000)


def test_errors_name_the_element() -> None:
    data = [PartitionProduceData(), PartitionProduceData(index=2**31)]
    message = ProduceRequest(topic_data=[TopicProduceData(), TopicProduceData(partition_data=data)])
    with pytest.raises(ValueError, match=r"ProduceRequest v9: topic_data\[1\].partition_data\[1\].index: 2147483648 "):
        encode(message, 9)


def test_rejects_message_with_deleted_attribute() -> None:
    message = Every()
    del message.name
    with pytest.raises(TypeError, match="Every v0: name: the attribute was deleted"):
        encode(message, 0)


def test_rejects_objects_that_are_not_messages() -> None:
    for wrong in (5, None, Every):
        with pytest.raises(TypeError, match="is not a message class"):
            encode(wrong, 0)  # type: ignore[arg-type]


def test_rejects_list_that_shrinks_while_encoding() -> None:
    class Meddler:
        def __index__(self) -> int:
            numbers.clear()
            return 1

    class Numbers(Message, versions="0-0"):
        numbers: list[Any] = field([INT32], "0+")

    numbers: list[Any] = [Meddler(), 2, 3]
    with pytest.raises(ValueError, match="numbers: the list changed while it was written"):
        encode(Numbers(numbers=numbers), 0)


def test_message_may_change_while_encoding() -> None:
    class Meddler:
        def __index__(self) -> int:
            message.inners = []
            message.inners.append(Inner())
            return 1

    message = Every(inners=[Inner(number=Meddler()), Inner(number=2)])  # type: ignore[arg-type]
    read = decode(Every, 0, encode(message, 0))
    assert [each.number for each in read.inners] == [1, 2]
    assert len(message.inners) == 1


def test_does_not_copy_large_records_of_request() -> None:
    large, small = bytearray(b"l" * 100), bytearray(b"s" * 10)
    partitions = [PartitionProduceData(index=0, records=large), PartitionProduceData(index=1, records=small)]
    request = ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=partitions)])
    whole = encode_request(request, 9, 1, "client")
    parts = encode_request(request, 9, 1, "client", 50)
    assert isinstance(parts, list)
    assert b"".join(parts) == whole
    assert [part.obj is large for part in parts if isinstance(part, memoryview)] == [True]
    assert encode_request(request, 9, 1, "client", 100) == whole
