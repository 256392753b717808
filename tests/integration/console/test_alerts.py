"""Alerts in the console: a rule fires, its webhook gets a message, and the alert is resolved."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from tests.support.console.api_client import ApiClient, running_console
from tests.support.console.pipeline_records import status

import headrace
from headrace.testing import EmbeddedBroker

_ALERTS = "/api/clusters/default/alerts"


class Hook:
    """A webhook that fails at first."""

    def __init__(self, failures: int):
        self.messages: list[dict[str, Any]] = []
        self.failures = failures
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if hook.failures > 0:
                    hook.failures -= 1
                    self.send_response(503)
                else:
                    hook.messages.append(json.loads(body))
                    self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name in http.server
                """Prints nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/secret-path"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def hook() -> Iterator[Hook]:
    hook = Hook(failures=1)
    yield hook
    hook.close()


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        broker.create_topic("__headrace_pipelines", configs={"cleanup.policy": "compact"})
        yield broker


def _publish(broker: EmbeddedBroker, dead_letters: int) -> None:
    with headrace.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        value = json.dumps(status(dead_letters=dead_letters)).encode()
        producer.send("__headrace_pipelines", value, key=b"shop/events")


def _wait_for(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 120
    while not (found := condition()):
        assert time.monotonic() < deadline, "the condition did not become true"
        time.sleep(0.1)
    return found


def _alerts(client: ApiClient, state: str) -> Any:
    return [alert for alert in client.get(_ALERTS).json["alerts"] if alert["state"] == state]


def test_a_rule_fires_and_is_resolved(broker: EmbeddedBroker, hook: Hook) -> None:
    with running_console(broker.bootstrap_servers) as client:
        rule = {"name": "Letters", "kind": "dead_letters", "target": "sh*", "threshold": 10, "webhook": hook.url}
        created = client.call("POST", f"{_ALERTS}/rules", rule)
        assert created.status == 201, created.body
        assert created.json["webhook"].endswith("/...")
        assert "secret-path" not in client.get(f"{_ALERTS}/rules").body.decode()
        path = f"{_ALERTS}/rules/{created.json['id']}"
        _publish(broker, 11)
        (alert,) = _wait_for(lambda: _alerts(client, "firing"))
        assert (alert["target"], alert["value"], alert["rule"]) == ("shop", 11, "Letters")
        (message,) = _wait_for(lambda: list(hook.messages))
        assert (message["cluster"], message["state"], message["message"]) == (
            "default",
            "firing",
            "Pipeline shop has 11 dead letters",
        )
        stream = client.stream("/api/clusters/default/events")
        assert next(data for name, data in stream if name == "alerts")["firing"] == 1
        stream.close()
        # The webhook as it is shown stands for the stored one.
        changed = client.call("PUT", path, {**rule, "name": "Many letters", "webhook": created.json["webhook"]})
        assert changed.json["name"] == "Many letters"
        assert client.call("POST", f"{path}/test", {}).json == {"delivered": True, "error": None}
        _wait_for(lambda: [one for one in hook.messages if one.get("test")])
        _publish(broker, 0)
        _wait_for(lambda: _alerts(client, "resolved"))
        _wait_for(lambda: [one for one in hook.messages if one["state"] == "resolved"])
        assert client.call("DELETE", path).status == 204
        assert client.get(_ALERTS).json["alerts"] == []
        assert client.call("DELETE", path).status == 404


def test_wrong_rules_and_unreachable_webhooks(broker: EmbeddedBroker) -> None:
    with running_console(broker.bootstrap_servers) as client:
        rule = {"name": "Lag", "kind": "group_lag", "threshold": 5}
        for webhook in ("file:///etc/passwd", "http://user:pw@host/"):
            refused = client.call("POST", f"{_ALERTS}/rules", {**rule, "webhook": webhook})
            assert (refused.status, refused.json["error"]["field"]) == (400, "webhook")
        assert client.call("POST", f"{_ALERTS}/rules", {**rule, "kind": "none"}).status == 400
        closed = Hook(failures=0)
        closed.close()
        created = client.call("POST", f"{_ALERTS}/rules", {**rule, "webhook": closed.url}).json
        tested = client.call("POST", f"{_ALERTS}/rules/{created['id']}/test", {}).json
        assert tested["delivered"] is False
        assert "failed" in tested["error"]
        assert "secret-path" not in tested["error"]
