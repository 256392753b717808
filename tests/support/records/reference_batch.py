"""Record batches of format v2 in plain Python: slow, obvious, and without shared code with the compiled modules.

Written from the layout alone, with `struct` and Python's integers. Tests compare the kernel with it byte for byte, and
use its parts (`record_parts`, `batch_bytes`) to make batches that are wrong in exactly one place.
"""

import struct
import zlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pyarrow as pa

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = 61
CRC_AT = 17
ATTRIBUTES_AT = 21
OFFSET_AND_LENGTH_BYTES = 12

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
CODEC_BITS = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

Headers = tuple[tuple[bytes, bytes | None], ...]
Part = tuple[str, bytes]


class Malformed(ValueError):
    """The bytes are not a valid batch."""


class Row(NamedTuple):
    """A record of a batch. Header names are the encoded bytes."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers
    offset: int


class Header(NamedTuple):
    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int


# ---- numbers


def varint(value: int, bits: int = 32) -> bytes:
    """Encodes zigzag, seven bits per byte, low bits first, with the top bit set on all but the last byte."""
    unsigned = 2 * value if value >= 0 else -2 * value - 1
    assert unsigned < 1 << bits, f"{value} does not fit {bits} bits"
    return unsigned_varint(unsigned)


def varlong(value: int) -> bytes:
    return varint(value, bits=64)


def unsigned_varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(0x80 | value & 0x7F)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def read_varint(data: bytes, position: int, bits: int = 32) -> tuple[int, int]:
    unsigned = shift = 0
    while True:
        if position >= len(data):
            raise Malformed("varint is cut short")
        byte = data[position]
        position += 1
        unsigned |= (byte & 0x7F) << shift
        shift += 7
        if unsigned >= 1 << bits or (byte >= 0x80 and shift >= bits):
            raise Malformed("varint is too long")
        if byte < 0x80:
            return (unsigned >> 1 if unsigned % 2 == 0 else -(unsigned >> 1) - 1), position


def signed(value: int, bits: int) -> int:
    """Wraps `value` to a signed integer of that many bits."""
    value %= 1 << bits
    return value - (1 << bits) if value >= 1 << bits - 1 else value


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_CRC_TABLE = _crc_table()


def crc32c(data: bytes) -> int:
    """Computes the CRC with Castagnoli's polynomial, byte by byte."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC_TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def murmur2(key: bytes) -> int:
    """Computes the signed hash of Kafka's default partitioner."""
    mixer, mask = 0x5BD1E995, 0xFFFFFFFF
    hashed = 0x9747B28C ^ len(key)
    whole = len(key) // 4 * 4
    for start in range(0, whole, 4):
        word = int.from_bytes(key[start : start + 4], "little") * mixer & mask
        word = (word ^ word >> 24) * mixer & mask
        hashed = hashed * mixer & mask ^ word
    if whole < len(key):
        hashed = (hashed ^ int.from_bytes(key[whole:], "little")) * mixer & mask
    hashed = (hashed ^ hashed >> 13) * mixer & mask
    return signed(hashed ^ hashed >> 15, 32)


# ---- encoding


def _nullable(name: str, data: bytes | None) -> list[Part]:
    if data is None:
        return [(f"{name} length", varint(-1)), (name, b"")]
    return [(f"{name} length", varint(len(data))), (name, data)]


def record_parts(row: Row, base_offset: int = 0, base_timestamp: int = 0) -> list[Part]:
    """Returns the fields of a record after its length, by name."""
    parts = [
        ("attributes", b"\0"),
        ("timestamp delta", varlong(signed(row.timestamp - base_timestamp, 64))),
        ("offset delta", varint(row.offset - base_offset)),
        *_nullable("key", row.key),
        *_nullable("value", row.value),
        ("header count", varint(len(row.headers))),
    ]
    for name, value in row.headers:
        parts += [*_nullable("header key", name), *_nullable("header value", value)]
    return parts


def join_record(parts: Iterable[Part]) -> bytes:
    body = b"".join(encoded for _, encoded in parts)
    return varint(len(body)) + body


def records_bytes(rows: Iterable[Row], base_offset: int, base_timestamp: int) -> bytes:
    return b"".join(join_record(record_parts(row, base_offset, base_timestamp)) for row in rows)


def batch_bytes(
    payload: bytes,
    *,
    count: int,
    last_offset_delta: int | None = None,
    base_offset: int = 0,
    leader_epoch: int = -1,
    magic: int = 2,
    attributes: int = 0,
    base_timestamp: int = 0,
    max_timestamp: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    length: int | None = None,
) -> bytearray:
    """Encodes a batch with any payload and a valid CRC; missing fields are derived from the others."""
    header = HEADER.pack(
        base_offset,
        HEADER_BYTES - OFFSET_AND_LENGTH_BYTES + len(payload) if length is None else length,
        leader_epoch,
        magic,
        0,
        attributes,
        max(count - 1, 0) if last_offset_delta is None else last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    batch = bytearray(header + payload)
    seal(batch)
    return batch


def seal(batch: bytearray) -> None:
    """Sets the CRC of the batch."""
    batch[CRC_AT:ATTRIBUTES_AT] = crc32c(bytes(batch[ATTRIBUTES_AT:])).to_bytes(4, "big")


def encode(
    rows: Sequence[Row],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    log_append_time: bool = False,
    transactional: bool = False,
    control: bool = False,
) -> bytes:
    """Encodes an uncompressed batch; its base timestamp is that of the first record."""
    base_timestamp = rows[0].timestamp
    attributes = LOG_APPEND_TIME_BIT * log_append_time | TRANSACTIONAL_BIT * transactional | CONTROL_BIT * control
    return bytes(
        batch_bytes(
            records_bytes(rows, base_offset, base_timestamp),
            count=len(rows),
            last_offset_delta=rows[-1].offset - base_offset,
            base_offset=base_offset,
            leader_epoch=leader_epoch,
            attributes=attributes,
            base_timestamp=base_timestamp,
            max_timestamp=max(row.timestamp for row in rows),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
        )
    )


# ---- decoding


def decode_header(batch: bytes) -> Header:
    return Header(*HEADER.unpack_from(batch))


def decode(batch: bytes) -> tuple[Header, list[Row]]:
    """Decodes and validates header and records of exactly one batch."""
    if len(batch) < HEADER_BYTES:
        raise Malformed("header is cut short")
    header = decode_header(batch)
    if header.magic != 2:
        raise Malformed(f"magic {header.magic}")
    if header.length != len(batch) - OFFSET_AND_LENGTH_BYTES:
        raise Malformed(f"length {header.length} of {len(batch)} bytes")
    if header.crc != crc32c(batch[ATTRIBUTES_AT:]):
        raise Malformed("CRC")
    last_offset = header.base_offset + header.last_offset_delta
    if header.base_offset < 0 or header.last_offset_delta < 0 or last_offset >= (1 << 63) - 1:
        raise Malformed("offsets")
    payload = batch[HEADER_BYTES:]
    codec = header.attributes & CODEC_BITS
    if header.count and codec:
        payload = inflate(codec, payload)
    return header, _decode_records(header, payload)


def _decode_records(header: Header, data: bytes) -> list[Row]:
    if header.count < 0 or header.count > len(data):
        raise Malformed(f"{header.count} records")
    rows: list[Row] = []
    position = 0
    for _ in range(header.count):
        length, position = read_varint(data, position)
        if not 0 <= length <= len(data) - position:
            raise Malformed(f"record length {length}")
        row = _decode_record(header, data[position : position + length])
        if row.offset <= (rows[-1].offset if rows else header.base_offset - 1):
            raise Malformed(f"offset {row.offset} is out of order")
        if row.offset > header.base_offset + header.last_offset_delta:
            raise Malformed(f"offset {row.offset} is beyond the last")
        rows.append(row)
        position += length
    if position != len(data):
        raise Malformed("trailing bytes in batch")
    return rows


def _decode_record(header: Header, data: bytes) -> Row:
    if not data:
        raise Malformed("no attributes")
    timestamp_delta, position = read_varint(data, 1, bits=64)
    offset_delta, position = read_varint(data, position)
    key, position = _read_nullable(data, position)
    value, position = _read_nullable(data, position)
    header_count, position = read_varint(data, position)
    if not 0 <= header_count <= len(data):
        raise Malformed(f"{header_count} headers")
    headers = []
    for _ in range(header_count):
        name, position = _read_nullable(data, position)
        if name is None:
            raise Malformed("a header without a name")
        header_value, position = _read_nullable(data, position)
        headers.append((name, header_value))
    if position != len(data):
        raise Malformed("trailing bytes in record")
    if header.attributes & LOG_APPEND_TIME_BIT:
        timestamp = header.max_timestamp
    else:
        timestamp = signed(header.base_timestamp + timestamp_delta, 64)
    return Row(key, value, timestamp, tuple(headers), header.base_offset + offset_delta)


def _read_nullable(data: bytes, position: int) -> tuple[bytes | None, int]:
    length, position = read_varint(data, position)
    if length == -1:
        return None, position
    if not 0 <= length <= len(data) - position:
        raise Malformed(f"length {length}")
    return data[position : position + length], position + length


# ---- codecs, with other libraries than the compiled modules use


def inflate(codec: int, data: bytes) -> bytes:
    if codec == GZIP:
        return zlib.decompress(data, wbits=31)
    if codec == SNAPPY:
        return inflate_snappy(data)
    name = {LZ4: "lz4", ZSTD: "zstd"}[codec]
    return pa.CompressedInputStream(pa.BufferReader(data), name).read()


def inflate_snappy(data: bytes) -> bytes:
    """Decodes both formats of Kafka's clients: framed chunks (Java's xerial library) or one bare block (librdkafka)."""
    if not data.startswith(b"\x82SNAPPY\0"):
        return inflate_snappy_block(data)
    inflated = bytearray()
    position = 16
    while position < len(data):
        length = int.from_bytes(data[position : position + 4], "big")
        position += 4
        inflated += inflate_snappy_block(data[position : position + length])
        position += length
    return bytes(inflated)


def inflate_snappy_block(data: bytes) -> bytes:
    """Decodes the uncompressed size, then literals and copies, which the low two bits of each tag distinguish."""
    size = shift = position = 0
    while True:
        byte = data[position]
        position += 1
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    inflated = bytearray()
    while position < len(data):
        tag = data[position]
        position += 1
        if tag & 3 == 0:
            length = tag >> 2
            if length >= 60:
                width = length - 59
                length = int.from_bytes(data[position : position + width], "little")
                position += width
            length += 1
            inflated += data[position : position + length]
            position += length
            continue
        if tag & 3 == 1:
            length = 4 + (tag >> 2 & 7)
            distance = tag >> 5 << 8 | data[position]
            position += 1
        else:
            length = 1 + (tag >> 2)
            width = 2 if tag & 3 == 2 else 4
            distance = int.from_bytes(data[position : position + width], "little")
            position += width
        for _ in range(length):
            inflated.append(inflated[-distance])
    assert len(inflated) == size, f"the block says {size} bytes, it holds {len(inflated)}"
    return bytes(inflated)
