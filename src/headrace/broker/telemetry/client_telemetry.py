"""The subscriptions of client metrics, and what clients have pushed (KIP-714).

    client                                          broker
    GetTelemetrySubscriptions            -->        which subscriptions match the client → their metrics and interval
    PushTelemetry, once per interval     -->        checked, decompressed and decoded in a thread → the latest values

An operator subscribes with `headrace configs --entity-type client-metrics`. Only brokers that serve metrics for
Prometheus offer telemetry, and only the latest values of a client are kept, until it has missed three intervals.
Owned by the broker's loop.
"""

import logging
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import re2

from headrace.broker.config.groups import CLIENT_METRICS_KEYS
from headrace.broker.telemetry.otlp import MetricPoint, read_metrics
from headrace.common.clock import Clock
from headrace.common.errors import (
    InflatedTooLargeError,
    InvalidRecordError,
    InvalidRequestError,
    TelemetryTooLargeError,
    ThrottlingQuotaExceededError,
    UnknownSubscriptionIdError,
    UnsupportedCompressionTypeError,
)
from headrace.common.ids import ZERO_UUID, Random, Uuid, random_uuid
from headrace.records.compression import Compression, decompress

_logger = logging.getLogger(__name__)

ALL_METRICS = "*"
ACCEPTED_COMPRESSION = (Compression.ZSTD, Compression.LZ4, Compression.GZIP, Compression.SNAPPY)
DEFAULT_INTERVAL_MS = 300_000
MAX_CLIENTS = 5_000
_INFLATION = 8
"""Metrics may be this many times as large as `telemetry.max.bytes` uncompressed."""
_MISSED_INTERVALS = 3
_EARLY = 0.5
"""A request is too early before this share of the interval: clients add jitter to their first push."""


@dataclass(frozen=True, slots=True)
class TelemetryClient:
    """What a subscription can select a client by."""

    client_instance_id: Uuid
    client_id: str
    client_software_name: str
    client_software_version: str
    client_source_address: str
    client_source_port: int


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a client is asked to push."""

    id: int
    interval_ms: int
    metrics: tuple[str, ...]


@dataclass(slots=True)
class ClientInstance:
    """One client and its latest metrics."""

    client: TelemetryClient
    subscription: Subscription
    asked_at: float
    pushed_at: float | None = None
    terminating: bool = False
    points: list[MetricPoint] = field(default_factory=list)


class ClientTelemetry:
    """The telemetry of all clients of this broker."""

    def __init__(
        self,
        configs: Callable[[], Mapping[str, Mapping[str, str]]],
        max_bytes: int,
        clock: Clock,
        random: Random,
        *,
        enabled: bool,
    ):
        """`configs` returns the overrides of all client metrics subscriptions by name."""
        self.enabled = enabled
        self.max_bytes = max_bytes
        self._configs = configs
        self._clock = clock
        self._random = random
        self._instances: dict[Uuid, ClientInstance] = {}

    # ---- subscriptions

    def subscribe(self, client: TelemetryClient) -> ClientInstance:
        """Returns the client's instance with its current subscription. A client without an id gets one."""
        if client.client_instance_id == ZERO_UUID:
            client = replace(client, client_instance_id=random_uuid(self._random))
        now = self._clock.monotonic()
        subscription = self._subscription(client)
        known = self._instances.get(client.client_instance_id)
        if known is None:
            self._make_room(now)
            known = ClientInstance(client, subscription, now)
            self._instances[client.client_instance_id] = known
            return known
        changed = subscription.id != known.subscription.id
        if not changed and known.pushed_at is None and self._is_early(known, known.asked_at, now):
            raise ThrottlingQuotaExceededError("The client asks for its telemetry subscription too often")
        known.client, known.subscription, known.asked_at = client, subscription, now
        return known

    def _subscription(self, client: TelemetryClient) -> Subscription:
        matching: list[tuple[str, dict[str, Any]]] = []
        for name, overrides in sorted(self._configs().items()):
            values = CLIENT_METRICS_KEYS.parse(overrides)
            if _matches(values["match"], client):
                matching.append((name, values))
        metrics = tuple(dict.fromkeys(metric for _, values in matching for metric in values["metrics"]))
        if ALL_METRICS in metrics:
            metrics = (ALL_METRICS,)
        interval_ms = min((values["interval_ms"] for _, values in matching), default=DEFAULT_INTERVAL_MS)
        text = repr((metrics, interval_ms))
        return Subscription(zlib.crc32(text.encode()) & 0x7FFFFFFF, interval_ms, metrics)

    def _is_early(self, instance: ClientInstance, last: float, now: float) -> bool:
        return now - last < _EARLY * instance.subscription.interval_ms / 1000

    # ---- pushes

    def check_push(
        self, client: TelemetryClient, subscription_id: int, compression_type: int, size: int, *, terminating: bool
    ) -> ClientInstance:
        """Returns the instance of a client that may push now. Raises the error for others."""
        instance = self._instances.get(client.client_instance_id)
        if client.client_instance_id == ZERO_UUID:
            raise InvalidRequestError("A client without an instance id cannot push metrics")
        if instance is None:
            # Another broker gave the subscription, or this one has restarted.
            instance = self.subscribe(client)
        if instance.terminating:
            raise InvalidRequestError("The client has pushed its last metrics before")
        if subscription_id != self._subscription(client).id:
            raise UnknownSubscriptionIdError("The telemetry subscription has changed")
        now = self._clock.monotonic()
        if not terminating and instance.pushed_at is not None and self._is_early(instance, instance.pushed_at, now):
            raise ThrottlingQuotaExceededError("The client pushes its metrics too often")
        if compression_type not in (Compression.NONE, *ACCEPTED_COMPRESSION):
            raise UnsupportedCompressionTypeError(f"Telemetry with compression type {compression_type}")
        if size > self.max_bytes:
            raise TelemetryTooLargeError(f"{size} bytes of metrics; telemetry.max.bytes allows {self.max_bytes}")
        instance.pushed_at, instance.terminating = now, terminating
        return instance

    def decode(self, compression_type: int, data: bytes) -> list[MetricPoint]:
        """Returns pushed metrics. Call it in a thread: it takes a while."""
        try:
            inflated = decompress(compression_type, data, _INFLATION * self.max_bytes) if compression_type else data
        except InflatedTooLargeError as error:
            raise TelemetryTooLargeError(f"The pushed metrics are too large uncompressed: {error}") from error
        except Exception as error:
            raise InvalidRecordError(f"The pushed metrics cannot be decompressed: {error}") from error
        return read_metrics(bytes(inflated))

    def pushed(self, instance: ClientInstance, points: list[MetricPoint]) -> None:
        """Keeps the metrics of a push."""
        instance.points = points

    # ---- reading

    def instances(self) -> list[ClientInstance]:
        """Returns the clients with metrics that are not out of date."""
        self._forget_old(self._clock.monotonic())
        return [instance for instance in self._instances.values() if instance.points]

    def _forget_old(self, now: float) -> None:
        for instance_id, instance in list(self._instances.items()):
            last = max(instance.asked_at, instance.pushed_at or 0.0)
            if now - last > _MISSED_INTERVALS * instance.subscription.interval_ms / 1000:
                del self._instances[instance_id]

    def _make_room(self, now: float) -> None:
        if len(self._instances) < MAX_CLIENTS:
            return
        self._forget_old(now)
        while len(self._instances) >= MAX_CLIENTS:
            del self._instances[next(iter(self._instances))]


def _matches(patterns: tuple[str, ...], client: TelemetryClient) -> bool:
    """Returns True if a client matches all patterns `name=regular expression` of a subscription."""
    for pattern in patterns:
        name, _, expression = (part.strip() for part in pattern.partition("="))
        compiled = _compile(expression)
        if compiled is None or not compiled.fullmatch(str(getattr(client, name, ""))):
            return False
    return True


@lru_cache(maxsize=1000)
def _compile(expression: str) -> "re2._Regexp | None":
    """Compiles a pattern. RE2 takes linear time: clients choose the text."""
    try:
        return re2.compile(expression)
    except re2.error:
        _logger.warning("Client metrics: ignoring the pattern %r: RE2 does not support it", expression)
        return None
