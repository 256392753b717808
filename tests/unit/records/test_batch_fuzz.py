"""Thousands of fuzzed batches; see tests/support/records/fuzzer.py."""

import re

import pytest
from tests.support.records import reference_batch as reference
from tests.support.records.fuzzer import Finding, Fuzzer

from headrace.common.errors import CorruptRecordError
from headrace.records import RecordBatch, decode_rows

ROUNDS = 2000


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_fuzzed_frames_raise_only_our_errors(seed: int) -> None:
    Fuzzer(seed).run(ROUNDS)


def test_fuzzer_reaches_every_check() -> None:
    """The patterns cover all errors that reading records can raise."""
    fuzzer = Fuzzer(4)
    fuzzer.run(ROUNDS)
    fields = ("length", "timestamp delta", "offset delta", "key", "value", "header count", "header key", "header value")
    patterns = [
        *(rf"record #, {field} at byte #.*: varint is too long" for field in fields),
        *(rf"record #, {field} at byte #.*: cut short" for field in fields if field != "length"),
        *(rf"record #, {field} at byte #.*: # is below #" for field in fields if "delta" not in field),
        *(rf"record #, {field} at byte #.*: length # but only" for field in ("length", "key", "value", "header key")),
        "record #, attributes at byte #.*: cut short",
        "record #, header count at byte #.*: claims # headers in # bytes",
        "record #, offset delta at byte #.*: # does not follow #",
        "record #, offset delta at byte #.*: # is beyond the batch's last offset delta #",
        "record # has # trailing bytes",
        "# trailing bytes at byte #.*, after the last of # records",
        "the batch claims # records but ends after #",
        "batch at byte # claims # records$",
        "batch at byte # claims # records in # bytes",
        "batch at byte # has base offset # and last offset delta #; neither may be negative",
        "batch at byte # has base offset # and last offset delta #; the last offset exceeds # bits",
        "batch at byte #: Unknown compression codec #",
        *(rf"batch at byte #: (cannot decompress )?{codec} " for codec in ("gzip", "snappy", "lz#", "zstd")),
    ]
    missed = [pattern for pattern in patterns if not any(re.match(pattern, reason) for reason in fuzzer.reasons)]
    assert missed == []
    assert fuzzer.outcomes["records: accepted"] > ROUNDS / 10


def test_seed_repeats_rounds() -> None:
    first, second, other = Fuzzer(5), Fuzzer(5), Fuzzer(6)
    for fuzzer in (first, second, other):
        fuzzer.run(50)
    assert first.reasons == second.reasons
    assert first.reasons != other.reasons


@pytest.mark.parametrize("error", [ValueError, IndexError, MemoryError, OverflowError, KeyError])
def test_fuzzer_reports_other_errors(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise error("of an unexpected kind")

    monkeypatch.setattr("tests.support.records.fuzzer.walk_headers", fail)
    with pytest.raises(Finding, match=f"^{error.__name__}: .*of an unexpected kind.*, from [0-9a-f]+$"):
        Fuzzer(1).run(1)


def test_fuzzer_reports_errors_without_text(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise CorruptRecordError("bad")

    monkeypatch.setattr("tests.support.records.fuzzer.walk_headers", fail)
    with pytest.raises(Finding, match="walk_headers raised CorruptRecordError that says 'bad'"):
        Fuzzer(1).run(1)


def test_fuzzer_reports_wrong_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    def lose_the_last(records: object, min_offset: int = 0) -> list[object]:
        return decode_rows(records, min_offset)[:-1]

    monkeypatch.setattr("tests.support.records.fuzzer.decode_rows", lose_the_last)
    with pytest.raises(Finding, match="offsets do not agree"):
        Fuzzer(1).run(200)


def test_fuzzer_reports_rejected_valid_batch() -> None:
    good = reference.encode([reference.Row(b"key", b"value", 5, (), 0)])
    with_a_header_that_is_missing = good[:-1] + b"\x02"
    Fuzzer(1).check_refused(RecordBatch(with_a_header_that_is_missing))
    with pytest.raises(Finding, match="refuses a batch that the reference takes"):
        Fuzzer(1).check_refused(RecordBatch(good))
