"""Snapshots of clusters for tests of `headrace doctor`."""

from collections.abc import Mapping, Sequence
from typing import Any

from headrace.client.admin.types import (
    BrokerDescription,
    ClusterDescription,
    PartitionDescription,
    TopicDescription,
)
from headrace.diagnosis.checks import CHECKS
from headrace.diagnosis.snapshot import Finding, Limits, Severity, Snapshot

NOW_MS = 1_800_000_000_000


def cluster(*ids: int, racks: Mapping[int, str] | None = None, controller: int | None = None) -> ClusterDescription:
    described = tuple(BrokerDescription(broker, "host", 9092, (racks or {}).get(broker)) for broker in ids)
    return ClusterDescription("cluster", ids[0] if controller is None else controller, described)


def partition(number: int, leader: int, replicas: Sequence[int], isr: Sequence[int] | None = None) -> Any:
    in_sync = tuple(replicas if isr is None else isr)
    return PartitionDescription(number, leader, 0, tuple(replicas), in_sync)


def topic(name: str, *partitions: PartitionDescription) -> dict[str, TopicDescription]:
    return {name: TopicDescription(name, partitions=partitions)}


def snapshot(*ids: int, **parts: Any) -> Snapshot:
    return Snapshot(**{"now_ms": NOW_MS, "cluster": cluster(*(ids or (1, 2, 3))), **parts})


def check(name: str, found: Snapshot, limits: Limits | None = None) -> list[Finding]:
    """Returns what one check finds. All its findings must have its name and whole sentences."""
    findings = list(CHECKS[name](found, limits or Limits()))
    for finding in findings:
        assert finding.check == name
        assert finding.problem.endswith(".") or ": " in finding.problem, finding
        assert finding.fix.endswith("."), finding
    return findings


def severities(findings: Sequence[Finding]) -> list[Severity]:
    return [finding.severity for finding in findings]
