"""Compares the record kernel with aiokafka's compiled one: the same records, in batches of usual producer sizes.

Both sides compute the CRC when they encode, check it when they decode, and keep all created objects until the end.
"""

import random
from collections.abc import Callable

from aiokafka.record._crecords import DefaultRecordBatch, DefaultRecordBatchBuilder

from bench.harness import Measurement, compare, seconds_of
from headrace.records import BatchBuilder, decode_rows, split_batches
from headrace.records.arrow import decode_arrow, encode_arrow

TIMESTAMP = 1_700_000_000_000
TOTAL_BYTES = 8 * 1024 * 1024
Rows = list[tuple[bytes, bytes, int]]


def make_rows(value_bytes: int, count: int) -> Rows:
    source = random.Random(value_bytes)
    return [(b"key-%08d" % number, source.randbytes(value_bytes), TIMESTAMP + number) for number in range(count)]


def encode_ours(rows: Rows) -> bytearray:
    builder = BatchBuilder()
    append = builder.append
    for key, value, timestamp in rows:
        append(key, value, timestamp)
    return builder.build()


def encode_theirs(rows: Rows) -> bytearray:
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 2**30)
    append = builder.append
    for number, (key, value, timestamp) in enumerate(rows):
        append(number, timestamp, key, value, [])
    return builder.build()


def decode_theirs(batches: list[bytes]) -> list[object]:
    records: list[object] = []
    for raw in batches:
        batch = DefaultRecordBatch(raw)
        if not batch.validate_crc():
            raise ValueError("a batch has a wrong CRC")
        records += batch
    return records


def decode_ours(batches: list[bytes]) -> list[object]:
    records: list[object] = []
    for raw in batches:
        for batch in split_batches(raw):
            batch.check_crc()
            records += decode_rows(batch.records())
    return records


def decode_columns(raw: bytes) -> int:
    return decode_arrow(split_batches(raw), check_crcs=True).num_rows


def run(rounds: int) -> list[Measurement]:
    measurements: list[Measurement] = []
    for value_bytes in (100, 1000):
        for batch_bytes, label in ((16 * 1024, "16 KB"), (1024 * 1024, "1 MB")):
            measurements += _run_one(value_bytes, batch_bytes, label, rounds)
    return measurements


def _run_one(value_bytes: int, batch_bytes: int, label: str, rounds: int) -> list[Measurement]:
    per_batch = batch_bytes // (value_bytes + 20)
    rows = make_rows(value_bytes, per_batch * (TOTAL_BYTES // batch_bytes))
    groups = [rows[start : start + per_batch] for start in range(0, len(rows), per_batch)]
    batches = [bytes(encode_ours(group)) for group in groups]
    if batches != [bytes(encode_theirs(group)) for group in groups]:
        raise AssertionError("Headrace and aiokafka encode different bytes")
    joined = b"".join(batches)
    table = decode_arrow(split_batches(joined))
    if [bytes(batch) for batch in encode_arrow(table.slice(0, per_batch), max_bytes=2**30)] != batches[:1]:
        raise AssertionError("encoding from Arrow gives different bytes")

    def measure(what: str, target: float, ours: Callable[[], object], theirs: Callable[[], object]) -> Measurement:
        return compare(
            f"{what}, {value_bytes} B values, {label} batches",
            peer="aiokafka (compiled)",
            ours=lambda: seconds_of(ours),
            theirs=lambda: seconds_of(theirs),
            work=len(rows) / 1e6,
            unit="M rec/s",
            target=target,
            rounds=rounds,
        )

    return [
        measure("encode rows", 1, lambda: [encode_ours(g) for g in groups], lambda: [encode_theirs(g) for g in groups]),
        measure("decode rows", 1, lambda: decode_ours(batches), lambda: decode_theirs(batches)),
        measure(
            "encode from Arrow",
            5,
            lambda: encode_arrow(table, max_bytes=len(batches[0])),
            lambda: [encode_theirs(g) for g in groups],
        ),
        measure("decode to Arrow", 5, lambda: decode_columns(joined), lambda: decode_theirs(batches)),
    ]
