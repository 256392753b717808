"""What people type in, as bytes."""

import pytest

from headrace.console.decoders.registry import DecoderRegistry
from headrace.console.records.inputs import ENCODINGS, InputError, encode_input

_SAMPLES = {"json": '{"a": 1}', "hex": "00 ff", "base64": "AP8=", "text": "ü", "float": "1.5", "double": "-2.25"}


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_an_input_is_decoded_to_its_text(encoding: str) -> None:
    text = _SAMPLES.get(encoding, "00010203-0405-0607-0809-0a0b0c0d0e0f" if encoding == "uuid" else "17")
    registry = DecoderRegistry()
    rendered = registry.render(registry.get(encoding), encode_input(encoding, text, "value"))
    assert (rendered.text, rendered.error) == (text, None)


@pytest.mark.parametrize(
    ("encoding", "text"),
    [("json", "{"), ("hex", "0"), ("base64", "?"), ("int8", "128"), ("int32", "x"), ("uuid", "1"), ("avro", "x")],
)
def test_wrong_inputs(encoding: str, text: str) -> None:
    with pytest.raises(InputError, match=r"^value"):
        encode_input(encoding, text, "value")
