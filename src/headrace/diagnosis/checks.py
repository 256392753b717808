"""The list of all checks, by the name that `--check` and `--skip` take."""

from collections.abc import Collection

from headrace.diagnosis import broker_checks, client_checks, replica_checks, settings_checks
from headrace.diagnosis.snapshot import Check, Finding, Limits, Severity, Snapshot

CHECKS: dict[str, Check] = {
    "missing-brokers": replica_checks.missing_brokers,
    "offline-log-dirs": broker_checks.offline_log_dirs,
    "offline-partitions": replica_checks.offline_partitions,
    "under-min-isr": replica_checks.under_min_isr,
    "under-replicated": replica_checks.under_replicated,
    "hanging-transactions": client_checks.hanging_transactions,
    "lost-offsets": client_checks.lost_offsets,
    "lagging-groups": client_checks.lagging_groups,
    "disk-space": broker_checks.disk_space,
    "disk-skew": broker_checks.disk_skew,
    "leader-imbalance": replica_checks.leader_imbalance,
    "rack-placement": replica_checks.rack_placement,
    "clock-skew": broker_checks.clock_skew,
    "future-timestamps": broker_checks.future_timestamps,
    "versions": broker_checks.versions,
    "different-settings": settings_checks.different_settings,
    "topic-settings": settings_checks.topic_settings,
    "broker-settings": settings_checks.broker_settings,
    "not-inspected": broker_checks.not_inspected,
}

_ORDER = list(Severity)


def run_checks(snapshot: Snapshot, limits: Limits, selected: Collection[str] = tuple(CHECKS)) -> list[Finding]:
    """Returns what is wrong, errors first."""
    findings = [finding for name in CHECKS if name in selected for finding in CHECKS[name](snapshot, limits)]
    return sorted(findings, key=lambda finding: _ORDER.index(finding.severity))
