"""What serializers and deserializers of a user have in common.

Each is a function of the data, or an object with a method. kafka-python's method takes (topic, data) up to 2.x and
(topic, headers, data) since 3.0; which one an object has is looked up once, when its client is made.
"""

import inspect
import logging
from typing import Any

from headrace.common.errors import ConfigError

_logger = logging.getLogger(__name__)

__all__ = ["close", "find_method"]


def find_method(given: Any, name: str) -> tuple[Any, bool]:
    """The method of an object, or None for a function; and whether it takes the headers, between topic and data."""
    method = getattr(given, name, None)
    if method is None:
        if given is not None and not callable(given):
            raise ConfigError(f"a {name}r is a function or has a method `{name}`; this is a {type(given).__name__}")
        return None, False
    try:
        wanted = inspect.signature(method).parameters.values()
    except ValueError:  # compiled, and does not tell
        return method, True
    positional = [each for each in wanted if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    required = [each for each in positional if each.default is each.empty]
    is_open = any(each.kind is each.VAR_POSITIONAL for each in wanted)
    # What has a default is an option of the method's own, unless without it there is no place for the data.
    return method, len(required) > 2 or (len(required) < 2 and (is_open or len(positional) != 2))


def close(*given: Any) -> None:
    """Tells those that have it that their client is closed, as kafka-python does."""
    for each in given:
        end = getattr(each, "close", None)
        if end is not None:
            try:
                end()
            except Exception:
                _logger.exception("%r failed to close", each)
