"""Records that `console-consumer` prints and counts when it is interrupted."""

import io
import os
import signal
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.cli.common.tool import Interrupts, Terminated
from headrace.cli.records import console_consumer
from headrace.cli.records.console_consumer import Printer
from headrace.common.types import TopicPartition

TP = TopicPartition("t", 0)


class OneBatch:
    """A consumer that returns 20 records, and then the group's position."""

    def __init__(self) -> None:
        self.position: int | None = None

    def poll(self, timeout_ms: float, max_records: int | None = None) -> dict[TopicPartition, list[Any]]:
        return {TP: [SimpleNamespace(offset=number, value=b"%d\n" % number) for number in range(20)]}

    def assignment(self) -> set[TopicPartition]:
        return {TP}

    def seek(self, tp: TopicPartition, offset: int) -> None:
        self.position = offset


class SignalledOutput(io.BytesIO):
    """Sends a signal to this process at the end of a write."""

    def __init__(self, number: int, at: bytes):
        super().__init__()
        self._number, self._at = number, at

    def write(self, data: Any) -> int:
        written = super().write(data)
        if bytes(data) == self._at:
            os.kill(os.getpid(), self._number)
        return written


@pytest.fixture(autouse=True)
def interrupts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    installed = Interrupts()
    installed.install()
    monkeypatch.setattr(console_consumer, "interrupts", installed)
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)], ids=["SIGINT", "SIGTERM"]
)
@pytest.mark.parametrize("last", [0, 7, 19])
def test_counts_record_that_is_printed_when_a_signal_arrives(
    monkeypatch: pytest.MonkeyPatch, number: int, error: type[BaseException], last: int
) -> None:
    output = SignalledOutput(number, b"%d\n" % last)
    monkeypatch.setattr(console_consumer, "standard_output", lambda: output)
    consumer = OneBatch()
    printer = Printer(consumer, lambda record: record.value, None, None, False)  # type: ignore[arg-type]
    with pytest.raises(error):
        printer.run()
    printer.flush()
    printer.seek_to_unprinted()
    assert len(output.getvalue().splitlines()) == printer.count == last + 1
    assert consumer.position == last + 1
