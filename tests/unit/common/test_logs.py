import io
import logging
import re
from collections.abc import Iterator

import pytest

from headrace.common.errors import ConfigError
from headrace.common.logs import REQUEST_LOGGER, set_up_logging, shorten

LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} (.*)")


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """Restores the log levels after a test."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield io.StringIO()
    root.handlers[:] = handlers
    root.setLevel(level)
    for name in (REQUEST_LOGGER, "headrace.broker", "headrace"):
        logging.getLogger(name).setLevel(logging.NOTSET)


def lines(stream: io.StringIO) -> list[str]:
    found = []
    for line in stream.getvalue().splitlines():
        match = LINE.fullmatch(line)
        found.append(match[1] if match else line)
    return found


def test_one_readable_line(stream: io.StringIO) -> None:
    set_up_logging(stream=stream)
    logging.getLogger("headrace.broker.server").info("ready on %s", "127.0.0.1:9092")
    logging.getLogger("headrace.net").warning("slow")
    logging.getLogger("other").error("bad")
    logging.getLogger("headrace.net").debug("not shown")
    assert lines(stream) == [
        "INFO  broker.server  ready on 127.0.0.1:9092",
        "WARN  net  slow",
        "ERROR other  bad",
    ]


def test_escapes_line_breaks(stream: io.StringIO) -> None:
    set_up_logging(stream=stream)
    logging.getLogger("headrace.net").info("client %s", "a\n2026-01-01 INFO forged\x1b[31m\tb")
    assert lines(stream) == ["INFO  net  client a\\x0a2026-01-01 INFO forged\\x1b[31m\tb"]


def test_traceback_follows_line(stream: io.StringIO) -> None:
    set_up_logging(stream=stream)
    try:
        _ = 1 // 0
    except ZeroDivisionError:
        logging.getLogger("headrace.net").exception("failed")
    found = lines(stream)
    assert found[0] == "ERROR net  failed"
    assert found[1] == "Traceback (most recent call last):"
    assert found[-1].startswith("ZeroDivisionError")


def test_sets_levels_of_all_and_of_single_loggers(stream: io.StringIO) -> None:
    set_up_logging(["error", "broker=info", "requests=DEBUG"], stream)
    logging.getLogger("headrace.net").warning("not shown")
    logging.getLogger("headrace.broker.server").info("shown")
    logging.getLogger(REQUEST_LOGGER).debug("shown too")
    assert lines(stream) == ["INFO  broker.server  shown", "DEBUG requests  shown too"]


def test_handler_can_be_removed(stream: io.StringIO) -> None:
    logging.getLogger().removeHandler(set_up_logging(["WARN"], stream))
    logging.getLogger("headrace.net").error("not shown")
    assert lines(stream) == []


@pytest.mark.parametrize("text", ["loud", "broker=", "=x", ""])
def test_rejects_invalid_level(text: str, stream: io.StringIO) -> None:
    with pytest.raises(ConfigError, match=r"Invalid log level .*: expected DEBUG, INFO, WARNING, ERROR"):
        set_up_logging([text], stream)


def test_shortens_only_long_text() -> None:
    assert shorten("x" * 100) == "x" * 100
    assert shorten("a" * 60 + "bcd" + "e" * 38) == "a" * 60 + "..." + "e" * 37
    assert len(shorten("x" * 101)) == 100
