"""The metrics of a client, made from its statistics, with the names of Kafka's Java clients.

A bean's type is the group of its attributes:

    kafka.producer:type=producer-topic-metrics,client-id=c,topic=t   record-send-total
        → Prometheus, as with the JMX exporter: kafka_producer_producer_topic_metrics_record_send_total{client_id,topic}
        → OpenTelemetry: kafka.producer.record_send_total, with client-id and topic

Averages and maxima cover the time since the last report of statistics (`stats_cb`, `metrics()`), or since the start of
the client. Latencies are in milliseconds, as in Kafka.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.metrics.reader import Reading

__all__ = ["DEFINITIONS", "Definition", "Sample", "samples"]

_JAVA_COORDINATOR = 2**31 - 1
"""Java numbers the connection to a coordinator with this number minus the broker's."""


@dataclass(frozen=True, slots=True)
class Definition:
    """A metric."""

    kind: str
    """`producer`, `consumer` or `client`, for both."""
    group: str
    """The type of Kafka's bean, or empty if Kafka has no such metric."""
    name: str
    help: str
    labels: tuple[str, ...] = ("client_id",)

    @property
    def is_counter(self) -> bool:
        return self.name.endswith("_total")

    @property
    def prometheus_name(self) -> str:
        return f"kafka_{self.kind}_{self.group}_{self.name}" if self.group else f"headrace_{self.kind}_{self.name}"

    @property
    def opentelemetry_name(self) -> str:
        return f"{'kafka' if self.group else 'headrace'}.{self.kind}.{self.name}"


@dataclass(frozen=True, slots=True)
class Sample:
    """A value of a metric. The values of the labels are in the order of the definition."""

    definition: Definition
    labels: tuple[str, ...]
    value: float


_NODE = ("client_id", "node_id")
_TOPIC = ("client_id", "topic")
_PARTITION = ("client_id", "topic", "partition")


def _of_connections(kind: str) -> Iterator[Definition]:
    for group, labels in ((f"{kind}_metrics", ("client_id",)), (f"{kind}_node_metrics", _NODE)):
        yield Definition(kind, group, "request_total", "Requests sent.", labels)
        yield Definition(kind, group, "response_total", "Responses received.", labels)
        yield Definition(kind, group, "outgoing_byte_total", "Bytes of requests.", labels)
        yield Definition(kind, group, "incoming_byte_total", "Bytes of responses.", labels)
        yield Definition(kind, group, "request_latency_avg", "Mean time to a response, in milliseconds.", labels)
        yield Definition(kind, group, "request_latency_max", "Longest time to a response, in milliseconds.", labels)
    group = f"{kind}_metrics"
    yield Definition(kind, group, "connection_count", "Brokers with an open connection.")
    yield Definition(kind, group, "connection_creation_total", "Connections opened.")
    yield Definition(kind, group, "connection_close_total", "Connections closed.")
    yield Definition(kind, group, "requests_in_flight", "Requests that wait for a response.")


_FETCHES = "consumer_fetch_manager_metrics"
DEFINITIONS = (
    Definition("client", "", "up", "1 if the client's event loop responds, else 0.", ("client_id", "kind")),
    Definition("client", "", "request_seconds_total", "Sum of the times to responses.", (*_NODE, "kind")),
    *_of_connections("producer"),
    Definition("producer", "producer_metrics", "record_send_total", "Records sent."),
    Definition("producer", "producer_metrics", "batch_size_avg", "Mean size of a batch in bytes."),
    Definition("producer", "producer_metrics", "batch_size_max", "Size of the largest batch in bytes."),
    Definition("producer", "producer_metrics", "buffer_total_bytes", "Memory for records, buffer.memory."),
    Definition("producer", "producer_metrics", "buffer_available_bytes", "Memory that no waiting record uses."),
    Definition("producer", "producer_metrics", "produce_throttle_time_max", "Longest throttling in milliseconds."),
    Definition("producer", "producer_topic_metrics", "record_send_total", "Records sent.", _TOPIC),
    Definition("producer", "producer_topic_metrics", "byte_total", "Bytes of batches sent.", _TOPIC),
    Definition("producer", "", "queued_records", "Records that wait to be sent.", _PARTITION),
    *_of_connections("consumer"),
    Definition("consumer", "consumer_coordinator_metrics", "assigned_partitions", "Partitions assigned."),
    Definition("consumer", "consumer_coordinator_metrics", "rebalance_total", "Rebalances of the group."),
    Definition("consumer", "consumer_coordinator_metrics", "last_rebalance_seconds_ago", "Age of the last rebalance."),
    Definition("consumer", _FETCHES, "fetch_total", "Fetch requests sent."),
    Definition("consumer", _FETCHES, "fetch_throttle_time_max", "Longest throttling in milliseconds."),
    Definition("consumer", _FETCHES, "records_consumed_total", "Records consumed."),
    Definition("consumer", _FETCHES, "bytes_consumed_total", "Bytes of records consumed."),
    Definition("consumer", _FETCHES, "records_lag_max", "Largest lag of a partition in records."),
    Definition("consumer", _FETCHES, "records_consumed_total", "Records consumed.", _TOPIC),
    Definition("consumer", _FETCHES, "bytes_consumed_total", "Bytes of records consumed.", _TOPIC),
    Definition("consumer", _FETCHES, "records_lag", "Records from the position to the end.", _PARTITION),
    Definition("consumer", _FETCHES, "records_lead", "Records from the beginning to the position.", _PARTITION),
)
_BY_NAME = {(each.kind, each.group, each.name, each.labels): each for each in DEFINITIONS}


def samples(readings: Iterable[Reading]) -> Iterator[Sample]:
    """Yields the samples of all clients."""
    for reading in readings:
        yield from _Samples(reading).all()


class _Samples:
    """The samples of one client."""

    def __init__(self, reading: Reading):
        self._reading = reading
        self._kind = reading.kind

    def all(self) -> Iterator[Sample]:
        statistics = self._reading.statistics
        up = _BY_NAME["client", "", "up", ("client_id", "kind")]
        yield Sample(up, (self._reading.client_id, self._kind), float(statistics is not None))
        if statistics is None:
            return
        yield from self._connections(statistics)
        if self._kind == "producer":
            yield from self._producer(statistics)
        else:
            yield from self._consumer(statistics)

    def _of(
        self,
        group: str,
        values: Mapping[str, float],
        names: tuple[str, ...] = ("client_id",),
        labels: tuple[str, ...] = (),
    ) -> Iterator[Sample]:
        for name, value in values.items():
            definition = _BY_NAME[self._kind, group, name, names]
            yield Sample(definition, (self._reading.client_id, *labels), value)

    def _connections(self, statistics: Mapping[str, Any]) -> Iterator[Sample]:
        rows = list(statistics["brokers"].values())
        group = f"{self._kind}_metrics"
        yield from self._of(group, _requests(rows))
        counts = {
            "connection_count": sum(row["state"] == "UP" for row in rows),
            "connection_creation_total": sum(row["connects"] for row in rows),
            "connection_close_total": sum(row["disconnects"] for row in rows),
            "requests_in_flight": sum(row["waitresp_cnt"] for row in rows),
        }
        yield from self._of(group, counts)
        by_node: dict[str, list[Mapping[str, Any]]] = {}
        for row in rows:
            number = _JAVA_COORDINATOR - row["nodeid"] if row["source"] == "logical" else row["nodeid"]
            by_node.setdefault(f"node-{number}", []).append(row)
        seconds = _BY_NAME["client", "", "request_seconds_total", (*_NODE, "kind")]
        for node, of_node in by_node.items():
            yield from self._of(f"{self._kind}_node_metrics", _requests(of_node), _NODE, (node,))
            total = sum(row["rtt_total_us"] for row in of_node) / 1e6
            yield Sample(seconds, (self._reading.client_id, node, self._kind), total)

    def _producer(self, statistics: Mapping[str, Any]) -> Iterator[Sample]:
        batches = [topic["batchsize"] for topic in statistics["topics"].values()]
        count = sum(window["cnt"] for window in batches)
        values = {
            "record_send_total": statistics["txmsgs"],
            "batch_size_avg": sum(window["sum"] for window in batches) / count if count else 0.0,
            "batch_size_max": max((window["max"] for window in batches), default=0),
            "buffer_total_bytes": statistics["msg_size_max"],
            "buffer_available_bytes": max(0, statistics["msg_size_max"] - statistics["msg_size"]),
            "produce_throttle_time_max": _throttle_ms(statistics),
        }
        yield from self._of("producer_metrics", values)
        for topic, (records, size) in statistics["topic_totals"].items():
            totals = {"record_send_total": records, "byte_total": size}
            yield from self._of("producer_topic_metrics", totals, _TOPIC, (topic,))
        for topic, partition, row in _partitions(statistics):
            yield from self._of("", {"queued_records": row["msgq_cnt"]}, _PARTITION, (topic, partition))

    def _consumer(self, statistics: Mapping[str, Any]) -> Iterator[Sample]:
        group = statistics.get("cgrp")
        if group is not None:
            values = {
                "assigned_partitions": group["assignment_size"],
                "rebalance_total": group["rebalance_cnt"],
                "last_rebalance_seconds_ago": group["rebalance_age"] / 1000,
            }
            yield from self._of("consumer_coordinator_metrics", values)
        partitions = list(_partitions(statistics))
        values = {
            "fetch_total": sum(row["req"].get("Fetch", 0) for row in statistics["brokers"].values()),
            "fetch_throttle_time_max": _throttle_ms(statistics),
            "records_consumed_total": statistics["rxmsgs"],
            "bytes_consumed_total": statistics["rxmsg_bytes"],
        }
        lags = [row["consumer_lag"] for _, _, row in partitions if row["consumer_lag"] >= 0]
        if lags:
            values["records_lag_max"] = max(lags)
        yield from self._of(_FETCHES, values)
        for topic, (records, size) in statistics["topic_totals"].items():
            totals = {"records_consumed_total": records, "bytes_consumed_total": size}
            yield from self._of(_FETCHES, totals, _TOPIC, (topic,))
        for topic, partition, row in partitions:
            known = {}
            if row["consumer_lag"] >= 0:
                known["records_lag"] = row["consumer_lag"]
            if row["app_offset"] >= 0 and row["lo_offset"] >= 0:
                known["records_lead"] = max(0, row["app_offset"] - row["lo_offset"])
            yield from self._of(_FETCHES, known, _PARTITION, (topic, partition))


def _requests(rows: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Returns the metrics of requests to one or several brokers."""
    rows = list(rows)
    windows = [row["rtt"] for row in rows]
    count = sum(window["cnt"] for window in windows)
    return {
        "request_total": sum(row["tx"] for row in rows),
        "response_total": sum(row["rx"] for row in rows),
        "outgoing_byte_total": sum(row["txbytes"] for row in rows),
        "incoming_byte_total": sum(row["rxbytes"] for row in rows),
        "request_latency_avg": sum(window["sum"] for window in windows) / count / 1000 if count else 0.0,
        "request_latency_max": max((window["max"] for window in windows), default=0) / 1000,
    }


def _throttle_ms(statistics: Mapping[str, Any]) -> float:
    return max((row["throttle"]["max"] for row in statistics["brokers"].values()), default=0)


def _partitions(statistics: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for topic, of_topic in statistics["topics"].items():
        for partition, row in of_topic["partitions"].items():
            yield topic, partition, row
