"""Identifiers and randomness, created in one place so that tests can seed them."""

import base64
import re
import uuid
from random import Random

from headrace.common.errors import HeadraceError

__all__ = ["ZERO_UUID", "Random", "Uuid", "make_random", "random_uuid"]

_TEXT = re.compile(r"[A-Za-z0-9_-]{22}(==)?")


class Uuid(uuid.UUID):
    """A 128-bit id in Kafka's text form: URL-safe base64 without padding, 22 characters."""

    def __str__(self) -> str:
        return base64.urlsafe_b64encode(self.bytes).rstrip(b"=").decode()

    @classmethod
    def parse(cls, text: str) -> "Uuid":
        if _TEXT.fullmatch(text) is None:
            raise HeadraceError(f"Invalid id {text!r}: expected 22 characters of URL-safe base64")
        return cls(bytes=base64.urlsafe_b64decode(text[:22] + "=="))


ZERO_UUID = Uuid(int=0)
"""Means "no id" in the protocol and in files."""


def make_random(seed: int | None = None) -> Random:
    """Returns a random number generator; pass a seed to repeat a run."""
    return Random(seed)


def random_uuid(source: Random) -> Uuid:
    """Returns a new random id. As in Kafka, its text never starts with a dash, which would look like an option."""
    while True:
        new_id = Uuid(int=source.getrandbits(128), version=4)
        if not str(new_id).startswith("-"):
            return new_id
