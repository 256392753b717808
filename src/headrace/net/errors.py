"""What can go wrong on the way to a broker, before any protocol code comes back."""

from headrace.common.errors import InvalidMetadataError, NetworkExceptionError, UnsupportedVersionError

__all__ = ["IncompatibleBrokerVersion", "KafkaConnectionError", "NodeNotReadyError", "UnknownBrokerIdError"]


class KafkaConnectionError(InvalidMetadataError):
    """A connection could not be made, or was lost. Whether requests that had no reply yet were carried out is unknown.

    `sent` tells whether the request may have reached the broker.
    """

    code, name = NetworkExceptionError.code, NetworkExceptionError.name

    def __init__(self, message: str = "", sent: bool = False):
        super().__init__(message)
        self.sent = sent


class NodeNotReadyError(KafkaConnectionError):
    """There is no connection to the broker that could take a request now."""


class UnknownBrokerIdError(KafkaConnectionError):
    """No broker of that id is known; new metadata may know it."""


class IncompatibleBrokerVersion(UnsupportedVersionError):
    """A broker does not serve the request, or in no version that will do. Nothing was sent."""
