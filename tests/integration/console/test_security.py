"""What a security reviewer expects: CSRF, origins, hosts, headers, cookies, a read-only console, and the audit log."""

import logging
from collections.abc import Iterator

import pytest
from tests.support.console.running import ApiClient, console_for, ready_client

from headrace.console.server import ConsoleServer
from headrace.testing import EmbeddedBroker


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"orders": 1}) as broker:
        yield broker


@pytest.fixture(scope="module")
def server(broker: EmbeddedBroker) -> Iterator[ConsoleServer]:
    with console_for(broker.bootstrap_servers) as server:
        ready_client(server)
        yield server


@pytest.fixture
def client(server: ConsoleServer) -> ApiClient:
    client = ApiClient(server)
    client.open_session()
    return client


NEW_TOPIC = {"name": "new", "partitions": 1}


def test_a_change_needs_a_session_and_its_token(client: ApiClient, server: ConsoleServer) -> None:
    cases = {
        "no token": {"X-CSRF-Token": ""},
        "a wrong token": {"X-CSRF-Token": "x" * 43},
        "another site": {"Sec-Fetch-Site": "cross-site"},
        "another origin": {"Origin": "http://attacker.example"},
        "an opaque origin": {"Origin": "null"},
    }
    for name, headers in cases.items():
        answer = client.request("POST", "topics", NEW_TOPIC, headers)
        assert (answer.status, answer.code) == (403, "CSRF"), name
    without_session = ApiClient(server)
    without_session.csrf_token = client.csrf_token
    assert without_session.request("POST", "topics", NEW_TOPIC).code == "CSRF"
    other = ApiClient(server)
    other.open_session()
    other.csrf_token = client.csrf_token
    assert other.request("POST", "topics", NEW_TOPIC).code == "CSRF", "the token of another session"
    assert client.request("GET", "topics/new").status == 404


def test_a_change_must_be_json(client: ApiClient) -> None:
    """A form of another site cannot send this content type."""
    answer = client.request("POST", "topics", NEW_TOPIC, {"Content-Type": "text/plain"})
    assert (answer.status, answer.code) == (415, "UNSUPPORTED_MEDIA_TYPE")


def test_other_host_names_are_refused(client: ApiClient) -> None:
    for host in ("attacker.example", "attacker.example:80", "", "127.0.0.1.attacker.example", "[::1", "a b"):
        answer = client.request("GET", "/api/session", headers={"Host": host})
        assert answer.status in (400, 421), host
    for host in ("localhost", f"localhost:{client.port}", "127.0.0.1", "[::1]:8080"):
        assert client.request("GET", "/api/session", headers={"Host": host}).status == 200, host


def test_responses_have_security_headers(client: ApiClient) -> None:
    for path in ("/", "/api/session", "/static/nothing", "/api/nothing", "/healthz"):
        headers = client.request("GET", path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe-inline" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"
        assert "server" not in headers
        assert "access-control-allow-origin" not in headers
    assert client.request("GET", "/api/session").headers["cache-control"] == "no-store"


def test_the_cookie_is_not_for_scripts_and_other_sites(server: ConsoleServer, broker: EmbeddedBroker) -> None:
    cookie = ApiClient(server).request("GET", "/api/session").headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "path=/" in cookie
    assert "secure" not in cookie
    with console_for(broker.bootstrap_servers, secure_cookies=True) as secure:
        answer = ApiClient(secure).request("GET", "/api/session")
        assert "secure" in answer.headers["set-cookie"].lower()
        assert "max-age" in answer.headers["strict-transport-security"]


def test_a_console_without_write_changes_nothing(broker: EmbeddedBroker) -> None:
    with console_for(broker.bootstrap_servers, write=False) as server:
        client = ready_client(server)
        assert client.open_session()["clusters"][0]["writable"] is False
        changes = [
            ("POST", "topics", NEW_TOPIC),
            ("DELETE", "topics/orders", None),
            ("POST", "topics/orders/partitions", {"total": 5}),
            ("POST", "topics/orders/purge", {}),
            ("PATCH", "topics/orders/configs", {"set": {"retention.ms": "1"}}),
            ("POST", "groups/g/offsets", {"to": "latest"}),
            ("DELETE", "groups/g", None),
            ("PATCH", "brokers/default/configs", {"set": {"log.retention.ms": "1"}}),
            ("POST", "elections", {"type": "preferred"}),
            ("POST", "reassignments", {"partitions": []}),
        ]
        for method, path, body in changes:
            answer = client.request(method, path, body)
            assert (answer.status, answer.code) == (403, "READ_ONLY"), path
        assert client.get("topics/orders")["partitions"] == 1


def test_changes_are_audited_without_secrets(client: ApiClient, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "headrace.audit"):
        client.change("POST", "topics", {"name": "audited", "partitions": 1}, 201)
        client.request("POST", "topics", {"name": "audited", "partitions": 1})
        client.request("DELETE", "topics/audited", headers={"X-CSRF-Token": "wrong"})
        client.change("DELETE", "topics/audited", expected=204)
    lines = [record.getMessage() for record in caplog.records if record.name == "headrace.audit"]
    assert lines[0].startswith("console: anonymous from 127.0.0.1: create topic 'audited' of cluster default: done")
    assert "failed: TOPIC_ALREADY_EXISTS" in lines[1]
    assert "delete topic 'audited' of cluster default: refused: CSRF" in lines[2]
    assert lines[3].endswith("delete topic 'audited' of cluster default: done")


def test_too_large_and_malformed_bodies_are_refused(client: ApiClient) -> None:
    assert client.request("POST", "topics", {"name": "x" * (9 << 20)}).status == 413
    for body in ([], {"name": 5}, {"name": "a", "colour": 1}, {"name": "a", "partitions": 0}, {"name": ""}):
        answer = client.request("POST", "topics", body)
        assert (answer.status, answer.code) == (400, "INVALID_REQUEST"), body


def test_static_files_stay_within_their_folder(client: ApiClient) -> None:
    for path in ("/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/static//etc/passwd"):
        assert client.request("GET", path).status == 404, path
