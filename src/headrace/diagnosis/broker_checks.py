"""Checks of brokers: disks, versions, clocks."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TypeVar

from headrace.diagnosis.snapshot import (
    Finding,
    LatestTimestamp,
    Limits,
    Severity,
    Snapshot,
    brokers,
    counted,
    duration,
    in_bytes,
    names,
)
from headrace.protocol.apis import APIS, ApiKey

K = TypeVar("K", int, str)

_LEAST_SKEW_BYTES = 1 << 30
"""A smaller difference between brokers or disks means nothing."""


def offline_log_dirs(snapshot: Snapshot, _: Limits) -> Iterable[Finding]:
    """Log directories that a broker has taken offline."""
    for broker, directories in sorted(snapshot.log_dirs.items()):
        failed = [directory for directory in directories if directory.error is not None]
        for directory in failed:
            yield Finding(
                "offline-log-dirs",
                Severity.ERROR,
                f"Log directory {directory.path} of broker {broker} is offline: {directory.error}",
                f"Repair or replace the disk and restart broker {broker}. Its replicas copy their data from the "
                "leaders, if the directory is empty.",
            )


def disk_space(snapshot: Snapshot, limits: Limits) -> Iterable[Finding]:
    """Volumes that are almost full."""
    for broker, directories in sorted(snapshot.log_dirs.items()):
        for directory in directories:
            if directory.error is not None or directory.total_bytes <= 0 or directory.usable_bytes < 0:
                continue
            free = directory.usable_bytes / directory.total_bytes
            if free < limits.min_free:
                yield Finding(
                    "disk-space",
                    Severity.ERROR if free < limits.min_free / 2 else Severity.WARNING,
                    f"The volume of {directory.path} on broker {broker} has only {in_bytes(directory.usable_bytes)} "
                    f"({free:.1%}) free.",
                    "Lower retention.ms or retention.bytes of the largest topics (see log-dirs), move replicas to "
                    "other brokers, or enlarge the volume.",
                )


def disk_skew(snapshot: Snapshot, limits: Limits) -> Iterable[Finding]:
    """Brokers that store far more than others, and disks of one broker that do."""
    used = {
        broker: {
            directory.path: sum(replica.size for replica in directory.replicas.values())
            for directory in directories
            if directory.error is None
        }
        for broker, directories in snapshot.log_dirs.items()
    }
    totals = {broker: sum(sizes.values()) for broker, sizes in used.items()}
    for broker, average in _above_average(totals, limits):
        yield Finding(
            "disk-skew",
            Severity.WARNING,
            f"Broker {broker} stores {in_bytes(totals[broker])}; the average is {in_bytes(average)}.",
            f"Move replicas from broker {broker} to others with the tool reassign-partitions.",
        )
    for broker, sizes in sorted(used.items()):
        for path, average in _above_average(sizes, limits):
            yield Finding(
                "disk-skew",
                Severity.WARNING,
                f"Log directory {path} of broker {broker} has {in_bytes(sizes[path])}; the average of its directories "
                f"is {in_bytes(average)}.",
                "On Apache Kafka, move replicas between the directories with kafka-reassign-partitions.sh (log_dirs in "
                "its plan). Headrace cannot do that yet: move replicas to other brokers with the tool "
                "reassign-partitions.",
            )


def _above_average(sizes: Mapping[K, int], limits: Limits) -> Iterable[tuple[K, float]]:
    average = sum(sizes.values()) / max(1, len(sizes))
    for key, size in sorted(sizes.items()):
        if size > limits.max_skew * average and size - average > _LEAST_SKEW_BYTES:
            yield key, average


def versions(snapshot: Snapshot, _: Limits) -> Iterable[Finding]:
    """Brokers that support different versions of the protocol."""
    groups: dict[frozenset[tuple[int, int, int]], list[int]] = defaultdict(list)
    for broker, supported in snapshot.api_versions.items():
        groups[frozenset((key, found[0], found[-1]) for key, found in supported.items())].append(broker)
    if len(groups) > 1:
        keys = {key for key, *_ in frozenset.union(*groups) - frozenset.intersection(*groups)}
        apis = [APIS[ApiKey(key)].name if key in set(map(int, APIS)) else f"API {key}" for key in sorted(keys)]
        sets = names(f"[{', '.join(map(str, sorted(ids)))}]" for ids in sorted(groups.values()))
        yield Finding(
            "versions",
            Severity.WARNING,
            f"The brokers run different versions: {sets} differ in {counted(len(apis), 'API')}, such as "
            f"{names(apis[:3])}.",
            "Finish the rolling upgrade. In a cluster that mixes two products on purpose, ignore this check "
            "(--skip versions).",
            tuple(apis),
        )


def clock_skew(snapshot: Snapshot, limits: Limits) -> Iterable[Finding]:
    """Brokers whose clock differs from this machine's."""
    worst: dict[int, float] = {}
    for sample in snapshot.timestamps:
        skew = _skew_ms(sample)
        if sample.is_broker_time and abs(skew) > abs(worst.get(sample.leader, 0)):
            worst[sample.leader] = skew
    for transaction in snapshot.transactions:
        start = transaction.transaction_start_time_ms
        if start is not None and start - snapshot.now_ms > worst.get(transaction.coordinator_id, 0):
            worst[transaction.coordinator_id] = start - snapshot.now_ms
    skewed = {broker: skew for broker, skew in worst.items() if abs(skew) > limits.max_clock_skew_ms}
    for broker, skew in sorted(skewed.items()):
        yield Finding(
            "clock-skew",
            Severity.WARNING,
            f"The clock of broker {broker} is {duration(abs(skew))} {'ahead of' if skew > 0 else 'behind'} this "
            "machine's. Retention, timestamps and lookups by time are wrong by as much.",
            f"Synchronize the clock of broker {broker} (chrony, systemd-timesyncd), or of this machine if all brokers "
            "differ from it.",
        )


def future_timestamps(snapshot: Snapshot, limits: Limits) -> Iterable[Finding]:
    """Records whose producers set a timestamp in the future."""
    future = sorted(
        {
            (sample.tp, sample.timestamp_ms - sample.read_until_ms)
            for sample in snapshot.timestamps
            if not sample.is_broker_time and sample.timestamp_ms - sample.read_until_ms > limits.max_clock_skew_ms
        }
    )
    if future:
        most = max(ahead for _, ahead in future)
        yield Finding(
            "future-timestamps",
            Severity.WARNING,
            f"{counted(len(future), 'partition')} {'has' if len(future) == 1 else 'have'} records with timestamps up "
            f"to {duration(most)} in the future. retention.ms does not delete their segments before that time.",
            "Correct the clocks of the producers, or the timestamps that they set. To reject such records, set "
            "message.timestamp.after.max.ms.",
            tuple(f"{tp.topic}-{tp.partition}" for tp, _ in future),
        )


def _skew_ms(sample: LatestTimestamp) -> float:
    """Returns how far the leader's clock is ahead at least; a negative number if it is behind."""
    if sample.timestamp_ms > sample.read_until_ms:
        return sample.timestamp_ms - sample.read_until_ms
    if sample.offset >= sample.end_before and sample.timestamp_ms < sample.read_from_ms:
        return sample.timestamp_ms - sample.read_from_ms
    return 0


def not_inspected(snapshot: Snapshot, _: Limits) -> Iterable[Finding]:
    """Parts of the cluster that could not be read."""
    for part, reason in sorted(snapshot.not_inspected.items()):
        yield Finding(
            "not-inspected",
            Severity.WARNING,
            f"Could not inspect the {part}: {reason}",
            f"Repair the other problems first. If permissions are missing, allow the user of this tool to describe "
            f"them. Reachable: {brokers(snapshot.live - set(snapshot.unreachable))}.",
        )
