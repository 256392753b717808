"""The rates of new connections: of the broker, of each listener, and of each IP address (KIP-612). No sockets.

- Above the rate of the broker or of a listener, connections are accepted later. The broker's rate does not count for
  the inter-broker listener, unless it is the only one.
- Above the rate of an IP address, connections are closed after a while. They do not count for the other rates.

The rates are measured in the windows of client quotas. No throttle time is longer than one window.
"""

import logging
from collections.abc import Mapping
from urllib.parse import unquote

from headrace.broker.quotas.rates import QuotaWindows, Rate, rate_throttle_ms
from headrace.cluster.config_store import ConfigEntity
from headrace.cluster.znodes import DEFAULT_ENTITY
from headrace.common.clock import Clock
from headrace.common.config import INT_MAX

_logger = logging.getLogger(__name__)

IP_KEY = "connection_creation_rate"
_BROKER = ""
_MANY_ADDRESSES = 10_000


class ConnectionQuotas:
    """The rates of new connections. Owned by the broker's loop."""

    def __init__(self, windows: QuotaWindows, clock: Clock, protected_listener: str | None = None):
        self._windows = windows
        self._clock = clock
        self._protected_listener = protected_listener
        self._limits: dict[str, float] = {}
        """By listener; the empty name is that of the broker."""
        self._rates: dict[str, Rate] = {}
        self._address_limits: dict[str, float] = {}
        """By address, or `<default>`."""
        self._addresses: dict[str, Rate] = {}
        self._used_ms: dict[str, float] = {}
        """When an address has connected last."""
        self._many_addresses = _MANY_ADDRESSES
        """The number of addresses at which those without a recent connection are forgotten."""

    @property
    def addresses(self) -> int:
        """The number of addresses that are measured."""
        return len(self._addresses)

    def set_limits(self, broker: int, listeners: Mapping[str, int]) -> None:
        """Sets the rates of the broker and of its listeners; INT_MAX: unlimited."""
        limits = {_BROKER: broker, **listeners}
        self._limits = {name: float(limit) for name, limit in limits.items() if limit < INT_MAX}
        self._rates = {name: rate for name, rate in self._rates.items() if name in self._limits}

    def config_changed(self, entity: ConfigEntity, config: Mapping[str, str]) -> None:
        """Applies the rate of an IP address, or of all others."""
        address = DEFAULT_ENTITY if entity.name == DEFAULT_ENTITY else unquote(entity.name)
        value = config.get(IP_KEY)
        self._address_limits.pop(address, None)
        if value is not None:
            try:
                self._address_limits[address] = float(int(value))
            except ValueError:
                _logger.error("Ignoring the quota %s=%r of %s: it is not a number", IP_KEY, value, entity)
                return
        _logger.info("Quota %s of %s: %s", IP_KEY, entity, "none" if value is None else value)

    def accept_delay_ms(self, listener: str) -> int:
        """Records a connection. Returns how long the listener accepts nothing."""
        if not self._limits:
            return 0
        return max((self._record(name) for name in self._names(listener)), default=0)

    def throttle_ms(self, listener: str, host: str) -> int:
        """Records a connection of an address. Returns how long it waits to be closed, or 0 if it is served."""
        if not self._address_limits:
            return 0
        limit = self._address_limits.get(host, self._address_limits.get(DEFAULT_ENTITY, INT_MAX))
        if limit >= INT_MAX:
            return 0
        now_ms = self._now_ms()
        if host not in self._addresses:
            self._forget_old(now_ms)
            self._addresses[host] = Rate(self._windows)
        rate = self._addresses[host]
        self._used_ms[host] = now_ms
        rate.record(1, now_ms)
        throttle_ms = self._throttle_ms(rate, limit, now_ms)
        if throttle_ms:
            # The connection is not served, so it is taken back everywhere.
            rate.record(-1, now_ms)
            for name in self._names(listener):
                if name in self._rates:
                    self._rates[name].record(-1, now_ms)
        return throttle_ms

    def _names(self, listener: str) -> list[str]:
        """Returns the names of the rates that count for a listener, and have a limit."""
        names = (listener,) if listener == self._protected_listener else (_BROKER, listener)
        return [name for name in names if name in self._limits]

    def _record(self, name: str) -> int:
        now_ms = self._now_ms()
        rate = self._rates.setdefault(name, Rate(self._windows))
        rate.record(1, now_ms)
        return self._throttle_ms(rate, self._limits[name], now_ms)

    def _throttle_ms(self, rate: Rate, limit: float, now_ms: float) -> int:
        return min(rate_throttle_ms(rate, limit, now_ms, self._windows), self._windows.sample_ms)

    def _forget_old(self, now_ms: float) -> None:
        """Forgets addresses whose samples have expired, if there are many."""
        if len(self._addresses) < self._many_addresses:
            return
        oldest_ms = now_ms - self._windows.total_ms
        for host in [host for host, used_ms in self._used_ms.items() if used_ms <= oldest_ms]:
            del self._addresses[host], self._used_ms[host]
        self._many_addresses = max(_MANY_ADDRESSES, 2 * len(self._addresses))

    def _now_ms(self) -> float:
        return self._clock.monotonic() * 1000
