"""Metrics of one broker, with the names that the JMX exporter's rules for Kafka give them.

    kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec,topic=t
        → kafka_server_brokertopicmetrics_messagesin_total{topic="t"}
    kafka.network:type=RequestMetrics,name=TotalTimeMs,request=Produce
        → kafka_network_requestmetrics_totaltimems{request="Produce",quantile="0.99"}

Only what a Headrace broker really has is reported. One event loop handles all requests, so there are no request queues,
no network threads and no idle percentages; `headrace_event_loop_lag_seconds` shows how busy the loop is. Quantiles
cover the last 30 to 60 seconds; counts and sums begin at the start of the broker.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from headrace.monitoring.cluster_families import cluster_families
from headrace.monitoring.snapshot import BrokerSnapshot, ClientMetric, Distribution, LogStats, PartitionStats

_TRAFFIC = {
    "messages_in": ("messagesin", "Records appended by producers."),
    "bytes_in": ("bytesin", "Bytes of records appended by producers."),
    "bytes_out": ("bytesout", "Bytes of records sent to consumers."),
    "bytes_rejected": ("bytesrejected", "Bytes of records that were refused."),
    "replication_bytes_in": ("replicationbytesin", "Bytes of records fetched from leaders."),
    "replication_bytes_out": ("replicationbytesout", "Bytes of records sent to followers."),
    "produces": ("totalproducerequests", "Partitions in Produce requests."),
    "failed_produces": ("failedproducerequests", "Partitions in Produce requests that failed."),
    "fetches": ("totalfetchrequests", "Partitions in Fetch requests of consumers."),
    "failed_fetches": ("failedfetchrequests", "Partitions in Fetch requests of consumers that failed."),
}
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_]|^(?=[0-9])")
_CLIENT_PREFIX = "org_apache_kafka_"
_ONLY_OF_BROKER = frozenset(("replication_bytes_in", "replication_bytes_out"))
"""Kafka has no such metric by topic."""
_GROUP_STATES = {
    "Stable": "stable",
    "PreparingRebalance": "preparingrebalance",
    "CompletingRebalance": "completingrebalance",
    "Empty": "empty",
    "Dead": "dead",
}


def broker_families(snapshot: BrokerSnapshot) -> Iterator[Metric]:
    """Yields all metrics of a broker, also those of the partitions that it leads and the groups that it coordinates."""
    yield from _broker(snapshot)
    yield from _controller(snapshot)
    yield from _traffic(snapshot)
    yield from _requests(snapshot)
    yield from _replicas(snapshot)
    yield from _partitions(snapshot.partitions)
    yield from _logs(snapshot.logs)
    yield from _connections(snapshot)
    yield from _group_coordinator(snapshot)
    yield from _loop(snapshot)
    yield from _client_metrics(snapshot.client_metrics)
    yield from cluster_families(snapshot.brokers, snapshot.partitions, snapshot.groups)


def broker_state_family(state: int) -> Metric:
    """Returns the only metric that a starting broker has."""
    return _gauge("kafka_server_kafkaserver_brokerstate", "State of the broker; 3 is running.", state)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value=value)


def _broker(snapshot: BrokerSnapshot) -> Iterator[Metric]:
    info = GaugeMetricFamily("kafka_server_app_info", "Version of the broker.", labels=("version", "id"))
    info.add_metric((snapshot.version, str(snapshot.node_id)), 1)
    yield info
    cluster = GaugeMetricFamily("kafka_server_kafkaserver_clusterid", "Id of the cluster.", labels=("clusterid",))
    cluster.add_metric((snapshot.cluster_id,), 1)
    yield cluster
    yield broker_state_family(snapshot.state)


def _controller(snapshot: BrokerSnapshot) -> Iterator[Metric]:
    """As in Kafka, all but the active controller report zero."""
    prefix = "kafka_controller_kafkacontroller_"
    yield _gauge(f"{prefix}activecontrollercount", "1 on the active controller.", int(snapshot.is_controller))
    known = snapshot.controller
    for name, text, value in (
        ("globaltopiccount", "Topics of the cluster.", known.topics if known else 0),
        ("globalpartitioncount", "Partitions of the cluster.", known.partitions if known else 0),
        ("offlinepartitionscount", "Partitions without leader.", known.offline_partitions if known else 0),
        (
            "preferredreplicaimbalancecount",
            "Partitions that another than the first replica leads.",
            known.preferred_replica_imbalance if known else 0,
        ),
        ("activebrokercount", "Live brokers.", known.active_brokers if known else 0),
        ("topicstodeletecount", "Topics that are being deleted.", known.topics_to_delete if known else 0),
    ):
        yield _gauge(prefix + name, text, value)


def _traffic(snapshot: BrokerSnapshot) -> Iterator[Metric]:
    for field, (name, text) in _TRAFFIC.items():
        # Kafka has the sum without label beside the topics: select topic="" or topic!="", and never sum both.
        family = CounterMetricFamily(f"kafka_server_brokertopicmetrics_{name}", text, labels=("topic",))
        total = CounterMetricFamily(family.name, text, value=snapshot.traffic[field])
        family.samples += total.samples
        if field not in _ONLY_OF_BROKER:
            for topic, values in sorted(snapshot.traffic_by_topic.items()):
                family.add_metric((topic,), values[field])
        yield family


def _requests(snapshot: BrokerSnapshot) -> Iterator[Metric]:
    requests = CounterMetricFamily("kafka_network_requestmetrics_requests", "Requests.", labels=("request",))
    for name, stats in snapshot.requests.items():
        requests.add_metric((name,), stats.count)
    yield requests
    for name, text, values in (
        ("total", "From the arrival to the response.", {n: s.total for n, s in snapshot.requests.items()}),
        ("local", "Time in which the broker worked on a request.", {n: s.local for n, s in snapshot.requests.items()}),
        ("remote", "Time in which a request waited.", {n: s.remote for n, s in snapshot.requests.items()}),
    ):
        yield _summary(f"kafka_network_requestmetrics_{name}timems", text, values)
    yield _counter(
        "headrace_requests_refused",
        "Requests that closed their connection: malformed, unknown or too large.",
        snapshot.refused_requests,
    )


def _summary(name: str, text: str, values: Mapping[str, Distribution]) -> Metric:
    family = Metric(name, text, "summary")
    for request, found in values.items():
        for quantile, value in found.quantiles.items():
            family.add_sample(name, {"request": request, "quantile": f"{quantile:g}"}, value)
        family.add_sample(f"{name}_count", {"request": request}, found.count)
        family.add_sample(f"{name}_sum", {"request": request}, found.total_ms)
    return family


def _replicas(snapshot: BrokerSnapshot) -> Iterator[Metric]:
    stats = snapshot.replicas
    prefix = "kafka_server_replicamanager_"
    for name, text, value in (
        ("partitioncount", "Partitions with a replica on this broker.", stats.partitions),
        ("leadercount", "Partitions that this broker leads.", stats.leaders),
        ("underreplicatedpartitions", "Led partitions with replicas out of sync.", stats.under_replicated),
        ("underminisrpartitioncount", "Led partitions with fewer in sync than required.", stats.under_min_isr),
        ("atminisrpartitioncount", "Led partitions with as many in sync as required.", stats.at_min_isr),
        ("offlinereplicacount", "Replicas whose log directory failed.", stats.offline),
        ("reassigningpartitions", "Led partitions that are being reassigned.", stats.reassigning),
    ):
        yield _gauge(prefix + name, text, value)
    yield _counter(f"{prefix}isrshrinks", "Replicas that fell out of sync.", stats.isr_shrinks)
    yield _counter(f"{prefix}isrexpands", "Replicas that got in sync again.", stats.isr_expands)
    waiting = GaugeMetricFamily(
        "kafka_server_delayedoperationpurgatory_purgatorysize", "Requests that wait.", labels=("delayedOperation",)
    )
    for operation, count in snapshot.purgatories.items():
        waiting.add_metric((operation,), count)
    yield waiting
    yield _gauge(
        "kafka_log_logmanager_offlinelogdirectorycount",
        "Log directories that failed.",
        snapshot.offline_log_directories,
    )
    sessions = "kafka_server_fetchsessioncache_numincrementalfetchsessions"
    yield _gauge(sessions, "Fetch sessions.", snapshot.fetch_sessions)


def _partitions(partitions: Iterable[PartitionStats]) -> Iterator[Metric]:
    labels = ("topic", "partition")
    families = (
        GaugeMetricFamily("kafka_cluster_partition_underreplicated", "1: replicas are out of sync.", labels=labels),
        GaugeMetricFamily("kafka_cluster_partition_underminisr", "1: fewer in sync than required.", labels=labels),
        GaugeMetricFamily("kafka_cluster_partition_atminisr", "1: as many in sync as required.", labels=labels),
        GaugeMetricFamily("kafka_cluster_partition_insyncreplicascount", "In-sync replicas.", labels=labels),
        GaugeMetricFamily("kafka_cluster_partition_replicascount", "Replicas.", labels=labels),
        GaugeMetricFamily(
            "kafka_cluster_partition_laststableoffsetlag", "Records of open transactions.", labels=labels
        ),
    )
    for partition in partitions:
        values = (
            int(partition.is_under_replicated),
            int(len(partition.isr) < partition.min_isr),
            int(len(partition.isr) == partition.min_isr),
            len(partition.isr),
            len(partition.replicas),
            max(0, partition.high_watermark - partition.last_stable_offset),
        )
        for family, value in zip(families, values, strict=True):
            family.add_metric((partition.topic, str(partition.partition)), value)
    yield from families


def _logs(logs: Iterable[LogStats]) -> Iterator[Metric]:
    labels = ("topic", "partition")
    size = GaugeMetricFamily("kafka_log_log_size", "Bytes of a log.", labels=labels)
    segments = GaugeMetricFamily("kafka_log_log_numlogsegments", "Segments of a log.", labels=labels)
    start = GaugeMetricFamily("kafka_log_log_logstartoffset", "First offset of a log.", labels=labels)
    end = GaugeMetricFamily("kafka_log_log_logendoffset", "Offset of the next record.", labels=labels)
    for log in logs:
        names = (log.topic, str(log.partition))
        size.add_metric(names, log.size_bytes)
        segments.add_metric(names, log.segments)
        start.add_metric(names, log.log_start_offset)
        end.add_metric(names, log.log_end_offset)
    yield from (size, segments, start, end)


def _connections(snapshot: BrokerSnapshot) -> Iterator[Metric]:
    stats = snapshot.connections
    count = GaugeMetricFamily(
        "kafka_server_socket_server_metrics_connection_count", "Open connections.", labels=("listener",)
    )
    for listener, number in sorted(stats.open_by_listener.items()):
        count.add_metric((listener,), number)
    yield count
    yield _counter("headrace_connections_accepted", "Connections accepted since the start.", stats.accepted)
    yield _counter("headrace_connections_rejected", "Connections refused because of a limit.", stats.rejected)
    yield _counter("headrace_network_bytes_in", "Bytes received.", stats.bytes_in)
    yield _counter("headrace_network_bytes_out", "Bytes sent.", stats.bytes_out)


def _group_coordinator(snapshot: BrokerSnapshot) -> Iterator[Metric]:
    prefix = "kafka_coordinator_group_groupmetadatamanager_"
    yield _gauge(f"{prefix}numgroups", "Groups whose coordinator is this broker.", len(snapshot.groups))
    for state, name in _GROUP_STATES.items():
        number = sum(group.state == state for group in snapshot.groups)
        yield _gauge(f"{prefix}numgroups{name}", f"Groups in state {state}.", number)
    offsets = sum(len(group.offsets) for group in snapshot.groups)
    yield _gauge(f"{prefix}numoffsets", "Committed offsets.", offsets)


def _client_metrics(pushed: Iterable[ClientMetric]) -> Iterator[Metric]:
    """Yields the metrics of clients (KIP-714): org.apache.kafka.producer.x as org_apache_kafka_producer_x.

    Other names get a prefix: a client must not report metrics that look like a broker's.
    """
    families: dict[str, Metric] = {}
    for metric in pushed:
        name = _NOT_IN_NAMES.sub("_", metric.name)
        if not name.startswith(_CLIENT_PREFIX):
            name = f"client_{name}"
        family = families.get(name)
        if family is None:
            family = families[name] = Metric(name, "Pushed by clients.", "unknown")
        labels = {
            label: value
            for key, value in metric.attributes.items()
            if (label := _NOT_IN_NAMES.sub("_", key).lstrip("_"))
        }
        labels |= {
            "client_id": metric.client_id,
            "client_instance_id": metric.client_instance_id,
            "client_software": metric.software,
        }
        family.add_sample(name, labels, metric.value)
    yield from families.values()


def _loop(snapshot: BrokerSnapshot) -> Iterator[Metric]:
    loop = snapshot.loop
    yield _gauge("headrace_event_loop_lag_seconds", "How late timers were, at most, lately.", loop.lag_seconds)
    yield _counter("headrace_gc_pause_seconds", "Sum of the garbage collector's pauses.", loop.gc_pause_seconds)
    yield _gauge("headrace_gc_max_pause_seconds", "Longest pause lately.", loop.gc_max_pause_seconds)
    for name, value in snapshot.other.items():
        yield _gauge(f"headrace_{name}", "See docs/monitoring.md.", value)
