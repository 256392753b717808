"""Truncated and changed bytes and excessive claims: they raise only ProtocolError and use little memory."""

import contextlib
import random
import tracemalloc
from collections.abc import Iterator

import pytest
from tests.support.protocol.fuzzer import HOSTILE, Fuzzer
from tests.support.protocol.samples import all_messages, sample

from headrace.protocol import Message, ProtocolError, decode, encode

MESSAGES = all_messages()


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
                largest = max(largest, (tracemalloc.get_traced_memory()[1] - before) / (len(frame) + 100))
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
