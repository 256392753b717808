"""All errors that Headrace raises.

Names and base classes follow kafka-python. `KafkaError` is the base class of all errors of the clients except
`ConfigError`; `BrokerResponseError` of errors that a broker returned, `AuthorizationError` of missing permissions,
`RetriableError` of errors that a retry may fix, `InvalidMetadataError` of those that a retry with new metadata may fix.
`fatal` is True if the client can no longer be used, `abortable` if the transaction must be aborted.
"""

from headrace.client import errors as _client_errors
from headrace.client.consumer import errors as _consumer_errors
from headrace.client.consumer.errors import *  # noqa: F403
from headrace.client.errors import *  # noqa: F403
from headrace.common import errors as _common_errors
from headrace.common.errors import *  # noqa: F403

KafkaConfigurationError = _common_errors.ConfigError
CorruptRecordException = _common_errors.CorruptRecordError
"""kafka-python's names."""

__all__ = sorted(
    {
        name
        for module in (_common_errors, _client_errors, _consumer_errors)
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Exception) and not name.startswith("_")
    }
    | {"CorruptRecordException", "KafkaConfigurationError"}
)
