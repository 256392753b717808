"""Records as the objects of the API."""

from collections.abc import Sequence
from typing import Any

from headrace.console.decoders.built_in import AUTO
from headrace.console.decoders.decoder import Decoder
from headrace.console.decoders.registry import DecoderRegistry

__all__ = ["RecordRenderer"]

_STRUCTURED = ("json",)


class RecordRenderer:
    """Renders records with one key decoder and one value decoder."""

    def __init__(self, decoders: DecoderRegistry, key_decoder: str, value_decoder: str):
        self._decoders = decoders
        self._key = decoders.get(key_decoder)
        self._value = decoders.get(value_decoder)

    def field(self, decoder: Decoder, data: bytes | None) -> dict[str, Any] | None:
        """Returns the object of a key, value or header; None for null."""
        if data is None:
            return None
        return self._decoders.render(decoder, data).as_json()

    def record(
        self,
        partition: int,
        offset: int,
        timestamp_ms: int,
        timestamp_type: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
    ) -> dict[str, Any]:
        """Returns a record. What only the batch says is null; `records.reader` adds it."""
        size = len(key or b"") + len(value or b"") + sum(len(name) + len(data or b"") for name, data in headers)
        return {
            "partition": partition,
            "offset": offset,
            "timestamp_ms": timestamp_ms,
            "timestamp_type": "append" if timestamp_type == 1 else "create",
            "key": self.field(self._key, key),
            "value": self.field(self._value, value),
            "headers": [{"name": name, "value": self.field(AUTO, data)} for name, data in headers],
            "size_bytes": size,
            "control": None,
            "transaction": None,
            "producer_id": None,
            "producer_epoch": None,
            "sequence": None,
            "compression": None,
        }
