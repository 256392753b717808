from array import array

import pytest

from headrace.client.admin.types import BrokerDescription, ClusterDescription
from headrace.common.types import TopicPartition
from headrace.console.attention import find_problems
from headrace.console.snapshot import (
    BrokerState,
    GroupPartition,
    GroupState,
    LogDirState,
    PartitionState,
    Snapshot,
    TopicState,
)
from headrace.console.visibility import EVERYTHING, Visibility
from headrace.diagnosis.snapshot import Finding, Limits


@pytest.fixture
def snapshot() -> Snapshot:
    """Broker 2 is missing, so `orders` is under-replicated. Group `slow` is behind in `orders`."""
    cluster = ClusterDescription("c", 1, (BrokerDescription(1, "h", 9092),))
    found = Snapshot(1_000_000, cluster)
    for name in ("orders", "secret"):
        found.topics[name] = TopicState(
            name,
            "id",
            False,
            (PartitionState(1, 0, (1, 2), (1,), ()),),
            array("q", [0]),
            array("q", [100]),
            array("d", [0.0]),
            array("q", [10]),
            min_isr=2,
        )
    found.brokers = {1: BrokerState(1, "h", 9092), 2: BrokerState(2)}
    found.brokers[1].log_dirs = (LogDirState("/data", 10, 1, error="Disk failed"),)
    found.groups["slow"] = GroupState(
        "slow", "Empty", partitions={TopicPartition("orders", 0): GroupPartition(10, 90, 900.0)}
    )
    return found


def by_check(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.check: finding for finding in findings}


def test_problems_of_all_kinds_are_found_errors_first(snapshot: Snapshot) -> None:
    findings = find_problems(snapshot, Limits(), EVERYTHING)
    found = by_check(findings)
    assert {"missing-brokers", "under-min-isr", "under-replicated", "offline-log-dirs", "lagging-groups"} <= set(found)
    assert found["under-min-isr"].items == ("orders-0", "secret-0")
    assert "slow" in found["lagging-groups"].problem
    severities = [finding.severity.value for finding in findings]
    assert severities == sorted(severities)


def test_a_user_sees_only_problems_of_visible_things(snapshot: Snapshot) -> None:
    found = by_check(find_problems(snapshot, Limits(), Visibility(frozenset(["orders"]), frozenset(), frozenset())))
    assert found["under-min-isr"].items == ("orders-0",)
    assert "secret" not in str(found)
    assert not {"missing-brokers", "offline-log-dirs", "lagging-groups"} & set(found)
    nothing = Visibility(frozenset(), frozenset(), frozenset())
    assert find_problems(snapshot, Limits(), nothing) == []


def test_a_group_that_reads_on_time_is_no_problem(snapshot: Snapshot) -> None:
    tp = TopicPartition("orders", 0)
    for committed, seconds in ((100, 0.0), (10, 10.0), (105, 0.0)):
        snapshot.groups["slow"].partitions = {tp: GroupPartition(committed, 0, seconds)}
        assert not {"lagging-groups", "lost-offsets"} & set(by_check(find_problems(snapshot, Limits(), EVERYTHING)))
    snapshot.topics["orders"].starts[0] = 50
    snapshot.groups["slow"].partitions = {tp: GroupPartition(10, 90, 1.0)}
    assert "lost-offsets" in by_check(find_problems(snapshot, Limits(), EVERYTHING))
