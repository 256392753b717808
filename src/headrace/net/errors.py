"""Errors of connections to brokers, which have no protocol code."""

import os
import socket
import ssl

from headrace.common.errors import InvalidMetadataError, KafkaError, NetworkExceptionError, UnsupportedVersionError
from headrace.net.tls_errors import TlsHandshakeError, describe_for_client

__all__ = [
    "IncompatibleBrokerVersion",
    "KafkaConnectionError",
    "NodeNotReadyError",
    "SslAuthenticationError",
    "UnknownBrokerIdError",
    "describe_os_error",
]


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


class SslAuthenticationError(KafkaError):
    """Client and broker do not accept each other's TLS certificate or settings. Another attempt would fail likewise."""


class UnknownBrokerIdError(KafkaConnectionError):
    """No broker with this id is known; a metadata refresh may add it."""


class IncompatibleBrokerVersion(UnsupportedVersionError):
    """The broker does not support the API, or no suitable version of it. Nothing was sent."""


def describe_os_error(error: OSError) -> str:
    """Returns the reason of a failed connection without numbers of errors and lines: `Connection refused`."""
    if isinstance(error, ssl.SSLError | TlsHandshakeError):
        return describe_for_client(error)
    if isinstance(error, socket.gaierror):
        return str(error.strerror)
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__
