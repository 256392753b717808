import pytest

from headrace.cli.common.progress import Progress, in_parts, in_time
from headrace.testing.clock import ManualClock


def test_progress_line() -> None:
    clock = ManualClock()
    progress = Progress("records", 1000, clock, shown=False)
    clock.advance(2000)
    progress.add(250)
    assert progress.line(clock.monotonic(), "note") == "25% · 250 of 1,000 records · 125/s · 6 s left · note"
    assert Progress("bytes", None, clock, shown=False).line(clock.monotonic()) == "0 bytes · 0/s"


@pytest.mark.parametrize(("seconds", "text"), [(3.4, "3 s"), (60, "1 min 00 s"), (3661, "1 h 01 min"), (-1, "0 s")])
def test_formats_durations(seconds: float, text: str) -> None:
    assert in_time(seconds) == text


def test_progress_line_fits_terminal_width(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    clock = ManualClock()
    with Progress("records", total=1_000_000, clock=clock, shown=True) as progress:
        clock.advance(1000)
        progress.add(1000, lambda: "p50 1 p99 2 ms")
    shown = capsys.readouterr().err.split("\r")[1]
    assert shown == "0% · 1,000 of 1,000,000 recor"


def test_chunks_show_progress(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(in_parts("topics", [1, 2, 3, 4, 5], 2)) == [[1, 2], [3, 4], [5]]
    assert list(in_parts("topics", [], 2)) == []
    assert capsys.readouterr().err == ""
