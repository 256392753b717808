"""Rules: what they look at, and which webhooks they may have."""

import json
from array import array

import pytest
from tests.support.console.pipeline_records import status

from headrace.client.admin.types import BrokerDescription, ClusterDescription
from headrace.console.alerts.rules import Kind, Rule, RuleError, check_webhook, holds, samples
from headrace.console.pipelines.statuses import Statuses
from headrace.console.snapshot import BrokerState, GroupState, LogDirState, PartitionState, Snapshot, TopicState


def _snapshot() -> Snapshot:
    partitions = (
        PartitionState(1, 0, (1, 2), (1,), ()),
        PartitionState(2, 0, (2, 1), (1, 2), ()),
    )
    topic = TopicState("orders", "id", False, partitions, array("q"), array("q"), array("d"), array("q"))
    topic.messages_in = 2.5
    quiet = TopicState("quiet", "id", False, (), array("q"), array("q"), array("d"), array("q"))
    snapshot = Snapshot(0, ClusterDescription("c", 1, (BrokerDescription(1, "h", 1, None),)))
    snapshot.topics = {"orders": topic, "quiet": quiet}
    snapshot.groups = {"g": GroupState("g", "Stable", lag=7, lag_seconds=1.5), "new": GroupState("new", "Empty")}
    log_dirs = (LogDirState("/data", 0, 0, 200, 50), LogDirState("/unknown", 0, 0))
    snapshot.brokers = {1: BrokerState(1, log_dirs=log_dirs), 2: BrokerState(2)}
    return snapshot


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("group_lag", {"g": 7}),
        ("group_lag_seconds", {"g": 1.5}),
        ("topic_rate_above", {"orders": 2.5}),
        ("topic_rate_below", {"orders": 2.5}),
        ("under_replicated", {"orders": 1, "quiet": 0}),
        ("offline", {"orders": 1, "quiet": 0}),
        ("disk_free", {"1:/data": 25}),
        ("dead_letters", {"shop": 3}),
        ("broker_down", {"1": 0, "2": 1}),
    ],
)
def test_values(kind: Kind, expected: dict[str, float]) -> None:
    statuses = Statuses()
    statuses.apply(b"shop/events", json.dumps(status()).encode())
    rule = Rule("r", "name", kind)
    assert dict(samples(rule, _snapshot(), statuses)) == expected
    for target, value in expected.items():
        assert target in rule.message(target, value)


def test_a_pattern_selects_targets() -> None:
    for target, found in (("ord*", ["orders"]), ("*", ["orders", "quiet"]), ("o", []), ("quie?", ["quiet"])):
        rule = Rule("r", "name", "under_replicated", target)
        assert [name for name, _ in samples(rule, _snapshot(), Statuses())] == found


def test_above_and_below() -> None:
    above, below = Rule("r", "n", "group_lag", threshold=5), Rule("r", "n", "disk_free", threshold=5)
    assert [holds(above, value) for value in (4, 5, 6)] == [False, False, True]
    assert [holds(below, value) for value in (4, 5, 6)] == [True, False, False]


def test_stored_form() -> None:
    rule = Rule("r", "name", "group_lag", "g*", 5.5, 60, False, "https://example.org/x")
    assert Rule.from_json(rule.to_json()) == rule


@pytest.mark.parametrize("value", [b"", b"[]", b"{}", b'{"id": "a", "name": "n", "kind": "none"}'])
def test_other_stored_values(value: bytes) -> None:
    with pytest.raises(RuleError, match="not readable"):
        Rule.from_json(value)


@pytest.mark.parametrize("url", ["http://localhost:9/x", "https://hooks.example.org/services/T/B?x=1", "http://[::1]/"])
def test_webhooks(url: str) -> None:
    check_webhook(url)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "file:///etc/passwd",
        "ftp://host/x",
        "javascript:alert(1)",
        "http://",
        "http://user:secret@host/",
        "http://host:99999/",
        "http://ho st/",
        "http://host/\nx",
        "http://169.254.169.254/latest/meta-data",
        "https://[fe80::1]/",
    ],
)
def test_wrong_webhooks(url: str) -> None:
    with pytest.raises(RuleError, match="webhook"):
        check_webhook(url)
