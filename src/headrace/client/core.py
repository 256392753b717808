"""What every client is made of: settings, connections, metadata, coordinators, metrics.

Belongs to the loop it is made on. Producer, consumer and admin each make one, and add their own.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import TypeVar

from headrace import __version__
from headrace.client.config.common import ClientSettings
from headrace.client.coordinators import CoordinatorFinder
from headrace.client.errors import KafkaTimeoutError, NoBrokersAvailable, is_stale_metadata
from headrace.client.events import ClientEvents
from headrace.client.metadata import Metadata, MetadataSettings
from headrace.client.statistics import Statistics
from headrace.common.backoff import Backoff
from headrace.common.clock import Clock, SystemClock
from headrace.common.errors import ConfigError, KafkaError
from headrace.common.ids import Random, make_random
from headrace.common.metrics import Metrics
from headrace.net.broker_pool import BrokerPool, NetSettings, PoolEvents
from headrace.net.dialer import Dialer, SocketDialer
from headrace.net.errors import KafkaConnectionError
from headrace.net.nodes import parse_addresses

__all__ = ["ClientCore"]

T = TypeVar("T")

_DEFAULT_IN_FLIGHT = 1000
_FETCH_OVERHEAD_BYTES = 16 * 1024 * 1024
"""A fetch may bring more than its limit: what surrounds the records, and a first batch that is larger than allowed."""


class ClientCore:
    """Made on a running loop; does nothing until something is asked of it."""

    def __init__(
        self,
        settings: ClientSettings,
        *,
        events: PoolEvents | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
        dialer: Dialer | None = None,
        allow_auto_create: bool | None = None,
        max_in_flight: int | None = None,
    ):
        self.settings = settings
        self.loop = asyncio.get_running_loop()
        self.clock: Clock = clock or SystemClock()
        self.random = random or make_random()
        self.metrics = Metrics()
        self.backoff = Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms, self.random)
        """Waits before a request is sent again."""
        self.closed = False
        self.events = ClientEvents(settings)
        values = settings.as_dict()
        self.pool = BrokerPool(
            parse_addresses(settings.bootstrap_servers),
            NetSettings(
                client_id=settings.client_id,
                software_version=__version__,
                request_timeout_ms=settings.request_timeout_ms,
                reconnect_backoff_ms=settings.reconnect_backoff_ms,
                reconnect_backoff_max_ms=settings.reconnect_backoff_max_ms,
                setup_timeout_ms=settings.socket_connection_setup_timeout_ms,
                setup_timeout_max_ms=settings.socket_connection_setup_timeout_max_ms,
                max_idle_ms=settings.connections_max_idle_ms,
                max_in_flight=max_in_flight
                or values.get("max_in_flight_requests_per_connection")
                or _DEFAULT_IN_FLIGHT,
                max_reply_bytes=max(
                    settings.receive_message_max_bytes, values.get("fetch_max_bytes", 0) + _FETCH_OVERHEAD_BYTES
                ),
                rebootstrap=settings.metadata_recovery_strategy == "rebootstrap",
            ),
            loop=self.loop,
            dialer=dialer
            or SocketDialer(make_ssl_context(settings), settings.send_buffer_bytes, settings.receive_buffer_bytes),
            random=self.random,
            events=events or self.events,
        )
        if allow_auto_create is None:
            allow_auto_create = bool(values.get("allow_auto_create_topics", False))
        self.metadata = Metadata(
            self.pool,
            MetadataSettings(
                max_age_ms=settings.metadata_max_age_ms,
                max_idle_ms=values.get("metadata_max_idle_ms", settings.metadata_max_age_ms),
                retry_backoff_ms=settings.retry_backoff_ms,
                retry_backoff_max_ms=settings.retry_backoff_max_ms,
                fast_interval_ms=settings.topic_metadata_refresh_fast_interval_ms,
                propagation_max_ms=settings.topic_metadata_propagation_max_ms,
                rebootstrap_trigger_ms=settings.metadata_recovery_rebootstrap_trigger_ms,
                allow_auto_create=allow_auto_create,
                excluded=settings.topic_blacklist,
            ),
            loop=self.loop,
            random=self.random,
        )
        self.coordinators = CoordinatorFinder(self.pool, self.backoff, self.loop)
        self.statistics = Statistics(self, self.events)
        self.events.start()
        self.statistics.start()

    async def start(self, timeout_ms: float | None = None) -> None:
        """Connects and learns who the brokers are. Not needed: what is used connects by itself. Raises
        NoBrokersAvailable."""
        try:
            await self.metadata.update_brokers(30_000 if timeout_ms is None else timeout_ms)
        except (KafkaTimeoutError, KafkaConnectionError) as error:
            addresses = ", ".join(self.settings.bootstrap_servers)
            why = self.metadata.last_error or error
            raise NoBrokersAvailable(f"none of the bootstrap servers ({addresses}) can be reached: {why}") from error

    async def retry(
        self, attempt: Callable[[], Awaitable[T]], timeout_ms: float, what: str, *, stale: bool = True
    ) -> T:
        """Tries until it succeeds, fails for good, or time is up: KafkaTimeoutError, with the last error as its cause.

        `stale`: after errors that may come from an old view, metadata is asked for.
        """
        failures = 0
        last: KafkaError | None = None
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while True:
                    try:
                        return await attempt()
                    except KafkaError as error:
                        if not error.retriable or isinstance(error, KafkaTimeoutError) or self.closed:
                            raise
                        last = error
                        if stale and is_stale_metadata(error):
                            self.metadata.request_update()
                    await asyncio.sleep(self.backoff.wait_seconds(failures))
                    failures += 1
        except TimeoutError as error:
            if isinstance(error, KafkaError):
                raise
            why = f"; the last error: {last}" if last is not None else ""
            raise KafkaTimeoutError(f"{what} took longer than {timeout_ms:.0f} ms{why}") from last

    async def close(self) -> None:
        """Drops everything; may be called twice."""
        self.closed = True
        self.statistics.stop()
        await self.metadata.close()
        await self.coordinators.close()
        await self.pool.close()
        self.events.stop()


def make_ssl_context(settings: ClientSettings) -> ssl.SSLContext | None:
    """None for plain connections."""
    given: ssl.SSLContext | None = settings.ssl_context
    if settings.security_protocol != "SSL":
        if given is not None:
            raise ConfigError("ssl.context is given, but security.protocol is PLAINTEXT: expected SSL")
        return None
    if given is not None:
        return given
    try:
        context = ssl.create_default_context(cafile=settings.ssl_cafile)
        context.check_hostname = settings.ssl_check_hostname
        if settings.ssl_certfile is not None:
            context.load_cert_chain(settings.ssl_certfile, settings.ssl_keyfile, settings.ssl_password)
        if settings.ssl_crlfile is not None:
            context.load_verify_locations(settings.ssl_crlfile)
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
        if settings.ssl_ciphers is not None:
            context.set_ciphers(settings.ssl_ciphers)
    except (OSError, ValueError) as error:
        raise ConfigError(f"the ssl.* settings cannot be used: {error}") from error
    return context
