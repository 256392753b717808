"""Files of selected records: JSON lines, CSV, Parquet. Written piece by piece, so that memory does not grow.

JSON lines: an object per record, with the members of `Row`. Keys and values are the decoder's text, and JSON as such if
the decoder yields an object. What has no text is base64, named by `key_encoding` or `value_encoding`.

CSV: a header line, then partition, offset, timestamp (ISO 8601), key, value, headers (JSON). Bytes that are not text
are written as base64 with the prefix `base64:`. null is an empty field without quotes, an empty text is `""`.

Parquet: partition, offset, timestamp, timestamp_type, key and value as binary, headers. The columns of Arrow are
written as they are. With a decoder other than `auto`, `key_text` or `value_text` has the decoded text.
"""

import base64
import json
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from headrace.common.extras import requires_extra
from headrace.console.decoders.built_in import AUTO
from headrace.console.decoders.decoder import DecodeError, Decoder, to_json_value, to_text
from headrace.console.decoders.registry import DecoderRegistry
from headrace.console.search.query import RecordQuery
from headrace.console.search.scan import Selected

with requires_extra("arrow"):
    import pyarrow as pa

__all__ = ["FORMATS", "Exporter", "open_exporter"]

FORMATS = {
    "jsonl": "application/x-ndjson",
    "csv": "text/csv; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
}
_SLICE_ROWS = 1000


class Exporter(Protocol):
    """Turns selected records into pieces of a file."""

    def write(self, selected: Selected) -> Iterator[bytes]: ...

    def finish(self) -> bytes: ...


class _RowExporter:
    """A text file with one line per record."""

    def __init__(self, head: str, line: Callable[..., str]):
        self._head = head
        self._line = line

    def write(self, selected: Selected) -> Iterator[bytes]:
        columns = selected.taken()
        timestamps = columns["timestamp"].cast(pa.int64())
        for first in range(0, selected.size, _SLICE_ROWS):
            rows = [
                column.slice(first, _SLICE_ROWS).to_pylist()
                for column in (columns["offset"], timestamps, columns["key"], columns["value"], columns["headers"])
            ]
            lines = [self._line(selected.partition, *row) for row in zip(*rows, strict=True)]
            head, self._head = self._head, ""
            yield (head + "".join(lines)).encode()

    def finish(self) -> bytes:
        head, self._head = self._head, ""
        return head.encode()


def _object_of(decoder: Decoder, data: bytes) -> tuple[object, str | None]:
    """Returns what a line has for a key or value, and the name of its encoding if it is not text."""
    try:
        if decoder is AUTO:
            return data.decode(), None
        return to_json_value(decoder.object_of(data)), None
    except (DecodeError, UnicodeDecodeError):
        return base64.b64encode(data).decode(), "base64"


def _json_lines(key_decoder: Decoder, value_decoder: Decoder) -> Exporter:
    def line(
        partition: int, offset: int, timestamp: int, key: bytes | None, value: bytes | None, headers: list[Any]
    ) -> str:
        row: dict[str, Any] = {"partition": partition, "offset": offset, "timestamp_ms": timestamp}
        for name, decoder, data in (("key", key_decoder, key), ("value", value_decoder, value)):
            row[name], encoding = (None, None) if data is None else _object_of(decoder, data)
            if encoding is not None:
                row[f"{name}_encoding"] = encoding
        if headers:
            row["headers"] = _headers(headers)
        return json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n"

    return _RowExporter("", line)


def _headers(headers: list[Any]) -> list[dict[str, Any]]:
    items = []
    for header in headers:
        item: dict[str, Any] = {"name": header["key"], "value": None}
        if header["value"] is not None:
            item["value"], encoding = _object_of(AUTO, header["value"])
            if encoding is not None:
                item["encoding"] = encoding
        items.append(item)
    return items


def _csv(key_decoder: Decoder, value_decoder: Decoder) -> Exporter:
    def cell(decoder: Decoder, data: bytes | None) -> str:
        if data is None:
            return ""
        value, encoding = _object_of(decoder, data)
        return _quoted(to_text(value) if encoding is None else f"base64:{value}")

    def line(
        partition: int, offset: int, timestamp: int, key: bytes | None, value: bytes | None, headers: list[Any]
    ) -> str:
        time = (
            ""
            if timestamp < 0
            else pa.scalar(timestamp, pa.timestamp("ms")).as_py().isoformat(timespec="milliseconds") + "Z"
        )
        listed = _quoted(json.dumps(_headers(headers), ensure_ascii=False)) if headers else ""
        return f"{partition},{offset},{time},{cell(key_decoder, key)},{cell(value_decoder, value)},{listed}\r\n"

    return _RowExporter("partition,offset,timestamp,key,value,headers\r\n", line)


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


class _Buffer:
    """A file object that keeps what is written until it is taken."""

    closed = False
    mode = "wb"

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._position = 0

    def write(self, data: Any) -> int:
        piece = bytes(data)
        self._pieces.append(piece)
        self._position += len(piece)
        return len(piece)

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        self.closed = True

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def take(self) -> bytes:
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)


class _ParquetExporter:
    """Collects rows to row groups of some MB."""

    _GROUP_BYTES = 16 * 1024 * 1024

    def __init__(self, key_decoder: Decoder, value_decoder: Decoder):
        import pyarrow.parquet as pq

        from headrace.records.arrow import HEADERS_TYPE

        self._texts = {
            f"{name}_text": (name, decoder)
            for name, decoder in (("key", key_decoder), ("value", value_decoder))
            if decoder is not AUTO
        }
        self._schema = pa.schema(
            [
                ("partition", pa.int32()),
                ("offset", pa.int64()),
                ("timestamp", pa.timestamp("ms", tz="UTC")),
                ("timestamp_type", pa.int32()),
                ("key", pa.binary()),
                ("value", pa.binary()),
                ("headers", HEADERS_TYPE),
                *((name, pa.string()) for name in self._texts),
            ]
        )
        self._buffer = _Buffer()
        self._writer = pq.ParquetWriter(self._buffer, self._schema, compression="zstd")
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0

    def write(self, selected: Selected) -> Iterator[bytes]:
        columns = selected.taken()
        columns["partition"] = pa.repeat(pa.scalar(selected.partition, pa.int32()), selected.size)
        for name, (source, decoder) in self._texts.items():
            columns[name] = pa.array([_text(decoder, data) for data in columns[source].to_pylist()], pa.string())
        batch = pa.RecordBatch.from_arrays([columns[name] for name in self._schema.names], schema=self._schema)
        self._batches.append(batch)
        self._bytes += batch.nbytes
        if self._bytes >= self._GROUP_BYTES:
            self._write_group()
        yield self._buffer.take()

    def _write_group(self) -> None:
        if self._batches:
            self._writer.write_table(pa.Table.from_batches(self._batches, schema=self._schema))
            self._batches, self._bytes = [], 0

    def finish(self) -> bytes:
        self._write_group()
        self._writer.close()
        return self._buffer.take()


def _text(decoder: Decoder, data: bytes | None) -> str | None:
    if data is None:
        return None
    try:
        return to_text(decoder.object_of(data))
    except DecodeError:
        return None


def open_exporter(file_format: str, query: RecordQuery, decoders: DecoderRegistry) -> Exporter:
    """Returns the exporter of a format."""
    key, value = decoders.get(query.key_decoder), decoders.get(query.value_decoder)
    if file_format == "parquet":
        return _ParquetExporter(key, value)
    return _json_lines(key, value) if file_format == "jsonl" else _csv(key, value)
