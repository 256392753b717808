"""The codecs in the formats of Kafka's clients."""

import gzip

import pyarrow as pa
import pytest
from tests.support.records import reference_batch as reference

from headrace.common.errors import UnsupportedCompressionTypeError
from headrace.records.compression import LEVELS, Compression, check_level, compress, decompress

DATA = b"a line that repeats itself\n" * 5000
SIZES = [0, 1, 1000, 32 * 1024 - 1, 32 * 1024, 32 * 1024 + 1, 64 * 1024 + 1, len(DATA)]


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("size", SIZES)
def test_other_libraries_decompress_it(codec: Compression, size: int) -> None:
    packed = bytes(compress(codec, memoryview(DATA)[:size]))
    assert (reference.inflate(codec, packed) if codec else packed) == DATA[:size]
    assert bytes(decompress(codec, packed)) == DATA[:size]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("codec", Compression)
def test_encodes_any_kind_of_bytes(codec: Compression, kind: type) -> None:
    packed = compress(codec, kind(DATA))
    assert bytes(decompress(codec, kind(bytes(packed)))) == DATA


@pytest.mark.parametrize(("name", "codec"), [("gzip", 1), ("lz4", 3), ("zstd", 4)])
@pytest.mark.parametrize("size", SIZES)
def test_reads_data_of_other_libraries(name: str, codec: int, size: int) -> None:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, name) as stream:
        stream.write(DATA[:size])
    assert bytes(decompress(codec, sink.getvalue().to_pybytes())) == DATA[:size]
    assert bytes(decompress(codec, pa.compress(DATA[:size], name, asbytes=True))) == DATA[:size]


@pytest.mark.parametrize("size", SIZES)
def test_reads_snappy_of_librdkafka(size: int) -> None:
    """One block without framing, from Google's library."""
    assert bytes(decompress(Compression.SNAPPY, pa.compress(DATA[:size], "snappy", asbytes=True))) == DATA[:size]


def test_writes_snappy_framing_of_java_client() -> None:
    data = DATA[: 70 * 1024]
    packed = bytes(compress(Compression.SNAPPY, data))
    assert packed[:16] == b"\x82SNAPPY\0" + b"\0\0\0\x01" + b"\0\0\0\x01"
    position, chunks = 16, []
    while position < len(packed):
        length = int.from_bytes(packed[position : position + 4], "big")
        chunks.append(reference.inflate_snappy_block(packed[position + 4 : position + 4 + length]))
        position += 4 + length
    assert [len(chunk) for chunk in chunks] == [32 * 1024, 32 * 1024, 6 * 1024]
    assert b"".join(chunks) == data


def test_snappy_frames_of_other_versions_are_read() -> None:
    """Some producers write the versions in the wrong byte order (kafka-python's issue 2414)."""
    packed = bytearray(compress(Compression.SNAPPY, DATA))
    packed[8:16] = b"\x01\0\0\0\x01\0\0\0"
    assert bytes(decompress(Compression.SNAPPY, packed)) == DATA


@pytest.mark.parametrize("level", [None, 1, 3, 9, 17])
def test_lz4_frames_have_format_of_java_client(level: int | None) -> None:
    """Kafka's reader accepts only independent blocks; the Java client writes no size and no block checksums."""
    packed = bytes(compress(Compression.LZ4, DATA, level))
    assert packed[:4] == b"\x04\x22\x4d\x18"
    flags = packed[4]
    assert flags >> 6 == 1, "version 1"
    assert flags >> 5 & 1 == 1, "blocks are independent"
    assert flags >> 4 & 1 == 0, "no block checksums"
    assert flags >> 3 & 1 == 0, "no content size"
    assert flags >> 2 & 1 == 0, "no content checksum"
    assert flags & 3 == 0, "no dictionary"
    assert packed[5] == 0x40, "blocks of at most 64 KiB"


def test_writes_one_gzip_member() -> None:
    packed = bytes(compress(Compression.GZIP, DATA))
    assert packed[:3] == b"\x1f\x8b\x08"
    assert gzip.decompress(packed) == DATA
    assert packed.count(b"\x1f\x8b\x08") == 1


def test_writes_one_zstd_frame() -> None:
    packed = bytes(compress(Compression.ZSTD, DATA))
    assert packed[:4] == b"\x28\xb5\x2f\xfd"
    assert pa.decompress(packed, len(DATA), "zstd", asbytes=True) == DATA


@pytest.mark.parametrize("codec", LEVELS)
def test_levels_reach_the_codec(codec: Compression) -> None:
    lowest, highest, default = LEVELS[codec]
    data = b"".join(b"%d:%d\n" % (i, i * i % 9973) for i in range(20_000))
    sizes = [len(bytes(compress(codec, data, level))) for level in (lowest, highest)]
    assert sizes[1] < sizes[0]
    assert bytes(compress(codec, data)) == bytes(compress(codec, data, default))


def test_levels_match_kafkas() -> None:
    assert LEVELS == {Compression.GZIP: (1, 9, 6), Compression.LZ4: (1, 17, 9), Compression.ZSTD: (-131072, 22, 3)}


@pytest.mark.parametrize("codec", LEVELS)
def test_rejects_level_out_of_range(codec: Compression) -> None:
    lowest, highest, default = LEVELS[codec]
    assert check_level(codec, None) == default
    assert (check_level(codec, lowest), check_level(codec, highest)) == (lowest, highest)
    for level in (lowest - 1, highest + 1):
        with pytest.raises(ValueError, match=f"invalid compression level {level} for {codec.name.lower()}: expected"):
            compress(codec, b"", level)


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.SNAPPY])
def test_codecs_without_levels(codec: Compression) -> None:
    assert check_level(codec, None) is None
    with pytest.raises(ValueError, match=f"{codec.name.lower()} has no compression levels, but level 3 was given"):
        compress(codec, b"", 3)


def test_codecs_by_name_and_number() -> None:
    assert [Compression.from_name(name) for name in ("none", "gzip", "snappy", "lz4", "zstd")] == list(Compression)
    assert [Compression.from_id(number) for number in range(5)] == list(Compression)
    message = "Unknown compression type 'brotli': expected one of none, gzip, snappy, lz4, zstd"
    with pytest.raises(UnsupportedCompressionTypeError, match=message):
        Compression.from_name("brotli")
    for number in (-1, 5, 7):
        with pytest.raises(
            UnsupportedCompressionTypeError, match=f"Unknown compression codec {number}: expected 0 to 4"
        ):
            Compression.from_id(number)
        with pytest.raises(UnsupportedCompressionTypeError, match=f"Unknown compression codec {number}"):
            decompress(number, b"")
