"""Errors of the JSON API, and the HTTP status of Kafka's errors."""

import re
from typing import Any

from headrace.client.errors import IllegalArgumentError, KafkaTimeoutError, NoBrokersAvailable
from headrace.common.errors import (
    ConfigError,
    GroupIdNotFoundError,
    HeadraceError,
    InvalidTopicError,
    KafkaError,
    NonEmptyGroupError,
    RequestTimedOutError,
    ResourceNotFoundError,
    TopicAlreadyExistsError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)

__all__ = ["ApiError", "api_error", "kafka_name"]

_STATUS_OF: tuple[tuple[tuple[type[KafkaError], ...], int], ...] = (
    ((UnknownTopicOrPartitionError, GroupIdNotFoundError, ResourceNotFoundError, UnknownMemberIdError), 404),
    ((TopicAlreadyExistsError, NonEmptyGroupError), 409),
    ((RequestTimedOutError, KafkaTimeoutError), 504),
    ((UnsupportedVersionError,), 501),
    ((InvalidTopicError,), 400),
)
_CONFLICTS = ("REASSIGNMENT_IN_PROGRESS", "DUPLICATE_RESOURCE", "CONCURRENT_TRANSACTIONS", "GROUP_SUBSCRIBED_TO_TOPIC")
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class ApiError(HeadraceError):
    """The answer to a request that the console refuses or that has failed."""

    def __init__(
        self, status: int, code: str, message: str, field: str | None = None, *, retry_after: int | None = None
    ):
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.field = field
        self.retry_after = retry_after
        """Seconds to wait before the next try."""

    @property
    def document(self) -> dict[str, Any]:
        return {"error": {"code": self.code, "message": self.message, "field": self.field}}


def kafka_name(error: BaseException) -> str:
    """Returns Kafka's name of an error, such as `TOPIC_AUTHORIZATION_FAILED`, or one formed like it."""
    if isinstance(error, KafkaError) and error.code >= 0:
        return error.name
    return _WORD.sub("_", type(error).__name__.removesuffix("Error")).upper()


def api_error(error: BaseException) -> ApiError:
    """Returns the answer to an error of a client or of the cluster."""
    if isinstance(error, ApiError):
        return error
    message = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, IllegalArgumentError | ConfigError):
        return ApiError(400, "INVALID_REQUEST", message)
    if isinstance(error, NoBrokersAvailable):
        return ApiError(503, "CLUSTER_UNREACHABLE", message)
    if isinstance(error, TimeoutError):
        return ApiError(504, "TIMEOUT", message)
    if not isinstance(error, KafkaError):
        return ApiError(500, "INTERNAL", message if isinstance(error, HeadraceError) else "See the console's log.")
    name = kafka_name(error)
    if name.endswith("AUTHORIZATION_FAILED"):
        return ApiError(403, name, message)
    if name == "SASL_AUTHENTICATION_FAILED":
        return ApiError(401, "LOGIN_FAILED", message)
    for kinds, status in _STATUS_OF:
        if isinstance(error, kinds):
            return ApiError(status, "TIMEOUT" if isinstance(error, KafkaTimeoutError) else name, message)
    if name in _CONFLICTS:
        return ApiError(409, name, message)
    if error.retriable:
        return ApiError(503, name, message)
    return ApiError(400 if error.code >= 0 else 500, name, message)
