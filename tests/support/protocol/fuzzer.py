"""A fuzzer for the codec: `python -m tests.support.protocol.fuzzer --seed 1 --rounds 1000`.

Each round takes a random message of a random class and version, breaks its bytes in a few places and reads them. The
only failure allowed is ProtocolError; every message that is read must also be writable, and reading it again must
return the same message. The same applies to request headers. The same seed always gives the same rounds.
"""

import argparse
import json
import random
import re
from collections import Counter
from typing import Any

from tests.support.protocol.samples import all_messages, sample

from headrace.protocol import (
    Message,
    ProtocolError,
    _reader,
    decode,
    decode_request_header,
    encode,
    encode_request,
    encode_response,
)

HOSTILE = (
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x07",
    b"\xff" * 9,
    b"\x80" * 5,
    b"\x7f\xff",
    b"\x00\x00",
    b"\x01\x00\x04abcd",
)


class Finding(AssertionError):
    """Behavior that no bytes may cause, however invalid."""


class Fuzzer:
    """Counts outcomes, and collects the errors in `reasons`, with `#` for numbers and without the field."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.messages = all_messages()
        self.outcomes: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()

    def run(self, rounds: int) -> None:
        for _ in range(rounds):
            cls, version = self.random.choice(self.messages)
            message = sample(cls, version, self.random, full=self.random.random() < 0.5)
            encoded = encode(message, version)
            if decode(cls, version, encoded) != message:
                raise Finding(f"{message} v{version} is read as another")
            self.write_frames(cls, version, message)
            for _ in range(4):
                self.read(cls, version, self.broken(encoded))

    def write_frames(self, cls: type[Message], version: int, message: Any) -> None:
        if cls.__api_key__ < 0:
            return
        encode_response(message, version, 7)
        frame = encode_request(message, version, 7, self.random.choice((None, "", "client")))
        header = decode_request_header(frame[4:])
        if decode(cls, version, frame, header.body_position + 4) != message:
            raise Finding(f"a request is read as another: {message}")
        try:
            decode_request_header(self.broken(frame[4:30]))
            self.outcomes["header accepted"] += 1
        except ProtocolError as error:
            self.outcomes["header refused"] += 1
            self.reasons[re.sub(r"-?\d+", "#", str(error))] += 1

    def broken(self, data: bytes) -> bytearray:
        rng = self.random
        broken = bytearray(data)
        for _ in range(rng.choice((1, 1, 2, 4))):
            at = rng.randrange(len(broken) + 1)
            kind = rng.randrange(5)
            if kind == 0 and at < len(broken):
                broken[at] ^= 1 << rng.randrange(8)
            elif kind == 1:
                del broken[at:]
            elif kind == 2:
                del broken[at : at + rng.choice((1, 2, 4))]
            elif kind == 3:
                hostile = rng.choice(HOSTILE)
                broken[at : at + len(hostile)] = hostile
            else:
                broken[at:at] = rng.randbytes(rng.choice((1, 2, 5)))
        return broken

    def read(self, cls: type[Message], version: int, data: bytearray) -> None:
        try:
            read: Any = decode(cls, version, data)
        except ProtocolError as error:
            self.outcomes["refused"] += 1
            prefix, _, rest = str(error).partition(": ")
            if prefix != f"{cls.__name__} v{version}" or "at byte" not in rest:
                raise Finding(f"an error that does not say where: {error}") from error
            self.reasons[re.sub(r"-?\d+", "#", rest.partition(": ")[2])] += 1
            return
        self.outcomes["accepted"] += 1
        again: Any = decode(cls, version, encode(read, version))
        # Compared by their repr: a float may be NaN, and a tagged struct of defaults is not written.
        if encode(again, version) != encode(read, version):
            raise Finding(f"{read} v{version} is written as another")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    arguments = parser.parse_args()
    fuzzer = Fuzzer(arguments.seed)
    fuzzer.run(arguments.rounds)
    print(json.dumps({"codec": _reader.__file__, "outcomes": fuzzer.outcomes, "reasons": fuzzer.reasons}))


if __name__ == "__main__":
    main()
