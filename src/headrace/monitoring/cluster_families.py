"""Metrics of topics and consumer groups, with the names of kafka_exporter.

`kafka_consumergroup_lag_seconds` has no counterpart there. A broker reports the partitions that it leads and the groups
that it coordinates, so that sums over all brokers are right; a console reports the whole cluster.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily, Metric

from headrace.monitoring.snapshot import GroupStats, PartitionStats

_PARTITION = ("topic", "partition")
_OFFSET = ("consumergroup", "topic", "partition")


def cluster_families(
    brokers: Mapping[int, str], partitions: Iterable[PartitionStats], groups: Iterable[GroupStats]
) -> Iterator[Metric]:
    """Yields all metrics."""
    yield from _brokers(brokers)
    yield from _topics(list(partitions))
    yield from _groups(list(groups))


def _brokers(brokers: Mapping[int, str]) -> Iterator[Metric]:
    yield GaugeMetricFamily("kafka_brokers", "Number of live brokers in the cluster.", value=len(brokers))
    info = GaugeMetricFamily("kafka_broker_info", "Address of a live broker.", labels=("id", "address"))
    for broker_id, address in sorted(brokers.items()):
        info.add_metric((str(broker_id), address), 1)
    yield info


def _topics(partitions: list[PartitionStats]) -> Iterator[Metric]:
    counts: dict[str, int] = defaultdict(int)
    for partition in partitions:
        counts[partition.topic] += 1
    count = GaugeMetricFamily("kafka_topic_partitions", "Number of partitions of a topic.", labels=("topic",))
    for topic, number in counts.items():
        count.add_metric((topic,), number)
    yield count
    for name, text, value in (
        ("current_offset", "End of a partition: the offset of the next record that consumers will see.", _end),
        ("oldest_offset", "Offset of the oldest record of a partition.", _start),
        ("leader", "Broker id of the leader of a partition.", lambda p: p.leader),
        ("leader_is_preferred", "1 if the first replica leads the partition.", lambda p: int(p.is_leader_preferred)),
        ("replicas", "Number of replicas of a partition.", lambda p: len(p.replicas)),
        ("in_sync_replica", "Number of in-sync replicas of a partition.", lambda p: len(p.isr)),
        ("under_replicated_partition", "1 if replicas of the partition are not in sync.", _under_replicated),
    ):
        family = GaugeMetricFamily(f"kafka_topic_partition_{name}", text, labels=_PARTITION)
        for partition in partitions:
            found = value(partition)
            if found is not None:
                family.add_metric((partition.topic, str(partition.partition)), found)
        yield family


def _end(partition: PartitionStats) -> int | None:
    return partition.high_watermark if partition.high_watermark >= 0 else None


def _start(partition: PartitionStats) -> int | None:
    return partition.log_start_offset if partition.log_start_offset >= 0 else None


def _under_replicated(partition: PartitionStats) -> int:
    return int(partition.is_under_replicated)


def _groups(groups: list[GroupStats]) -> Iterator[Metric]:
    members = GaugeMetricFamily(
        "kafka_consumergroup_members", "Number of members of a consumer group.", labels=("consumergroup",)
    )
    offset = GaugeMetricFamily("kafka_consumergroup_current_offset", "Committed offset.", labels=_OFFSET)
    lag = GaugeMetricFamily("kafka_consumergroup_lag", "Records that a consumer group has not read.", labels=_OFFSET)
    seconds = GaugeMetricFamily(
        "kafka_consumergroup_lag_seconds", "Age of the oldest record that a group has not read.", labels=_OFFSET
    )
    by_topic = ("consumergroup", "topic")
    offset_sum = GaugeMetricFamily(
        "kafka_consumergroup_current_offset_sum", "Sum of the committed offsets of a topic.", labels=by_topic
    )
    lag_sum = GaugeMetricFamily("kafka_consumergroup_lag_sum", "Lag over all partitions of a topic.", labels=by_topic)
    for group in groups:
        members.add_metric((group.group_id,), group.members)
        offsets: dict[str, int] = defaultdict(int)
        lags: dict[str, int] = defaultdict(int)
        for committed in group.offsets:
            labels = (group.group_id, committed.topic, str(committed.partition))
            offset.add_metric(labels, committed.offset)
            offsets[committed.topic] += committed.offset
            if committed.lag >= 0:
                lag.add_metric(labels, committed.lag)
                lags[committed.topic] += committed.lag
            if committed.lag_seconds is not None:
                seconds.add_metric(labels, committed.lag_seconds)
        for topic, total in offsets.items():
            offset_sum.add_metric((group.group_id, topic), total)
        for topic, total in lags.items():
            lag_sum.add_metric((group.group_id, topic), total)
    yield from (members, offset, offset_sum, lag, lag_sum, seconds)
