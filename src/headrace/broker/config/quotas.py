"""Configs of client quotas: the windows in which rates are measured."""

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.broker.quotas.rates import QuotaWindows
from headrace.common.config import ConfigKey, ConfigTable, ConfigType

QUOTA_KEYS = ConfigTable(
    [
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
