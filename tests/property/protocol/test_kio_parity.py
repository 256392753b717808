"""Every message in every version compared with kio: same bytes, same values, in both directions.

HEADRACE_CODEC_EXAMPLES sets the number of examples per message and version.
"""

import os
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.protocol.strategies import messages
from tests.support.protocol.kio_messages import is_in_kio, kio_class, kio_read, kio_write, to_kio
from tests.support.protocol.samples import all_messages

from headrace.protocol import Message, decode, encode

EXAMPLES = int(os.environ.get("HEADRACE_CODEC_EXAMPLES", "12"))
MESSAGES = all_messages()
IN_KIO = [(cls, version) for cls, version in MESSAGES if is_in_kio(cls, version)]
"""Without the messages between brokers in ZooKeeper mode, which tests/compat compares with Kafka's own classes."""


@pytest.mark.parametrize(("cls", "version"), IN_KIO, ids=lambda value: getattr(value, "__name__", f"v{value}"))
def test_same_bytes_and_same_values_as_kio(cls: type[Message], version: int) -> None:
    theirs = kio_class(cls, version)

    @settings(max_examples=EXAMPLES, database=None)
    @given(messages(cls, version))
    def check(message: Any) -> None:
        entity = to_kio(message, theirs)
        encoded = encode(message, version)
        assert encoded == kio_write(entity)
        assert kio_read(theirs, encoded) == (entity, len(encoded))
        assert decode(cls, version, encoded) == message

    check()


@given(st.data(), st.sampled_from(MESSAGES), st.binary(min_size=1, max_size=8), st.integers(0, 30))
def test_decodes_at_any_position(
    data: st.DataObject, chosen: tuple[type[Message], int], after: bytes, position: int
) -> None:
    cls, version = chosen
    message: Any = data.draw(messages(cls, version))
    frame = bytearray(position) + encode(message, version) + after
    assert decode(cls, version, memoryview(frame), position) == message
