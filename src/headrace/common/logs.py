"""The log that people read: one line per event.

    2026-01-31 12:00:00.123 INFO  broker.server  ready on PLAINTEXT://127.0.0.1:9092

The second column of words is the logger's name without `headrace.`. Two loggers are not a module's: `headrace.requests`
has a line for every request at level DEBUG, and `headrace.slow_requests` one at level WARNING for each that took long.
"""

import logging
import re
import sys
import time
from collections.abc import Iterable
from typing import TextIO

from headrace.common.errors import ConfigError

REQUEST_LOGGER = "headrace.requests"
SLOW_REQUEST_LOGGER = "headrace.slow_requests"

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")

_CONTROLS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_SHORT_LEVELS = {"WARNING": "WARN", "CRITICAL": "FATAL"}


class LineFormatter(logging.Formatter):
    """One line, whatever a client has put into a name; only a traceback follows on lines of its own."""

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        level = _SHORT_LEVELS.get(record.levelname, record.levelname)
        message = _CONTROLS.sub(lambda found: f"\\x{ord(found[0]):02x}", record.getMessage())
        line = f"{moment}.{int(record.msecs):03d} {level:<5} {record.name.removeprefix('headrace.')}  {message}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def set_up_logging(levels: Iterable[str] = (), stream: TextIO | None = None) -> logging.Handler:
    """Sends all logs to a stream (standard error), and sets levels: `DEBUG` for everything, `broker.dispatch=DEBUG` for
    one logger and those below it. Without any, INFO. Returns the handler, for who wants to take it off again."""
    chosen = [_parse_level(text) for text in levels]
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(LineFormatter())
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    for name, level in chosen:
        logging.getLogger(name).setLevel(level)
    return handler


def _parse_level(text: str) -> tuple[str, str]:
    name, _, level = text.rpartition("=")
    level = level.strip().upper()
    if level == "WARN":
        level = "WARNING"
    if level not in LEVELS:
        raise ConfigError(
            f"{text!r} is not a log level: expected {', '.join(LEVELS)} or a logger's name, = and a level"
        )
    name = name.strip()
    if name and name != "headrace" and not name.startswith("headrace."):
        name = f"headrace.{name}"
    return name, level
