"""Delegation tokens in a cluster of a Headrace broker and one of Apache Kafka 3.9: both give the same answers, and each
knows the tokens that the other has created, renewed and deleted. Kafka's Java clients log in with them.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kazoo.client import KazooClient
from tests.support.apache_kafka.broker import KafkaOnZooKeeper
from tests.support.broker.java_clients import Java
from tests.support.broker.process import HOST, Headrace, eventually, free_port
from tests.support.cluster.zookeeper import ZooKeeper
from tests.support.net.wire_client import WireClient
from tests.support.security.sasl_broker import MODULES, USERS, client_config, jaas

import headrace
from headrace.admin import ACL, ACLOperation, ACLPermissionType, DelegationToken, ResourcePattern, ResourceType
from headrace.common.errors import SaslAuthenticationFailedError
from headrace.protocol import Message
from headrace.protocol.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from headrace.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from headrace.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from headrace.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from headrace.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from headrace.protocol.messages.sasl_handshake import SaslHandshakeRequest

pytestmark = pytest.mark.timeout(300)

HOUR_MS = 60 * 60 * 1000


class Brokers(NamedTuple):
    zookeeper: str
    plain: dict[str, int]
    sasl: dict[str, int]
    """Ports, by the kind of the broker."""

    def servers(self, kind: str) -> str:
        return f"{HOST}:{self.sasl[kind]}"

    def connect(self, kind: str, user: str) -> WireClient:
        """Returns a client of one broker. Without a user it does not authenticate."""
        if not user:
            return WireClient((HOST, self.plain[kind]))
        client = WireClient((HOST, self.sasl[kind]))
        assert client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
        token = f"\0{user}\0{USERS[user]}".encode()
        assert client.call(SaslAuthenticateRequest(auth_bytes=token), 1).error_code == 0
        return client


@pytest.fixture(scope="module")
def brokers(apache_kafka_3: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    root = tmp_path_factory.mktemp("tokens")
    plain, sasl = ({kind: free_port() for kind in ("kafka", "headrace")} for _ in range(2))
    with ZooKeeper(root / "zookeeper") as zookeeper:
        properties = {kind: settings(number, zookeeper, plain[kind], sasl[kind]) for number, kind in enumerate(plain)}
        with (
            KafkaOnZooKeeper(root / "kafka", plain["kafka"], properties["kafka"]),
            Headrace(root / "headrace", properties["headrace"], plain["headrace"]),
        ):
            yield Brokers(zookeeper.connect, plain, sasl)


def settings(number: int, zookeeper: ZooKeeper, port: int, sasl_port: int) -> dict[str, object]:
    listeners = f"PLAINTEXT://{HOST}:{port},SASL_PLAINTEXT://{HOST}:{sasl_port}"
    return {
        "broker.id": number,
        "zookeeper.connect": zookeeper.connect,
        "listeners": listeners,
        "advertised.listeners": listeners,
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas(),
        "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": f"{MODULES['SCRAM-SHA-256']} required;",
        "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config": f"{MODULES['SCRAM-SHA-512']} required;",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS;User:broker",
        "delegation.token.master.key": "the-same-key",
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 1,
    }


def token_login(token: DelegationToken, mechanism: str) -> dict[str, Any]:
    login = (
        f'{MODULES[mechanism]} required username="{token.token_info.token_id}" '
        f'password="{token.hmac_as_base64_string}" tokenauth="true";'
    )
    return {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.jaas.config": login}


# ---- the same answers

MAX_MS = 7 * 24 * HOUR_MS


def create(
    owner: tuple[str, str] | None = None, renewers: tuple[tuple[str, str], ...] = (), lifetime_ms: int = HOUR_MS
) -> Message:
    return CreateDelegationTokenRequest(
        owner_principal_type=None if owner is None else owner[0],
        owner_principal_name=None if owner is None else owner[1],
        renewers=[CreatableRenewers(principal_type=kind, principal_name=name) for kind, name in renewers],
        max_lifetime_ms=lifetime_ms,
    )


def describe(*owners: str, every: bool = False) -> Message:
    named = [DescribeDelegationTokenOwner(principal_type="User", principal_name=owner) for owner in owners]
    return DescribeDelegationTokenRequest(owners=None if every else named)


REQUESTS: list[tuple[str, Message]] = [
    ("", create()),
    ("", create(("User", "bob"), (("Group", "x"),))),
    ("", describe(every=True)),
    ("", RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=1)),
    ("", ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=1)),
    ("alice", RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=1)),
    ("alice", ExpireDelegationTokenRequest(hmac=b"", expiry_time_period_ms=-1)),
    ("alice", create()),
    ("alice", create(lifetime_ms=-1)),
    ("alice", create(lifetime_ms=0)),
    ("alice", create(lifetime_ms=2**60)),
    ("alice", create(("User", ""))),
    ("alice", create(("User", "alice"))),
    ("alice", create(("User", "bob"))),
    ("alice", create(("User", "bob"), (("Group", "x"),))),
    ("alice", create(None, (("Group", "x"),))),
    ("alice", create(("Group", "x"))),
    ("broker", create(("User", "bob"), (("User", "alice"), ("User", "alice")))),
    ("broker", create(("Group", "x"))),
]
"""Requests and who sends them; the empty user has not authenticated."""


def answer(brokers: Brokers, kind: str, user: str, request: Message) -> dict[str, Any]:
    """Returns a response without its secrets, and with times relative to the creation."""
    with brokers.connect(kind, user) as client:
        response = client.call(request)
    fields = {name: value for name, value in vars_of(response).items() if name not in ("token_id", "hmac", "tokens")}
    if hasattr(response, "hmac"):
        fields["hmac_bytes"] = len(response.hmac)
        fields["id_length"] = len(response.token_id)
    if (issued := fields.pop("issue_timestamp_ms", -1)) >= 0:
        for name in ("expiry_timestamp_ms", "max_timestamp_ms"):
            fields[name] -= issued
    return fields


def vars_of(message: Message) -> dict[str, Any]:
    return {field.name: getattr(message, field.name) for field in type(message).__fields__}


def test_the_same_answers(brokers: Brokers) -> None:
    for user, request in REQUESTS:
        theirs, ours = (answer(brokers, kind, user, request) for kind in ("kafka", "headrace"))
        assert ours == theirs, (user, request)


# ---- one cluster


def tokens(brokers: Brokers, kind: str, user: str, request: Message) -> list[str]:
    """Returns the tokens of a response, in no order."""
    with brokers.connect(kind, user) as client:
        response = client.call(request)
    assert response.error_code == 0
    return sorted(repr(token) for token in response.tokens)


def test_tokens_of_each_broker_can_be_used_on_the_other(brokers: Brokers, tmp_path: Path, apache_kafka: None) -> None:
    created: dict[str, DelegationToken] = {}
    with Java(brokers.servers("kafka")) as java:
        for kind, other in (("kafka", "headrace"), ("headrace", "kafka")):
            with headrace.Admin(client_config(brokers.servers(kind))) as admin:
                grant(brokers, "alice")
                token = created[kind] = admin.create_delegation_token(["User:bob"])
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
                for where in (other, kind):
                    config = {**token_login(token, mechanism), "bootstrap.servers": brokers.servers(where)}
                    eventually(lambda config=config: can_log_in(config), f"a login on {where} with {mechanism}")
            file = tmp_path / f"{kind}.properties"
            file.write_text("".join(f"{key}={value}\n" for key, value in token_login(token, "SCRAM-SHA-256").items()))
            listed = java.bare_tool(
                "kafka-topics", "--list", "--bootstrap-server", brokers.servers("headrace"), "--command-config", file
            )
            assert listed.status == 0, listed.err
    for user in ("alice", "bob", "broker"):
        for request in (describe(every=True), describe("alice"), describe("bob"), describe("nobody"), describe()):
            eventually(
                lambda user=user, request=request: (
                    tokens(brokers, "kafka", user, request) == tokens(brokers, "headrace", user, request)
                ),
                f"{user} sees the same tokens on both: {request}",
            )
    check_nodes(brokers, created)
    change(brokers, created)


def grant(brokers: Brokers, user: str) -> None:
    """Lets the user connect as an admin client does."""
    allowed = ACL(
        f"User:{user}",
        "*",
        ACLOperation.DESCRIBE,
        ACLPermissionType.ALLOW,
        ResourcePattern(ResourceType.CLUSTER, "kafka-cluster"),
    )
    with headrace.Admin(bootstrap_servers=f"{HOST}:{brokers.plain['headrace']}") as admin:
        admin.create_acls([allowed])


def can_log_in(config: dict[str, Any]) -> bool:
    with headrace.Admin(config) as admin:
        try:
            admin.list_topics(timeout_ms=30_000)
        except SaslAuthenticationFailedError:
            return False
    return True


def check_nodes(brokers: Brokers, created: dict[str, DelegationToken]) -> None:
    """The nodes of both brokers have the same fields."""
    client = KazooClient(brokers.zookeeper)
    client.start()
    try:
        nodes = {
            kind: json.loads(client.get(f"/delegation_token/tokens/{token.token_info.token_id}")[0])
            for kind, token in created.items()
        }
        changes = client.get_children("/delegation_token/token_changes")
    finally:
        client.stop()
        client.close()
    ours, theirs = nodes["headrace"], nodes["kafka"]
    assert {name: type(value) for name, value in ours.items()} == {name: type(value) for name, value in theirs.items()}
    for name in ("version", "owner", "tokenRequester", "renewers"):
        assert ours[name] == theirs[name]
    assert all(name.startswith("token_change_") for name in changes)


def change(brokers: Brokers, created: dict[str, DelegationToken]) -> None:
    """Renews and deletes each token on the other broker."""
    for kind, other in (("kafka", "headrace"), ("headrace", "kafka")):
        token = created[kind]
        with headrace.Admin(client_config(brokers.servers(other), user="bob")) as admin:
            wait_for_expiry(brokers, kind, token, admin.renew_delegation_token(token, HOUR_MS))
            admin.expire_delegation_token(token)
        wait_for_expiry(brokers, kind, token, None)
        assert not can_log_in({**token_login(token, "SCRAM-SHA-256"), "bootstrap.servers": brokers.servers(kind)})


def wait_for_expiry(brokers: Brokers, kind: str, token: DelegationToken, expected: int | None) -> None:
    """Waits until a broker knows when the token expires; None: that it is gone."""
    with headrace.Admin(client_config(brokers.servers(kind))) as admin:

        def expiry() -> int | None:
            for known in admin.describe_delegation_token():
                if known.token_info.token_id == token.token_info.token_id:
                    return known.token_info.expiry_timestamp
            return None

        eventually(lambda: expiry() == expected, f"{kind} knows that the token expires at {expected}")
