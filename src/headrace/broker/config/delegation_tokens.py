"""The configs of delegation tokens: the key of their secrets, and how long they are valid."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.common.config import ConfigKey, ConfigTable, ConfigType

TOKEN_KEYS = ConfigTable(
    [
        ConfigKey(
            "delegation.token.secret.key",
            ConfigType.PASSWORD,
            None,
            "The key from which the secrets of delegation tokens are made. All brokers need the same one. If it is not "
            "set, there are no delegation tokens.",
            dynamic=False,
        ),
        ConfigKey(
            "delegation.token.master.key",
            ConfigType.PASSWORD,
            None,
            "The old name of `delegation.token.secret.key`, which is used if that is not set.",
            dynamic=False,
        ),
        ConfigKey(
            "delegation.token.max.lifetime.ms",
            ConfigType.LONG,
            7 * 24 * 60 * 60 * 1000,
            "How long a delegation token can be valid, even if it is renewed.",
            low=1,
            dynamic=False,
        ),
        ConfigKey(
            "delegation.token.expiry.time.ms",
            ConfigType.LONG,
            24 * 60 * 60 * 1000,
            "How long a delegation token is valid before it has to be renewed.",
            low=1,
            dynamic=False,
        ),
        ConfigKey(
            "delegation.token.expiry.check.interval.ms",
            ConfigType.LONG,
            60 * 60 * 1000,
            "How often the controller deletes expired delegation tokens.",
            low=1,
            dynamic=False,
        ),
    ]
)


@dataclass(frozen=True, slots=True)
class TokenConfig:
    """Typed and checked values of `TOKEN_KEYS`."""

    secret_key: str = field(repr=False)
    """Empty: there are no delegation tokens."""
    max_lifetime_ms: int
    expiry_time_ms: int
    expiry_check_interval_ms: int

    @classmethod
    def from_properties(cls, properties: Mapping[str, object] | None = None) -> "TokenConfig":
        """Raises ConfigError."""
        values = TOKEN_KEYS.parse(properties or {})
        key = values["delegation_token_secret_key"]
        return cls(
            secret_key=(values["delegation_token_master_key"] if key is None else key) or "",
            max_lifetime_ms=values["delegation_token_max_lifetime_ms"],
            expiry_time_ms=values["delegation_token_expiry_time_ms"],
            expiry_check_interval_ms=values["delegation_token_expiry_check_interval_ms"],
        )

    @property
    def enabled(self) -> bool:
        return bool(self.secret_key)
