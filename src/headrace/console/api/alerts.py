"""Alerts and their rules.

Users see the alerts of topics, groups and pipelines that they may see. Rules watch the whole cluster, with the
console's own rights: to list them needs the right to describe the cluster, to change them the right to alter it.
"""

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Literal
from urllib.parse import urlsplit

from headrace.console.alerts.evaluation import Alert
from headrace.console.alerts.manager import AlertManager
from headrace.console.alerts.rules import Kind, Rule, RuleError, check_webhook
from headrace.console.alerts.webhook import WebhookError, send_once
from headrace.console.calls import Call
from headrace.console.errors import ApiError
from headrace.console.pipelines.statuses import STATUS_TOPIC
from headrace.console.routing import Router
from headrace.console.schema import Length, Range
from headrace.console.visibility import Visibility

router = Router("alerts")
_ALERTS = "/api/clusters/{cluster}/alerts"
_ALTER = 7
_HIDDEN = "/..."
_TEST_TARGET = "test"


@dataclass(frozen=True)
class AlertItem:
    """An alert."""

    rule_id: str
    rule: str
    target: str
    value: float
    threshold: float
    state: Literal["pending", "firing", "resolved"]
    since_ms: int
    message: str


@dataclass(frozen=True)
class AlertList:
    """The alerts that the user may see: firing ones first."""

    alerts: list[AlertItem]
    time_ms: int


@dataclass(frozen=True)
class AlertRuleBody:
    """A rule. `target` is a pattern with * and ?; empty for all."""

    name: Annotated[str, Length(1, 200)]
    kind: Kind
    target: Annotated[str, Length(0, 500)] = ""
    threshold: Annotated[float, Range(-1e15, 1e15)] = 0.0
    for_seconds: Annotated[int, Range(0, 86_400)] = 0
    enabled: bool = True
    webhook: Annotated[str, Length(1, 2000)] | None = None


@dataclass(frozen=True)
class AlertRuleItem(AlertRuleBody):
    """A stored rule. Of a webhook, only the host is shown: its path is often its secret."""

    id: str = ""


@dataclass(frozen=True)
class AlertRuleList:
    """All rules."""

    items: list[AlertRuleItem]


@dataclass(frozen=True)
class WebhookTest:
    """Whether the webhook has accepted a message."""

    delivered: bool
    error: str | None


def visible_alerts(manager: AlertManager, visibility: Visibility) -> list[Alert]:
    """Returns the alerts about what a user may see."""
    return [alert for alert in manager.alerts.all() if _is_visible(manager.rules.get(alert.rule_id), alert, visibility)]


def _is_visible(rule: Rule | None, alert: Alert, visibility: Visibility) -> bool:
    kind = "" if rule is None else rule.kind
    if kind.startswith("group_"):
        return visibility.groups(alert.target)
    if kind.startswith("topic_") or kind in ("under_replicated", "offline"):
        return visibility.topics(alert.target)
    if kind == "dead_letters":
        return visibility.topics(STATUS_TOPIC)
    return visibility.cluster


@router.get(_ALERTS, response=AlertList, summary="List alerts")
async def list_alerts(call: Call) -> AlertList:
    """Pending, firing and recently resolved alerts."""
    alerts = visible_alerts(_manager(call), await call.visibility())
    return AlertList([AlertItem(**dataclasses.asdict(alert)) for alert in alerts], call.clock.time_ms())


@router.get(f"{_ALERTS}/rules", response=AlertRuleList, summary="List rules")
async def list_alert_rules(call: Call) -> AlertRuleList:
    """The rules of all users."""
    if not (await call.visibility()).cluster:
        raise ApiError(403, "CLUSTER_AUTHORIZATION_FAILED", "Rules are shown to those who may describe the cluster")
    rules = sorted(_manager(call).rules.values(), key=lambda rule: (rule.name, rule.id))
    return AlertRuleList([_item(rule) for rule in rules])


@router.post(
    f"{_ALERTS}/rules",
    body=AlertRuleBody,
    response=AlertRuleItem,
    status=201,
    change="create alert rule",
    summary="Create a rule",
)
async def create_alert_rule(call: Call, body: AlertRuleBody) -> AlertRuleItem:
    """Creates a rule."""
    call.audit(f"rule {body.name}", kind=body.kind, on=body.target)
    await _check_rights(call)
    try:
        return _item(await _manager(call).add(_rule("", body, body.webhook)))
    except RuleError as error:
        raise ApiError(400, "INVALID_REQUEST", str(error)) from None


@router.put(
    f"{_ALERTS}/rules/{{rule}}",
    body=AlertRuleBody,
    response=AlertRuleItem,
    change="change alert rule",
    summary="Change a rule",
)
async def put_alert_rule(call: Call, body: AlertRuleBody) -> AlertRuleItem:
    """Replaces a rule. A webhook that is given as it was shown, without its path, stays as it is."""
    call.audit(f"rule {body.name}", kind=body.kind, on=body.target)
    await _check_rights(call)
    old = _known(call)
    webhook = old.webhook if body.webhook is not None and body.webhook == _shown(old.webhook) else body.webhook
    return _item(await _manager(call).put(_rule(old.id, body, webhook)))


@router.delete(f"{_ALERTS}/rules/{{rule}}", change="delete alert rule", summary="Delete a rule")
async def delete_alert_rule(call: Call) -> None:
    """Deletes a rule and its alerts."""
    await _check_rights(call)
    rule = _known(call)
    call.audit(f"rule {rule.name}")
    await _manager(call).delete(rule.id)


@router.post(
    f"{_ALERTS}/rules/{{rule}}/test",
    response=WebhookTest,
    change="test alert webhook",
    summary="Test the webhook of a rule",
)
async def test_alert_rule(call: Call) -> WebhookTest:
    """Sends a message to the webhook of a rule."""
    await _check_rights(call)
    rule = _known(call)
    call.audit(f"rule {rule.name}")
    if rule.webhook is None:
        raise ApiError(400, "INVALID_REQUEST", "The rule has no webhook")
    now = call.clock.time_ms()
    alert = Alert(rule.id, rule.name, _TEST_TARGET, rule.threshold, rule.threshold, "firing", now, "This is a test")
    try:
        await send_once(rule.webhook, {**_manager(call).message(alert), "test": True})
    except WebhookError as error:
        return WebhookTest(False, str(error))
    return WebhookTest(True, None)


def _manager(call: Call) -> AlertManager:
    return call.console.alerts[call.cluster.name]


def _known(call: Call) -> Rule:
    rule = _manager(call).rules.get(call.path["rule"])
    if rule is None:
        raise ApiError(404, "NOT_FOUND", f"There is no rule {call.path['rule']!r}", "rule")
    return rule


async def _check_rights(call: Call) -> None:
    if _ALTER not in (await call.visibility()).operations:
        raise ApiError(403, "CLUSTER_AUTHORIZATION_FAILED", "Rules are changed by those who may alter the cluster")


def _rule(rule_id: str, body: AlertRuleBody, webhook: str | None) -> Rule:
    if webhook is not None:
        try:
            check_webhook(webhook)
        except RuleError as error:
            raise ApiError(400, "INVALID_REQUEST", str(error), "webhook") from None
    fields = {field.name: getattr(body, field.name) for field in dataclasses.fields(AlertRuleBody)}
    return Rule(**{**fields, "id": rule_id, "webhook": webhook})


def _item(rule: Rule) -> AlertRuleItem:
    return AlertRuleItem(**{**dataclasses.asdict(rule), "webhook": _shown(rule.webhook)})


def _shown(webhook: str | None) -> str | None:
    if webhook is None:
        return None
    parts = urlsplit(webhook)
    return f"{parts.scheme}://{parts.netloc}{_HIDDEN}"
