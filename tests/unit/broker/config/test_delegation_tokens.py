import pytest

from headrace.broker.config.delegation_tokens import TokenConfig
from headrace.common.errors import ConfigError


def test_defaults() -> None:
    config = TokenConfig.from_properties()
    assert not config.enabled
    assert (config.max_lifetime_ms, config.expiry_time_ms, config.expiry_check_interval_ms) == (
        604_800_000,
        86_400_000,
        3_600_000,
    )


def test_old_and_new_name_of_the_key() -> None:
    both = {"delegation.token.master.key": "old-key", "delegation.token.secret.key": "new-key"}
    assert TokenConfig.from_properties(both).secret_key == "new-key"
    old = TokenConfig.from_properties({"delegation.token.master.key": "old-key"})
    assert (old.enabled, old.secret_key) == (True, "old-key")
    assert "old-key" not in repr(old)


def test_bounds() -> None:
    with pytest.raises(ConfigError, match=r"delegation\.token\.expiry\.time\.ms: Value must be at least 1"):
        TokenConfig.from_properties({"delegation.token.expiry.time.ms": 0})
