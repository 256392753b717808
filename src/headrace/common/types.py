"""Names for types that are used everywhere."""

from typing import TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Bytes that may be read without copying."""
