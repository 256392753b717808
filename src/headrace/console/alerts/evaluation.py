"""From values to alerts. Pure: the time is passed in.

States of an alert of a rule and target:

    pending    the value is beyond the threshold, but not long enough
    firing     it has been beyond for `for_seconds`; stays until the value is back
    resolved   was firing, and the value is back; shown for a while
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from headrace.console.alerts.rules import Rule, holds

__all__ = ["Alert", "Alerts"]

State = Literal["pending", "firing", "resolved"]
_SHOW_RESOLVED_MS = 3_600_000
MAX_ALERTS = 5000


@dataclass(frozen=True)
class Alert:
    """An alert of one target."""

    rule_id: str
    rule: str
    target: str
    value: float
    threshold: float
    state: State
    since_ms: int
    """When the state began; for firing alerts, when the value went beyond the threshold."""
    message: str

    @property
    def key(self) -> tuple[str, str]:
        return self.rule_id, self.target


class Alerts:
    """The alerts of one cluster."""

    def __init__(self) -> None:
        self._alerts: dict[tuple[str, str], Alert] = {}
        self.generation = 0

    def all(self) -> list[Alert]:
        """Returns all alerts: firing ones first, then by time."""
        order = {"firing": 0, "pending": 1, "resolved": 2}
        return sorted(self._alerts.values(), key=lambda alert: (order[alert.state], -alert.since_ms, alert.key))

    def restore(self, rule_id: str, target: str, since_ms: int) -> None:
        """Continues an alert that fired before a restart, so that it is not sent again."""
        self._alerts.setdefault((rule_id, target), Alert(rule_id, "", target, 0.0, 0.0, "firing", since_ms, ""))

    def remove(self, rule_id: str, target: str) -> None:
        self._alerts.pop((rule_id, target), None)

    def remove_rule(self, rule_id: str) -> None:
        self._alerts = {key: alert for key, alert in self._alerts.items() if key[0] != rule_id}
        self.generation += 1

    def evaluate(
        self, now_ms: int, values: Iterable[tuple[Rule, Mapping[str, float]]]
    ) -> list[tuple[Rule | None, Alert]]:
        """Takes the values of all enabled rules. Returns the alerts that began to fire or were resolved."""
        changes: list[tuple[Rule | None, Alert]] = []
        previous = dict(self._alerts)
        before = dict(previous)
        for rule, by_target in values:
            for target, value in by_target.items():
                alert = self._next(rule, target, value, before.pop((rule.id, target), None), now_ms)
                if alert is None:
                    continue
                old = self._alerts.get(alert.key)
                if old is None and len(self._alerts) >= MAX_ALERTS:
                    continue
                self._alerts[alert.key] = alert
                if alert.state != "pending" and (old is None or old.state != alert.state):
                    changes.append((rule, alert))
        for key, alert in before.items():
            # The target is gone, or the rule is disabled. A target whose value is not known right now is in neither.
            if alert.state == "firing":
                resolved = replace(alert, state="resolved", since_ms=now_ms)
                self._alerts[key] = resolved
                changes.append((None, resolved))
            elif alert.state == "pending":
                del self._alerts[key]
        self._expire(now_ms)
        if self._alerts != previous:
            self.generation += 1
        return changes

    def _next(self, rule: Rule, target: str, value: float, old: Alert | None, now_ms: int) -> Alert | None:
        """Returns the alert after a value; None if there is none."""
        message = rule.message(target, value)

        def alert(state: State, since_ms: int) -> Alert:
            return Alert(rule.id, rule.name, target, value, rule.threshold, state, since_ms, message)

        if not holds(rule, value):
            if old is None or old.state == "pending":
                self._alerts.pop((rule.id, target), None)
                return None
            return alert("resolved", now_ms if old.state == "firing" else old.since_ms)
        if old is not None and old.state == "firing":
            return alert("firing", old.since_ms)
        since_ms = old.since_ms if old is not None and old.state == "pending" else now_ms
        return alert("firing" if now_ms - since_ms >= rule.for_seconds * 1000 else "pending", since_ms)

    def _expire(self, now_ms: int) -> None:
        for key, alert in list(self._alerts.items()):
            if alert.state == "resolved" and now_ms - alert.since_ms > _SHOW_RESOLVED_MS:
                del self._alerts[key]
