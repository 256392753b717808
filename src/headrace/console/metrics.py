"""`/metrics` of the console: itself, and of each cluster without login what kafka_exporter would report.

The names are those of `headrace.monitoring` where it has them. Each cluster has the label `cluster`. Of a cluster with
login only the console's own metrics are shown, because there is no login for this endpoint.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from headrace.console.clusters import Cluster
from headrace.console.snapshot import Snapshot
from headrace.monitoring.exposition import process_families

if TYPE_CHECKING:
    from headrace.console.app import Console

__all__ = ["families"]


def families(console: "Console") -> Iterator[Metric]:
    """Yields all metrics."""
    clusters = list(console.clusters.values())
    yield from _own(console, clusters)
    yield from _of_clusters(
        [(cluster.name, cluster.snapshot) for cluster in clusters if not cluster.settings.needs_login]
    )
    yield from process_families()


def _own(console: "Console", clusters: Iterable[Cluster]) -> Iterator[Metric]:
    reachable = GaugeMetricFamily("headrace_console_cluster_reachable", "1 if it is reachable.", labels=("cluster",))
    cycles = CounterMetricFamily("headrace_console_collections", "How often it was read.", labels=("cluster",))
    seconds = GaugeMetricFamily("headrace_console_collection_seconds", "The last duration.", labels=("cluster",))
    streams = GaugeMetricFamily("headrace_console_streams", "Open streams of live updates.", labels=("cluster",))
    series = GaugeMetricFamily("headrace_console_series", "Time series in memory.", labels=("cluster",))
    not_read = GaugeMetricFamily(
        "headrace_console_parts_not_read", "1 for each part that could not be read.", labels=("cluster", "part")
    )
    for cluster in clusters:
        name = (cluster.name,)
        for part in cluster.snapshot.not_read if cluster.snapshot is not None else ():
            not_read.add_metric((cluster.name, part), 1)
        reachable.add_metric(name, int(cluster.is_reachable))
        cycles.add_metric(name, cluster.collector.cycles)
        seconds.add_metric(name, cluster.collector.last_seconds)
        streams.add_metric(name, cluster.events.streams)
        series.add_metric(name, len(cluster.history))
    yield from (reachable, cycles, seconds, streams, series, not_read)
    yield GaugeMetricFamily("headrace_console_sessions", "Sessions of browsers.", value=len(console.sessions))
    yield GaugeMetricFamily("headrace_console_logins", "Sessions with a login.", value=console.sessions.logins)


def _of_clusters(snapshots: Iterable[tuple[str, Snapshot | None]]) -> Iterator[Metric]:
    topic_labels = ("cluster", "topic")
    tp_labels = ("cluster", "topic", "partition")
    group_labels = ("cluster", "consumergroup", "topic", "partition")
    brokers = GaugeMetricFamily("kafka_brokers", "Brokers of the cluster.", labels=("cluster",))
    partitions = GaugeMetricFamily("kafka_topic_partitions", "Partitions of a topic.", labels=topic_labels)
    end = GaugeMetricFamily("kafka_topic_partition_current_offset", "End of a partition.", labels=tp_labels)
    start = GaugeMetricFamily("kafka_topic_partition_oldest_offset", "Start of a partition.", labels=tp_labels)
    under = GaugeMetricFamily(
        "kafka_topic_partition_under_replicated_partition", "1: replicas are out of sync.", labels=tp_labels
    )
    members = GaugeMetricFamily("kafka_consumergroup_members", "Members.", labels=("cluster", "consumergroup"))
    committed = GaugeMetricFamily("kafka_consumergroup_current_offset", "Committed offset.", labels=group_labels)
    lag = GaugeMetricFamily("kafka_consumergroup_lag", "Records behind the end.", labels=group_labels)
    seconds = GaugeMetricFamily("kafka_consumergroup_lag_seconds", "Time behind the end.", labels=group_labels)
    for cluster, snapshot in snapshots:
        if snapshot is None:
            continue
        brokers.add_metric((cluster,), len(snapshot.cluster.brokers))
        for topic in snapshot.topics.values():
            partitions.add_metric((cluster, topic.name), len(topic.partitions))
            for number, partition in enumerate(topic.partitions):
                labels = (cluster, topic.name, str(number))
                under.add_metric(labels, int(partition.is_under_replicated))
                if topic.ends[number] >= 0:
                    end.add_metric(labels, topic.ends[number])
                if topic.starts[number] >= 0:
                    start.add_metric(labels, topic.starts[number])
        for group in snapshot.groups.values():
            if group.members is not None:
                members.add_metric((cluster, group.name), group.members)
            for tp, progress in group.partitions.items():
                of_group = (cluster, group.name, tp.topic, str(tp.partition))
                committed.add_metric(of_group, progress.committed)
                if progress.lag is not None:
                    lag.add_metric(of_group, progress.lag)
                if progress.lag_seconds is not None:
                    seconds.add_metric(of_group, progress.lag_seconds)
    yield from (brokers, partitions, end, start, under, members, committed, lag, seconds)
