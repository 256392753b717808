"""Truncated and changed bytes and excessive claims: they raise only ProtocolError and use little memory."""

import contextlib
import random
import tracemalloc
from collections.abc import Iterator

import pytest
from tests.support.protocol.fuzzer import HOSTILE, Fuzzer
from tests.support.protocol.samples import all_messages, sample

from headrace.protocol import Message, ProtocolError, TooManyElementsError, decode, encode
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic

MESSAGES = all_messages()
OTHER_THREADS_BYTES = 100_000
"""Memory that other threads of the process, such as brokers of other tests, may allocate during a measurement."""


def full_messages(seed: int) -> Iterator[tuple[type[Message], int, bytes]]:
    """Yields each class in each version, with every field set."""
    rng = random.Random(seed)
    for cls, version in MESSAGES:
        yield cls, version, encode(sample(cls, version, rng, full=True), version)


def test_rejects_frame_truncated_at_every_byte() -> None:
    for cls, version, encoded in full_messages(1):
        decode(cls, version, encoded)
        view = memoryview(encoded)
        for end in range(len(encoded)):
            with pytest.raises(ProtocolError):
                decode(cls, version, view[:end])


def test_claims_of_any_length_at_every_byte_cost_no_memory() -> None:
    rng = random.Random(2)
    largest = 0
    tracemalloc.start()
    try:
        for cls, version, encoded in full_messages(2):
            for at in range(0, len(encoded), 3):
                claim = rng.choice(HOSTILE)
                frame = encoded[:at] + claim + encoded[at + len(claim) :]
                tracemalloc.reset_peak()
                before = tracemalloc.get_traced_memory()[0]
                with contextlib.suppress(ProtocolError):
                    decode(cls, version, frame)
                allocated = tracemalloc.get_traced_memory()[1] - before - OTHER_THREADS_BYTES
                largest = max(largest, allocated / (len(frame) + 100))
    finally:
        tracemalloc.stop()
    # Objects are larger than their bytes, but by a bounded factor.
    assert largest < 200


@pytest.mark.parametrize("seed", [1, 2])
def test_fuzzed_frames_raise_only_our_errors(seed: int) -> None:
    Fuzzer(seed).run(2000)


def test_fuzzer_reaches_every_check() -> None:
    fuzzer = Fuzzer(3)
    fuzzer.run(4000)
    beginnings = (
        "# bytes expected",
        "a varint of more than",
        "null, where",
        "a length of #",
        "a string of #",
        "a string that is not UTF",
        "an array of #",
        "# bytes too many in the tagged",
        "request header: cut off (",
        "request header: a client id of",
        "request header: a client id that",
        "request header: a tag of",
        "request header: a varint",
        "request header: cut off in its",
    )
    missed = [each for each in beginnings if not any(reason.startswith(each) for reason in fuzzer.reasons)]
    assert missed == []
    assert fuzzer.outcomes["accepted"] > 1000


@pytest.mark.parametrize("version", [7, 12])
def test_elements_of_all_arrays_count(version: int) -> None:
    """Two topics and three partitions are five elements."""
    one, two = [FetchPartition()], [FetchPartition(), FetchPartition()]
    topics = [FetchTopic(topic="a", partitions=two), FetchTopic(topic="b", partitions=one)]
    encoded = encode(FetchRequest(topics=topics), version)
    assert decode(FetchRequest, version, encoded, 0, 5) == decode(FetchRequest, version, encoded, gives_way=True)
    with pytest.raises(TooManyElementsError) as caught:
        decode(FetchRequest, version, encoded, 0, 4)
    assert caught.value.elements == 5


def test_too_many_elements_are_not_allocated() -> None:
    encoded = encode(FetchRequest(topics=[FetchTopic(topic="", partitions=[])] * 100_000), 12)
    tracemalloc.start()
    try:
        with pytest.raises(TooManyElementsError, match="FetchRequest has at least 100000 array elements"):
            decode(FetchRequest, 12, encoded, 0, 99_999)
        assert tracemalloc.get_traced_memory()[1] < OTHER_THREADS_BYTES, "a list of them would have 800,000 bytes"
    finally:
        tracemalloc.stop()
