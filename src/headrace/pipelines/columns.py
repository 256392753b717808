"""Arrow columns made of Python values, and of fields of JSON values. No state.

PyArrow's own conversion of Python objects imports pandas if it is installed, which takes a second.
"""

from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

from headrace.common.extras import requires_extra
from headrace.pipelines._json_fields import FieldFinder

with requires_extra("arrow"):
    import pyarrow as pa
    import pyarrow.compute as pc

__all__ = ["JsonFields", "binary_column", "integer_column", "integers_in", "is_true", "text_column"]

_INTEGER = r"^-?[0-9]{1,18}$"


def binary_column(values: Sequence[str | bytes | None]) -> pa.Array:
    """Returns values as a binary column."""
    pieces = [value.encode() if isinstance(value, str) else value or b"" for value in values]
    ends = array("i", accumulate(map(len, pieces), initial=0))
    validity = None
    if None in values:
        validity = _bitmap(bytes(value is not None for value in values))
    buffers = [validity, pa.py_buffer(ends), pa.py_buffer(b"".join(pieces))]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)


def text_column(values: Sequence[str | None]) -> pa.Array:
    """Returns values as a column of text."""
    return binary_column(values).view(pa.string())


def integer_column(values: Iterable[int]) -> pa.Array:
    """Returns whole numbers as a column."""
    numbers = array("q", values)
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])


def integers_in(texts: pa.Array, default: int) -> Any:
    """Returns the whole numbers in a column of text, and `default` for everything else."""
    is_number = is_true(pc.match_substring_regex(texts, _INTEGER))
    numbers = pc.cast(pc.if_else(is_number, texts, text_column(["0"])[0]), pa.int64())
    return pc.if_else(is_number, numbers, integer_column([default])[0])


def is_true(column: pa.Array) -> Any:
    """Returns whether a condition is true: false for null."""
    return pc.and_kleene(column, pc.is_valid(column))


class JsonFields:
    """Extracts fields of JSON objects. A path is a list of names: `["src", "p"]`."""

    def __init__(self, *paths: Sequence[str]):
        self._finder = FieldFinder(paths)

    def of(self, values: pa.Array) -> list[pa.Array]:
        """Returns a column of text for each path: null where a value has no such field, or is not a JSON object."""
        if values.type not in (pa.binary(), pa.string()):
            values = values.cast(pa.binary())
        _, ends, data = values.buffers()
        columns = []
        # Null values have no bytes, so they have no fields.
        for field_ends, content, present in self._finder.find(
            _bytes(ends).cast("i") if ends else memoryview(array("i", [0])), _bytes(data), values.offset, len(values)
        ):
            buffers = [_bitmap(present), pa.py_buffer(field_ends), pa.py_buffer(content)]
            columns.append(pa.Array.from_buffers(pa.string(), len(values), buffers))
        return columns


def _bitmap(present: bytes | bytearray) -> pa.Buffer:
    """Returns the validity bitmap of a column from one byte per row."""
    flags = pa.Array.from_buffers(pa.uint8(), len(present), [None, pa.py_buffer(present)])
    return pc.not_equal(flags, pc.subtract(flags, flags)).buffers()[1]


def _bytes(buffer: pa.Buffer | None) -> memoryview:
    return memoryview(buffer or b"").cast("B")
