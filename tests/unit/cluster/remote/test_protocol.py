import pytest

from headrace.cluster.remote.protocol import (
    FrameReader,
    InvalidFrame,
    Message,
    decode_data,
    decode_error,
    decode_operations,
    decode_result,
    encode,
    encode_data,
    encode_error,
    encode_operations,
    encode_result,
)
from headrace.cluster.store import BadVersion, Check, Create, Delete, OperationResult, Set, Stat, StoreError


def test_frames_in_any_pieces() -> None:
    messages: list[Message] = [["ping", 3], ["event", 1, 2, "changed", "/ä"], ["x" * 1000]]
    stream = b"".join(map(encode, messages))
    for size in (1, 3, 7, len(stream)):
        reader = FrameReader()
        found = [
            message for start in range(0, len(stream), size) for message in reader.feed(stream[start : start + size])
        ]
        assert found == messages


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff", b"\0\0\0\1x", b"\0\0\0\2{}", b"\0\0\0\2[]"])
def test_rejects_invalid_frames(data: bytes) -> None:
    with pytest.raises(InvalidFrame):
        list(FrameReader().feed(data))


def test_data_of_any_bytes() -> None:
    data = bytes(range(256))
    assert decode_data(encode_data(data)) == data


def test_operations() -> None:
    operations = [Create("/a", b"\xff", True, True), Set("/a", b"x", 3), Delete("/a", 4), Check("/a")]
    assert decode_operations(encode_operations(operations)) == operations


@pytest.mark.parametrize("result", ["/a", Stat(1, 2, 3, 4, 5, 6, 7), None])
def test_results(result: OperationResult) -> None:
    assert decode_result(encode_result(result)) == result


def test_errors() -> None:
    error = decode_error(encode_error(BadVersion("wrong", "/a", 2)))
    assert type(error) is BadVersion
    assert (str(error), error.path, error.index) == ("wrong", "/a", 2)

    class Special(StoreError):
        pass

    assert type(decode_error(encode_error(Special("x")))) is StoreError
