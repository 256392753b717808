"""Maps group ids and transactional ids to partitions of their internal topic, as Kafka does."""

from functools import lru_cache


def java_string_hash(text: str) -> int:
    """Returns Java's `String.hashCode`: computed over UTF-16 code units, a signed 32-bit integer."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high_byte, low_byte in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high_byte << 8 | low_byte)) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


_cached_hash = lru_cache(maxsize=4096)(java_string_hash)
_MAX_CACHED_LENGTH = 255
"""In characters. Without this limit a client could fill the cache with 4096 names of 32 KB."""


def partition_for(name: str, partitions: int) -> int:
    """Returns the partition of the internal topic that a group id or a transactional id belongs to."""
    value = _cached_hash(name) if len(name) <= _MAX_CACHED_LENGTH else java_string_hash(name)
    return (0 if value == -(1 << 31) else abs(value)) % partitions
