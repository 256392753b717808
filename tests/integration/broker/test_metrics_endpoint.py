"""The endpoint for Prometheus of a real broker, and of a cluster."""

import socket
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families
from tests.support.broker.process import free_port
from tests.support.cluster.server_processes import free_ports

import headrace
from headrace.common.errors import ConfigError
from headrace.monitoring.endpoint import EndpointError
from headrace.testing import EmbeddedBroker, EmbeddedCluster

RECORDS = 500
COMMITTED = 200
Samples = dict[str, dict[tuple[tuple[str, str], ...], float]]


def get(url: str, accept: str = "") -> tuple[int, str]:
    request = urllib.request.Request(url, headers={"Accept": accept})
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def scrape(url: str) -> Samples:
    samples: Samples = defaultdict(dict)
    status, text = get(f"{url}/metrics")
    assert status == 200
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            samples[sample.name][tuple(sorted(sample.labels.items()))] = sample.value
    return samples


def labels(**names: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(names.items()))


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    port = free_port()
    with EmbeddedBroker({"headrace.metrics.listener": f"127.0.0.1:{port}"}, topics={"orders": 1}) as broker:
        with headrace.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for _ in range(RECORDS):
                producer.send("orders", b"x" * 100)
        with headrace.Consumer(
            "orders",
            bootstrap_servers=broker.bootstrap_servers,
            group_id="billing",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer:
            read = 0
            while read < RECORDS:
                read += sum(map(len, consumer.poll(timeout_ms=1000).values()))
            consumer.commit({headrace.TopicPartition("orders", 0): headrace.OffsetAndMetadata(COMMITTED)})
            yield f"http://127.0.0.1:{port}"


def test_metrics_have_the_values_of_the_broker(url: str) -> None:
    samples = scrape(url)
    orders = labels(topic="orders")
    assert samples["kafka_server_brokertopicmetrics_messagesin_total"][orders] == RECORDS
    assert samples["kafka_server_brokertopicmetrics_messagesin_total"][()] > RECORDS  # and __consumer_offsets
    assert samples["kafka_server_brokertopicmetrics_bytesin_total"][orders] > RECORDS * 100
    assert (
        samples["kafka_server_brokertopicmetrics_bytesout_total"][orders]
        == samples["kafka_server_brokertopicmetrics_bytesin_total"][orders]
    )
    assert samples["kafka_controller_kafkacontroller_activecontrollercount"][()] == 1
    assert samples["kafka_controller_kafkacontroller_globaltopiccount"][()] == 2
    assert samples["kafka_server_replicamanager_underreplicatedpartitions"][()] == 0
    assert samples["kafka_server_replicamanager_leadercount"][()] == 51
    assert samples["kafka_log_log_logendoffset"][labels(topic="orders", partition="0")] == RECORDS
    assert samples["kafka_log_logmanager_offlinelogdirectorycount"][()] == 0
    assert samples["kafka_network_requestmetrics_requests_total"][labels(request="Produce")] >= 1
    assert samples["kafka_network_requestmetrics_totaltimems"][labels(request="Produce", quantile="0.99")] > 0
    assert samples["process_open_fds"][()] > 0
    assert "headrace_event_loop_lag_seconds" in samples


def test_metrics_of_kafka_exporter(url: str) -> None:
    samples = scrape(url)
    partition = labels(topic="orders", partition="0")
    committed = labels(consumergroup="billing", topic="orders", partition="0")
    assert samples["kafka_brokers"][()] == 1
    assert samples["kafka_topic_partitions"][labels(topic="orders")] == 1
    assert samples["kafka_topic_partition_current_offset"][partition] == RECORDS
    assert samples["kafka_topic_partition_oldest_offset"][partition] == 0
    assert samples["kafka_topic_partition_leader_is_preferred"][partition] == 1
    assert samples["kafka_consumergroup_current_offset"][committed] == COMMITTED
    assert samples["kafka_consumergroup_lag"][committed] == RECORDS - COMMITTED
    assert samples["kafka_consumergroup_lag_sum"][labels(consumergroup="billing", topic="orders")] == 300
    assert samples["kafka_consumergroup_lag_seconds"][committed] >= 0
    assert samples["kafka_consumergroup_members"][labels(consumergroup="billing")] == 1


def test_openmetrics(url: str) -> None:
    status, text = get(f"{url}/metrics", "application/openmetrics-text; version=1.0.0")
    assert status == 200
    assert "kafka_brokers" in {family.name for family in parse_openmetrics(text)}


def test_health(url: str) -> None:
    assert get(f"{url}/healthz") == (200, "ok: RUNNING\n")
    assert get(f"{url}/readyz") == (200, "RUNNING\n")
    assert get(f"{url}/other")[0] == 404


@pytest.mark.parametrize(
    "request_bytes",
    [
        pytest.param(b"POST /metrics HTTP/1.1\r\n\r\n", id="post"),
        pytest.param(b"nonsense\r\n\r\n", id="no-http"),
        pytest.param(b"GET /" + b"x" * 100_000, id="endless"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n", id="tls"),
        pytest.param(b"", id="nothing"),
    ],
)
def test_hostile_clients_do_not_disturb_others(url: str, request_bytes: bytes) -> None:
    port = int(url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=30) as sock:
        sock.sendall(request_bytes)
        assert get(f"{url}/healthz")[0] == 200
        sock.shutdown(socket.SHUT_WR)
        received = b""
        try:
            while data := sock.recv(65536):
                received += data
        except ConnectionResetError:
            pass  # it sent more than a request may have
        assert b" 200 " not in received.partition(b"\r\n")[0]


def test_lag_of_partitions_that_other_brokers_lead() -> None:
    ports = free_ports(3)
    properties = {number: {"headrace.metrics.listener": f"127.0.0.1:{port}"} for number, port in enumerate(ports, 1)}
    with EmbeddedCluster(brokers=3, broker_properties=properties, topics={"orders": 3}) as cluster:
        partitions = [headrace.TopicPartition("orders", index) for index in range(3)]
        with headrace.Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            for tp in partitions:
                producer.send("orders", b"x", partition=tp.partition)
        with headrace.Consumer(
            bootstrap_servers=cluster.bootstrap_servers, group_id="billing", enable_auto_commit=False
        ) as consumer:
            consumer.assign(partitions)
            consumer.commit({tp: headrace.OffsetAndMetadata(0) for tp in partitions})
        found = [scrape(f"http://127.0.0.1:{port}") for port in ports]
    lags = [samples["kafka_consumergroup_lag"] for samples in found if samples["kafka_consumergroup_lag"]]
    assert len(lags) == 1  # only its coordinator reports a group
    assert set(lags[0].values()) == {1.0}
    assert len(lags[0]) == 3
    leaders = [samples["kafka_topic_partitions"].get(labels(topic="orders"), 0) for samples in found]
    assert sum(leaders) == 3
    assert sum(samples["kafka_controller_kafkacontroller_activecontrollercount"][()] for samples in found) == 1


@pytest.mark.parametrize(("listener", "error"), [("nonsense", ConfigError), ("127.0.0.1:{port}", EndpointError)])
def test_broker_does_not_start_without_its_endpoint(listener: str, error: type[Exception], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = listener.format(port=taken.getsockname()[1])
        broker = EmbeddedBroker({"headrace.metrics.listener": address}, data_dir=tmp_path)
        with pytest.raises(error):
            broker.start()
