"""The levels of this broker's loggers, as configs (KIP-412). A restart resets them.

Names are those of Python's loggers under `headrace`, and `root`. Levels are Kafka's: WARN for WARNING, FATAL for
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
_PACKAGE = "headrace"


def logger_entries() -> list[ConfigEntry]:
    """Returns the effective level of each logger."""
    entries: list[ConfigEntry] = []
    for name, logger in sorted(_loggers().items()):
        level = _name_of(logger.getEffectiveLevel())
        entries.append(
            ConfigEntry(name, level, ConfigSource.LOGGER, False, STRING_TYPE, "The log level of a logger.", ())
        )
    return entries


def check_level(name: str, level: str | None) -> None:
    """Raises an error for an unknown logger or level. None stands for the level of the parent logger."""
    if name not in _loggers():
        raise InvalidConfigurationError(f"Logger {name} does not exist!")
    if level is None and name == ROOT:
        raise InvalidRequestError(f"Removing the log level of the {ROOT} logger is not allowed")
    if level is not None and level.upper() not in LEVELS:
        raise InvalidConfigurationError(
            f"Cannot set the log level of {name} to {level} as it is not a supported log level. Valid log levels are "
            f"{', '.join(sorted(LEVELS))}"
        )


def set_level(name: str, level: str | None) -> None:
    _loggers()[name].setLevel(logging.NOTSET if level is None else LEVELS[level.upper()])


def _loggers() -> dict[str, logging.Logger]:
    manager = logging.root.manager
    headrace_loggers = {
        name: logger
        for name, logger in manager.loggerDict.items()
        if isinstance(logger, logging.Logger) and (name == _PACKAGE or name.startswith(f"{_PACKAGE}."))
    }
    return {ROOT: logging.root, **headrace_loggers}


def _name_of(level: int) -> str:
    return max((value, name) for name, value in LEVELS.items() if value <= max(level, LEVELS["TRACE"]))[1]
