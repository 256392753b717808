"""A state for tests of Arrow flows: the keys that a source partition has seen. Imported by Spark's workers."""

import json
from typing import Any


class SeenKeys:
    """A set of keys, with the changes since the last delta."""

    def __init__(self) -> None:
        self.keys: set[str] = set()
        self.added: list[str] = []

    def add(self, key: str) -> bool:
        """Returns True if the key is new."""
        if key in self.keys:
            return False
        self.keys.add(key)
        self.added.append(key)
        return True

    def take_delta(self) -> bytes:
        added, self.added = self.added, []
        return json.dumps(added).encode() if added else b""

    def apply_delta(self, delta: bytes) -> None:
        self.keys.update(json.loads(delta))

    def snapshot(self) -> bytes:
        return json.dumps(sorted(self.keys)).encode()

    def restore(self, snapshot: bytes) -> None:
        self.keys = set(json.loads(snapshot))

    def merge(self, other: Any) -> None:
        self.keys |= other.keys
