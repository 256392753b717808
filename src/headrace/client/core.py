"""The core of every client: configuration, connections, metadata, coordinators, metrics.

Owner: the loop that it is created on. Producer, consumer and admin client each have one.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from headrace import __version__
from headrace.client.authentication import ClientAuthentication
from headrace.client.config.tls import make_ssl_context
from headrace.client.config.types import ClientConfig, ConsumerConfig, ProducerConfig
from headrace.client.coordinators import CoordinatorFinder
from headrace.client.errors import KafkaTimeoutError, NoBrokersAvailable, is_stale_metadata
from headrace.client.events import ClientEvents
from headrace.client.metadata import Metadata, MetadataConfig
from headrace.client.statistics import Statistics
from headrace.common.backoff import Backoff
from headrace.common.clock import Clock, SystemClock
from headrace.common.errors import KafkaError
from headrace.common.ids import Random, make_random
from headrace.common.metrics import Metrics
from headrace.net.broker_pool import BrokerPool, NetConfig, PoolEvents
from headrace.net.dialer import Dialer, SocketDialer
from headrace.net.errors import KafkaConnectionError
from headrace.net.nodes import parse_addresses

__all__ = ["ClientCore"]

T = TypeVar("T")
if TYPE_CHECKING:
    import typing_extensions

    C_co = typing_extensions.TypeVar("C_co", bound=ClientConfig, covariant=True, default=ClientConfig)
else:
    C_co = TypeVar("C_co", covariant=True)  # has no defaults before Python 3.13

_DEFAULT_IN_FLIGHT = 1000
_FETCH_OVERHEAD_BYTES = 16 * 1024 * 1024
"""A Fetch response may exceed `fetch.max.bytes` by the fields around the records and by an oversized first batch."""


class ClientCore(Generic[C_co]):
    """The parts that all clients share. Create it on a running loop. It connects on first use."""

    def __init__(
        self,
        config: C_co,
        *,
        events: PoolEvents | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
        dialer: Dialer | None = None,
        allow_auto_create: bool | None = None,
        max_in_flight: int | None = None,
    ):
        self.config = config
        self.loop = asyncio.get_running_loop()
        self.clock: Clock = clock or SystemClock()
        self.random = random or make_random()
        self.metrics = Metrics()
        self.backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, self.random)
        """The waits before retries."""
        self.closed = False
        self.events = ClientEvents(config)
        self._authentication = ClientAuthentication.make(config, self.clock, self.random)
        self.pool = BrokerPool(
            parse_addresses(config.bootstrap_servers),
            NetConfig(
                client_id=config.client_id,
                software_version=__version__,
                request_timeout_ms=config.request_timeout_ms,
                reconnect_backoff_ms=config.reconnect_backoff_ms,
                reconnect_backoff_max_ms=config.reconnect_backoff_max_ms,
                setup_timeout_ms=config.socket_connection_setup_timeout_ms,
                setup_timeout_max_ms=config.socket_connection_setup_timeout_max_ms,
                max_idle_ms=config.connections_max_idle_ms,
                max_in_flight=max_in_flight or _max_in_flight(config),
                max_response_bytes=_max_response_bytes(config),
                rebootstrap=config.metadata_recovery_strategy == "rebootstrap",
                authenticate=self._authentication,
            ),
            loop=self.loop,
            dialer=dialer
            or SocketDialer(make_ssl_context(config), config.send_buffer_bytes, config.receive_buffer_bytes),
            random=self.random,
            events=events or self.events,
        )
        max_idle_ms = config.metadata_max_age_ms
        if isinstance(config, ProducerConfig | ConsumerConfig):
            max_idle_ms = config.metadata_max_idle_ms
            if allow_auto_create is None:
                allow_auto_create = config.allow_auto_create_topics
        self.metadata = Metadata(
            self.pool,
            MetadataConfig(
                max_age_ms=config.metadata_max_age_ms,
                max_idle_ms=max_idle_ms,
                retry_backoff_ms=config.retry_backoff_ms,
                retry_backoff_max_ms=config.retry_backoff_max_ms,
                fast_interval_ms=config.topic_metadata_refresh_fast_interval_ms,
                propagation_max_ms=config.topic_metadata_propagation_max_ms,
                rebootstrap_trigger_ms=config.metadata_recovery_rebootstrap_trigger_ms,
                allow_auto_create=bool(allow_auto_create),
                excluded=config.topic_blacklist,
            ),
            loop=self.loop,
            random=self.random,
        )
        self.coordinators = CoordinatorFinder(self.pool, self.backoff, self.loop)
        self.statistics = Statistics(self, self.events)
        self.events.start()
        self.statistics.start()

    async def start(self, timeout_ms: float | None = None) -> None:
        """Connects and discovers the brokers. Optional: the client connects on first use. Raises NoBrokersAvailable."""
        try:
            await self.metadata.update_brokers(30_000 if timeout_ms is None else timeout_ms)
        except (KafkaTimeoutError, KafkaConnectionError) as error:
            addresses = ", ".join(self.config.bootstrap_servers)
            cause = self.metadata.last_error or error
            raise NoBrokersAvailable(f"None of the bootstrap servers ({addresses}) is reachable: {cause}") from error

    async def retry(
        self, attempt: Callable[[], Awaitable[T]], timeout_ms: float, operation: str, *, stale: bool = True
    ) -> T:
        """Retries a call until it succeeds or fails with an error that is not retriable.

        Raises KafkaTimeoutError, with the last error as its cause, when time is up. With `stale`, errors that indicate
        stale metadata trigger a refresh.
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
            reason = f"; the last error: {last}" if last is not None else ""
            raise KafkaTimeoutError(f"{operation} took longer than {timeout_ms:.0f} ms{reason}") from last

    async def close(self) -> None:
        """Closes all connections. May be called twice."""
        self.closed = True
        self.statistics.stop()
        await self.metadata.close()
        await self.coordinators.close()
        await self.pool.close()
        if self._authentication is not None:
            await self._authentication.close()
        self.events.stop()


def _max_in_flight(config: ClientConfig) -> int:
    return config.max_in_flight_requests_per_connection if isinstance(config, ProducerConfig) else _DEFAULT_IN_FLIGHT


def _max_response_bytes(config: ClientConfig) -> int:
    fetch_bytes = config.fetch_max_bytes if isinstance(config, ConsumerConfig) else 0
    return max(config.receive_message_max_bytes, fetch_bytes + _FETCH_OVERHEAD_BYTES)
