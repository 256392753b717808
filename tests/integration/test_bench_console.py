"""The `console` benchmark: a tiny load yields plausible figures; no speed is checked."""

from pathlib import Path

from bench import console

TINY = console.Sizes(pace_seconds=1, megabytes=2, watch_seconds=0, settle_seconds=0)


def test_costs(tmp_path: Path) -> None:
    measurements, notes = console.run(tmp_path, 1, sizes=TINY)
    assert [measured.name for measured in measurements] == [
        "produce, 1,000 records/s, p50",
        "produce, 1,000 records/s, p99",
        "produce, 16 KB batches",
        "produce, 16 KB batches: CPU of the broker",
    ]
    assert all(measured.ours > 0 and measured.theirs > 0 for measured in measurements)
    memory = next(note for note in notes if note.startswith("Console memory:"))
    assert int(memory.split()[2]) > 10, "the console's process was found"
