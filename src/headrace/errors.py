"""Every error that Headrace raises on purpose, in one place to import from.

Names follow kafka-python. `KafkaError` is the base of all that clients raise, but for `ConfigError`; `retriable` tells
whether the same call may succeed later, `fatal` whether the client is done for, `abortable` whether the transaction
must be aborted.
"""

from headrace.client import errors as _client_errors
from headrace.client.consumer import errors as _consumer_errors
from headrace.client.consumer.errors import *  # noqa: F403
from headrace.client.errors import *  # noqa: F403
from headrace.common import errors as _common_errors
from headrace.common.errors import *  # noqa: F403

KafkaConfigurationError = _common_errors.ConfigError
"""kafka-python's name for it."""

__all__ = sorted(
    {
        name
        for module in (_common_errors, _client_errors, _consumer_errors)
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Exception) and not name.startswith("_")
    }
    | {"KafkaConfigurationError"}
)
