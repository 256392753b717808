import io

import pytest

from headrace.shop.datagen.progress import Progress, bar, rate_text, time_text
from headrace.testing.clock import ManualClock


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("share", "drawn"), [(-1, "░░░░"), (0, "░░░░"), (0.5, "██░░"), (0.625, "██▌░"), (1, "████"), (2, "████")]
)
def test_bar(share: float, drawn: str) -> None:
    assert bar(share, width=4) == drawn


def test_texts() -> None:
    assert rate_text(1_000_000, 50_000_000, 10) == "100,000/s  5.0 MB/s"
    assert [time_text(seconds) for seconds in (-1, 5, 65, 3600)] == ["0:00", "0:05", "1:05", "60:00"]


def test_terminal_line_is_updated_in_place() -> None:
    out, clock = Terminal(), ManualClock()
    progress = Progress(out, clock)
    assert progress.is_due()
    progress.show("one")
    assert not progress.is_due()
    clock.advance(100)
    assert progress.is_due()
    progress.show("two")
    progress.end()
    progress.end()
    assert [line.rstrip() for line in out.getvalue().split("\r")] == ["", "one", "two"]
    assert out.getvalue().count("\n") == 1


def test_file_gets_a_line_every_interval() -> None:
    out, clock = io.StringIO(), ManualClock()
    progress = Progress(out, clock)
    progress.show("one")
    clock.advance(4_900)
    assert not progress.is_due()
    clock.advance(100)
    assert progress.is_due()
    progress.end("two")
    assert out.getvalue() == "one\ntwo\n"
