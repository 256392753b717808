"""Calls of serializers and deserializers by the clients.

A serializer is a function of the data, or an object with a method. kafka-python's method takes (topic, data) up to 2.x
and (topic, headers, data) since 3.0. The client determines the signature once, when it is created.
"""

import inspect
import logging
from typing import Any

from headrace.common.errors import ConfigError

_logger = logging.getLogger(__name__)

__all__ = ["close", "find_method"]


def find_method(serializer: Any, name: str) -> tuple[Any, bool]:
    """Returns the method of an object (None for a function), and True if the method takes headers."""
    method = getattr(serializer, name, None)
    if method is None:
        if serializer is not None and not callable(serializer):
            raise ConfigError(
                f"a {name}r must be a function or have a method `{name}`, not {type(serializer).__name__}"
            )
        return None, False
    try:
        parameters = inspect.signature(method).parameters.values()
    except ValueError:  # a compiled method without a signature
        return method, True
    positional = [
        parameter
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    required = [parameter for parameter in positional if parameter.default is parameter.empty]
    is_open = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters)
    # A parameter with a default is an option of the method, unless the data would have no parameter without it.
    return method, len(required) > 2 or (len(required) < 2 and (is_open or len(positional) != 2))


def close(*serializers: Any) -> None:
    """Calls `close` on serializers that have it, as kafka-python does."""
    for serializer in serializers:
        end = getattr(serializer, "close", None)
        if end is not None:
            try:
                end()
            except Exception:
                _logger.exception("Failed to close %r", serializer)
