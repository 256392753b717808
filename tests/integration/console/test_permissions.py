"""Login on a secured cluster: the console acts as the user, so without rights nothing is shown or changed."""

import json
from collections.abc import Iterator

import pytest
from tests.support.console.running import ApiClient, console_for
from tests.support.security.sasl_broker import client_config, sasl_broker

from headrace import Consumer, Producer
from headrace.admin import ACL, ACLOperation, ACLPermissionType, Admin, ResourcePattern, ResourceType
from headrace.console.server import ConsoleServer
from headrace.testing import EmbeddedBroker

SECRETS = ("salaries", "payroll-readers")
"""The topic and the group that alice must not see."""


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    topics = {"orders": 2, "salaries": 1}
    with sasl_broker(topics, authorizer_class_name="headrace", super_users="User:broker") as broker:
        config = client_config(broker.bootstrap_servers, user="broker")
        with Admin(config) as admin:
            admin.create_acls(
                [
                    allow("alice", ACLOperation.DESCRIBE, ResourceType.TOPIC, "orders"),
                    allow("alice", ACLOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, "orders"),
                    allow("alice", ACLOperation.READ, ResourceType.GROUP, "order-readers"),
                ]
            )
        with Producer(config) as producer:
            for topic in topics:
                producer.send(topic, b"x", partition=0)
        for group, topic in (("order-readers", "orders"), ("payroll-readers", "salaries")):
            with Consumer(
                topic, **{**settings(config), "group_id": group, "auto_offset_reset": "earliest"}
            ) as consumer:
                while not consumer.poll(timeout_ms=1000):
                    continue
                consumer.commit()
        yield broker


def allow(user: str, operation: ACLOperation, kind: ResourceType, name: str) -> ACL:
    return ACL(f"User:{user}", "*", operation, ACLPermissionType.ALLOW, ResourcePattern(kind, name))


def settings(config: dict[str, object]) -> dict[str, object]:
    return {key.replace(".", "_"): value for key, value in config.items()}


@pytest.fixture(scope="module")
def server(broker: EmbeddedBroker) -> Iterator[ConsoleServer]:
    config = client_config(broker.bootstrap_servers, user="broker")
    config.pop("bootstrap.servers")
    with console_for(broker.bootstrap_servers, config) as server:
        client = ApiClient(server)
        client.log_in("broker", "broker-secret")
        client.wait_for("topics", lambda page: page["total"] >= 2)
        client.wait_for("groups", lambda page: page["total"] >= 2)
        yield server


def logged_in(server: ConsoleServer, user: str) -> ApiClient:
    client = ApiClient(server)
    answer = client.log_in(user, f"{user}-secret")
    assert answer.status == 200, answer.content
    return client


def reads(server: ConsoleServer) -> list[str]:
    """Returns the paths of all documents of the cluster, for the secret topic and group where they have a name."""
    console = server.console
    assert console is not None
    values = {"cluster": "default", "topic": "salaries", "group": "payroll-readers", "broker": "0"}
    return [
        "/"
        + "/".join(
            values.get(part.strip("{}"), "x") if part.startswith("{") else part for part in route.path[1:].split("/")
        )
        for route in console.routes
        if route.method == "GET" and "{cluster}" in route.path
    ]


def test_without_a_login_nothing_is_shown_or_changed(server: ConsoleServer) -> None:
    client = ApiClient(server)
    info = client.open_session()
    assert (info["clusters"][0]["login"], info["clusters"][0]["user"]) == ("required", None)
    assert info["clusters"][0]["cluster_id"] is None
    for path in reads(server):
        answer = client.request("GET", path)
        assert (answer.status, answer.code) == (401, "LOGIN_REQUIRED"), path
    console = server.console
    assert console is not None
    changes = [route for route in console.routes if route.method != "GET" and "{cluster}" in route.path]
    assert len(changes) > 8
    for route in changes:
        answer = client.request(route.method, route.path.replace("{cluster}", "default"), {})
        assert (answer.status, answer.code) == (401, "LOGIN_REQUIRED"), route.path


def test_wrong_credentials_are_refused_and_limited(server: ConsoleServer) -> None:
    client = ApiClient(server)
    for _ in range(5):
        answer = client.log_in("mallory", "guess")
        assert (answer.status, answer.code) == (401, "LOGIN_FAILED")
    answer = client.log_in("mallory", "guess")
    assert (answer.status, answer.code) == (429, "TOO_MANY_LOGINS")
    assert int(answer.headers["retry-after"]) > 0
    console = server.console
    assert console is not None
    console.login_limit.succeeded("address 127.0.0.1")  # for the other tests


def test_a_user_sees_only_what_the_acls_allow(server: ConsoleServer) -> None:
    client = logged_in(server, "alice")
    assert client.open_session()["clusters"][0]["user"] == "User:alice"
    assert [item["name"] for item in client.get("topics?internal=true")["items"]] == ["orders"]
    assert [item["group"] for item in client.get("groups")["items"]] == ["order-readers"]
    overview = client.get("overview")
    assert (overview["topics"], overview["groups"]) == (1, 1)
    assert overview["bytes_in_per_second"] is None
    assert client.get("topics/orders")["operations"] == ["DESCRIBE", "DESCRIBE_CONFIGS"]
    assert client.get("topics/orders/configs")["configs"]
    broker = client.get("brokers")["items"][0]
    assert (broker["size_bytes"], broker["replicas"]) == (None, 0)
    assert client.get(f"brokers/{broker['id']}")["log_dirs"] == []
    secret = "history?series=topic.messages_in:salaries&series=group.lag:payroll-readers&series=messages_in"
    assert all(set(series["values"]) == {None} for series in client.get(secret)["series"])


def test_nothing_of_others_is_shown_anywhere(server: ConsoleServer) -> None:
    client = logged_in(server, "alice")
    for path in reads(server):
        if path.endswith("/events"):
            with client.events(path) as events:
                documents = [data for _, data in (next(events) for _ in range(2))]
            text = json.dumps(documents)
        else:
            answer = client.request("GET", path)
            if answer.headers["content-type"].startswith("text/event-stream"):
                continue
            assert answer.status in (200, 400, 403, 404, 501), (path, answer.content)
            text = answer.content.decode() if answer.status == 200 else ""
        assert not any(secret in text for secret in SECRETS), path


def test_nothing_is_changed_without_rights(server: ConsoleServer) -> None:
    client = logged_in(server, "alice")
    changes = [
        ("POST", "topics", {"name": "new", "partitions": 1}),
        ("DELETE", "topics/orders", None),
        ("DELETE", "topics/salaries", None),
        ("POST", "topics/orders/partitions", {"total": 5}),
        ("POST", "topics/orders/purge", {"partitions": {"0": -1}}),
        ("PATCH", "topics/orders/configs", {"set": {"retention.ms": "1000"}}),
        ("DELETE", "groups/order-readers", None),
        ("DELETE", "groups/payroll-readers", None),
        ("POST", "groups/payroll-readers/offsets", {"to": "earliest", "topics": ["salaries"]}),
        ("PATCH", "brokers/default/configs", {"set": {"log.retention.ms": "1000"}}),
        ("POST", "elections", {"type": "preferred"}),
        ("POST", "reassignments", {"partitions": [{"topic": "orders", "partition": 0, "replicas": [0]}]}),
    ]
    for method, path, body in changes:
        answer = client.request(method, path, body)
        assert answer.status in (403, 404), (method, path, answer.content)
        assert answer.code.endswith("AUTHORIZATION_FAILED") or answer.status == 404, (method, path, answer.content)
    admin = logged_in(server, "broker")
    assert admin.get("topics/orders")["partitions"] == 2
    assert admin.get("topics/salaries")["partitions"] == 1
    assert admin.get("groups/payroll-readers")["partitions"][0]["committed"] == 1


def test_a_login_changes_the_session_and_a_logout_ends_it(server: ConsoleServer) -> None:
    client = ApiClient(server)
    before = client.open_session()["csrf_token"]
    old_cookie = client.cookie
    client.log_in("alice", "alice-secret")
    assert client.cookie != old_cookie
    assert client.csrf_token != before
    stolen = ApiClient(server)
    stolen.cookie = old_cookie
    assert stolen.request("GET", "topics").status == 401, "the id of before the login"
    with client.events() as events:
        next(events)
        assert client.request("POST", "/api/logout", {}).json["clusters"][0]["user"] is None
        assert client.request("GET", "topics").status == 401
        names = [name for name, _ in events]
    assert names[-1] == "session"


def test_rights_that_are_given_later_count(server: ConsoleServer, broker: EmbeddedBroker) -> None:
    client = logged_in(server, "bob")
    assert client.get("topics")["items"] == []
    with Admin(client_config(broker.bootstrap_servers, user="broker")) as admin:
        admin.create_acls([allow("bob", ACLOperation.ALL, ResourceType.TOPIC, "bobs")])
    created = client.wait_for_change("POST", "topics", {"name": "bobs", "partitions": 1}, 201)
    assert created["name"] == "bobs"
    assert [item["name"] for item in client.wait_for("topics", lambda page: page["items"])["items"]] == ["bobs"]
