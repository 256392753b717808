"""A fuzzer for everything that reads record batches: `python -m tests.support.records.fuzzer --seed 1 --rounds 1000`.

Each round breaks a valid batch in a few places and passes it to every public function. The only failures allowed
are Headrace's own errors; for an accepted batch, rows, columns and the reference must agree, and it must survive being
written again. The same seed always gives the same rounds.

Most rounds update the CRC after breaking the batch; otherwise no code after the CRC check would run. For
the same reason compressed batches are broken in two ways: in their compressed bytes, and before compression.
"""

import argparse
import array
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from tests.support.records import reference_batch as reference

from headrace.common.errors import CorruptRecordError, HeadraceError
from headrace.records import (
    BatchRecords,
    Compression,
    FetchedRecords,
    OffsetMap,
    Record,
    RecordBatch,
    _batch,
    crc32c,
    decode_rows,
    decode_varint,
    decode_varlong,
    encode_empty_batch,
    encode_rows,
    murmur2,
    partition_for_key,
    read_marker,
    recompress,
    rewrite_batch,
    split_batches,
    walk_headers,
)
from headrace.records.arrow import ArrowDecoder, decode_arrow, encode_arrow
from headrace.records.compression import compress

Buffer = bytearray | array.array

MAX_INFLATED_BYTES = 1 << 20
LAST_INT32, LAST_INT64 = 2**31 - 1, 2**63 - 1
HOSTILE_INTEGERS = (0, 1, -1, -2, 63, 64, 127, 128, 255, 2**15, 2**16, 2**30, LAST_INT32 - 1, LAST_INT32, -(2**31))
HEADER_FIELDS = {  # position and size of each
    "base offset": (0, 8),
    "length": (8, 4),
    "leader epoch": (12, 4),
    "magic": (16, 1),
    "attributes": (21, 2),
    "last offset delta": (23, 4),
    "base timestamp": (27, 8),
    "max timestamp": (35, 8),
    "producer id": (43, 8),
    "producer epoch": (51, 2),
    "base sequence": (53, 4),
    "count": (57, 4),
}


class Finding(AssertionError):
    """Behavior that no batch may cause, however invalid."""


def has_valid_crc(batch: RecordBatch) -> bool:
    try:
        batch.check_crc()
    except CorruptRecordError:
        return False
    return True


class Fuzzer:
    """Counts outcomes in `outcomes`, and collects the errors in `reasons`, with `#` for numbers."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.outcomes: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()

    def run(self, rounds: int) -> None:
        for _ in range(rounds):
            buffer: Buffer = self.broken_batch()
            if self.random.random() < 0.5:
                # A bytearray has a spare byte at its end; here AddressSanitizer detects the first byte past the end.
                buffer = array.array("B", buffer)
            try:
                self.read_everything(buffer)
            except Exception as error:
                raise Finding(f"{type(error).__name__}: {error}, from {bytes(buffer).hex()}") from error

    # ---- creating invalid batches

    def rows(self) -> list[reference.Row]:
        rng = self.random
        rows, offset = [], 0
        timestamp = rng.choice((0, 1_700_000_000_000, LAST_INT64 - 50))
        for _ in range(rng.choice((1, 1, 2, 3, 8, 40))):
            headers = tuple(
                (rng.choice((b"", b"name", "größe".encode(), b"\xff\xfe")), self.payload())
                for _ in range(rng.choice((0, 0, 1, 2, 5)))
            )
            rows.append(reference.Row(self.payload(), self.payload(), timestamp, headers, offset))
            offset += rng.choice((1, 1, 1, 70))
            timestamp += rng.choice((0, 1, -1))
        return rows

    def payload(self) -> bytes | None:
        rng = self.random
        size = rng.choice((None, 0, 1, 4, 10, 63, 64, 200))
        if size is None:
            return None
        return rng.randbytes(size) if rng.random() < 0.3 else rng.choice((b"a", b"\0", b"\xff")) * size

    def broken_batch(self) -> bytearray:
        rng = self.random
        rows = self.rows()
        codec = rng.choice(list(Compression))
        base_offset = rng.choice((0, 0, 1000, 2**40, LAST_INT64 - 2**31))
        rows = [row._replace(offset=base_offset + row.offset) for row in rows]
        payload = self.records(rows, base_offset)
        if codec:
            payload = bytes(self.compress(codec, payload))
        if codec and rng.random() < 0.4:
            payload = self.break_bytes(payload)
        batch = reference.batch_bytes(
            payload,
            count=max(0, len(rows) + rng.choice((0,) * 20 + (1, -1))),
            last_offset_delta=rows[-1].offset - base_offset,
            base_offset=base_offset,
            attributes=codec | rng.choice((0, 0, 0x08, 0x10, 0x30, 0x40, 0x78)),
            base_timestamp=rows[0].timestamp,
            max_timestamp=max(row.timestamp for row in rows),
            producer_id=rng.choice((-1, 5)),
        )
        for _ in range(rng.choice((0, 0, 1, 2))):
            self.break_header(batch)
        whole = rng.choice((1, 1, 2)) * batch
        if rng.random() < 0.1:
            return bytearray(self.break_bytes(bytes(whole)))
        return bytearray(whole)

    def records(self, rows: Sequence[reference.Row], base_offset: int) -> bytes:
        """Returns the records of a batch with a few wrong fields or bytes."""
        rng = self.random
        encoded = []
        for row in rows:
            parts = reference.record_parts(row, base_offset, rows[0].timestamp)
            if rng.random() < 0.15:
                at = rng.randrange(len(parts))
                parts[at] = (parts[at][0], self.hostile_field())
            elif rng.random() < 0.05:
                parts = [*parts[: rng.randrange(len(parts))], ("cut", b"\x80" * rng.randrange(5))]
            encoded.append(reference.join_record(parts))
        if rng.random() < 0.1:
            at = rng.randrange(len(encoded))
            encoded[at] = self.hostile_field() + encoded[at][1:]
        payload = b"".join(encoded)
        return self.break_bytes(payload) if rng.random() < 0.25 else payload

    def hostile_field(self) -> bytes:
        rng = self.random
        return rng.choice(
            (
                reference.varint(rng.choice(HOSTILE_INTEGERS)),
                reference.varlong(rng.choice((-(2**63), LAST_INT64, 2**32, -(2**32)))),
                b"\x80" * rng.randrange(12),
                b"\xff" * rng.randrange(12),
                rng.randbytes(rng.randrange(6)),
                b"",
            )
        )

    def break_bytes(self, data: bytes) -> bytes:
        """Flips, sets, removes, repeats or moves some bytes."""
        rng = self.random
        broken = bytearray(data)
        for _ in range(rng.choice((1, 1, 2, 5))):
            if not broken:
                break
            at = rng.randrange(len(broken))
            span = rng.choice((1, 2, 4, 16))
            kind = rng.randrange(7)
            if kind == 0:
                broken[at] ^= 1 << rng.randrange(8)
            elif kind == 1:
                broken[at] = rng.choice((0, 1, 2, 0x7F, 0x80, 0x81, 0xFE, 0xFF))
            elif kind == 2:
                del broken[at:]
            elif kind == 3:
                del broken[at : at + span]
            elif kind == 4:
                broken[at:at] = broken[rng.randrange(len(broken)) :][:span]
            elif kind == 5:
                broken[at : at + span] = rng.randbytes(span)
            else:
                broken[at : at + 4] = rng.choice(HOSTILE_INTEGERS).to_bytes(4, "big", signed=True)
        return bytes(broken)

    def break_header(self, batch: bytearray) -> None:
        rng = self.random
        start, size = HEADER_FIELDS[rng.choice(list(HEADER_FIELDS))]
        low, high = -(1 << 8 * size - 1), (1 << 8 * size - 1) - 1
        value = rng.choice((low, high, high - 1, *(number for number in HOSTILE_INTEGERS if low <= number <= high)))
        batch[start : start + size] = value.to_bytes(size, "big", signed=True)
        if rng.random() < 0.85:
            reference.seal(batch)

    def compress(self, codec: Compression, payload: bytes) -> Any:
        if codec == Compression.SNAPPY and self.random.random() < 0.5:
            return pa.compress(payload, "snappy", asbytes=True)
        return compress(codec, payload)

    # ---- reading them

    def attempt(self, name: str, action: Callable[[], Any]) -> Any:
        """Returns the action's result, or None if it raised one of Headrace's errors, which must have a message."""
        try:
            result = action()
        except HeadraceError as error:
            if len(str(error)) < 10:
                raise Finding(f"{name} raised {type(error).__name__} that says {str(error)!r}") from error
            self.outcomes[f"{name}: {type(error).__name__}"] += 1
            if name == "records":
                self.reasons[re.sub(r"-?\d+", "#", str(error))] += 1
            return None
        self.outcomes[f"{name}: accepted"] += 1
        return result

    def read_everything(self, buffer: Buffer) -> None:
        rng = self.random
        self.read_numbers(buffer)
        for target in (0, 5, LAST_INT64):
            self.attempt("walk_headers", lambda target=target: walk_headers(buffer, 0, target))
        self.attempt("walk_headers inside", lambda: walk_headers(buffer, rng.randrange(len(buffer) + 2), 7))
        self.attempt("split_batches", lambda: split_batches(buffer))
        batches = self.attempt("split_batches with a partial tail", lambda: split_batches(buffer, 0, True)) or []
        self.attempt("RecordBatch inside", lambda: RecordBatch(buffer, rng.randrange(len(buffer) + 2)))
        header = self.attempt("RecordBatch of a header", lambda: RecordBatch(buffer, 0, header_only=True))
        if header is not None:
            self.read_header(header)
            encode_empty_batch(header)
        first = self.attempt("RecordBatch", lambda: RecordBatch(buffer))
        for batch in batches or ([first] if first else []):
            self.read_batch(batch)
        if batches:
            decoded = self.attempt(
                "decode_arrow",
                lambda: decode_arrow(batches, max_inflated_bytes=MAX_INFLATED_BYTES, check_crcs=rng.random() < 0.5),
            )
            if decoded is not None:
                decoded.validate(full=True)
        self.consume(buffer)
        if first is not None:
            self.patch(first)

    def consume(self, buffer: Buffer) -> None:
        """Reads in portions, like a consumer: rows and columns agree, and offsets only increase."""
        rng = self.random
        start = rng.choice((0, 0, rng.randrange(10), rng.randrange(LAST_INT64)))
        aborted = (
            [(rng.randrange(3), rng.randrange(10)) for _ in range(rng.randrange(3))] if rng.random() < 0.3 else None
        )
        check_crcs = rng.random() < 0.5

        def make() -> FetchedRecords:
            return FetchedRecords("t", 0, buffer, start, aborted, check_crcs, MAX_INFLATED_BYTES)

        rows, columns = make(), make()
        by_rows: list[int] = []
        while portion := self.attempt("take", lambda: rows.take(rng.choice((1, 3, 100)))):
            by_rows += [row.offset for row in portion]
        decoder = ArrowDecoder()
        while self.attempt("take_columns", lambda: columns.take_columns(decoder, rng.choice((1, 3, 100)))):
            pass
        taken = decoder.finish()
        taken.validate(full=True)
        self.agree("offsets taken", taken.column("offset").to_pylist(), by_rows)
        self.agree("order", by_rows, sorted(set(by_rows)))
        self.agree("positions", rows.next_offset, columns.next_offset)
        if by_rows and not start <= by_rows[0] <= by_rows[-1] < rows.next_offset <= rows.end_offset:
            raise Finding(f"from {start} on came {by_rows}, and then {rows.next_offset} of {rows.end_offset}")

    def read_numbers(self, buffer: Buffer) -> None:
        position = self.random.randrange(len(buffer) + 2)
        self.attempt("decode_varint", lambda: decode_varint(buffer, position))
        self.attempt("decode_varlong", lambda: decode_varlong(buffer, position))
        murmur2(buffer)
        partition_for_key(buffer, 1 + position)
        crc32c(buffer)

    def read_header(self, batch: RecordBatch) -> None:
        for name in dir(RecordBatch):
            if not name.startswith(("_", "patch_", "check_", "raw", "records")):
                getattr(batch, name)
        repr(batch)

    def read_batch(self, batch: RecordBatch) -> None:
        self.read_header(batch)
        self.agree("raw", len(batch.raw), batch.size_in_bytes)
        self.attempt("check_crc", batch.check_crc)
        empty = encode_empty_batch(batch)
        self.attempt("records of the emptied batch", RecordBatch(empty).records)
        records = self.attempt("records", lambda: batch.records(MAX_INFLATED_BYTES))
        if records is None:
            self.check_refused(batch)
        else:
            self.read_records(records)

    def check_refused(self, batch: RecordBatch) -> None:
        """The reference must reject it too, if the checks are the same: without compression and with a valid CRC."""
        raw = bytearray(batch.raw)
        reference.seal(raw)
        if batch.is_compressed:
            return
        try:
            reference.decode(bytes(raw))
        except reference.Malformed:
            return
        raise Finding("the kernel refuses a batch that the reference takes")

    def read_records(self, records: BatchRecords) -> None:
        rng = self.random
        rows = decode_rows(records)
        offsets, timestamps = records.offsets(), records.timestamps()
        self.agree("offsets", offsets, [row.offset for row in rows])
        self.agree("timestamps", timestamps, [row.timestamp for row in rows])
        self.agree("keys", [records.key(i) for i in range(len(records))], [row.key for row in rows])
        self.agree("values", [records.value(i) for i in range(len(records))], [row.value for row in rows])
        if rows:
            min_offset = rng.choice(offsets)
            wanted = [row for row in rows if row.offset >= min_offset]
            self.agree("rows from an offset on", decode_rows(records, min_offset), wanted)
            records.max_timestamp()
            records.first_at_or_after(rng.choice(timestamps), min_offset)
        self.attempt("check_appendable", records.check_appendable)
        self.attempt("without_keys", lambda: records.without_keys(10))
        self.attempt("read_marker", lambda: read_marker(records))
        self.compare_with_reference(records, rows)
        self.rewrite(records, rows)
        if rows:
            self.compact(records, rows)
        for unit, scale in (("ms", 1), ("us", 1000)):
            self.read_columns(records, rows, unit, scale)

    def agree(self, what: str, found: object, expected: object) -> None:
        if found != expected:
            raise Finding(f"{what} do not agree: {found!r}, {expected!r}")

    def compare_with_reference(self, records: BatchRecords, rows: list[Record]) -> None:
        plain = bytes(recompress(records, Compression.NONE))
        _, expected = reference.decode(plain)
        found = [(row.key, row.value, row.timestamp, len(row.headers), row.offset) for row in rows]
        self.agree("reference", found, [row._replace(headers=len(row.headers)) for row in expected])
        for row, other in zip(rows, expected, strict=True):
            names = tuple((name.decode("utf-8", "replace"), value) for name, value in other.headers)
            self.agree("headers", row.headers, names)

    def rewrite(self, records: BatchRecords, rows: list[Record]) -> None:
        """Recompressing the batch and rebuilding it from rows yield the same rows."""
        again = RecordBatch(recompress(records, self.random.choice(list(Compression))))
        again.check_crc()
        self.agree("recompressed rows", decode_rows(again.records()), rows)
        writable = [(row.key, row.value, row.timestamp, row.headers) for row in rows if row.timestamp >= -1]
        if writable:
            built = decode_rows(RecordBatch(encode_rows(writable)).records())
            self.agree("built rows", [(row.key, row.value, row.timestamp, row.headers) for row in built], writable)

    def compact(self, records: BatchRecords, rows: list[Record]) -> None:
        """The map has the last offset of each key, and a rewritten batch has the selected rows."""
        rng = self.random
        offsets = OffsetMap(2048, secret=bytes(16))
        keyed = {row.key: row.offset for row in rows if row.key is not None}
        if offsets.add(records):
            self.agree("offsets of keys", {key: offsets.get(key) for key in keyed}, keyed)
        mask, kept, _ = offsets.select(records, rng.choice((0, rows[-1].offset, LAST_INT64)), rng.random() < 0.5)
        self.agree("records selected", (len(mask), sum(mask)), (len(rows), kept))
        mask = bytes(rng.random() < 0.5 for _ in rows)
        chosen = [row for row, keep in zip(rows, mask, strict=True) if keep]
        if chosen:
            horizon = rng.choice((None, 0, LAST_INT64))
            rewritten = RecordBatch(rewrite_batch(records, mask, horizon))
            rewritten.check_crc()
            self.agree("rewritten rows", decode_rows(rewritten.records()), chosen)

    def read_columns(self, records: BatchRecords, rows: list[Record], unit: str, scale: int) -> None:
        decoder = ArrowDecoder(unit)
        try:
            added = decoder.add(records)
        except CorruptRecordError:
            if all(-(2**63) <= row.timestamp * scale < 2**63 for row in rows):
                raise
            self.outcomes[f"columns in {unit}: timestamp refused"] += 1
            added, rows = 0, []
        decoded = decoder.finish()
        decoded.validate(full=True)
        self.agree("rows added", (added, decoded.num_rows), (len(rows), len(rows)))
        self.agree("key column", decoded.column("key").to_pylist(), [row.key for row in rows])
        self.agree("value column", decoded.column("value").to_pylist(), [row.value for row in rows])
        self.agree("offset column", decoded.column("offset").to_pylist(), [row.offset for row in rows])
        times = decoded.column("timestamp").cast(pa.int64()).to_pylist()
        self.agree("timestamp column", times, [row.timestamp * scale for row in rows])
        headers = [tuple((h["key"], h["value"]) for h in row) for row in decoded.column("headers").to_pylist()]
        self.agree("header column", headers, [row.headers for row in rows])
        if scale == 1 and rows and all(row.timestamp >= -1 for row in rows):
            encoded = encode_arrow(decoded.slice(len(rows) // 2), max_bytes=self.random.choice((100, 10**6)))
            written = [row for batch in encoded for row in decode_rows(RecordBatch(batch).records())]
            self.agree("encoded columns", [row.value for row in written], [row.value for row in rows[len(rows) // 2 :]])

    def patch(self, batch: RecordBatch) -> None:
        rng = self.random
        stored = batch.crc
        was_valid = has_valid_crc(batch)
        batch.patch_base_offset(rng.choice((0, LAST_INT64)))
        batch.patch_leader_epoch(rng.choice((-1, LAST_INT32)))
        self.agree("CRC", batch.crc, stored)
        batch.patch_max_timestamp(rng.choice((-1, 5, LAST_INT64)), rng.random() < 0.5)
        batch.patch_producer(rng.choice((-1, LAST_INT64)), rng.choice((-1, 2**15 - 1)), LAST_INT32, rng.random() < 0.5)
        self.agree("validity of the CRC after patches", has_valid_crc(batch), was_valid)
        self.attempt("records of the patched batch", lambda: batch.records(MAX_INFLATED_BYTES))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    arguments = parser.parse_args()
    fuzzer = Fuzzer(arguments.seed)
    fuzzer.run(arguments.rounds)
    print(json.dumps({"kernel": _batch.__file__, "outcomes": fuzzer.outcomes, "reasons": fuzzer.reasons}))


if __name__ == "__main__":
    main()
