"""The alerts of one cluster: evaluates the rules after each collection, keeps rules and firing alerts in the console's
topic, publishes changes and sends them to webhooks. Owner: the console's loop.

Keys in the topic: `alerts/rule/<id>` with the rule; `alerts/firing/<id>/<target>` with the start of a firing alert.
"""

import json
import logging
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any, Protocol

from headrace.common.errors import HeadraceError
from headrace.common.ids import Random, make_random, random_uuid
from headrace.console.alerts.evaluation import Alert, Alerts
from headrace.console.alerts.rules import Rule, RuleError, samples
from headrace.console.alerts.webhook import WebhookSender
from headrace.console.clusters import Cluster
from headrace.console.pipelines.watch import PipelineWatch
from headrace.console.snapshot import Snapshot

__all__ = ["AlertManager"]

_logger = logging.getLogger(__name__)
_PREFIX = "alerts/"
_RULE = "alerts/rule/"
_FIRING = "alerts/firing/"
MAX_RULES = 200


class Store(Protocol):
    """Where rules and firing alerts survive a restart: the console's topic."""

    def register(self, prefix: str, loaded: Callable[[str, bytes | None], None]) -> None: ...

    async def put(self, key: str, value: bytes | None) -> None:
        """Does not wait until the value is stored."""

    async def save(self, key: str, value: bytes | None) -> None:
        """Waits until the value is stored."""


class AlertManager:
    """The rules and alerts of one cluster."""

    def __init__(self, cluster: Cluster, pipelines: PipelineWatch, store: Store | None, random: Random | None = None):
        self._cluster = cluster
        self._store = store
        self._pipelines = pipelines
        self._random = random or make_random()
        self._published = -1
        self.rules: dict[str, Rule] = {}
        self.alerts = Alerts()
        self.webhooks = WebhookSender()
        if store is not None:
            store.register(_PREFIX, self._loaded)

    def _loaded(self, key: str, value: bytes | None) -> None:
        """Takes a record of the console's topic at the start."""
        if key.startswith(_RULE):
            rule_id = key[len(_RULE) :]
            self.rules.pop(rule_id, None)
            if value is not None:
                try:
                    self.rules[rule_id] = replace(Rule.from_json(value), id=rule_id)
                except RuleError as error:
                    _logger.warning("Cluster %s: %s", self._cluster.name, error)
        elif key.startswith(_FIRING):
            rule_id, _, target = key[len(_FIRING) :].partition("/")
            since = _since(value)
            if since is None:
                self.alerts.remove(rule_id, target)
            else:
                self.alerts.restore(rule_id, target, since)

    async def _put(self, key: str, value: bytes | None) -> None:
        if self._store is not None:
            await self._store.put(key, value)

    async def _save(self, key: str, value: bytes | None) -> None:
        if self._store is not None:
            await self._store.save(key, value)

    # ---- rules

    async def add(self, rule: Rule) -> Rule:
        """Stores a new rule, with a new id. Raises RuleError if there are too many."""
        if len(self.rules) >= MAX_RULES:
            raise RuleError(f"there are already {MAX_RULES} rules")
        return await self.put(replace(rule, id=str(random_uuid(self._random))))

    async def put(self, rule: Rule) -> Rule:
        """Stores a rule."""
        self.rules[rule.id] = rule
        await self._save(_RULE + rule.id, rule.to_json())
        return rule

    async def delete(self, rule_id: str) -> None:
        """Deletes a rule and its alerts."""
        del self.rules[rule_id]
        for alert in self.alerts.all():
            if alert.rule_id == rule_id and alert.state == "firing":
                await self._put(f"{_FIRING}{rule_id}/{alert.target}", None)
        self.alerts.remove_rule(rule_id)
        await self._save(_RULE + rule_id, None)

    # ---- evaluation

    async def evaluate(self, snapshot: Snapshot) -> None:
        """Evaluates all rules. Called after each collection."""
        statuses = self._pipelines.statuses
        values = [(rule, dict(samples(rule, snapshot, statuses))) for rule in list(self.rules.values()) if rule.enabled]
        for rule, alert in self.alerts.evaluate(self._cluster.clock.time_ms(), values):
            await self._changed(rule or self.rules.get(alert.rule_id), alert)
        snapshot.generation["alerts"] = self.alerts.generation
        if self.alerts.generation != self._published:
            self._published = self.alerts.generation
            alerts = self.alerts.all()
            firing = sum(alert.state == "firing" for alert in alerts)
            self._cluster.events.publish("alerts", {"firing": firing, "alerts": [asdict(alert) for alert in alerts]})

    async def _changed(self, rule: Rule | None, alert: Alert) -> None:
        _logger.info("Alert %s of cluster %s is %s: %s", alert.rule, self._cluster.name, alert.state, alert.message)
        since = json.dumps({"since_ms": alert.since_ms}).encode() if alert.state == "firing" else None
        try:
            await self._put(f"{_FIRING}{alert.rule_id}/{alert.target}", since)
        except HeadraceError as error:
            _logger.warning("The state of alert %s is not stored: %s", alert.rule, error)
        if rule is not None and rule.webhook is not None:
            self.webhooks.send(rule.webhook, self.message(alert))

    def message(self, alert: Alert) -> dict[str, Any]:
        """Returns what a webhook gets: no credentials, no records."""
        return {"source": "headrace console", "cluster": self._cluster.name, **asdict(alert)}

    async def close(self) -> None:
        await self.webhooks.close()


def _since(value: bytes | None) -> int | None:
    try:
        since = json.loads(value or b"null")["since_ms"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return since if isinstance(since, int) else None
