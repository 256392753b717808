"""The command that runs seeds."""

import sys

import pytest

from headrace.testing.simulation import __main__ as command
from headrace.testing.simulation.seeds import Outcome


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    def run_seed(seed: int, *_: object, moves_log_dirs: bool) -> Outcome:
        if seed == 7:
            error = AssertionError("broken")
            error.trace = ["first line", "last line"]  # type: ignore[attr-defined]
            raise error
        return Outcome(seed, acknowledged=5)

    monkeypatch.setattr(command, "run_seed", run_seed)
    monkeypatch.setattr(sys, "argv", ["simulation", *arguments])
    return command.main()


def test_good_seeds(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "--seeds", "3", "2") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[:26] for line in lines[:2]] == ["seed 3: 5 acknowledged, 0 ", "seed 4: 5 acknowledged, 0 "]
    assert lines[2].startswith("2 seeds, 0 faults (), 10 records acknowledged, ")


def test_the_trace_of_a_failed_seed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "--seeds", "5", "10") == 1
    out = capsys.readouterr().out
    assert "first line\nlast line\n" in out
    assert "python -m headrace.testing.simulation --seed 7" in out
    assert "seed 8" not in out


def test_all_failed_seeds(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "--seeds", "5", "5", "--keep-going") == 1
    assert capsys.readouterr().out.splitlines()[-1] == "failed seeds: [7]"
