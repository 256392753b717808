"""Messages of any class and version, with values that kio supports.

kio supports only Kafka's error codes, times from 1970 to 9999, and durations that a float can represent
exactly.
"""

from typing import Any

from hypothesis import strategies as st
from tests.support.protocol.kio_messages import ERROR_CODES
from tests.support.protocol.samples import RANGES, has_version, present_fields

from headrace.common.ids import Uuid
from headrace.protocol import Message
from headrace.protocol import message as m

uuids = st.integers(0, 3).map(lambda number: Uuid(int=number * (2**120 + 7)))
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
durations = st.integers(-(2**31), 2**31 - 1)
times = st.integers(0, 250_000_000_000) | st.just(250_000_000_000_000)


@st.composite
def messages(draw: st.DrawFn, cls: type[Message], version: int) -> Message:
    values = {field.name: draw(field_values(field, version)) for field in present_fields(cls, version)}
    made = cls(**values)
    assert isinstance(made, Message)
    return made


def field_values(field: m.Field, version: int) -> st.SearchStrategy[Any]:
    values = _values(field, version)
    if field.is_array:
        values = st.lists(values, max_size=3)
    elif field.kind == m.STRUCT and field.tag >= 0:
        # An absent struct is None; a struct of defaults would not be written.
        struct = field.struct
        assert struct is not None
        values = values.map(lambda made: None if made == struct() else made)
    if has_version(field.nullable, version):
        values = st.none() | values
    return values


def _values(field: m.Field, version: int) -> st.SearchStrategy[Any]:
    if field.kind == m.STRUCT:
        assert field.struct is not None
        return messages(field.struct, version)
    if field.name == "error_code" or field.name.endswith("_error_code"):
        return st.sampled_from(ERROR_CODES)
    if field.name.endswith("_ms"):
        return _milliseconds(field)
    if field.kind == m.BOOL:
        return st.booleans()
    if field.kind in RANGES:
        return st.integers(*RANGES[field.kind])
    if field.kind == m.FLOAT64:
        return st.floats(allow_nan=False, allow_infinity=False)
    if field.kind == m.UUID:
        return uuids
    return texts if field.kind == m.STRING else st.binary(max_size=20)


def _milliseconds(field: m.Field) -> st.SearchStrategy[int]:
    if field.kind == m.INT32 or field.name in ("renew_period_ms", "retention_time_ms", "session_lifetime_ms"):
        return durations
    if field.name in ("log_append_time_ms",):
        return times | st.just(-1)
    return times
