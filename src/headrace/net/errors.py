"""Errors of connections to brokers, which have no protocol code."""

from headrace.common.errors import InvalidMetadataError, NetworkExceptionError, UnsupportedVersionError

__all__ = ["IncompatibleBrokerVersion", "KafkaConnectionError", "NodeNotReadyError", "UnknownBrokerIdError"]


class KafkaConnectionError(InvalidMetadataError):
    """A connection could not be established, or was lost.

    `sent` is True if the request may have reached the broker, which may or may not have executed it.
    """

    code, name = NetworkExceptionError.code, NetworkExceptionError.name

    def __init__(self, message: str = "", sent: bool = False):
        super().__init__(message)
        self.sent = sent


class NodeNotReadyError(KafkaConnectionError):
    """No connection to the broker can take a request now."""


class UnknownBrokerIdError(KafkaConnectionError):
    """No broker with this id is known; a metadata refresh may add it."""


class IncompatibleBrokerVersion(UnsupportedVersionError):
    """The broker does not support the API, or no suitable version of it. Nothing was sent."""
