"""All decoders of a console by name: the built-in ones and those of `--decoder`.

    --decoder NAME=avro:FILE                 Avro with the schema in FILE
    --decoder NAME=avro-registry:PATH        Confluent's wire format, with schemas by id below PATH
    --decoder NAME=protobuf:FILE#MESSAGE     a Protobuf message of a descriptor set or .proto file
    --decoder NAME=MODULE:FUNCTION           a Python function from bytes to text or to a JSON-like object

Requests name decoders; they cannot bring code or schemas of their own.
"""

import importlib
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

from headrace.common.errors import ConfigError
from headrace.console.decoders.avro import avro_decoder, avro_registry_decoder
from headrace.console.decoders.built_in import AUTO, BUILT_IN, auto_format
from headrace.console.decoders.decoder import DecodeError, Decoder, Rendered, to_json_value, to_text
from headrace.console.decoders.protobuf import protobuf_decoder

__all__ = ["MAX_TEXT_CHARS", "DecoderRegistry"]

MAX_TEXT_CHARS = 100_000
"""Texts are cut off after this many characters, unless the caller asks for all."""
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


class DecoderRegistry:
    """Decoders by name. Immutable after its creation."""

    def __init__(self, options: Iterable[str] = ()):
        """`options` are the values of `--decoder`. Raises ConfigError for one that cannot be used."""
        self.options = tuple(options)
        self._decoders = dict(BUILT_IN)
        for option in self.options:
            decoder = _open(option)
            if decoder.name in self._decoders:
                raise ConfigError(f"--decoder {option}: there is already a decoder named {decoder.name!r}")
            self._decoders[decoder.name] = decoder

    def items(self) -> list[dict[str, object]]:
        """Returns names and descriptions, for the API."""
        return [
            {"name": decoder.name, "title": decoder.description, "user": decoder.name not in BUILT_IN}
            for decoder in self._decoders.values()
        ]

    def get(self, name: str) -> Decoder:
        """Raises KeyError, with the names that exist."""
        try:
            return self._decoders[name]
        except KeyError:
            raise KeyError(f"Unknown decoder {name!r}: expected one of {', '.join(self._decoders)}") from None

    def render(self, decoder: Decoder, data: bytes, max_chars: int | None = MAX_TEXT_CHARS) -> Rendered:
        """Decodes bytes. If the decoder cannot, the result has its error and what `auto` shows."""
        error = None
        if decoder is not AUTO:
            try:
                return _render_with(decoder, data, max_chars)
            except DecodeError as failure:
                error = str(failure)
        name, text, structure = auto_format(data)
        return _rendered(name, text, structure, data, max_chars, error)


def _render_with(decoder: Decoder, data: bytes, max_chars: int | None) -> Rendered:
    value = decoder.object_of(data)
    structure = to_json_value(value)
    is_structure = isinstance(structure, dict | list)
    # JSON is shown as it was written, with its numbers.
    text = data.decode(errors="replace") if decoder.name == "json" else to_text(value)
    return _rendered(decoder.name, text, structure if is_structure else None, data, max_chars, None)


def _rendered(
    name: str, text: str, structure: object, data: bytes, max_chars: int | None, error: str | None
) -> Rendered:
    truncated = max_chars is not None and len(text) > max_chars
    return Rendered(name, text[:max_chars] if truncated else text, len(data), truncated, error, structure)


def _open(option: str) -> Decoder:
    name, separator, target = option.partition("=")
    if not separator or not _NAME.fullmatch(name):
        raise ConfigError(f"--decoder {option}: expected NAME=KIND:FILE or NAME=MODULE:FUNCTION")
    kind, _, rest = target.partition(":")
    if kind == "avro":
        return avro_decoder(name, Path(rest))
    if kind == "avro-registry":
        return avro_registry_decoder(name, Path(rest))
    if kind == "protobuf":
        file, separator, message_type = rest.rpartition("#")
        if not separator or not message_type:
            raise ConfigError(f"--decoder {option}: expected protobuf:FILE#MESSAGE")
        return protobuf_decoder(name, Path(file), message_type)
    if not _FUNCTION.fullmatch(target):
        raise ConfigError(f"--decoder {option}: expected avro:, avro-registry:, protobuf: or MODULE:FUNCTION")
    return Decoder(name, _import(option, target), f"function {target}")


def _import(option: str, target: str) -> Callable[[bytes], object]:
    module_name, _, path = target.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"--decoder {option}: {error}") from error
    if not callable(found):
        raise ConfigError(f"--decoder {option}: {target} is not a function")
    return cast(Callable[[bytes], object], found)
