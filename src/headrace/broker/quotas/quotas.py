"""All quotas of clients, and the throttling of clients that exceed them.

    producer_byte_rate          bytes of Produce requests
    consumer_byte_rate          bytes of Fetch responses to consumers
    request_percentage          time in which the broker works on the requests of a client; 100 is one thread (KIP-124)
    controller_mutation_rate    partitions that requests create or delete (KIP-599)

A client that exceeds a quota gets its response at once, with a throttle time. A newer client pauses by itself; the
broker reads nothing from the connection for that time in any case (KIP-219). A consumer that exceeds its quota gets an
empty response. If several quotas are exceeded, the longest throttle time counts.

The requests of brokers have no quota: followers have the throttles of replication.
"""

from collections.abc import Callable, Mapping

from headrace.broker.config.quotas import QuotaConfig
from headrace.broker.quotas.client_quotas import ControllerMutation, ControllerMutationQuotas, RateQuotas
from headrace.broker.quotas.connections import ConnectionQuotas
from headrace.cluster import znodes
from headrace.cluster.config_store import ConfigEntity
from headrace.common.clock import Clock
from headrace.common.metrics import Metrics
from headrace.common.timing_wheel import Timer, TimerEntry
from headrace.net.connection import ServerConnection
from headrace.protocol.apis import ApiKey

QUOTA_KINDS = (znodes.USER_CONFIGS, znodes.CLIENT_CONFIGS, znodes.IP_CONFIGS)

_WITHOUT_REQUEST_QUOTA = frozenset(
    (
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.ALTER_PARTITION,
        ApiKey.CONTROLLED_SHUTDOWN,
        ApiKey.LEADER_AND_ISR,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.WRITE_TXN_MARKERS,
    )
)
"""Requests of brokers, and those of the authentication, which no user sends yet."""


class Quotas:
    """The quotas of clients. Owned by the broker's loop."""

    def __init__(
        self,
        config: QuotaConfig,
        clock: Clock,
        timer: Timer,
        metrics: Metrics | None = None,
        protected_listener: str | None = None,
    ):
        windows = config.windows
        self.muted = MutedConnections(timer)
        self.produce = RateQuotas("produce", "producer_byte_rate", windows, clock, metrics)
        self.fetch = RateQuotas("fetch", "consumer_byte_rate", windows, clock, metrics)
        self.request = RateQuotas("request", "request_percentage", windows, clock, metrics, windows.sample_ms)
        self.mutations = ControllerMutationQuotas(config.controller_windows, clock, metrics)
        self.connections = ConnectionQuotas(windows, clock, protected_listener)
        self.on_changed: list[Callable[[], object]] = []
        """Called when limits have changed."""

    @property
    def all(self) -> tuple[RateQuotas | ControllerMutationQuotas, ...]:
        return self.produce, self.fetch, self.request, self.mutations

    @property
    def is_empty(self) -> bool:
        """True if no client has a limit."""
        return not any(map(len, self.all))

    def config_changed(self, entity: ConfigEntity, config: Mapping[str, str]) -> None:
        """Applies the quotas of a user, a client id, both, or an IP address. Other configs of a user are ignored."""
        if entity.kind == znodes.IP_CONFIGS:
            self.connections.config_changed(entity, config)
            return
        for quota in self.all:
            quota.config_changed(entity, config.get(quota.key))
        for listener in self.on_changed:
            listener()

    def expire_idle(self) -> None:
        """Forgets clients that have been idle for long."""
        for quota in self.all:
            quota.expire_idle()

    # ---- use by requests

    def limits_produce(self, user: str, client_id: str | None) -> bool:
        """Returns True if Produce requests of a client count towards a limit."""
        return self.produce.group_of(user, client_id) is not None or self.request.group_of(user, client_id) is not None

    def record_request(self, key: ApiKey, user: str, client_id: str | None, seconds: float) -> int:
        """Records the time of a request. Returns the throttle time."""
        if key in _WITHOUT_REQUEST_QUOTA:
            return 0
        return self.request.record(user, client_id, seconds * 100)

    def controller_mutation(self, user: str, client_id: str | None, is_strict: bool) -> ControllerMutation:
        """Returns the quota of a request that creates or deletes partitions."""
        return self.mutations.of_request(user, client_id, is_strict)


class MutedConnections:
    """The connections from which nothing is read for a time. Owned by the broker's loop."""

    def __init__(self, timer: Timer):
        self._timer = timer
        self._muted: dict[ServerConnection, TimerEntry] = {}

    def __len__(self) -> int:
        return len(self._muted)

    def mute(self, connection: ServerConnection, throttle_ms: int) -> None:
        """Reads nothing from a connection for this time, or longer if it is muted for longer already."""
        muted = self._muted.pop(connection, None)
        entry = self._timer.add(throttle_ms, lambda: self._unmute(connection))
        if muted is None:
            connection.hold_requests()
        elif muted.deadline_ms > entry.deadline_ms:
            entry.cancel()
            entry = muted
        else:
            muted.cancel()
        self._muted[connection] = entry

    def forget(self, connection: ServerConnection) -> None:
        """Forgets a closed connection: its throttle time may be long."""
        entry = self._muted.pop(connection, None)
        if entry is not None:
            entry.cancel()

    def _unmute(self, connection: ServerConnection) -> None:
        del self._muted[connection]
        connection.release_requests()
