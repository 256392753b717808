"""The levels of this broker's loggers, as settings (KIP-412). They last until the broker stops.

Names are those of Python's loggers under `headrace`, and `root`; levels are Kafka's: WARN for WARNING, FATAL for
CRITICAL.
"""

import logging

from headrace.broker.config.dynamic import ConfigSource
from headrace.broker.config.entries import STRING_TYPE, ConfigEntry
from headrace.common.errors import InvalidConfigurationError, InvalidRequestError

ROOT = "root"
LEVELS = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
_OWN = "headrace"


def logger_entries() -> list[ConfigEntry]:
    """The level that is in force for each logger."""
    entries: list[ConfigEntry] = []
    for name, logger in sorted(_loggers().items()):
        level = _name_of(logger.getEffectiveLevel())
        entries.append(ConfigEntry(name, level, ConfigSource.LOGGER, False, STRING_TYPE, "The level of a logger.", ()))
    return entries


def check_level(name: str, level: str | None) -> None:
    """Refuses a logger that is not there, or a level that is none. No level: the one of its parent."""
    if name not in _loggers():
        raise InvalidConfigurationError(f"there is no logger {name}")
    if level is None and name == ROOT:
        raise InvalidRequestError(f"the logger {ROOT} always has a level: it can be set, not removed")
    if level is not None and level.upper() not in LEVELS:
        raise InvalidConfigurationError(f"logger {name}: {level!r} is not a level, expected one of {', '.join(LEVELS)}")


def set_level(name: str, level: str | None) -> None:
    _loggers()[name].setLevel(logging.NOTSET if level is None else LEVELS[level.upper()])


def _loggers() -> dict[str, logging.Logger]:
    manager = logging.root.manager
    own = {
        name: logger
        for name, logger in manager.loggerDict.items()
        if isinstance(logger, logging.Logger) and (name == _OWN or name.startswith(f"{_OWN}."))
    }
    return {ROOT: logging.root, **own}


def _name_of(level: int) -> str:
    return max((value, name) for name, value in LEVELS.items() if value <= max(level, LEVELS["TRACE"]))[1]
