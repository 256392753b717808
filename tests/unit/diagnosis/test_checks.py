from tests.support.cli.snapshots import cluster, partition, snapshot, topic

from headrace.diagnosis.checks import CHECKS, run_checks
from headrace.diagnosis.snapshot import Limits, Severity

SICK = snapshot(
    cluster=cluster(1, 2, racks={1: "a"}),
    topics=topic("t", partition(0, -1, [3], [3]), partition(1, 1, [1, 2], [1])),
)


def test_errors_come_first() -> None:
    order = [finding.severity for finding in run_checks(SICK, Limits())]
    assert order == sorted(order, key=list(Severity).index)
    assert len(set(order)) == len(Severity)


def test_runs_only_selected_checks() -> None:
    found = run_checks(SICK, Limits(), ["rack-placement", "offline-partitions"])
    assert [finding.check for finding in found] == ["offline-partitions", "rack-placement"]


def test_every_check_accepts_an_empty_snapshot() -> None:
    for check in CHECKS.values():
        assert list(check(snapshot(), Limits())) == []
