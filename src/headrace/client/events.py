"""Callbacks for events that no call returns: errors, throttling, statistics, log lines.

    key            called with
    error_cb       a KafkaError that no call raises, such as an unreachable broker. `error.fatal` is True if the client
                   cannot continue
    throttle_cb    a ThrottleEvent, when a broker throttles this client because it exceeds its quota
    stats_cb       statistics as JSON (`client.statistics`), every `statistics.interval.ms`
    log_cb         a LogEvent for each of this client's log lines

Three kinds of events are reported elsewhere: partition EOF in `consumer.fetch_collector`, committed offsets in
`group.commit_request_manager`, delivery reports in `producer`. `oauth_cb` belongs to `security.oauth_tokens`.

All callbacks run on the loop, which the blocking clients run in a thread. So a callback must be quick and must not make
a blocking call to its client. Exceptions of a callback are logged.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from headrace.client.config.types import ClientConfig
from headrace.common.errors import (
    IllegalSaslStateError,
    KafkaError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
)
from headrace.net.broker_pool import Node
from headrace.net.errors import SslAuthenticationError

__all__ = ["ClientEvents", "LogEvent", "ThrottleEvent"]

_logger = logging.getLogger(__name__)

_WARNING_INTERVAL_SECONDS = 30.0
_AUTHENTICATION_ERRORS = (
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
    IllegalSaslStateError,
    SslAuthenticationError,
)
_LOGGERS = ("headrace.client", "headrace.net")


class ThrottleEvent(NamedTuple):
    """A broker has throttled this client. The fields are confluent-kafka's."""

    broker_name: str
    broker_id: int
    throttle_time: float
    """Seconds."""


class LogEvent(NamedTuple):
    """A line of the client's log."""

    level: int
    """The level, as in `logging`."""
    facility: str
    """The part of the client, such as `client.group.rebalance`."""
    text: str


class ClientEvents:
    """Calls the user's callbacks. Implements `PoolEvents` for the connection pool."""

    def __init__(self, config: ClientConfig):
        self._config = config
        self._down: set[int] = set()
        """Unreachable brokers, each reported once until it is reachable again."""
        self._bootstrap_count = len(set(config.bootstrap_servers))
        self._next_warning = 0.0
        self.fatal: KafkaError | None = None
        """The fatal error, if there was one."""
        self.throttled_total_ms = 0
        self._handler: _Handler | None = None

    # ---- pool events

    def connected(self, node: Node, purpose: str) -> None:  # noqa: ARG002
        self._down.discard(node.id)
        self._next_warning = 0.0

    def disconnected(self, node: Node, purpose: str, error: KafkaError | None) -> None:  # noqa: ARG002
        if error is not None:
            self.error(error)

    def connect_failed(self, node: Node, purpose: str, error: KafkaError) -> None:  # noqa: ARG002
        if node.id not in self._down:
            self._down.add(node.id)
            self.error(error)
        if isinstance(error, _AUTHENTICATION_ERRORS):
            return  # the call raises it
        if node.id < 0 and sum(node_id < 0 for node_id in self._down) >= self._bootstrap_count:
            self._warn_of_unreachable_servers(error)

    def _warn_of_unreachable_servers(self, error: KafkaError) -> None:
        """Logs that no bootstrap server is reachable, at most once per interval: calls may wait for a long time."""
        now = asyncio.get_running_loop().time()
        if now >= self._next_warning:
            self._next_warning = now + _WARNING_INTERVAL_SECONDS
            _logger.warning(
                "Client %s: none of the bootstrap servers (%s) is reachable, retrying: %s",
                self._config.client_id,
                ", ".join(self._config.bootstrap_servers),
                error,
            )

    def throttled(self, node: Node, api_key: int, throttle_time_ms: int) -> None:  # noqa: ARG002
        self.throttled_total_ms += throttle_time_ms
        event = ThrottleEvent(f"{node.host}:{node.port}/{node.id}", node.id, throttle_time_ms / 1000)
        self._call(self._config.throttle_cb, event)

    # ---- other events

    def error(self, error: KafkaError, fatal: bool = False) -> None:
        """Reports an error that no call raises. After a fatal error the client stops working."""
        if fatal and self.fatal is None:
            self.fatal = error
        error.fatal = fatal
        self._call(self._config.error_cb, error)

    def statistics(self, text: str) -> None:
        self._call(self._config.stats_cb, text)

    @property
    def wants_statistics(self) -> bool:
        return self._config.stats_cb is not None and self._config.statistics_interval_ms > 0

    # ---- log lines

    def start(self) -> None:
        """Starts passing log lines to `log_cb`. Call it in the thread that logs for this client."""
        if self._config.log_cb is not None and self._handler is None:
            self._handler = _Handler(self._config.log_cb, threading.get_ident())
            for name in _LOGGERS:
                logging.getLogger(name).addHandler(self._handler)

    def stop(self) -> None:
        if self._handler is not None:
            for name in _LOGGERS:
                logging.getLogger(name).removeHandler(self._handler)
            self._handler = None

    @staticmethod
    def _call(callback: Callable[[Any], object] | None, event: object) -> None:
        if callback is None:
            return
        try:
            callback(event)
        except Exception:
            _logger.exception("User callback %r failed on %r", callback, event)


class _Handler(logging.Handler):
    """Passes on the log lines of one thread, which is one client's for the blocking clients. Clients that share a loop
    also receive each other's lines."""

    def __init__(self, callback: Callable[[LogEvent], object], thread: int):
        super().__init__()
        self._callback = callback
        self._thread = thread

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread != self._thread:
            return
        try:
            self._callback(LogEvent(record.levelno, record.name.removeprefix("headrace."), record.getMessage()))
        except Exception:  # noqa: BLE001 - logging reports it like a handler's own error
            self.handleError(record)
