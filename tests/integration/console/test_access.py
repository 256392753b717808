"""Users, ACLs and quotas in the console, and what a user without rights sees and may do."""

from collections.abc import Iterator

import pytest
from tests.support.console.api_client import ApiClient, running_console
from tests.support.security.sasl_broker import USERS, client_config, sasl_broker

from headrace.admin import ACL, ACLOperation, ACLPermissionType, ResourcePattern, ResourceType
from headrace.client.admin.admin import Admin
from headrace.testing import EmbeddedBroker

_ACCESS = "/api/clusters/default/access"
_RECORDS = "/api/clusters/default/topics/orders/records"


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    properties = {
        "authorizer_class_name": "headrace",
        "super_users": "User:broker;User:alice",
        "delegation_token_secret_key": "token-secret",
    }
    with sasl_broker({"orders": 1, "other": 1}, **properties) as broker:
        yield broker


@pytest.fixture(scope="module")
def url_client(broker: EmbeddedBroker) -> Iterator[ApiClient]:
    config = client_config(broker.bootstrap_servers, user="broker")
    own = {key: str(value) for key, value in config.items() if key != "bootstrap.servers"}
    with running_console(broker.bootstrap_servers, own, write=False) as client:
        yield client


@pytest.fixture
def alice(url_client: ApiClient) -> ApiClient:
    return _login(url_client, "alice")


def _login(client: ApiClient, user: str) -> ApiClient:
    session = ApiClient(client.url)
    answer = session.login(user, USERS[user])
    assert answer.status == 200, answer.body
    return session


def test_users_are_created_and_deleted(alice: ApiClient, url_client: ApiClient) -> None:
    assert ApiClient(url_client.url).get(f"{_ACCESS}/users").json["error"]["code"] == "LOGIN_REQUIRED"
    body = {"mechanism": "SCRAM-SHA-512", "password": "secret-of-carol"}
    answer = alice.call("PUT", f"{_ACCESS}/users/carol%2F1", body)
    assert answer.json == {"name": "carol/1", "mechanisms": [{"mechanism": "SCRAM-SHA-512", "iterations": 4096}]}
    assert [user["name"] for user in alice.get(f"{_ACCESS}/users", search="CAROL").json["items"]] == ["carol/1"]
    assert alice.call("PUT", f"{_ACCESS}/users/carol", {**body, "iterations": 1}).status == 400
    deleted = alice.call("DELETE", f"{_ACCESS}/users/carol%2F1?mechanism=SCRAM-SHA-512")
    assert deleted.status == 204
    assert alice.get(f"{_ACCESS}/users").json["total"] == 0
    assert alice.call("DELETE", f"{_ACCESS}/users/carol%2F1?mechanism=SCRAM-SHA-512").status == 404


def test_acls_are_created_and_deleted(alice: ApiClient) -> None:
    acl = {
        "principal": "User:carol",
        "host": "*",
        "operation": "READ",
        "permission": "ALLOW",
        "resource_type": "TOPIC",
        "resource_name": "ord",
        "pattern_type": "PREFIXED",
    }
    answer = alice.call("POST", f"{_ACCESS}/acls", acl)
    assert (answer.status, answer.json) == (201, acl)
    assert alice.get(f"{_ACCESS}/acls", principal="User:carol").json["items"] == [acl]
    by_topic = {"resource_type": "TOPIC", "resource_name": "orders"}
    assert alice.get(f"{_ACCESS}/acls", **by_topic).json["items"] == []
    assert alice.get(f"{_ACCESS}/acls", **by_topic, matching="true").json["items"] == [acl]
    assert alice.call("POST", f"{_ACCESS}/acls", {**acl, "principal": "carol"}).json["error"]["field"] == "principal"
    assert alice.call("POST", f"{_ACCESS}/acls", {**acl, "operation": "ANY"}).json["error"]["field"] == "operation"
    assert alice.call("POST", f"{_ACCESS}/acls/delete", acl).json == {"deleted": 1}
    assert alice.call("POST", f"{_ACCESS}/acls/delete", acl).json == {"deleted": 0}


def test_quotas_are_set_and_removed(alice: ApiClient) -> None:
    entity = {"user": "carol", "client-id": None}
    answer = alice.call("PUT", f"{_ACCESS}/quotas", {"entity": entity, "set": {"producer_byte_rate": 1024}})
    assert answer.status == 200, answer.body
    assert alice.get(f"{_ACCESS}/quotas").json["items"] == [
        {"entity": entity, "quotas": {"producer_byte_rate": 1024.0}}
    ]
    removal = {"entity": entity, "remove": ["producer_byte_rate"]}
    assert alice.call("PUT", f"{_ACCESS}/quotas", removal).status == 200
    assert alice.get(f"{_ACCESS}/quotas").json["items"] == []
    assert alice.call("PUT", f"{_ACCESS}/quotas", {"entity": {"host": "x"}, "set": {"a": 1}}).status == 400


def test_a_user_without_rights_sees_and_changes_nothing(broker: EmbeddedBroker, url_client: ApiClient) -> None:
    bob = _login(url_client, "bob")
    for path in ("users", "acls", "quotas"):
        refused = bob.get(f"{_ACCESS}/{path}")
        assert (refused.status, refused.json["error"]["code"]) == (403, "CLUSTER_AUTHORIZATION_FAILED"), path
    body = {"mechanism": "SCRAM-SHA-256", "password": "x"}
    assert bob.call("PUT", f"{_ACCESS}/users/bob", body).status == 403
    assert bob.get(_RECORDS).json["error"]["code"] in ("TOPIC_AUTHORIZATION_FAILED", "UNKNOWN_TOPIC_OR_PARTITION")
    assert bob.call("POST", _RECORDS, {"value": {"encoding": "text", "data": "x"}}).status == 403
    assert bob.get(f"{_RECORDS}/export").status == 403
    ((name, error),) = bob.stream(f"{_RECORDS}/search")
    assert (name, error["code"]) == ("error", "TOPIC_AUTHORIZATION_FAILED")
    assert bob.get("/api/clusters/default/transactions").json["items"] == []
    assert bob.call("POST", "/api/clusters/default/transactions/abort", {"transactional_id": "x"}).status == 403
    with Admin(client_config(broker.bootstrap_servers)) as admin:
        pattern = ResourcePattern(ResourceType.TOPIC, "orders")
        admin.create_acls(
            [
                ACL("User:bob", "*", operation, ACLPermissionType.ALLOW, pattern)
                for operation in (ACLOperation.READ, ACLOperation.WRITE)
            ]
        )
    produced = bob.call("POST", _RECORDS, {"value": {"encoding": "text", "data": "hello"}})
    assert produced.status == 201, produced.body
    assert [record["value"]["text"] for record in bob.get(_RECORDS).json["records"]] == ["hello"]
    events = dict(bob.stream(f"{_RECORDS}/search", filter_value="hello"))
    assert events["done"]["matched"] == 1
    selection = {"offsets": [{"partition": 0, "offset": 0}]}
    refused = bob.call("POST", f"{_RECORDS}/copy", {"target_topic": "other", "selection": selection})
    assert refused.status == 403


def test_tokens_are_created_renewed_and_deleted(
    broker: EmbeddedBroker, alice: ApiClient, url_client: ApiClient
) -> None:
    path = f"{_ACCESS}/tokens"
    hour_ms = 60 * 60 * 1000
    answer = alice.call("POST", path, {"renewers": ["User:bob"], "max_lifetime_ms": 2 * hour_ms})
    assert answer.status == 201, answer.body
    created = answer.json
    secret = created.pop("hmac")
    assert (created["owner"], created["requester"], created["renewers"]) == ("User:alice", "User:alice", ["User:bob"])
    assert created["max_time_ms"] == created["issue_time_ms"] + 2 * hour_ms
    listed = alice.get(path)
    assert listed.json["items"] == [created]
    assert secret not in listed.body.decode()
    login = ApiClient(url_client.url).login(created["token_id"], secret)
    assert login.status == 401, "the id of a token is not a user"
    # The console asks the cluster for the secret, which tells it to the owner and the renewers.
    bob = _login(url_client, "bob")
    assert [token["token_id"] for token in bob.get(path).json["items"]] == [created["token_id"]]
    one = f"{path}/{created['token_id']}"
    renewed = bob.call("POST", f"{one}/renew", {"period_ms": hour_ms})
    assert renewed.status == 200, renewed.body
    (listed_again,) = alice.get(path).json["items"]
    assert listed_again["expiry_time_ms"] == renewed.json["expiry_time_ms"] < created["expiry_time_ms"]
    assert alice.call("POST", f"{one}/renew", {"hmac": secret}).json["expiry_time_ms"] == created["max_time_ms"]
    assert alice.call("POST", f"{one}/renew", {"hmac": "no base64"}).json["error"]["field"] == "hmac"
    assert alice.call("POST", f"{one}/renew", {"hmac": "AAAA"}).json["error"]["code"] == "DELEGATION_TOKEN_NOT_FOUND"
    refused = bob.call("POST", path, {"owner": "User:alice"})
    assert (refused.status, refused.json["error"]["code"]) == (403, "DELEGATION_TOKEN_AUTHORIZATION_FAILED")
    assert alice.call("POST", path, {"renewers": ["bob"]}).json["error"]["code"] == "INVALID_REQUEST"
    assert alice.call("DELETE", f"{path}/none").json["error"]["code"] == "DELEGATION_TOKEN_NOT_FOUND"
    assert alice.call("DELETE", one, headers={"X-Token-Hmac": secret}).status == 204
    assert alice.get(path).json["items"] == []
    other = alice.call("POST", path, {}).json
    assert _login(url_client, "bob").call("DELETE", f"{path}/{other['token_id']}").status == 404
    assert alice.call("DELETE", f"{path}/{other['token_id']}").status == 204
    assert alice.get(path).json["items"] == []


def test_a_change_needs_the_csrf_token(alice: ApiClient) -> None:
    answer = alice.call("DELETE", f"{_ACCESS}/users/x?mechanism=SCRAM-SHA-256", headers={"X-CSRF-Token": "wrong"})
    assert answer.json["error"]["code"] == "CSRF"
