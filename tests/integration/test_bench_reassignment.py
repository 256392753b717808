"""The `reassignment` benchmark: a tiny reassignment yields plausible figures; no speed is checked."""

from pathlib import Path

from bench import reassignment
from bench.broker_sides import Headrace

TINY = reassignment.Sizes(moved=60, throttle=0, pace_seconds=1, warmup=0, settle_seconds=0)
"""With a throttle of 0 only the first fetches get records, of at most 10 MB from each of the two leaders."""


def test_latency_during_a_reassignment(tmp_path: Path) -> None:
    """Both sides are Headrace, which needs no download."""
    measurements, notes = reassignment.run(tmp_path, 1, sizes=TINY, kinds=(Headrace, Headrace))
    assert [measured.name for measured in measurements] == [
        "produce of one record at 1,000/s before a throttled reassignment, p50",
        "produce of one record at 1,000/s before a throttled reassignment, p99",
        "produce of one record at 1,000/s during a throttled reassignment, p50",
        "produce of one record at 1,000/s during a throttled reassignment, p99",
        "copying the rest without a throttle",
    ]
    assert all(measured.ours > 0 and measured.theirs > 0 for measured in measurements)
    assert any(note.startswith("Three brokers each") for note in notes)
