"""Configs of client quotas: the windows in which rates are measured."""

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.broker.quotas.rates import QuotaWindows
from headrace.common.config import INT_MAX, ConfigKey, ConfigTable, ConfigType

CONNECTION_KEYS = ConfigTable(
    [
        ConfigKey(
            "max.connections",
            ConfigType.INT,
            INT_MAX,
            "The maximum number of connections, or with `listener.name.<listener>.` in front those of one listener. "
            "Brokers can connect to the inter-broker listener in any case; the least recently used connection of "
            "another listener is closed for them.",
            low=1,
        ),
        ConfigKey(
            "max.connection.creation.rate",
            ConfigType.INT,
            INT_MAX,
            "The maximum number of new connections per second, or with `listener.name.<listener>.` in front those of "
            "one listener. Above it, connections are accepted later. The rate of the broker does not count for the "
            "inter-broker listener, unless it is the only one.",
            low=0,
        ),
    ]
)
"""Limits of connections, which a listener may have as well."""

QUOTA_KEYS = ConfigTable(
    [
        *CONNECTION_KEYS.keys.values(),
        ConfigKey(
            "quota.window.num",
            ConfigType.INT,
            11,
            "The number of samples in memory for client quotas.",
            low=1,
            dynamic=False,
        ),
        ConfigKey(
            "quota.window.size.seconds",
            ConfigType.INT,
            1,
            "The time span of each sample for client quotas.",
            low=1,
            dynamic=False,
        ),
        ConfigKey(
            "controller.quota.window.num",
            ConfigType.INT,
            11,
            "The number of samples in memory for controller mutation quotas. The burst of a client is what its quota "
            "allows in all samples together.",
            low=1,
            dynamic=False,
        ),
        ConfigKey(
            "controller.quota.window.size.seconds",
            ConfigType.INT,
            1,
            "The time span of each sample for controller mutation quotas.",
            low=1,
            dynamic=False,
        ),
    ]
)


@dataclass(frozen=True, slots=True)
class QuotaConfig:
    """Typed and checked values of `QUOTA_KEYS`."""

    windows: QuotaWindows
    controller_windows: QuotaWindows

    @classmethod
    def from_properties(cls, properties: Mapping[str, object] | None = None) -> "QuotaConfig":
        """Raises ConfigError."""
        values = QUOTA_KEYS.parse(properties or {})
        return cls(
            QuotaWindows(values["quota_window_num"], values["quota_window_size_seconds"] * 1000),
            QuotaWindows(values["controller_quota_window_num"], values["controller_quota_window_size_seconds"] * 1000),
        )
