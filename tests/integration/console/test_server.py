"""`headrace server --console` and `headrace console` as processes; requests by API; a broker that restarts."""

import http.client
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.broker.process import free_port
from tests.support.console.running import console_for, ready_client

from headrace import Producer
from headrace.testing import EmbeddedBroker


@contextmanager
def running(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Runs a command until it has printed the console's address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            match = re.match(r"console http://(.+)", line)
            if match is not None:
                yield process, match[1]
                break
        else:
            assert process.stderr is not None
            raise AssertionError(process.stderr.read())
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.communicate(timeout=90)


def get(address: str, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(address, timeout=90)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def test_a_broker_runs_a_console_in_another_process(tmp_path: Path) -> None:
    port, metrics = free_port(), free_port()
    arguments = ["--override", f"listeners=PLAINTEXT://127.0.0.1:{port}", "--override", f"log.dirs={tmp_path}"]
    with running("server", *arguments, "--metrics", f"127.0.0.1:{metrics}", "--console", "127.0.0.1:0") as (
        process,
        address,
    ):
        assert get(address, "/healthz") == (200, "ok\n")
        status, text = get(address, "/api/session")
        assert (status, json.loads(text)["write"]) == (200, False)
        modules = Path(f"/proc/{process.pid}/maps").read_text()
        assert "uvicorn" not in modules
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=90) == 0
        with pytest.raises(OSError):
            get(address, "/healthz")


def test_logins_and_changes_are_in_the_log() -> None:
    with EmbeddedBroker() as broker:
        options = ["--bootstrap-server", broker.bootstrap_servers, "--write", "--listen", "127.0.0.1:0"]
        with running("console", *options) as (process, address):
            client = http.client.HTTPConnection(address, timeout=90)
            client.request("GET", "/api/session")
            response = client.getresponse()
            cookie = str(response.getheader("set-cookie")).partition(";")[0]
            headers = {"Cookie": cookie, "X-CSRF-Token": json.loads(response.read())["csrf_token"]}
            body = json.dumps({"name": "made", "partitions": 1})
            client.request(
                "POST", "/api/clusters/default/topics", body, {**headers, "Content-Type": "application/json"}
            )
            assert client.getresponse().status == 201
            client.close()
            process.send_signal(signal.SIGTERM)
            _, log = process.communicate(timeout=90)
    (line,) = [line for line in log.splitlines() if "  audit  " in line]
    assert "INFO  audit  console: anonymous from 127.0.0.1: create topic 'made' of cluster default: done" in line


def test_a_bare_broker_imports_nothing_of_the_console() -> None:
    code = """
import sys
from headrace.testing import EmbeddedBroker
import headrace.cli.cluster.server
with EmbeddedBroker(topics={"t": 1}):
    names = ("starlette", "uvicorn", "anyio", "h11", "prometheus_client", "headrace.console", "headrace.diagnosis")
    print([name for name in sys.modules if name.startswith(names)])
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert ran.stdout.strip() == "[]"


def test_the_console_starts_before_the_cluster_and_survives_its_restart() -> None:
    broker = EmbeddedBroker(port=free_port())
    try:
        with console_for(f"127.0.0.1:{broker._port}") as server:
            from tests.support.console.running import ApiClient

            client = ApiClient(server)
            client.open_session()
            assert client.request("GET", "overview").code == "CLUSTER_UNREACHABLE"
            broker.start()
            client.wait_for("overview", lambda overview: overview["reachable"])
            broker.stop()
            client.wait_for("overview", lambda overview: not overview["reachable"] and overview["error"])
            broker.start()
            client.wait_for("overview", lambda overview: overview["reachable"])
    finally:
        broker.close()


def test_requests_by_api_come_from_the_metrics_endpoint() -> None:
    port = free_port()
    with EmbeddedBroker({"headrace.metrics.listener": f"127.0.0.1:{port}"}, topics={"t": 1}) as broker:
        urls = {0: f"http://127.0.0.1:{port}/metrics", 7: f"http://127.0.0.1:{port}/other"}
        with console_for(broker.bootstrap_servers, metrics_urls=urls) as server:
            client = ready_client(server)
            number = client.get("brokers")["items"][0]["id"]

            def is_complete(details: dict[str, Any]) -> bool:
                with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
                    producer.send("t", b"x" * 100)
                apis = {request["api"]: request for request in details["requests"] or ()}
                return bool(apis.get("Produce", {}).get("p99_ms")) and bool(details["bytes_in_per_second"])

            details = client.wait_for(f"brokers/{number}", is_complete)
            assert details["connections"] > 0
            assert details["version"]
            assert details["metrics_error"] is None
            assert client.get("overview")["bytes_in_per_second"] is not None
            status, text = get(f"127.0.0.1:{server.port}", "/metrics")
            assert status == 200
            assert "headrace_console_collections_total" in text
            assert "kafka_consumergroup" in text or "kafka_topic_partitions" in text


def test_alert_rules_survive_a_restart_of_the_console() -> None:
    topic = "__headrace_console"
    with EmbeddedBroker() as broker:
        with console_for(broker.bootstrap_servers, history_topic=topic) as server:
            client = ready_client(server)
            rule = {"name": "Lag", "kind": "group_lag", "threshold": 5, "webhook": "http://127.0.0.1:1/path"}
            created = client.change("POST", "alerts/rules", rule, 201)
            deleted = client.change("POST", "alerts/rules", {**rule, "name": "Deleted"}, 201)
            client.change("DELETE", f"alerts/rules/{deleted['id']}", expected=204)
            client.wait_for("overview", lambda overview: overview["history_topic"] == topic)
            late = client.change("POST", "alerts/rules", {**rule, "name": "Late"}, 201)
        with console_for(broker.bootstrap_servers, history_topic=topic) as server:
            client = ready_client(server)
            client.wait_for("overview", lambda overview: overview["history_topic"] == topic)
            assert client.get("alerts/rules")["items"] == [created, late]


def test_history_survives_a_restart_of_the_console() -> None:
    with EmbeddedBroker(topics={"t": 1}) as broker:
        path = "history?series=topic.messages_in:t"
        with console_for(broker.bootstrap_servers, history_topic="__headrace_console") as server:
            client = ready_client(server)
            client.wait_for("overview", lambda overview: overview["history_topic"] == "__headrace_console")

            def has_rate(history: dict[str, Any]) -> bool:
                with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
                    producer.send("t", b"x")
                return any(history["series"][0]["values"])

            client.wait_for(path, has_rate)
        with console_for(broker.bootstrap_servers, history_topic="__headrace_console") as server:
            client = ready_client(server)
            client.wait_for(path, lambda history: any(history["series"][0]["values"]))
