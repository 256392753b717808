"""The states of alerts over time."""

from collections.abc import Mapping

from headrace.console.alerts.evaluation import Alerts
from headrace.console.alerts.rules import Rule

_RULE = Rule("r", "Lag", "group_lag", threshold=100, for_seconds=10)


def _step(alerts: Alerts, now_ms: int, values: Mapping[str, float], rule: Rule = _RULE) -> list[tuple[str, str]]:
    return [(alert.target, alert.state) for _, alert in alerts.evaluate(now_ms, [(rule, values)])]


def _states(alerts: Alerts) -> dict[str, str]:
    return {alert.target: alert.state for alert in alerts.all()}


def test_an_alert_fires_after_a_while_and_is_resolved() -> None:
    alerts = Alerts()
    assert _step(alerts, 0, {"a": 101, "b": 100}) == []
    assert _states(alerts) == {"a": "pending"}
    assert _step(alerts, 9_999, {"a": 500}) == []
    assert _step(alerts, 10_000, {"a": 500}) == [("a", "firing")]
    (alert,) = alerts.all()
    assert (alert.since_ms, alert.value, alert.message) == (0, 500, "Group a is 500 records behind")
    assert _step(alerts, 20_000, {"a": 700}) == []
    assert _step(alerts, 30_000, {"a": 100}) == [("a", "resolved")]
    assert _step(alerts, 40_000, {"a": 100}) == []
    assert alerts.all()[0].since_ms == 30_000
    assert _step(alerts, 50_000, {"a": 101}) == []
    assert _states(alerts) == {"a": "pending"}
    assert _step(alerts, 60_000, {"a": 101}) == [("a", "firing")]


def test_a_short_peak_does_not_fire() -> None:
    alerts = Alerts()
    _step(alerts, 0, {"a": 101})
    assert _step(alerts, 5_000, {"a": 1}) == []
    assert _states(alerts) == {}
    _step(alerts, 6_000, {"a": 101})
    assert _step(alerts, 12_000, {"a": 101}) == []


def test_without_a_duration_it_fires_at_once() -> None:
    rule = Rule("d", "Disk", "disk_free", threshold=10)
    assert _step(Alerts(), 5, {"1:/data": 9.5}, rule) == [("1:/data", "firing")]


def test_a_target_that_is_gone_is_resolved() -> None:
    alerts = Alerts()
    _step(alerts, 0, {"a": 101, "b": 101})
    _step(alerts, 10_000, {"a": 101})
    assert _states(alerts) == {"a": "firing"}
    assert _step(alerts, 20_000, {}) == [("a", "resolved")]
    _step(alerts, 20_000 + 3_600_001, {})
    assert _states(alerts) == {}


def test_a_disabled_rule_resolves_its_alerts() -> None:
    alerts = Alerts()
    _step(alerts, 0, {"a": 101})
    _step(alerts, 10_000, {"a": 101})
    assert [alert.state for _, alert in alerts.evaluate(20_000, [])] == ["resolved"]
    alerts.remove_rule("r")
    assert alerts.all() == []


def test_a_restored_alert_does_not_fire_again() -> None:
    alerts = Alerts()
    alerts.restore("r", "a", 5)
    alerts.restore("r", "b", 5)
    alerts.remove("r", "b")
    assert _step(alerts, 10_000, {"a": 500}) == []
    (alert,) = alerts.all()
    assert (alert.state, alert.since_ms, alert.rule) == ("firing", 5, "Lag")
    assert _step(alerts, 20_000, {"a": 1}) == [("a", "resolved")]


def test_firing_alerts_come_first() -> None:
    alerts = Alerts()
    _step(alerts, 0, {"a": 101})
    _step(alerts, 10_000, {"a": 101, "b": 101, "c": 101})
    _step(alerts, 20_000, {"a": 101, "b": 50, "c": 101})
    assert [(alert.target, alert.state) for alert in alerts.all()] == [("c", "firing"), ("a", "firing")]
