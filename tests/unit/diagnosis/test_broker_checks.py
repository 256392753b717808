from typing import Any

from tests.support.cli.snapshots import NOW_MS, check, severities, snapshot

from headrace.client.admin.types import LogDirDescription, ReplicaInfo, TransactionDescription
from headrace.common.errors import KafkaStorageError
from headrace.common.types import TopicPartition
from headrace.diagnosis.snapshot import LatestTimestamp, Severity

GB = 1 << 30
TP = TopicPartition("t", 0)


def directory(broker: int, path: str, size: int = 0, **fields: Any) -> LogDirDescription:
    return LogDirDescription(broker, path, {TP: ReplicaInfo(size, 0)} if size else {}, **fields)


def timestamp(ahead_ms: int, *, broker_time: bool = True, appended_meanwhile: bool = True) -> LatestTimestamp:
    return LatestTimestamp(
        tp=TP,
        leader=2,
        is_broker_time=broker_time,
        read_from_ms=NOW_MS,
        read_until_ms=NOW_MS,
        end_before=10,
        offset=10 if appended_meanwhile else 9,
        timestamp_ms=NOW_MS + ahead_ms,
    )


def test_offline_log_dir() -> None:
    directories = {1: [directory(1, "/a", error=KafkaStorageError("disk failed")), directory(1, "/b")]}
    (finding,) = check("offline-log-dirs", snapshot(log_dirs=directories))
    assert finding.severity is Severity.ERROR
    assert "/a of broker 1 is offline" in finding.problem


def test_disk_space() -> None:
    directories = {
        1: [directory(1, "/a", total_bytes=100 * GB, usable_bytes=8 * GB), directory(1, "/old-broker")],
        2: [directory(2, "/a", total_bytes=100 * GB, usable_bytes=2 * GB)],
        3: [directory(3, "/a", total_bytes=100 * GB, usable_bytes=20 * GB)],
    }
    findings = check("disk-space", snapshot(log_dirs=directories))
    assert severities(findings) == [Severity.WARNING, Severity.ERROR]
    assert "(8.0%) free" in findings[0].problem


def test_disk_skew_between_brokers_and_directories() -> None:
    directories = {
        1: [directory(1, "/a", 90 * GB), directory(1, "/b", 10 * GB)],
        2: [directory(2, "/a", 20 * GB)],
    }
    brokers, disks = check("disk-skew", snapshot(log_dirs=directories))
    assert brokers.problem.startswith("Broker 1 stores")
    assert disks.problem.startswith("Log directory /a of broker 1 has")
    small = {1: [directory(1, "/a", 900)], 2: [directory(2, "/a", 100)]}
    assert check("disk-skew", snapshot(log_dirs=small)) == []


def test_versions() -> None:
    old, new = {0: range(3, 12), 1: range(4, 17)}, {0: range(3, 13), 1: range(4, 17)}
    assert check("versions", snapshot(api_versions={1: new, 2: new})) == []
    (finding,) = check("versions", snapshot(api_versions={1: new, 2: new, 3: old}))
    assert "[1, 2] and [3] differ in 1 API, such as Produce" in finding.problem


def test_clock_ahead_and_behind() -> None:
    (ahead,) = check("clock-skew", snapshot(timestamps=[timestamp(60_000), timestamp(5)]))
    assert ahead.problem.startswith("The clock of broker 2 is 60 s ahead of this machine's")
    (behind,) = check("clock-skew", snapshot(timestamps=[timestamp(-3_600_000)]))
    assert "60 min behind" in behind.problem


def test_old_record_says_nothing_about_a_clock() -> None:
    assert check("clock-skew", snapshot(timestamps=[timestamp(-3_600_000, appended_meanwhile=False)])) == []


def test_clock_of_a_coordinator() -> None:
    transaction = TransactionDescription(
        "tx", "Ongoing", transaction_start_time_ms=NOW_MS + 30_000, coordinator_id=3, transaction_timeout_ms=60_000
    )
    (finding,) = check("clock-skew", snapshot(transactions=[transaction]))
    assert "broker 3 is 30 s ahead" in finding.problem


def test_future_timestamps_of_producers() -> None:
    samples = [timestamp(86_400_000 * 3, broker_time=False), timestamp(-86_400_000, broker_time=False)]
    (finding,) = check("future-timestamps", snapshot(timestamps=samples))
    assert finding.items == ("t-0",)
    assert "up to 3 days in the future" in finding.problem
    assert check("clock-skew", snapshot(timestamps=samples)) == []


def test_parts_that_were_not_inspected() -> None:
    (finding,) = check("not-inspected", snapshot(not_inspected={"groups": "not authorized"}))
    assert finding.problem == "Could not inspect the groups: not authorized"
