"""A real Prometheus scrapes a cluster: every expression of the dashboard and of the alert rules has a result."""

import json
import os
import re
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.apache_kafka.jvm import apt_lock
from tests.support.cluster.server_processes import free_ports

import headrace
from headrace.testing import EmbeddedCluster

DOCS = Path(__file__).parents[2] / "docs" / "monitoring"
VARIABLES = {"$job": ".*", "$topic": ".*", "$group": ".*", "$__rate_interval": "10s"}
DEADLINE_SECONDS = 120
CONFIG = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [{rules}]
scrape_configs:
  - job_name: headrace
    static_configs: [{{targets: [{targets}]}}]
"""


def install_prometheus() -> None:
    """Installs Debian's package if it is missing; skips the test if that is impossible."""
    if shutil.which("prometheus"):
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        pytest.skip("Prometheus is not installed, and this is not the root user of a Debian system")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "-qy", "install", "--no-install-recommends", "prometheus"]
    with apt_lock():
        for command in (install, ["apt-get", "-q", "update"], install):
            if shutil.which("prometheus"):
                return
            ran = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if not shutil.which("prometheus"):
        pytest.skip(f"Prometheus cannot be installed: {ran.stderr.decode(errors='replace').strip()[-300:]}")


class Prometheus:
    """A running server."""

    def __init__(self, url: str):
        self.url = url

    def get(self, path: str, **parameters: str) -> Any:
        address = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(address, timeout=30) as response:
            answer = json.load(response)
        assert answer["status"] == "success", answer
        return answer["data"]

    def query(self, expression: str) -> list[Any]:
        result: list[Any] = self.get("query", query=expression)["result"]
        return result

    def wait_for(self, expression: str) -> list[Any]:
        """Waits until an expression has a result."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while time.monotonic() < deadline:
            try:
                if result := self.query(expression):
                    return result
            except OSError:
                pass  # not started yet
            time.sleep(0.2)
        raise AssertionError(f"no result for {expression} after {DEADLINE_SECONDS} seconds")


@pytest.fixture(scope="module")
def cluster() -> Iterator[tuple[EmbeddedCluster, list[int]]]:
    ports = free_ports(3)
    properties = {number: {"headrace.metrics.listener": f"127.0.0.1:{port}"} for number, port in enumerate(ports, 1)}
    with EmbeddedCluster(brokers=3, broker_properties=properties, topics={"orders": 3}) as found:
        with headrace.Producer(bootstrap_servers=found.bootstrap_servers) as producer:
            for _ in range(100):
                producer.send("orders", b"x" * 100)
        tps = [headrace.TopicPartition("orders", index) for index in range(3)]
        with headrace.Consumer(
            bootstrap_servers=found.bootstrap_servers, group_id="billing", enable_auto_commit=False
        ) as consumer:
            consumer.assign(tps)
            consumer.commit({tp: headrace.OffsetAndMetadata(1) for tp in tps})
        yield found, ports


@pytest.fixture(scope="module")
def prometheus(
    cluster: tuple[EmbeddedCluster, list[int]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    install_prometheus()
    directory = tmp_path_factory.mktemp("prometheus")
    targets = ", ".join(f'"127.0.0.1:{port}"' for port in cluster[1])
    config = directory / "prometheus.yml"
    config.write_text(CONFIG.format(rules=DOCS / "alerts.yml", targets=targets))
    (port,) = free_ports(1)
    command = [
        "prometheus",
        f"--config.file={config}",
        f"--storage.tsdb.path={directory / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (directory / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        found = Prometheus(f"http://127.0.0.1:{port}")
        try:
            found.wait_for("count(rate(kafka_brokers[10s])) == 3")  # two scrapes of each broker
        except AssertionError:
            print((directory / "log").read_text()[-4000:])
            raise
        yield found
    finally:
        process.terminate()
        process.wait()


def dashboard_expressions() -> list[str]:
    dashboard = json.loads((DOCS / "grafana-dashboard.json").read_text())
    return [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]


@pytest.mark.parametrize("expression", dashboard_expressions())
def test_every_panel_has_values(prometheus: Prometheus, expression: str) -> None:
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    assert "$" not in expression
    assert prometheus.wait_for(expression)


def test_rules_are_evaluated_and_find_nothing_wrong(prometheus: Prometheus) -> None:
    rules = [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]
    assert len(rules) == len(re.findall(r"^ +- alert:", (DOCS / "alerts.yml").read_text(), re.MULTILINE)) > 0
    deadline = time.monotonic() + DEADLINE_SECONDS
    while any(rule["health"] == "unknown" for rule in rules) and time.monotonic() < deadline:
        time.sleep(0.2)
        rules = [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]
    assert {rule["health"] for rule in rules} == {"ok"}
    for rule in rules:
        if rule["name"] in ("KafkaConsumerGroupWithoutMembers", "HeadraceEventLoopLag"):
            continue  # the group has no members; a busy machine delays the loop
        assert prometheus.query(rule["query"]) == [], rule["name"]


def test_rules_find_a_dead_broker(prometheus: Prometheus, cluster: tuple[EmbeddedCluster, list[int]]) -> None:
    rules = {rule["name"]: rule["query"] for group in prometheus.get("rules")["groups"] for rule in group["rules"]}
    cluster[0].kill(3)
    for name in ("KafkaBrokerDown", "KafkaUnderReplicatedPartitions"):
        assert prometheus.wait_for(rules[name])
    cluster[0].restart(3)
    for name in ("KafkaBrokerDown", "KafkaUnderReplicatedPartitions"):
        assert prometheus.wait_for(f"absent({rules[name]})")
    assert prometheus.query("sum(kafka_controller_kafkacontroller_activecontrollercount)")[0]["value"][1] == "1"
