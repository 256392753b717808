"""Logging for operators: one line per event.

    2026-01-31 12:00:00.123 INFO  broker.server  ready on PLAINTEXT://127.0.0.1:9092

After the level comes the logger's name without `headrace.`. Three loggers do not belong to a module:

    headrace.requests        every request, at level DEBUG
    headrace.slow_requests   slow requests, at level WARNING
    headrace.audit           denied access at level INFO, allowed access at level DEBUG
"""

import logging
import re
import sys
import time
from collections.abc import Iterable
from typing import TextIO

from headrace.common.clock import Clock
from headrace.common.errors import ConfigError

REQUEST_LOGGER = "headrace.requests"
SLOW_REQUEST_LOGGER = "headrace.slow_requests"
AUDIT_LOGGER = "headrace.audit"

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")

_CONTROLS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_SHORT_LEVELS = {"WARNING": "WARN", "CRITICAL": "FATAL"}


_LOG_INTERVAL_SECONDS = 10.0
_MAX_TEXT_LENGTH = 100
_TEXT_END_LENGTH = 37
"""Enough for the UUID at the end of a member id."""


def shorten(text: str) -> str:
    """Returns text of a client, such as its id, for a log line: only start and end, if it is long."""
    if len(text) <= _MAX_TEXT_LENGTH:
        return text
    return f"{text[: _MAX_TEXT_LENGTH - _TEXT_END_LENGTH - 3]}...{text[-_TEXT_END_LENGTH:]}"


class RateLimitedLog:
    """Logs each kind of problem at most every few seconds, with the number of suppressed lines."""

    def __init__(self, logger: logging.Logger, clock: Clock):
        self._logger = logger
        self._clock = clock
        self._last: dict[str, float] = {}
        self._silent: dict[str, int] = {}

    def log(self, kind: str, message: str) -> None:
        now = self._clock.monotonic()
        if kind in self._last and now - self._last[kind] < _LOG_INTERVAL_SECONDS:
            self._silent[kind] = self._silent.get(kind, 0) + 1
            return
        self._last[kind] = now
        silent = self._silent.pop(kind, 0)
        self._logger.warning("%s%s", message, f" ({silent} more such events since the last line)" if silent else "")


class LineFormatter(logging.Formatter):
    """Formats an event as one line, even if a client's name contains line breaks. Only a traceback adds lines."""

    def __init__(self, source: str = ""):
        """`source` comes before the logger's name, if several processes write to one log."""
        super().__init__()
        self._source = f"[{source}] " if source else ""

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        level = _SHORT_LEVELS.get(record.levelname, record.levelname)
        message = _CONTROLS.sub(lambda match: f"\\x{ord(match[0]):02x}", record.getMessage())
        name = record.name.removeprefix("headrace.")
        line = f"{moment}.{int(record.msecs):03d} {level:<5} {self._source}{name}  {message}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def set_up_logging(levels: Iterable[str] = (), stream: TextIO | None = None, source: str = "") -> logging.Handler:
    """Sends all logs to a stream (default: standard error) and sets log levels (default: INFO). Each line names its
    `source`, if there is one.

    A level is `DEBUG` for all loggers, or `broker.dispatch=DEBUG` for one logger and its children. Returns the
    handler, so that callers can remove it.
    """
    logger_levels = [_parse_level(text) for text in levels]
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(LineFormatter(source))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    for name, level in logger_levels:
        logging.getLogger(name).setLevel(level)
    return handler


def _parse_level(text: str) -> tuple[str, str]:
    name, _, level = text.rpartition("=")
    level = level.strip().upper()
    if level == "WARN":
        level = "WARNING"
    if level not in LEVELS:
        raise ConfigError(f"Invalid log level {text!r}: expected {', '.join(LEVELS)}, or LOGGER=LEVEL for one logger")
    name = name.strip()
    if name and name != "headrace" and not name.startswith("headrace."):
        name = f"headrace.{name}"
    return name, level
