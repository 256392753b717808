import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.quotas.client_quotas import IDLE_MS, ControllerMutationQuotas, RateQuotas
from headrace.broker.quotas.limits import QuotaLimits
from headrace.broker.quotas.rates import QuotaWindows
from headrace.cluster.config_store import ConfigEntity
from headrace.common.errors import ThrottlingQuotaExceededError
from headrace.common.metrics import Metrics
from headrace.testing.clock import ManualClock

DEFAULT = "<default>"
ORDER = [
    ("alice", "app"),
    ("alice", DEFAULT),
    ("alice", ""),
    (DEFAULT, "app"),
    (DEFAULT, DEFAULT),
    (DEFAULT, ""),
    ("", "app"),
    ("", DEFAULT),
]
"""Kafka's order, the most specific entity first."""


@given(st.permutations(ORDER), st.integers(0, len(ORDER)))
def test_the_most_specific_limit_applies(order: list[tuple[str, str]], removed: int) -> None:
    limits = QuotaLimits()
    for entity in order:
        assert limits.set(*entity, float(ORDER.index(entity)))
    for entity in order[:removed]:
        assert limits.set(*entity, None)
    remaining = [entity for entity in ORDER if entity not in order[:removed]]
    found = limits.find("alice", "app")
    if not remaining:
        assert found is None
        return
    assert found is not None
    (user, client_id), limit = remaining[0], found[1]
    assert limit == ORDER.index((user, client_id))
    assert found[0] == ("alice" if user else "", "app" if client_id else "")


class Setup:
    def __init__(self, key: str = "producer_byte_rate") -> None:
        self.clock = ManualClock()
        self.metrics = Metrics(self.clock)
        self.quotas = RateQuotas("produce", key, QuotaWindows(), self.clock, self.metrics)

    def set(self, entity: ConfigEntity, value: str | None) -> None:
        self.quotas.config_changed(entity, value)


def test_clients_share_what_their_limit_says() -> None:
    setup = Setup()
    assert setup.quotas.record("alice", "app", 1e9) == 0
    setup.set(ConfigEntity.user("alice"), "1000")
    assert setup.quotas.record("alice", "a", 10_000) == 0
    assert setup.quotas.record("alice", "b", 10_000) == 10_000
    assert setup.quotas.record("bob", "b", 1e9) == 0
    setup.set(ConfigEntity.client(None), "1000")
    assert setup.quotas.record("bob", "b", 10_000) == 0
    assert setup.quotas.record("carol", "b", 10_000) == 10_000
    assert setup.quotas.record("carol", "c", 10_000) == 0


def test_names_are_encoded_in_the_store() -> None:
    setup = Setup()
    setup.set(ConfigEntity.user_client("CN=a,O=b c", "x/y"), "1")
    setup.set(ConfigEntity.user("<default>"), "2")
    assert setup.quotas.group_of("CN=a,O=b c", "x/y") is not None
    assert setup.quotas.group_of("CN=a,O=b c", "x") is None
    assert setup.quotas.group_of("<default>", None) is not None
    assert setup.quotas.group_of("bob", None) is None


def test_changes_apply_at_once_to_what_was_used_before() -> None:
    setup = Setup()
    user = ConfigEntity.user("alice")
    setup.set(user, "1000000")
    assert setup.quotas.record("alice", "a", 20_000) == 0
    setup.set(user, "1000")
    assert setup.quotas.record("alice", "a", 0) == 10_000
    setup.set(ConfigEntity.user_client("alice", "a"), "1000")
    assert setup.quotas.record("alice", "a", 0) == 0
    setup.set(ConfigEntity.user_client("alice", "a"), None)
    assert setup.quotas.record("alice", "a", 0) == 10_000
    setup.set(user, None)
    assert setup.quotas.record("alice", "a", 1e9) == 0
    assert len(setup.quotas) == 0


@pytest.mark.parametrize("value", ["many", "nan", "-1", ""])
def test_invalid_limits_are_ignored(value: str, caplog: pytest.LogCaptureFixture) -> None:
    setup = Setup()
    setup.set(ConfigEntity.user("alice"), value)
    assert len(setup.quotas) == 0
    assert "it is not a number" in caplog.text


def test_idle_clients_and_their_metrics_are_forgotten() -> None:
    setup = Setup()
    setup.set(ConfigEntity.client(None), "1000")
    setup.quotas.record("alice", "app", 30_000)
    labels = '{client_id="app",quota="produce",user=""}'
    assert setup.metrics.snapshot()[f"client_quota_used{labels}"] == 3000
    assert setup.metrics.snapshot()[f"client_quota_throttle_ms_total{labels}"] == 20_000
    setup.clock.advance(IDLE_MS - 1)
    setup.quotas.expire_idle()
    assert setup.quotas.groups == 1
    setup.clock.advance(1)
    setup.quotas.expire_idle()
    assert setup.quotas.groups == 0
    assert list(setup.metrics) == []
    assert setup.quotas.record("alice", "app", 30_000) == 20_000


def test_invented_client_ids_do_not_take_memory() -> None:
    setup = Setup()
    setup.set(ConfigEntity.client(None), "1000")
    for number in range(25_000):
        setup.quotas.record("alice", f"app-{number}", 1)
        setup.clock.advance(2)
    # Those of the last eleven seconds, and as many again before they are forgotten.
    assert setup.quotas.groups <= 11_000


def test_request_time_has_a_longest_throttle_time() -> None:
    clock = ManualClock()
    quotas = RateQuotas("request", "request_percentage", QuotaWindows(), clock, max_throttle_ms=1000)
    quotas.config_changed(ConfigEntity.user(None), "1.5")
    assert quotas.record("alice", None, 16) == 667
    assert quotas.record("alice", None, 100) == 1000


def test_most_in_windows_and_taking_back() -> None:
    setup = Setup()
    assert setup.quotas.most_in_windows("alice", "a") is None
    setup.set(ConfigEntity.user("alice"), "1000")
    assert setup.quotas.most_in_windows("alice", "a") == 10_000
    assert setup.quotas.record("alice", "a", 20_000) == 10_000
    setup.quotas.take_back("alice", "a", 20_000)
    assert setup.quotas.record("alice", "a", 10_000) == 0


class Mutations:
    def __init__(self, limit: str = "1") -> None:
        self.clock = ManualClock()
        self.quotas = ControllerMutationQuotas(QuotaWindows(), self.clock)
        self.quotas.config_changed(ConfigEntity.user(None), limit)


def test_strict_mutations_are_refused_when_the_bucket_is_negative() -> None:
    setup = Mutations()
    request = setup.quotas.of_request("alice", "a", is_strict=True)
    request.record(14)
    assert request.throttle_ms() == 0
    for _ in range(2):
        with pytest.raises(ThrottlingQuotaExceededError):
            request.record(1)
    assert request.throttle_ms() == 3000
    setup.clock.advance(1000)
    assert request.throttle_ms() == 2000
    setup.clock.advance(2000)
    later = setup.quotas.of_request("alice", "b", is_strict=True)
    later.record(1)
    assert later.throttle_ms() == 0


def test_permissive_mutations_are_only_throttled() -> None:
    setup = Mutations()
    request = setup.quotas.of_request("alice", "a", is_strict=False)
    request.record(14)
    request.record(1)
    assert request.throttle_ms() == 4000
    unlimited = setup.quotas.of_request("alice", None, is_strict=True)
    setup.quotas.config_changed(ConfigEntity.user(None), None)
    assert setup.quotas.of_request("alice", None, is_strict=True).throttle_ms() == 0
    with pytest.raises(ThrottlingQuotaExceededError):
        unlimited.record(1)
