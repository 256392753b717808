"""The `processes` benchmark: tiny loads yield plausible figures; no speed is checked."""

from pathlib import Path

from bench import processes

TINY = processes.Sizes(produced=2, warmup=0, settle_seconds=0)


def test_scaling(tmp_path: Path) -> None:
    """Both sides are Headrace, which needs no download."""
    kinds = (processes.TwoProcesses, processes.OneProcess)
    measurements, notes = processes.run(tmp_path, 1, sizes=TINY, kinds=kinds)
    assert [measured.name for measured in measurements] == [
        "produce, 16 KB batches, acks all",
        "produce, 16 KB batches, acks all: CPU of the brokers",
        "consume",
        "consume: CPU of the brokers",
    ]
    assert all(measured.ours > 0 and measured.theirs > 0 for measured in measurements)
    assert sum(note.startswith("Prediction for two processes") for note in notes) == 2


def test_prediction_is_limited_by_the_cores() -> None:
    assert processes.predict(100, 2.0, 8) == 200
    assert processes.predict(400, 4.0, 2) == 500
