"""The compression codecs of record batches, in the formats that Kafka's clients write.

- gzip: one member.
- snappy: the Java client writes the "xerial" framing, librdkafka one bare snappy block. Headrace reads both and writes
  the framing: a 16-byte header (magic, version 1, compatible version 1), then chunks of at most 32 KiB, each after its
  4-byte compressed length.
- lz4: the frame format with independent blocks of 64 KiB and only a header checksum, as both clients write it. Kafka's
  Java reader accepts no other kind of block. As in Java, level 9, the default, means the fast compressor.
- zstd: one frame.

Decompression is bounded: the output never exceeds the limit, regardless of the input. Data that states a larger size is
rejected without decompressing it. The library works without the GIL; large outputs are mapped, so that no step before
or after it touches all their bytes.

The compression library is imported for the first compressed batch, which saves 2 MB without compression.
"""

import mmap
from collections.abc import Callable
from enum import IntEnum
from functools import cache
from importlib import import_module
from typing import Any

from headrace.common.errors import CorruptRecordError, InflatedTooLargeError, UnsupportedCompressionTypeError
from headrace.common.types import Buffer

DEFAULT_MAX_INFLATED_BYTES = 256 * 1024 * 1024
"""The default limit of a batch's uncompressed size."""

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + (1).to_bytes(4, "big") + (1).to_bytes(4, "big")
_XERIAL_CHUNK_BYTES = 32 * 1024
_LZ4_HEADER = bytes.fromhex("04224d18604082")  # magic, version 1 with independent blocks, 64 KiB, header checksum
_LZ4_STORED = 0x8000_0000
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_SMALLEST_GUESS = 16 * 1024
_LIKELY_RATIO = 64
_MAPPED_BYTES = 4 * 1024 * 1024
"""A larger output is mapped: filling a new bytearray with zeros takes time and memory even if nothing is written."""


class Compression(IntEnum):
    """A compression codec, by its id in the batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def from_name(cls, name: str) -> "Compression":
        """Returns the codec with a name of `compression.type`."""
        for codec in cls:
            if codec.name.lower() == name:
                return codec
        expected = ", ".join(codec.name.lower() for codec in cls)
        raise UnsupportedCompressionTypeError(f"Unknown compression type {name!r}: expected one of {expected}")

    @classmethod
    def from_id(cls, codec_id: int) -> "Compression":
        try:
            return cls(codec_id)
        except ValueError:
            raise UnsupportedCompressionTypeError(f"Unknown compression codec {codec_id}: expected 0 to 4") from None


LEVELS: dict[Compression, tuple[int, int, int]] = {
    Compression.GZIP: (1, 9, 6),
    Compression.LZ4: (1, 17, 9),
    Compression.ZSTD: (-131072, 22, 3),
}
"""Lowest, highest and default level of the codecs that have levels; the defaults are Kafka's."""


def check_level(codec: Compression, level: int | None) -> int | None:
    """Returns the level to use; None for codecs without levels. Raises ValueError for an invalid level."""
    if codec not in LEVELS:
        if level is not None:
            raise ValueError(f"{codec.name.lower()} has no compression levels, but level {level} was given")
        return None
    lowest, highest, default = LEVELS[codec]
    if level is None:
        return default
    if not lowest <= level <= highest:
        raise ValueError(f"invalid compression level {level} for {codec.name.lower()}: expected {lowest} to {highest}")
    return level


@cache
def _cramjam() -> Any:
    return import_module("cramjam")


def compress(codec: Compression, data: Buffer, level: int | None = None) -> Buffer:
    """Compresses records; returns the bytes that follow the batch header."""
    level = check_level(codec, level)
    if codec == Compression.NONE:
        return data
    if codec == Compression.SNAPPY:
        return _compress_xerial(data)
    if codec == Compression.GZIP:
        return memoryview(_cramjam().gzip.compress(data, level=level))
    if codec == Compression.LZ4:
        return _compress_lz4(data, level)
    if codec == Compression.ZSTD:
        return memoryview(_cramjam().zstd.compress(data, level=level))
    raise UnsupportedCompressionTypeError(f"Unknown compression codec {codec!r}")


def decompress(codec_id: int, data: Buffer, max_bytes: int = DEFAULT_MAX_INFLATED_BYTES) -> Buffer:
    """Decompresses the records of a batch.

    Raises InflatedTooLargeError if they exceed `max_bytes`, and CorruptRecordError for invalid input. Positions in
    messages are relative to the start of `data`.
    """
    codec = Compression.from_id(codec_id)
    if codec == Compression.NONE:
        return data
    view = memoryview(data).cast("B")
    if codec == Compression.SNAPPY:
        return _decompress_snappy(view, max_bytes)
    module = getattr(_cramjam(), codec.name.lower())
    guess = max(_SMALLEST_GUESS, 4 * len(view))
    hint = _size_hint(codec, view)
    if hint is not None:
        if hint > max_bytes:
            raise _too_large(codec, max_bytes)
        guess = min(hint, _LIKELY_RATIO * guess)
    return _inflate_bounded(codec, module.decompress_into, view, guess, max_bytes)


def _inflate_bounded(
    codec: Compression,
    decompress_into: Callable[[Buffer, Buffer], int],
    data: memoryview,
    guess: int,
    max_bytes: int,
) -> memoryview:
    """Decompresses into a fixed-size buffer. If it is too small, retries with a larger one, up to the limit."""
    while True:
        room = min(guess, max_bytes)
        output = _output(room)
        try:
            written = decompress_into(data, output)
        except _cramjam().DecompressionError as error:
            # This text means a full output buffer; every other error means invalid input.
            if "failed to write whole buffer" not in str(error):
                raise CorruptRecordError(f"cannot decompress {codec.name.lower()} data: {error}") from error
            if room == max_bytes:
                raise _too_large(codec, max_bytes) from None
            # Mapped memory is taken only where it is written, so the next try may be much larger.
            guess = 64 * room if 4 * room > _MAPPED_BYTES else 4 * room
        else:
            return output[:written]


def _output(size: int) -> memoryview:
    if size <= _MAPPED_BYTES:
        return memoryview(bytearray(size))
    return memoryview(mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))


def _too_large(codec: Compression, max_bytes: int) -> InflatedTooLargeError:
    return InflatedTooLargeError(f"{codec.name.lower()} data decompresses to more than the limit of {max_bytes} bytes")


def _size_hint(codec: Compression, data: memoryview) -> int | None:
    """Returns the uncompressed size that the format states. It is only a hint: bounded by the limit, never trusted."""
    if codec == Compression.GZIP and len(data) >= 18:
        return int.from_bytes(data[-4:], "little") or None
    if codec == Compression.ZSTD and len(data) >= 14 and data[:4] == _ZSTD_MAGIC:
        descriptor = data[4]
        single_segment = descriptor >> 5 & 1
        width = (1 if single_segment else 0, 2, 4, 8)[descriptor >> 6]
        start = 5 + (1 - single_segment) + (0, 1, 2, 4)[descriptor & 3]
        if width:
            return int.from_bytes(data[start : start + width], "little") + (256 if width == 2 else 0) or None
    return None


def _compress_lz4(data: Buffer, level: int | None) -> bytearray:
    fast = level == LEVELS[Compression.LZ4][2]
    compressor = _cramjam().lz4.Compressor(level=1 if fast else level, content_checksum=False, block_linked=False)
    compressor.compress(bytes(data))
    checksummed = memoryview(compressor.finish())
    # The library adds a checksum after each block. Kafka's clients do not, since the batch has a CRC; remove them.
    framed = bytearray(_LZ4_HEADER)
    position = len(_LZ4_HEADER)
    while length := int.from_bytes(checksummed[position : position + 4], "little"):
        end = position + 4 + (length & ~_LZ4_STORED)
        framed += checksummed[position:end]
        position = end + 4
    return framed + bytes(4)


def _compress_xerial(data: Buffer) -> bytearray:
    view = memoryview(data).cast("B")
    framed = bytearray(_XERIAL_HEADER)
    for start in range(0, len(view), _XERIAL_CHUNK_BYTES):
        block = memoryview(_cramjam().snappy.compress_raw(view[start : start + _XERIAL_CHUNK_BYTES]))
        framed += len(block).to_bytes(4, "big")
        framed += block
    return framed


def _decompress_snappy(view: memoryview, max_bytes: int) -> memoryview:
    if view[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        blocks = [(0, view, _snappy_length(view, 0))]
    else:
        blocks = _snappy_blocks(view)
    inflated = sum(length for _, _, length in blocks)
    if inflated > max_bytes:
        raise _too_large(Compression.SNAPPY, max_bytes)
    output = _output(inflated)
    written = 0
    for position, block, length in blocks:
        try:
            written += _cramjam().snappy.decompress_raw_into(block, output[written : written + length])
        except _cramjam().DecompressionError as error:
            raise CorruptRecordError(f"cannot decompress snappy block at byte {position}: {error}") from error
    return output[:written]


def _snappy_blocks(view: memoryview) -> list[tuple[int, memoryview, int]]:
    """Returns position, compressed bytes and uncompressed length of each block in the xerial framing."""
    blocks: list[tuple[int, memoryview, int]] = []
    position = len(_XERIAL_HEADER)
    if len(view) < position:
        raise CorruptRecordError(f"snappy frame header is cut short: {len(view)} of {position} bytes")
    while position < len(view):
        if len(view) - position < 4:
            raise CorruptRecordError(f"snappy chunk length at byte {position} is cut short")
        length = int.from_bytes(view[position : position + 4], "big")
        position += 4
        if length > len(view) - position:
            raise CorruptRecordError(
                f"snappy chunk at byte {position} claims {length} bytes but only {len(view) - position} are left"
            )
        block = view[position : position + length]
        blocks.append((position, block, _snappy_length(block, position)))
        position += length
    return blocks


def _snappy_length(block: memoryview, position: int) -> int:
    """Returns the uncompressed length that a block states."""
    try:
        length: int = _cramjam().snappy.decompress_raw_len(block)
    except _cramjam().DecompressionError as error:
        raise CorruptRecordError(f"cannot decompress snappy block at byte {position}: {error}") from error
    # Three bytes decompress to at most 64: reject a larger claim before allocating memory.
    if length > 32 * len(block):
        raise CorruptRecordError(f"snappy block at byte {position} claims {length} bytes out of {len(block)}")
    return length
