"""Every error that Headrace raises on purpose, in one place to import from.

Names and bases follow kafka-python. `KafkaError` is the base of all that clients raise, but for `ConfigError`;
`BrokerResponseError` of what a broker answered, `AuthorizationError` of missing rights, `RetriableError` of what may
succeed later, `InvalidMetadataError` of what may when the cluster is known better. `fatal` tells whether the client is
done for, `abortable` whether the transaction must be aborted.
"""

from headrace.client import errors as _client_errors
from headrace.client.consumer import errors as _consumer_errors
from headrace.client.consumer.errors import *  # noqa: F403
from headrace.client.errors import *  # noqa: F403
from headrace.common import errors as _common_errors
from headrace.common.errors import *  # noqa: F403

KafkaConfigurationError = _common_errors.ConfigError
CorruptRecordException = _common_errors.CorruptRecordError
"""kafka-python's names for them."""

__all__ = sorted(
    {
        name
        for module in (_common_errors, _client_errors, _consumer_errors)
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Exception) and not name.startswith("_")
    }
    | {"CorruptRecordException", "KafkaConfigurationError"}
)
