import pytest

from headrace.broker.quotas.connections import ConnectionQuotas
from headrace.broker.quotas.rates import QuotaWindows
from headrace.cluster.config_store import ConfigEntity
from headrace.common.config import INT_MAX
from headrace.testing.clock import ManualClock


def make(protected: str | None = None) -> tuple[ConnectionQuotas, ManualClock]:
    clock = ManualClock()
    return ConnectionQuotas(QuotaWindows(), clock, protected), clock


def delays(quotas: ConnectionQuotas, listener: str, count: int) -> list[int]:
    return [quotas.accept_delay_ms(listener) for _ in range(count)]


def test_connections_above_the_rate_of_the_broker_are_delayed() -> None:
    quotas, clock = make()
    assert delays(quotas, "A", 1000) == [0] * 1000
    quotas.set_limits(1, {"B": INT_MAX})
    assert delays(quotas, "A", 5) == [0] * 5
    # 10 connections in 10 s are allowed; the delay is at most one window.
    assert delays(quotas, "B", 7) == [0] * 5 + [1000, 1000]
    clock.advance(60_000)
    assert delays(quotas, "B", 10) == [0] * 10
    quotas.set_limits(INT_MAX, {})
    assert delays(quotas, "B", 100) == [0] * 100


def test_rates_of_listeners() -> None:
    quotas, _ = make("INTERNAL")
    quotas.set_limits(2, {"A": 1, "INTERNAL": 3})
    assert delays(quotas, "A", 10) == [0] * 10
    assert delays(quotas, "A", 1) == [1000]
    # The rate of the broker does not count for the inter-broker listener.
    assert delays(quotas, "INTERNAL", 30) == [0] * 30
    assert delays(quotas, "INTERNAL", 1) > [0]
    assert delays(quotas, "B", 9) == [0] * 9
    assert delays(quotas, "B", 1) > [0]


def test_connections_above_the_rate_of_their_address_count_nowhere() -> None:
    quotas, clock = make()
    quotas.set_limits(3, {"A": 3})
    quotas.config_changed(ConfigEntity.ip("10.0.0.1"), {"connection_creation_rate": "1"})
    for _ in range(10):
        assert quotas.accept_delay_ms("A") == 0
        assert quotas.throttle_ms("A", "10.0.0.1") == 0
    for _ in range(50):
        assert quotas.accept_delay_ms("A") == 0
        assert quotas.throttle_ms("A", "10.0.0.1") == 1000
    assert quotas.throttle_ms("A", "10.0.0.2") == 0
    assert delays(quotas, "A", 20) == [0] * 20
    clock.advance(11_000)
    assert quotas.throttle_ms("A", "10.0.0.1") == 0


def test_the_rate_of_all_other_addresses() -> None:
    quotas, _ = make()
    quotas.config_changed(ConfigEntity.ip(None), {"connection_creation_rate": "0"})
    quotas.config_changed(ConfigEntity.ip("::1"), {"connection_creation_rate": "100"})
    assert quotas.throttle_ms("A", "10.0.0.1") == 1000
    assert quotas.throttle_ms("A", "::1") == 0
    quotas.config_changed(ConfigEntity.ip(None), {})
    assert quotas.throttle_ms("A", "10.0.0.1") == 0


def test_invalid_rates_are_ignored(caplog: pytest.LogCaptureFixture) -> None:
    quotas, _ = make()
    quotas.config_changed(ConfigEntity.ip(None), {"connection_creation_rate": "few"})
    assert quotas.throttle_ms("A", "10.0.0.1") == 0
    assert "is not a number" in caplog.text


def test_many_addresses_do_not_take_memory() -> None:
    quotas, clock = make()
    quotas.config_changed(ConfigEntity.ip(None), {"connection_creation_rate": "100"})
    for number in range(25_000):
        quotas.throttle_ms("A", str(number))
        clock.advance(2)
    assert quotas.addresses <= 11_000
