"""What a client tells its user beside what calls return: errors, throttling, statistics, logs, tokens.

    setting        called with
    error_cb       a KafkaError that no call would raise: a broker that cannot be reached, say. `error.fatal` is True if
                   the client cannot go on
    throttle_cb    a ThrottleEvent, when a broker holds this client back for going over its quota
    stats_cb       statistics as JSON (`client.statistics`), every `statistics.interval.ms`
    log_cb         a LogEvent for each line of this client's log
    oauth_cb       the settings, when a token is needed; returns the token and when it ends (see `token`)

(Three kinds of events have places of their own: partition EOF in `consumer.fetch_collector`, offsets committed in
`group.commit_request_manager`, delivery reports in `producer`.) Everything here is called on the loop: in its thread
with the blocking clients, so a callback must be quick and must not call the client and wait. What a callback raises
goes to the log.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from headrace.client.config.types import ClientConfig
from headrace.common.errors import KafkaError
from headrace.net.broker_pool import Node

__all__ = ["ClientEvents", "LogEvent", "ThrottleEvent", "Token"]

_logger = logging.getLogger(__name__)

_LOGGERS = ("headrace.client", "headrace.net")


class ThrottleEvent(NamedTuple):
    """Fields are confluent-kafka's."""

    broker_name: str
    broker_id: int
    throttle_time: float
    """Seconds."""


class LogEvent(NamedTuple):
    level: int
    """As in `logging`."""
    facility: str
    """The part of the client: `client.group.consumer_coordinator`, say."""
    text: str


class Token(NamedTuple):
    """A token for SASL/OAUTHBEARER, as confluent-kafka's `oauth_cb` returns it."""

    value: str
    expires_at: float
    """Seconds since 1970."""
    principal: str = ""
    extensions: dict[str, str] | None = None


class ClientEvents:
    """The pool reports here (it is a `PoolEvents`), and so does whoever has an error for nobody in particular."""

    def __init__(self, config: ClientConfig):
        self._config = config
        self._down: set[int] = set()
        """Brokers that could not be reached; told once, until they can be."""
        self.fatal: KafkaError | None = None
        """The error that ended the client's work, if there was one."""
        self.throttled_total_ms = 0
        self._handler: _Handler | None = None

    # ---- what the pool reports

    def connected(self, node: Node, purpose: str) -> None:  # noqa: ARG002
        self._down.discard(node.id)

    def disconnected(self, node: Node, purpose: str, error: KafkaError | None) -> None:  # noqa: ARG002
        if error is not None:
            self.error(error)

    def connect_failed(self, node: Node, purpose: str, error: KafkaError) -> None:  # noqa: ARG002
        if node.id not in self._down:
            self._down.add(node.id)
            self.error(error)

    def throttled(self, node: Node, api_key: int, throttle_time_ms: int) -> None:  # noqa: ARG002
        self.throttled_total_ms += throttle_time_ms
        event = ThrottleEvent(f"{node.host}:{node.port}/{node.id}", node.id, throttle_time_ms / 1000)
        self._call(self._config.throttle_cb, event)

    # ---- what others report

    def error(self, error: KafkaError, fatal: bool = False) -> None:
        """An error that no call raises. After a fatal one the client does nothing any more."""
        if fatal and self.fatal is None:
            self.fatal = error
        error.fatal = fatal
        self._call(self._config.error_cb, error)

    def statistics(self, text: str) -> None:
        self._call(self._config.stats_cb, text)

    @property
    def wants_statistics(self) -> bool:
        return self._config.stats_cb is not None and self._config.statistics_interval_ms > 0

    async def token(self) -> Token:
        """A new token from the user, for who authenticates. `oauth_cb` may be a coroutine function; it returns a Token,
        or as confluent-kafka's (value, expiry, principal, extensions), of which the first two are needed."""
        callback = self._config.oauth_cb
        if callback is None:
            raise KafkaError("there is no oauth_cb that could bring a token")
        found = callback(self._config)
        if asyncio.iscoroutine(found):
            found = await found
        try:
            return found if isinstance(found, Token) else Token(*found)
        except TypeError:
            raise KafkaError(f"oauth_cb returned {type(found).__name__}: expected a value and when it ends") from None

    # ---- logs

    def start(self) -> None:
        """Begins to pass log lines on; to be called in the thread whose lines are this client's."""
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
            _logger.exception("a callback of the user failed on %r", event)


class _Handler(logging.Handler):
    """Passes on the lines of one thread: with the blocking clients that is one client's. Clients on one loop also get
    each other's lines."""

    def __init__(self, callback: Callable[[LogEvent], object], thread: int):
        super().__init__()
        self._callback = callback
        self._thread = thread

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread != self._thread:
            return
        try:
            self._callback(LogEvent(record.levelno, record.name.removeprefix("headrace."), record.getMessage()))
        except Exception:  # noqa: BLE001 - the user's own; logging shows it the way it shows its own
            self.handleError(record)
