from tests.support.cli.snapshots import NOW_MS, check, severities, snapshot

from headrace.client.admin.types import TransactionDescription
from headrace.common.types import TopicPartition
from headrace.diagnosis.snapshot import GroupProgress, OpenTransaction, PartitionProgress, Severity

TP = TopicPartition("t", 0)


def group(committed: int, state: str = "Stable", start: int = 0, end: int = 100, due: int = 50) -> GroupProgress:
    return GroupProgress("g", state, {TP: PartitionProgress(committed, start, end, due)})


def test_group_that_reads_within_the_limit() -> None:
    found = snapshot(groups=[group(50), group(100)])
    assert check("lagging-groups", found) == []
    assert check("lost-offsets", found) == []


def test_lagging_group() -> None:
    (finding,) = check("lagging-groups", snapshot(groups=[group(49)]))
    assert finding.severity is Severity.WARNING
    assert finding.problem == "Group g lags in 1 partition: 51 records unread, some for more than 5 min."
    assert "Add consumers" in finding.fix


def test_lagging_group_without_members() -> None:
    (finding,) = check("lagging-groups", snapshot(groups=[group(0, "Empty")]))
    assert finding.problem.endswith("It has no members.")
    assert "--delete --group g" in finding.fix


def test_offsets_deleted_before_they_were_read() -> None:
    (finding,) = check("lost-offsets", snapshot(groups=[group(10, start=40)]))
    assert finding.severity is Severity.ERROR
    assert "has not read 30 offsets in 1 partition" in finding.problem


def test_offsets_beyond_the_end() -> None:
    (finding,) = check("lost-offsets", snapshot(groups=[group(101)]))
    assert "beyond the end of 1 partition" in finding.problem


def test_transaction_that_no_coordinator_knows() -> None:
    hanging = OpenTransaction(TP, 4711, 12, NOW_MS - 3_600_000)
    (finding,) = check("hanging-transactions", snapshot(unknown_transactions=[hanging]))
    assert "producer 4711 hangs in t-0 since offset 12, 60 min ago" in finding.problem
    assert "transactions abort --topic t --partition 0 --start-offset 12" in finding.fix


def test_overdue_transactions() -> None:
    def transaction(name: str, state: str, age_ms: int) -> TransactionDescription:
        return TransactionDescription(
            name,
            state,
            transaction_timeout_ms=60_000,
            transaction_start_time_ms=NOW_MS - age_ms,
            partitions=frozenset({TP}),
            coordinator_id=2,
        )

    found = [
        transaction("young", "Ongoing", 100_000),
        transaction("open", "Ongoing", 300_000),
        transaction("decided", "PrepareCommit", 300_000),
    ]
    findings = check("hanging-transactions", snapshot(transactions=found))
    assert severities(findings) == [Severity.ERROR] * 2
    assert "The transaction of open is open for 5 min, longer than its timeout (60 s)." in findings[0].problem
    assert "markers are not written after 5 min" in findings[1].problem
