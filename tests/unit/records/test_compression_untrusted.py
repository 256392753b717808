"""Invalid compressed data: garbage, decompression bombs, and wrong sizes."""

import gzip
import json
import struct
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
from tests.support.records import reference_batch as reference

from headrace.common.errors import CorruptRecordError, InflatedTooLargeError
from headrace.records import Compression, RecordBatch, decode_rows
from headrace.records.compression import compress, decompress

CODECS = [codec for codec in Compression if codec]
MIB = 1024 * 1024
ROW = reference.Row(b"key", b"value " * 20, 1000, (), 0)
RECORDS = reference.records_bytes([ROW], 0, 1000)
BEFORE = b"something else"
AT = len(BEFORE)


def batch_of(codec: Compression, payload: bytes) -> RecordBatch:
    buffer = BEFORE + reference.batch_bytes(payload, count=1, attributes=int(codec), base_timestamp=1000)
    return RecordBatch(buffer, AT)


def packed(codec: Compression, data: bytes = RECORDS) -> bytes:
    return bytes(compress(codec, data))


def snappy_size(size: int) -> bytes:
    return reference.unsigned_varint(size)


@pytest.mark.parametrize("codec", CODECS)
def test_unchanged_batch_is_valid(codec: Compression) -> None:
    (record,) = decode_rows(batch_of(codec, packed(codec)).records())
    assert record.value == ROW.value


@pytest.mark.parametrize("codec", CODECS)
def test_rejects_truncated_data(codec: Compression) -> None:
    payload = packed(codec)
    for size in range(len(payload)):
        if codec == Compression.SNAPPY and size == 16:
            continue  # a frame without chunks is complete and empty: see below
        with pytest.raises(
            CorruptRecordError, match=rf"^batch at byte {AT}: (cannot decompress )?{codec.name.lower()} "
        ) as raised:
            batch_of(codec, payload[:size]).records()
        assert raised.value.position == AT


def test_snappy_frame_without_chunk() -> None:
    with pytest.raises(CorruptRecordError, match=rf"^batch at byte {AT} claims 1 records in 0 bytes$"):
        batch_of(Compression.SNAPPY, packed(Compression.SNAPPY)[:16]).records()


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("garbage", [b"\0", b"\xff" * 40, b"no codec at all, only text"])
def test_rejects_garbage(codec: Compression, garbage: bytes) -> None:
    with pytest.raises(CorruptRecordError, match=rf"^batch at byte {AT}[: ]") as raised:
        batch_of(codec, garbage).records()
    assert raised.value.position == AT


@pytest.mark.parametrize("codec", CODECS)
def test_rejects_garbage_after_valid_data(codec: Compression) -> None:
    with pytest.raises(CorruptRecordError, match=rf"^batch at byte {AT}: (cannot decompress )?{codec.name.lower()} "):
        batch_of(codec, packed(codec) + b"garbage").records()


@pytest.mark.parametrize("codec", CODECS)
def test_flipped_bits_raise_or_decode(codec: Compression) -> None:
    """Only gzip has its own checksum; the others rely on the CRC of the batch."""
    payload = packed(codec)
    for at in range(len(payload)):
        broken = bytearray(payload)
        broken[at] ^= 0x04
        try:
            inflated = bytes(decompress(codec, broken, MIB))
        except CorruptRecordError:
            continue
        assert codec != Compression.GZIP or inflated == RECORDS


# ---- limits


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [1, 100, 70_000, 300_000])
def test_limit_is_exact(codec: Compression, size: int) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    data = data[:size]
    payload = packed(codec, data)
    assert bytes(decompress(codec, payload, size)) == data
    message = f"^{codec.name.lower()} data decompresses to more than the limit of {size - 1} bytes$"
    with pytest.raises(InflatedTooLargeError, match=message):
        decompress(codec, payload, size - 1)


@pytest.mark.parametrize("codec", CODECS)
def test_limits_concatenated_streams_together(codec: Compression) -> None:
    """Java reads all concatenated gzip members and zstd and lz4 frames; snappy frames have many chunks anyway."""
    data = bytes(100_000)
    payload = packed(codec, data)
    twice = payload + payload[16:] if codec == Compression.SNAPPY else payload + payload
    assert bytes(decompress(codec, twice, 2 * len(data))) == 2 * data
    message = f"^{codec.name.lower()} data decompresses to more than the limit of {2 * len(data) - 1} bytes$"
    with pytest.raises(InflatedTooLargeError, match=message):
        decompress(codec, twice, 2 * len(data) - 1)


@pytest.mark.parametrize("codec", CODECS)
def test_error_names_the_oversized_batch(codec: Compression) -> None:
    payload = packed(codec, RECORDS * 100)
    message = rf"^batch at byte {AT}: {codec.name.lower()} data decompresses to more than the limit of 1000 bytes$"
    with pytest.raises(InflatedTooLargeError, match=message) as raised:
        batch_of(codec, payload).records(max_inflated_bytes=1000)
    assert raised.value.position == AT


def test_record_count_is_limited_with_the_memory_of_parsed_records() -> None:
    rows = [reference.Row(None, b"", 0, (), offset) for offset in range(10_000)]
    payload = packed(Compression.ZSTD, reference.records_bytes(rows, 0, 0))
    batch = RecordBatch(reference.batch_bytes(payload, count=len(rows), attributes=int(Compression.ZSTD)))
    assert batch.records(500_000).inflated_bytes < 100_000
    with pytest.raises(InflatedTooLargeError, match="10000 records need more memory than the limit of 400000 bytes"):
        batch.records(400_000)


@pytest.mark.parametrize("codec", CODECS)
def test_large_outputs(codec: Compression) -> None:
    data = bytes(range(256)) * (9 * MIB // 256)
    inflated = decompress(codec, packed(codec, data))
    assert memoryview(inflated) == data


MEASURE = """
import json, sys, time
from headrace.common.errors import InflatedTooLargeError
from headrace.records import RecordBatch

def peak_bytes():
    # Not getrusage(): its value includes the memory of the parent process.
    (line,) = [line for line in open("/proc/self/status") if line.startswith("VmHWM:")]
    return 1024 * int(line.split()[1])

batch = RecordBatch(open(sys.argv[1], "rb").read())
before, began = peak_bytes(), time.process_time()
try:
    batch.records(int(sys.argv[2]))
except InflatedTooLargeError as error:
    refusal = str(error)
print(json.dumps([refusal, peak_bytes() - before, time.process_time() - began]))
"""


def make_bomb(codec: Compression) -> bytes:
    """Half a gigabyte of zeros, many times the limit."""
    zeros = bytes(64 * MIB)
    if codec == Compression.SNAPPY:
        chunk = packed(codec, zeros)
        return chunk + chunk[16:] * 7
    return packed(codec, zeros) * 8


@pytest.mark.parametrize("codec", CODECS)
def test_decompression_bomb_is_limited(codec: Compression, tmp_path: Path) -> None:
    limit = 8 * MIB
    bomb = tmp_path / "bomb"
    batch = bytearray(reference.HEADER.pack(0, 49, -1, 2, 0, int(codec), 0, 0, 0, -1, -1, -1, 1) + make_bomb(codec))
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    bomb.write_bytes(batch)
    command = [sys.executable, "-c", MEASURE, str(bomb), str(limit)]
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    refusal, grown_bytes, seconds = json.loads(run.stdout)
    assert refusal == f"batch at byte 0: {codec.name.lower()} data decompresses to more than the limit of {limit} bytes"
    # Only lz4 data does not state its size. Less than half would mean that the measurement is wrong.
    assert (limit / 2 if codec == Compression.LZ4 else 0) < grown_bytes < 2 * limit
    assert seconds < 2


# ---- wrong sizes


@pytest.mark.parametrize("claimed", [0, 1, 2**31, 2**32 - 1])
def test_wrong_gzip_size(claimed: int) -> None:
    """A gzip member ends with its size; only the size is wrong, not the CRC."""
    payload = gzip.compress(RECORDS)[:-4] + struct.pack("<I", claimed)
    problem = "cannot decompress gzip data: " if claimed < 2**28 else "gzip data decompresses to more than the limit"
    with pytest.raises(CorruptRecordError, match=rf"^batch at byte {AT}: {problem}"):
        batch_of(Compression.GZIP, payload).records()


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.ZSTD])
def test_does_not_allocate_claimed_size(codec: Compression) -> None:
    payload = {
        Compression.GZIP: gzip.compress(RECORDS)[:-4] + b"\xff\xff\xff\x0f",
        Compression.ZSTD: zstd_frame(100 * MIB, RECORDS),
    }[codec]
    tracemalloc.start()
    try:
        with pytest.raises(CorruptRecordError, match=f"cannot decompress {codec.name.lower()} data"):
            decompress(codec, payload, 512 * MIB)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 4 * MIB


def zstd_frame(claimed: int, content: bytes) -> bytes:
    """Returns a frame with uncompressed content and a wrong size."""
    magic, single_segment_with_8_bytes = b"\x28\xb5\x2f\xfd", b"\xe0"
    block = ((len(content) << 3) | 1).to_bytes(3, "little")
    return magic + single_segment_with_8_bytes + struct.pack("<Q", claimed) + block + content


def test_accepts_zstd_frame_with_correct_size() -> None:
    payload = zstd_frame(len(RECORDS), RECORDS)
    assert len(decode_rows(batch_of(Compression.ZSTD, payload).records())) == 1


@pytest.mark.parametrize("claimed", [0, 1, len(RECORDS) - 1, len(RECORDS) + 1, 2**20, 2**31, 2**40, 2**64 - 1])
def test_wrong_zstd_size(claimed: int) -> None:
    problem = "cannot decompress zstd data: " if claimed < 2**28 else "zstd data decompresses to more than the limit"
    with pytest.raises(CorruptRecordError, match=rf"^batch at byte {AT}: {problem}"):
        batch_of(Compression.ZSTD, zstd_frame(claimed, RECORDS)).records()


@pytest.mark.parametrize(
    ("claimed", "problem"),
    [
        (0, "cannot decompress {}: "),
        (len(RECORDS) - 1, "cannot decompress {}: "),
        (len(RECORDS) + 1, "cannot decompress {}: "),
        (2**20, "{} " + f"claims {2**20} bytes out of "),
        (2**31 - 1, "{} " + f"claims {2**31 - 1} bytes out of "),
        (2**32 - 1, "{} " + f"claims {2**32 - 1} bytes out of "),
        (2**40, "cannot decompress {}: "),
    ],
)
@pytest.mark.parametrize("framed", [False, True])
def test_rejects_wrong_snappy_size(claimed: int, problem: str, framed: bool) -> None:
    block = packed(Compression.SNAPPY)[20:]
    assert block.startswith(snappy_size(len(RECORDS)))
    block = snappy_size(claimed) + block.removeprefix(snappy_size(len(RECORDS)))
    payload, position = block, 0
    if framed:
        payload, position = packed(Compression.SNAPPY)[:16] + len(block).to_bytes(4, "big") + block, 20
    block_at = f"snappy block at byte {position}"
    with pytest.raises(CorruptRecordError, match=rf"^batch at byte {AT}: {problem.format(block_at)}"):
        batch_of(Compression.SNAPPY, payload).records()


@pytest.mark.parametrize("claimed", [2**31, 2**32 - 1])
def test_rejects_snappy_chunk_past_data(claimed: int) -> None:
    payload = bytearray(packed(Compression.SNAPPY))
    payload[16:20] = claimed.to_bytes(4, "big")
    message = (
        rf"^batch at byte {AT}: snappy chunk at byte 20 claims {claimed} bytes but only {len(payload) - 20} are left$"
    )
    with pytest.raises(CorruptRecordError, match=message):
        batch_of(Compression.SNAPPY, bytes(payload)).records()


def xxh32_of_a_few_bytes(data: bytes) -> int:
    """Computes the checksum of lz4 frames, for fewer than 16 bytes."""
    primes = (2654435761, 2246822519, 3266489917, 668265263, 374761393)
    mask = 2**32 - 1
    hashed = primes[4] + len(data)
    whole = len(data) // 4 * 4
    for start in range(0, whole, 4):
        hashed = hashed + int.from_bytes(data[start : start + 4], "little") * primes[2] & mask
        hashed = (hashed << 17 | hashed >> 15) * primes[3] & mask
    for byte in data[whole:]:
        hashed = hashed + byte * primes[4] & mask
        hashed = (hashed << 11 | hashed >> 21) * primes[0] & mask
    hashed = (hashed ^ hashed >> 15) * primes[1] & mask
    hashed = (hashed ^ hashed >> 13) * primes[2] & mask
    return hashed ^ hashed >> 16


def lz4_frame(claimed: int, content: bytes) -> bytes:
    """Returns a frame with uncompressed content and a wrong size."""
    independent_blocks_and_size, blocks_of_64_kib = 0x68, 0x40
    descriptor = bytes([independent_blocks_and_size, blocks_of_64_kib]) + struct.pack("<Q", claimed)
    checksum = bytes([xxh32_of_a_few_bytes(descriptor) >> 8 & 0xFF])
    block = struct.pack("<I", 1 << 31 | len(content)) + content
    return b"\x04\x22\x4d\x18" + descriptor + checksum + block + bytes(4)


def test_accepts_lz4_frame_with_correct_size() -> None:
    payload = lz4_frame(len(RECORDS), RECORDS)
    assert len(decode_rows(batch_of(Compression.LZ4, payload).records())) == 1


@pytest.mark.parametrize("claimed", [1, len(RECORDS) - 1, len(RECORDS) + 1, 2**20, 2**31, 2**40, 2**64 - 1])
def test_wrong_lz4_size(claimed: int) -> None:
    with pytest.raises(CorruptRecordError, match=rf"^batch at byte {AT}: cannot decompress lz4 data: "):
        batch_of(Compression.LZ4, lz4_frame(claimed, RECORDS)).records()
