"""The request header."""

import pytest

from headrace.protocol import APIS, ApiKey, ProtocolError, RequestHeader, decode_request_header, encode_request
from headrace.protocol.message import Message


@pytest.mark.parametrize("client_id", [None, "", "client", "Käfer"])
def test_every_api_and_version(client_id: str | None) -> None:
    for api in APIS.values():
        for version in api.versions:
            message = api.request()
            assert isinstance(message, Message)
            frame = encode_request(message, version, 77, client_id)[4:]
            header = decode_request_header(memoryview(bytearray(frame)))
            size = 0 if client_id is None else len(client_id.encode())
            position = 10 + size + api.is_flexible(version)
            assert header == RequestHeader(api.key, version, 77, client_id, position)
            assert type(header) is RequestHeader
            assert header.body_position == position


def test_ignores_unknown_tags() -> None:
    frame = b"\0\3\0\x09\0\0\0\1\xff\xff" + b"\2\0\4abcd\x80\1\0" + b"body"
    assert decode_request_header(frame).body_position == 20


@pytest.mark.parametrize(("key", "version"), [(0, 2), (3, 99), (4, 0), (999, 0), (-1, 9), (18, 5), (0, -1), (255, 0)])
def test_reads_common_header_of_unknown_api_or_version(key: int, version: int) -> None:
    start = key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True) + b"\0\0\0\5"
    header = decode_request_header(start + b"\0\1c")
    assert header == (key, version, 5, "c", 11)


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (b"", "cut off"),
        (b"\0\3\0\x09\0\0\0\1\0", "cut off"),
        (b"\0\3\0\0\0\0\0\1\0\5abcd", "a client id of 5 bytes"),
        (b"\0\3\0\0\0\0\0\1\0\2\xff\xff", "a client id that is not UTF-8"),
        (b"\0\3\0\x09\0\0\0\1\0\0", "cut off in its tags"),
        (b"\0\3\0\x09\0\0\0\1\0\0\1\0\5abcd", "a tag of 5 bytes"),
        (b"\0\3\0\x09\0\0\0\1\0\0\xff\xff\xff\xff\x7f", "cut off in its tags"),
        (b"\0\3\0\x09\0\0\0\1\0\0\xff\xff\xff\xff\xff\x7f", "a varint of more than 32 bits"),
    ],
)
def test_rejects_invalid_headers(frame: bytes, expected: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        decode_request_header(frame)
    assert str(caught.value) == f"request header: {expected} (in a frame of {len(frame)} bytes)"


def test_keys() -> None:
    assert ApiKey.API_VERSIONS == 18
    assert APIS[ApiKey.FETCH] is APIS[1]  # type: ignore[index]
    assert repr(APIS[ApiKey.LEADER_AND_ISR]) == "LeaderAndIsr(4) v0-7"
    api = APIS[ApiKey.LIST_OFFSETS]
    assert repr(api) == "ListOffsets(2) v1-11"
    assert (api.versions, api.first_flexible, api.is_flexible(5), api.is_flexible(6)) == (range(1, 12), 6, False, True)
    assert not APIS[ApiKey.OFFSET_DELETE].is_flexible(0)
