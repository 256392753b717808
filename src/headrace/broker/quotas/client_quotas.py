"""One quota of clients: their limits, and what they have used.

A client is a user and a client id. Clients that share a limit are measured together. Only clients with a limit are
measured, so a quota that nobody has costs nothing. Owned by the broker's loop.
"""

import logging
from collections.abc import Callable
from typing import Generic, TypeVar
from urllib.parse import unquote

from headrace.broker.quotas.limits import Group, QuotaLimits
from headrace.broker.quotas.rates import (
    QuotaWindows,
    Rate,
    TokenBucket,
    bucket_throttle_ms,
    rate_throttle_ms,
)
from headrace.cluster.config_store import ConfigEntity
from headrace.common.clock import Clock
from headrace.common.errors import ThrottlingQuotaExceededError
from headrace.common.metrics import Metrics

_logger = logging.getLogger(__name__)

IDLE_MS = 3_600_000
"""After this time without use, a group and its metrics are forgotten, as in Kafka."""
_MAX_CLIENTS = 10_000
"""The number of clients whose group is remembered. It is found again for the others."""

M = TypeVar("M", bound=Rate | TokenBucket)


class ClientGroup(Generic[M]):
    """Clients that share a limit, and what they have used."""

    __slots__ = ("limit", "meter", "throttled_ms", "used_ms")

    def __init__(self, meter: M, limit: float):
        self.meter = meter
        self.limit = limit
        self.used_ms = 0.0
        """When they last used something."""
        self.throttled_ms = 0
        """The sum of their throttle times."""


class ClientQuotas(Generic[M]):
    """One quota. `key` is the config of its limits, such as `producer_byte_rate`."""

    def __init__(
        self,
        name: str,
        key: str,
        windows: QuotaWindows,
        clock: Clock,
        new_meter: Callable[[QuotaWindows], M],
        metrics: Metrics | None = None,
    ):
        self.name = name
        self.key = key
        self.windows = windows
        self._clock = clock
        self._new_meter = new_meter
        self._metrics = metrics
        self._limits = QuotaLimits()
        self._groups: dict[Group, ClientGroup[M]] = {}
        self._clients: dict[tuple[str, str], ClientGroup[M] | None] = {}
        """The groups of the last clients, by name and client id; None: without a limit."""
        self._many_groups = _MAX_CLIENTS
        """The number of groups at which those without recent use are forgotten."""

    def __len__(self) -> int:
        """Returns the number of limits."""
        return len(self._limits)

    @property
    def groups(self) -> int:
        """The number of groups that are measured."""
        return len(self._groups)

    def now_ms(self) -> float:
        return self._clock.monotonic() * 1000

    def config_changed(self, entity: ConfigEntity, value: str | None) -> None:
        """Applies the limit of a user, a client id, or both. None: it has none."""
        user, client_id = entity.user_and_client
        try:
            limit = None if value is None else _parse(value)
        except ValueError:
            _logger.error("Ignoring the quota %s=%r of %s: it is not a number", self.key, value, entity)
            limit = None
        if not self._limits.set(user, client_id, limit):
            return
        _logger.info("Quota %s of %s: %s", self.key, entity, "none" if limit is None else f"{limit:g}")
        self._clients.clear()
        for group in list(self._groups):
            found = self._limits.find(*group)
            # A group that the limits no longer form is forgotten, and its clients are measured in another one.
            if found is None or found[0] != group:
                self._forget(group)
            else:
                self._groups[group].limit = found[1]

    def group_of(self, user: str, client_id: str | None) -> ClientGroup[M] | None:
        """Returns the group of a client, or None if it has no limit."""
        client = user, client_id or ""
        try:
            return self._clients[client]
        except KeyError:
            pass
        found = self._limits.find(_encode(user), _encode(client[1]))
        group = None if found is None else self._groups.get(found[0]) or self._add(*found)
        if len(self._clients) >= _MAX_CLIENTS:
            self._clients.clear()
        self._clients[client] = group
        return group

    def expire_idle(self) -> None:
        """Forgets the groups that have used nothing for an hour. Call it now and then."""
        oldest_ms = self.now_ms() - IDLE_MS
        idle = [key for key, group in self._groups.items() if group.used_ms <= oldest_ms]
        for key in idle:
            self._forget(key)
        if idle:
            self._clients.clear()

    def _add(self, key: Group, limit: float) -> ClientGroup[M]:
        if len(self._groups) >= self._many_groups:
            self._forget_unused()
        group = self._groups[key] = ClientGroup(self._new_meter(self.windows), limit)
        group.used_ms = self.now_ms()
        if self._metrics is not None:
            labels = self._labels(key)
            self._metrics.gauge("client_quota_limit", lambda: group.limit, **labels)
            self._metrics.gauge("client_quota_used", lambda: self._used(group), **labels)
            self._metrics.gauge("client_quota_throttle_ms_total", lambda: group.throttled_ms, **labels)
        return group

    def _forget_unused(self) -> None:
        """Forgets the groups whose samples have expired: clients can invent client ids without end."""
        oldest_ms = self.now_ms() - self.windows.total_ms
        for key in [key for key, group in self._groups.items() if group.used_ms <= oldest_ms]:
            self._forget(key)
        self._many_groups = max(_MAX_CLIENTS, 2 * len(self._groups))
        self._clients.clear()

    def _forget(self, key: Group) -> None:
        del self._groups[key]
        if self._metrics is not None:
            for name in ("client_quota_limit", "client_quota_used", "client_quota_throttle_ms_total"):
                self._metrics.remove(name, **self._labels(key))

    def _labels(self, key: Group) -> dict[str, str]:
        user, client_id = key
        return {"quota": self.name, "user": unquote(user), "client_id": unquote(client_id)}

    def _used(self, group: ClientGroup[M]) -> float:
        """Returns the rate, or the tokens that are left."""
        meter = group.meter
        return meter.value(self.now_ms()) if isinstance(meter, Rate) else meter.tokens(group.limit, self.now_ms())


class RateQuotas(ClientQuotas[Rate]):
    """A quota that limits a rate: produced or fetched bytes, or the time of requests."""

    def __init__(
        self,
        name: str,
        key: str,
        windows: QuotaWindows,
        clock: Clock,
        metrics: Metrics | None = None,
        max_throttle_ms: int = 2**31 - 1,
    ):
        super().__init__(name, key, windows, clock, Rate, metrics)
        self._max_throttle_ms = max_throttle_ms

    def record(self, user: str, client_id: str | None, value: float) -> int:
        """Records what a client has used. Returns its throttle time in milliseconds, 0 if it is within the limit."""
        group = self.group_of(user, client_id)
        if group is None:
            return 0
        now_ms = group.used_ms = self.now_ms()
        group.meter.record(value, now_ms)
        throttle_ms = min(rate_throttle_ms(group.meter, group.limit, now_ms, self.windows), self._max_throttle_ms)
        group.throttled_ms += throttle_ms
        return throttle_ms

    def take_back(self, user: str, client_id: str | None, value: float) -> None:
        """Takes back what was recorded, but not used."""
        group = self.group_of(user, client_id)
        if group is not None:
            group.meter.record(-value, self.now_ms())

    def most_in_windows(self, user: str, client_id: str | None) -> float | None:
        """Returns the most that a client can use in all windows together, or None if it has no limit."""
        group = self.group_of(user, client_id)
        return None if group is None else group.limit * max(1, self.windows.samples - 1) * self.windows.sample_ms / 1000


class ControllerMutation:
    """The quota of one request that creates or deletes partitions (KIP-599)."""

    __slots__ = ("_group", "_is_strict", "_quotas", "_throttle_ms", "_throttled_at_ms")

    def __init__(
        self, quotas: "ControllerMutationQuotas | None", group: ClientGroup[TokenBucket] | None, is_strict: bool
    ):
        self._quotas = quotas
        self._group = group
        self._is_strict = is_strict
        self._throttle_ms = 0
        self._throttled_at_ms = 0.0

    def record(self, partitions: int) -> None:
        """Records changed partitions. A strict quota that is exceeded raises ThrottlingQuotaExceededError instead."""
        group, quotas = self._group, self._quotas
        if group is None or quotas is None:
            return
        now_ms = group.used_ms = quotas.now_ms()
        if not self._is_strict:
            group.meter.take(partitions, group.limit, now_ms)
        if not (self._is_strict and self._throttle_ms):
            self._throttle_ms = bucket_throttle_ms(group.meter, group.limit, now_ms, quotas.windows)
            self._throttled_at_ms = now_ms
        if self._is_strict:
            if self._throttle_ms:
                raise ThrottlingQuotaExceededError("The throttling quota has been exceeded.")
            group.meter.take(partitions, group.limit, now_ms)

    def throttle_ms(self) -> int:
        """Returns the throttle time of the response."""
        group, quotas = self._group, self._quotas
        if group is None or quotas is None or not self._throttle_ms:
            return 0
        remaining_ms = max(0, self._throttle_ms - int(quotas.now_ms() - self._throttled_at_ms))
        group.throttled_ms += remaining_ms
        return remaining_ms


UNLIMITED_MUTATION = ControllerMutation(None, None, is_strict=False)
"""The quota of a client without a limit."""


class ControllerMutationQuotas(ClientQuotas[TokenBucket]):
    """The quota of created and deleted partitions."""

    def __init__(self, windows: QuotaWindows, clock: Clock, metrics: Metrics | None = None):
        super().__init__("controller_mutation", "controller_mutation_rate", windows, clock, TokenBucket, metrics)

    def of_request(self, user: str, client_id: str | None, is_strict: bool) -> ControllerMutation:
        """Returns the quota of one request. A client that knows THROTTLING_QUOTA_EXCEEDED has a strict one."""
        return ControllerMutation(self, self.group_of(user, client_id), is_strict)


def _parse(value: str) -> float:
    limit = float(value)
    if not limit >= 0:  # also not a number
        raise ValueError
    return limit


def _encode(name: str) -> str:
    return ConfigEntity.user(name).name if name else ""
