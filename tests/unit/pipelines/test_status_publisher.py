"""The thread that publishes statuses. The topic is an object in memory."""

import logging
import threading
from collections.abc import Callable, Mapping

import pytest

from headrace.common.clock import SystemClock
from headrace.pipelines import status_publisher
from headrace.pipelines.status import RUNNING, STOPPED, FlowStatus
from headrace.pipelines.status_publisher import StatusPublisher

DEADLINE = 60


class Writer:
    """Collects statuses. Fails as long as `error` is set."""

    def __init__(self) -> None:
        self.statuses: list[FlowStatus] = []
        self.closed = 0
        self.error: Exception | None = None
        self.attempts = 0
        self._changed = threading.Condition()

    def write(self, records: Mapping[str, bytes]) -> None:
        with self._changed:
            self.attempts += 1
            self._changed.notify_all()
            if self.error is not None:
                raise self.error
            self.statuses += [FlowStatus.from_json(value) for value in records.values()]

    def close(self) -> None:
        self.closed += 1

    def wait_for(self, condition: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, DEADLINE)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_INTERVAL_SECONDS", "_RETRY_SECONDS", "HEARTBEAT_SECONDS"):
        monkeypatch.setattr(status_publisher, name, 0.01)
    monkeypatch.setattr(status_publisher, "_CLOSE_SECONDS", DEADLINE)


def status(flow: str, rows: int = 0, state: str = RUNNING) -> FlowStatus:
    return FlowStatus("p", flow, state=state, rows_in=rows)


def warnings(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == status_publisher.__name__]


def test_publishes_every_flow_and_its_end() -> None:
    writer = Writer()
    publisher = StatusPublisher(lambda: writer, SystemClock())
    publisher.publish([status("a", 1), status("b", 2)])
    writer.wait_for(lambda: {(each.flow, each.rows_in) for each in writer.statuses} >= {("a", 1), ("b", 2)})
    publisher.publish([status("a", 3, STOPPED), status("b", 4, STOPPED)])
    publisher.close()
    last = {each.flow: each for each in writer.statuses}
    assert {name: (each.rows_in, each.state) for name, each in last.items()} == {"a": (3, STOPPED), "b": (4, STOPPED)}
    assert writer.closed == 1


def test_repeats_the_last_status_as_a_heartbeat() -> None:
    writer = Writer()
    publisher = StatusPublisher(lambda: writer, SystemClock())
    publisher.publish([status("a", 1), status("b", 1, STOPPED)])
    writer.wait_for(lambda: sum(each.flow == "a" for each in writer.statuses) > 3)
    publisher.close()
    beats = [each for each in writer.statuses if each.flow == "a"]
    assert {each.rows_in for each in beats} == {1}
    assert beats[-1].updated_ms >= beats[1].updated_ms > 0
    assert sum(each.flow == "b" for each in writer.statuses) == 1


def test_failure_is_logged_once_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    writer = Writer()
    writer.error = OSError("no route")
    with caplog.at_level(logging.WARNING):
        publisher = StatusPublisher(lambda: writer, SystemClock())
        publisher.publish([status("a", 1)])
        writer.wait_for(lambda: writer.attempts >= 3)
        writer.error = None
        writer.wait_for(lambda: bool(writer.statuses))
        publisher.close()
    (record,) = warnings(caplog)
    assert "__headrace_pipelines" in record.getMessage()
    assert "OSError: no route" in record.getMessage()
    assert writer.closed >= 3


def test_missing_topic_does_not_hinder_the_end(caplog: pytest.LogCaptureFixture) -> None:
    def refuse() -> Writer:
        raise OSError("not authorized")

    with caplog.at_level(logging.WARNING):
        publisher = StatusPublisher(refuse, SystemClock())
        publisher.publish([status("a", 1, STOPPED)])
        publisher.close()
    assert len(warnings(caplog)) == 1


def test_close_does_not_wait_for_a_broker_that_does_not_answer(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_publisher, "_CLOSE_SECONDS", 0.01)
    answered = threading.Event()

    def wait() -> Writer:
        answered.wait(DEADLINE)
        return Writer()

    publisher = StatusPublisher(wait, SystemClock())
    publisher.publish([status("a", 1, STOPPED)])
    publisher.close()
    answered.set()
    assert "no answer within" in caplog.text
