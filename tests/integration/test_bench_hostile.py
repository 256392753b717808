"""The harness of the `hostile` benchmark: a small attack on a broker yields a row with plausible figures."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from bench.broker_sides import Headrace, Side
from bench.broker_wire import Wire, create_topic
from bench.hostile import runner
from bench.hostile.attack import Attack, Row
from bench.hostile.attacks import ATTACKS

ROOT = Path(__file__).parents[2]
PAUSE_SECONDS = 0.3


class Pause(Attack):
    """Stops the broker's process for a moment, which every client notices."""

    name = "pause"

    def prepare(self, side: Side) -> None:
        with Wire(side.port) as wire:
            assert create_topic(wire, "made-by-prepare", 1) == 0

    def run(self, side: Side) -> str:
        os.kill(side.process_id(), signal.SIGSTOP)
        try:
            with Wire(side.port, PAUSE_SECONDS) as wire, pytest.raises(TimeoutError):
                create_topic(wire, "too-late", 1)
        finally:
            os.kill(side.process_id(), signal.SIGCONT)
        return "paused"


def test_row_of_an_attack(tmp_path: Path) -> None:
    row = Pause().measure(Headrace, tmp_path)
    assert (row.attack, row.side, row.outcome, row.failures) == ("pause", "Headrace", "paused", 0)
    assert row.p50_ms <= row.p99_ms <= row.max_ms
    assert row.max_ms >= 1000 * (PAUSE_SECONDS - 0.1)
    assert row.lag_ms >= 1000 * (PAUSE_SECONDS - 0.1)
    assert row.missed == "others wait ≤ 100 ms"
    assert 10 < row.memory_before_mb <= row.memory_peak_mb


class Fixed(Attack):
    def __init__(self, name: str):
        self.name = name
        self.p99_ms = 1.0

    def measure(self, kind: type[Side], directory: Path) -> Row:
        return Row(self.name, kind.name, p99_ms=self.p99_ms, outcome="ok")


def test_results_keep_the_rows_of_attacks_that_were_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runner, "RESULTS", tmp_path)
    attacks = [Fixed("first"), Fixed("second")]
    for attack in attacks:
        attack.peer = False
    runner.run(tmp_path / "a", attacks=attacks)
    attacks[1].p99_ms = 2.0
    runner.run(tmp_path / "b", attacks=attacks, only="sec")
    kept = [Row(**row) for row in json.loads((tmp_path / "hostile.json").read_text())]
    assert [(row.attack, row.p99_ms) for row in kept] == [("first", 1.0), ("second", 2.0)]
    table = (tmp_path / "hostile.md").read_text()
    assert "| first | Headrace |  | 1.0 |" in table
    assert "| second | Headrace |  | 2.0 |" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="no attack has 'third' in its name; there are: first, second"):
        runner.run(tmp_path / "c", attacks=attacks, only="third")


def test_names_of_attacks_are_unique() -> None:
    names = [name for attack in ATTACKS for name in attack.row_names()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("goals", "names"),
    [
        (["bench", "hostile"], ["hostile"]),
        (["bench"], []),
        (["bench", "log", "tools"], ["log", "tools"]),
        (["bench", "cluster"], ["cluster"]),  # also a target of its own
    ],
)
def test_make_passes_the_names_of_benchmarks(goals: list[str], names: list[str]) -> None:
    shown = subprocess.run(["make", "--dry-run", *goals], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    (command,) = (line for line in shown.splitlines() if " -m bench" in line)
    assert command.split()[3:] == names
    assert "cluster_tour" not in shown
