"""The metrics of a client, from its statistics."""

from typing import Any

from headrace.client.statistics import partition_row, topic_row, window
from headrace.common.metrics import Histogram
from headrace.metrics.reader import Reading
from headrace.metrics.samples import DEFINITIONS, samples


def statistics_of(**more: Any) -> dict[str, Any]:
    return {"brokers": {}, "topics": {}, "topic_totals": {}, "txmsgs": 0, "rxmsgs": 0, "rxmsg_bytes": 0} | more


def broker_row(node: int, **more: Any) -> dict[str, Any]:
    counters = dict.fromkeys(("tx", "rx", "txbytes", "rxbytes", "connects", "disconnects", "waitresp_cnt"), 0)
    windows = {"rtt": window(), "throttle": window(), "rtt_total_us": 0, "req": {}}
    return {"nodeid": node, "source": "learned", "state": "UP", **counters, **windows} | more


def values_of(kind: str, statistics: dict[str, Any] | None) -> dict[tuple[str, ...], float]:
    found = list(samples([Reading(kind, "c", statistics)]))
    values = {(each.definition.prometheus_name, *each.labels): each.value for each in found}
    assert len(values) == len(found)
    return values


def test_definitions_are_unique() -> None:
    names = {(each.prometheus_name, each.labels) for each in DEFINITIONS}
    assert len(names) == len(DEFINITIONS)


def test_unresponsive_client() -> None:
    assert values_of("producer", None) == {("headrace_client_up", "c", "producer"): 0}


def test_connections() -> None:
    latency = Histogram()
    for seconds in (0.002, 0.004):
        latency.record(seconds)
    rows = {
        "a:1/1": broker_row(1, tx=5, connects=2, rtt=window(latency, 1_000_000), rtt_total_us=7_000_000),
        "b:1/2": broker_row(2, tx=3, state="DOWN", disconnects=1),
        "GroupCoordinator": broker_row(1, source="logical", tx=1),
    }
    found = values_of("consumer", statistics_of(brokers=rows))
    assert found["kafka_consumer_consumer_metrics_request_total", "c"] == 9
    assert found["kafka_consumer_consumer_metrics_connection_count", "c"] == 2
    assert found["kafka_consumer_consumer_metrics_connection_creation_total", "c"] == 2
    assert found["kafka_consumer_consumer_node_metrics_request_total", "c", "node-1"] == 5
    assert found["kafka_consumer_consumer_node_metrics_request_total", "c", "node-2147483646"] == 1
    assert found["kafka_consumer_consumer_node_metrics_request_latency_avg", "c", "node-1"] == 3
    assert found["kafka_consumer_consumer_node_metrics_request_latency_max", "c", "node-1"] == 4
    assert found["headrace_client_request_seconds_total", "c", "node-1", "consumer"] == 7


def test_producer() -> None:
    statistics = statistics_of(txmsgs=8, msg_size=100, msg_size_max=1000, topic_totals={"t": (8, 640)})
    sizes = Histogram()
    for size in (100, 300):
        sizes.record(size)
    topic_row(statistics, "t", sizes=sizes)
    partition_row(statistics, "t", 0, msgq_cnt=3)
    found = values_of("producer", statistics)
    assert found["kafka_producer_producer_metrics_record_send_total", "c"] == 8
    assert found["kafka_producer_producer_topic_metrics_byte_total", "c", "t"] == 640
    assert found["kafka_producer_producer_metrics_batch_size_avg", "c"] == 200
    assert found["kafka_producer_producer_metrics_buffer_available_bytes", "c"] == 900
    assert found["headrace_producer_queued_records", "c", "t", "0"] == 3


def test_consumer_reports_lag_only_if_it_is_known() -> None:
    group = {"assignment_size": 2, "rebalance_cnt": 4, "rebalance_age": 1500}
    statistics = statistics_of(rxmsgs=7, cgrp=group, topic_totals={"t": (7, 70)})
    partition_row(statistics, "t", 0, consumer_lag=5, app_offset=12, lo_offset=2)
    partition_row(statistics, "t", 1)
    found = values_of("consumer", statistics)
    prefix = "kafka_consumer_consumer_fetch_manager_metrics"
    assert found[f"{prefix}_records_lag", "c", "t", "0"] == found[f"{prefix}_records_lag_max", "c"] == 5
    assert found[f"{prefix}_records_lead", "c", "t", "0"] == 10
    assert (f"{prefix}_records_lag", "c", "t", "1") not in found
    assert found[f"{prefix}_records_consumed_total", "c"] == found[f"{prefix}_records_consumed_total", "c", "t"] == 7
    assert found["kafka_consumer_consumer_coordinator_metrics_last_rebalance_seconds_ago", "c"] == 1.5
