"""What needs attention first: the checks of `headrace doctor`, on what the collector has read.

Checks that need far more than that (configs of all topics, the latest timestamps) are left to `headrace doctor`. Each
user sees only what concerns the topics and groups that the user may describe.
"""

from collections.abc import Iterable

from headrace.client.admin.types import LogDirDescription, PartitionDescription, ReplicaInfo, TopicDescription
from headrace.common.errors import KafkaError
from headrace.common.types import TopicPartition
from headrace.console.snapshot import LogDirState, Snapshot, TopicState
from headrace.console.visibility import Visibility
from headrace.diagnosis.checks import run_checks
from headrace.diagnosis.snapshot import Finding, GroupProgress, Limits, PartitionProgress
from headrace.diagnosis.snapshot import Snapshot as Diagnosed

__all__ = ["CHECKS", "find_problems"]

_OF_CLUSTER = ("missing-brokers", "offline-log-dirs", "disk-space", "disk-skew", "leader-imbalance", "rack-placement")
"""They need the right to describe the cluster."""
CHECKS = (
    "missing-brokers",
    "offline-log-dirs",
    "offline-partitions",
    "under-min-isr",
    "under-replicated",
    "hanging-transactions",
    "lost-offsets",
    "lagging-groups",
    "disk-space",
    "disk-skew",
    "leader-imbalance",
    "rack-placement",
)


def find_problems(snapshot: Snapshot, limits: Limits, visibility: Visibility) -> list[Finding]:
    """Returns what is wrong with what a user may see, errors first."""
    checks = CHECKS if visibility.cluster else [name for name in CHECKS if name not in _OF_CLUSTER]
    return run_checks(_diagnosed(snapshot, limits, visibility), limits, checks)


def _diagnosed(snapshot: Snapshot, limits: Limits, visibility: Visibility) -> Diagnosed:
    """Returns the snapshot in the form of the checks."""
    topics = [topic for topic in snapshot.topics.values() if visibility.topics(topic.name)]
    return Diagnosed(
        now_ms=snapshot.time_ms,
        cluster=snapshot.cluster,
        topics={topic.name: _description(topic) for topic in topics},
        reassignments=snapshot.reassignments,
        topic_configs={
            topic.name: {"min.insync.replicas": str(topic.min_isr)} for topic in topics if topic.min_isr is not None
        },
        log_dirs={
            broker.id: [_log_dir(broker.id, log_dir) for log_dir in broker.log_dirs]
            for broker in snapshot.brokers.values()
            if broker.log_dirs is not None and visibility.cluster
        },
        groups=[
            GroupProgress(
                group.name,
                group.state,
                {tp: one for tp, one in _progress(snapshot, group.name, limits) if visibility.topics(tp.topic)},
            )
            for group in snapshot.groups.values()
            if visibility.groups(group.name)
        ],
        transactions=snapshot.transactions if visibility.is_everything else (),
    )


def _log_dir(broker: int, state: LogDirState) -> LogDirDescription:
    return LogDirDescription(
        broker,
        state.path,
        {TopicPartition("", 0): ReplicaInfo(state.size_bytes, 0)},  # the checks add up the sizes of replicas
        state.total_bytes,
        state.usable_bytes,
        state.cordoned,
        None if state.error is None else KafkaError(state.error),
    )


def _description(topic: TopicState) -> TopicDescription:
    return TopicDescription(
        topic.name,
        is_internal=topic.internal,
        partitions=tuple(
            PartitionDescription(number, state.leader, state.leader_epoch, state.replicas, state.isr, state.offline)
            for number, state in enumerate(topic.partitions)
        ),
    )


def _progress(
    snapshot: Snapshot, group_name: str, limits: Limits
) -> Iterable[tuple[TopicPartition, PartitionProgress]]:
    for tp, partition in snapshot.groups[group_name].partitions.items():
        topic = snapshot.topics.get(tp.topic)
        if topic is None:
            continue
        start, end = topic.start(tp.partition), topic.end(tp.partition)
        if start is None or end is None:
            continue
        is_late = partition.lag_seconds is not None and partition.lag_seconds * 1000 > limits.max_lag_ms
        committed = min(partition.committed, end)  # the end was read a little earlier
        yield tp, PartitionProgress(committed, start, end, end if is_late else committed)
