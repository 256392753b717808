"""No secret appears in a log at DEBUG, in a response, an error message or a traceback.

Every password of the test contains `CANARY`. Other secrets are collected while they are made: HMACs of tokens, OAuth
tokens, private keys, and the keys that SCRAM derives from passwords. The tests provoke failures, and search everything
that was logged, raised, printed or answered.
"""

import base64
import io
import logging
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.support.net.wire_client import ConnectionEnded, WireClient
from tests.support.security.oauth import Issuer
from tests.support.security.sasl_broker import MODULES
from tests.support.security.tls import CA, TlsFiles

import headrace
from headrace.admin import (
    ConfigResource,
    ConfigResourceType,
    DelegationToken,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from headrace.broker.config.broker import BROKER_KEYS, BrokerConfig
from headrace.broker.server import Broker
from headrace.cli.main import main
from headrace.client.config.admin import ADMIN_KEYS
from headrace.client.config.producer import PRODUCER_KEYS
from headrace.common.config import ConfigType
from headrace.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from headrace.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from headrace.protocol.messages.sasl_handshake import SaslHandshakeRequest
from headrace.testing import EmbeddedBroker

pytestmark = pytest.mark.timeout(300)

CANARY = "CANARY"
ALICE, BROKER, KEY, WRONG, CLIENT = (f"{CANARY}-{name}" for name in ("alice", "broker", "key", "wrong", "client"))
MASTER = f"{CANARY}-master"


class Evidence:
    """Everything that somebody could read, and the secrets that must not be in it."""

    def __init__(self) -> None:
        self.output = io.StringIO()
        self.secrets = {CANARY}
        self.failures = 0

    def add_key(self, key: bytes) -> None:
        """Adds a secret of bytes in the forms in which it could be shown."""
        self.secrets |= {base64.b64encode(key).decode().rstrip("="), key.hex(), repr(key)[2:-1]}

    def note(self, value: object) -> None:
        self.output.write(f"{value}\n{value!r}\n")

    @contextmanager
    def failing(self) -> Iterator[None]:
        """Something that must fail."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - its text is searched
            self.failures += 1
            self.note(error)
            self.output.write("".join(traceback.format_exception(error)))
        else:
            raise AssertionError("nothing failed")

    def found(self) -> set[str]:
        text = self.output.getvalue()
        return {
            f"...{text[max(0, position - 200) : position + 60]}..."
            for secret in self.secrets
            if (position := text.find(secret)) >= 0
        }


@pytest.fixture
def evidence() -> Iterator[Evidence]:
    """Collects all log lines, with tracebacks."""
    evidence = Evidence()
    handler = logging.StreamHandler(evidence.output)
    root = logging.getLogger()
    loggers = [
        root,
        *(logging.getLogger(name) for name in ("headrace", "asyncio", "headrace.request", "headrace.audit")),
    ]
    levels = [logger.level for logger in loggers]
    root.addHandler(handler)
    for logger in loggers:
        logger.setLevel(logging.DEBUG)
    try:
        yield evidence
    finally:
        root.removeHandler(handler)
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def plain_login(**users: str) -> str:
    options = " ".join(f'{name}="{password}"' for name, password in users.items())
    return f"{MODULES['PLAIN']} required {options};"


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    return TlsFiles(tmp_path)


def broker_properties(files: TlsFiles, evidence: Evidence) -> dict[str, object]:
    certificate = CA.issue("localhost", hosts=("localhost", "127.0.0.1"))
    key = certificate.key_pem(KEY)
    evidence.secrets.add(key.splitlines()[2])
    login = plain_login(username="broker", password=BROKER, user_broker=BROKER, user_alice=ALICE)
    return {
        "listeners": "SASL_SSL://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "security.inter.broker.protocol": "SASL_SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": key,
        "ssl.keystore.certificate.chain": certificate.chain_pem,
        "ssl.key.password": KEY,
        "ssl.truststore.location": files.ca,
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": login,
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": login,
        "delegation.token.master.key": MASTER,
        "authorizer.class.name": "headrace",
        "super.users": "User:broker;User:alice",
        "connection.failed.authentication.delay.ms": 0,
    }


def config(
    broker: EmbeddedBroker, mechanism: str = "PLAIN", user: str = "alice", password: str = ALICE
) -> dict[str, Any]:
    port = broker.call(lambda running: running.endpoints[1].port)
    return {
        "bootstrap.servers": f"127.0.0.1:{port}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


# ---- a running broker


def test_broker_and_clients(evidence: Evidence, files: TlsFiles) -> None:
    properties = broker_properties(files, evidence)
    with EmbeddedBroker(properties, topics={"t": 1}) as broker:
        with headrace.Admin(config(broker)) as admin:
            evidence.note(admin.config)
            check_credentials(evidence, broker, admin)
            check_tokens(evidence, broker, admin)
            check_configs(evidence, broker, admin)
        check_failed_logins(evidence, broker)
        check_damaged_nodes(evidence, broker)
        evidence.note(broker.call(lambda running: repr(vars(running))))
        evidence.note(broker.call(lambda running: repr(running.config)))
    assert evidence.failures >= 15
    text = evidence.output.getvalue()
    assert "Failed authentication" in text
    assert "DEBUG" in text or len(text) > 10_000
    assert not evidence.found()


def check_credentials(evidence: Evidence, broker: EmbeddedBroker, admin: headrace.Admin) -> None:
    wanted = UserScramCredentialUpsertion("bob", ScramMechanism.SCRAM_SHA_256, WRONG)
    evidence.note(wanted)
    admin.alter_user_scram_credentials([wanted])
    stored = broker.call(lambda running: running.credentials.scram_credential("SCRAM-SHA-256", "bob"))
    assert stored is not None
    evidence.note(stored)
    for key in (stored.salt, stored.stored_key, stored.server_key):
        evidence.add_key(key)
    evidence.note(admin.describe_user_scram_credentials())
    with evidence.failing():
        few = UserScramCredentialUpsertion("bob", ScramMechanism.SCRAM_SHA_256, WRONG, iterations=1)
        admin.alter_user_scram_credentials([few])


def check_tokens(evidence: Evidence, broker: EmbeddedBroker, admin: headrace.Admin) -> None:
    token = admin.create_delegation_token(["User:bob"])
    evidence.add_key(token.hmac)
    evidence.note(token)
    evidence.note(admin.describe_delegation_token())
    login = {"sasl.jaas.config": f'{MODULES["SCRAM-SHA-256"]} required username="{token.token_info.token_id}" '}
    for password, works in ((token.hmac_as_base64_string, True), (WRONG, False)):
        jaas = f'{login["sasl.jaas.config"]} password="{password}" tokenauth="true";'
        options = {key: value for key, value in config(broker, "SCRAM-SHA-256").items() if "username" not in key}
        del options["sasl.password"]
        with headrace.Admin({**options, "sasl.jaas.config": jaas}) as own:
            evidence.note(own.config)
            if works:
                evidence.note(own.list_topics())
            with evidence.failing():
                own.renew_delegation_token(token)
    with evidence.failing():
        admin.renew_delegation_token(b"no such token")
    with evidence.failing():
        admin.create_delegation_token(["Group:x"])

    def fail(running: Broker) -> None:
        async def broken(*_: object) -> tuple[object, bytes]:
            raise RuntimeError("a bug")

        running.token_admin.create = broken  # type: ignore[method-assign, assignment]

    broker.call(fail)
    with evidence.failing():
        admin.create_delegation_token(timeout_ms=1000)
    admin.expire_delegation_token(DelegationToken(token.token_info, token.hmac))


def check_configs(evidence: Evidence, broker: EmbeddedBroker, admin: headrace.Admin) -> None:
    own = ConfigResource(ConfigResourceType.BROKER, str(broker.call(lambda running: running.node_id)))
    evidence.note(admin.describe_configs([own]))
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=4, resource_name=own.name, configuration_keys=None)],
        include_synonyms=True,
        include_documentation=True,
    )
    address = ("127.0.0.1", broker.call(lambda running: running.endpoints[1].port))
    with WireClient(address) as client:
        assert client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
        assert client.call(SaslAuthenticateRequest(auth_bytes=f"\0alice\0{ALICE}".encode())).error_code == 0
        response = client.call(request)
    assert len(response.results[0].configs) > 100
    evidence.note(response)
    passwords = [key for key in BROKER_KEYS.keys.values() if key.type is ConfigType.PASSWORD]
    assert len(passwords) > 5
    for key in passwords:
        for name in (key.name, f"listener.name.sasl_ssl.{key.name}"):
            with evidence.failing():
                admin.alter_configs({own: {name: f"{WRONG} \0"}})
    with evidence.failing():
        admin.alter_configs({own: {"no.such.password": WRONG}})


def check_failed_logins(evidence: Evidence, broker: EmbeddedBroker) -> None:
    for mechanism, user in (("PLAIN", "alice"), ("PLAIN", "nobody"), ("SCRAM-SHA-256", "bob"), ("SCRAM-SHA-256", "x")):
        password = WRONG if user != "bob" else f"{WRONG}-too"
        with headrace.Admin(config(broker, mechanism, user, password)) as refused, evidence.failing():
            refused.list_topics(timeout_ms=30_000)
        with headrace.Producer(config(broker, mechanism, user, password)) as producer, evidence.failing():
            producer.send("t", b"x").get(timeout_ms=30_000)
    address = ("127.0.0.1", broker.call(lambda running: running.endpoints[1].port))
    for mechanism, token in (
        ("PLAIN", f"{WRONG}\0alice\0{WRONG}"),
        ("PLAIN", f"alice {WRONG}"),
        ("PLAIN", f"\0alice\0{WRONG}\0"),
        ("SCRAM-SHA-256", f"n,,n={WRONG}=XX,r=x"),
        ("SCRAM-SHA-256", f"p={WRONG}"),
    ):
        with WireClient(address) as client:
            client.call(SaslHandshakeRequest(mechanism=mechanism), 1)
            try:
                evidence.note(client.call(SaslAuthenticateRequest(auth_bytes=token.encode())))
            except ConnectionEnded:
                evidence.failures += 1


def check_damaged_nodes(evidence: Evidence, broker: EmbeddedBroker) -> None:
    """The configs of a user, which cannot be read because of something else."""

    async def damage(running: Broker) -> None:
        data, _ = await running.store.get("/config/users/bob")
        evidence.add_key(data)
        await running.store.set("/config/users/bob", data + b"}")
        running.config_watcher.restart_watch()
        try:
            await running._load_configs()
        except Exception as error:  # noqa: BLE001 - its text is searched
            evidence.failures += 1
            evidence.note(error)
            evidence.output.write("".join(traceback.format_exception(error)))

    broker.run(damage)


# ---- configs that cannot be used


def broken(value: str) -> list[str]:
    """Variations of a secret, which are also wrong as a JAAS config, a key or a number."""
    return [
        value,
        f'"{value}',
        f"{value};",
        f"{MODULES['PLAIN']} required {value}",
        f"-----BEGIN {value}-----\n{value}",
    ]


def test_broker_configs(evidence: Evidence, files: TlsFiles) -> None:
    valid = broker_properties(files, evidence)
    evidence.note(BrokerConfig.from_properties(valid))
    names = [key.name for key in BROKER_KEYS.keys.values() if key.type is ConfigType.PASSWORD]
    names += [f"listener.name.sasl_ssl.{name}" for name in names]
    names += ["listener.name.sasl_ssl.plain.sasl.jaas.config", "listener.name.no_such.plain.sasl.jaas.config"]
    for name in names:
        for value in broken(WRONG):
            properties = {**valid, name: value}
            check_loading(evidence, lambda properties=properties: BrokerConfig.from_properties(properties))  # type: ignore[misc]
    for name in ("plain.sasl.jaas.config", "ssl.key.password", "ssl.keystore.key", "ssl.keystore.certificate.chain"):
        properties = {**valid, f"listener.name.sasl_ssl.{name}": broken(WRONG)[-1]}
        with evidence.failing():
            start(properties)
    assert evidence.failures > 10
    assert not evidence.found()


def start(properties: dict[str, object]) -> None:
    """Starts a broker, which may fail at any step."""
    with EmbeddedBroker(properties):
        pass


def check_loading(evidence: Evidence, load: Callable[[], object]) -> None:
    """Loads configs that may be refused."""
    try:
        evidence.note(load())
    except Exception as error:  # noqa: BLE001 - its text is searched
        evidence.failures += 1
        evidence.note(error)
        evidence.output.write("".join(traceback.format_exception(error)))


def test_client_configs(evidence: Evidence, files: TlsFiles) -> None:
    token = Issuer().sign({"sub": "alice"})
    evidence.secrets.add(token.split(".")[2])
    base = {"bootstrap.servers": "127.0.0.1:1", "security.protocol": "SASL_SSL", "ssl.cafile": files.ca}
    for table in (ADMIN_KEYS, PRODUCER_KEYS):
        passwords = [key.name for key in table.keys.values() if key.type is ConfigType.PASSWORD]
        assert "sasl.password" in passwords
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"):
            for name in passwords:
                for value in (*broken(WRONG), token):
                    options = {**base, "sasl.mechanism": mechanism, name: value}
                    check_loading(evidence, lambda table=table, options=options: table.load(options))  # type: ignore[misc]
                    if table is ADMIN_KEYS:
                        check_loading(evidence, lambda options=options: use(options))  # type: ignore[misc]
    secret = {"sasl.oauthbearer.client.credentials.client.secret": CLIENT}
    secret["sasl.oauthbearer.client.credentials.client.id"] = "client"
    url = {"sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:1/token"}
    check_loading(evidence, lambda: use({**base, **secret, **url, "sasl.mechanism": "OAUTHBEARER"}))
    assert evidence.failures > 20
    assert not evidence.found()


def use(options: dict[str, Any]) -> object:
    with headrace.Admin(options) as admin:
        return admin.config, admin.list_topics(timeout_ms=1)


# ---- tools


def test_tools(evidence: Evidence, tmp_path: Path) -> None:
    login = tmp_path / "client.properties"
    server = tmp_path / "server.properties"
    with EmbeddedBroker({"delegation.token.secret.key": MASTER}) as broker:
        connection = ["--bootstrap-server", broker.bootstrap_servers]
        bob = [*connection, "--alter", "--user", "bob", "--add-config"]
        commands = [
            ["configs", *bob, f"SCRAM-SHA-256=[password={WRONG}]"],
            ["configs", *bob, f"SCRAM-SHA-256=[iterations=1,password={WRONG}]"],
            ["configs", *bob, f"SCRAM-SHA-256=[iterations=x,password={WRONG}]"],
            ["configs", *bob, f"SCRAM-SHA-256=[pass={WRONG}]"],
            ["configs", *bob, f"SCRAM-SHA-256={WRONG}"],
            ["configs", *connection, "--describe", "--entity-type", "users"],
            ["configs", *connection, "--describe", "--broker", "0", "--all"],
            ["storage", "add-scram", "--add-scram", f"SCRAM-SHA-256=[name=x,iterations=1,password={WRONG}]"],
            ["storage", "add-scram", "--add-scram", f"SCRAM-SHA-256=[name=x,passwd={WRONG}]"],
            ["storage", "add-scram", "--add-scram", WRONG],
            ["server", str(server)],
            *(["topics", *connection, "--command-config", str(login), "--list"],) * 3,
        ]
        logins = (plain_login(username="a", password=WRONG), f"{MODULES['PLAIN']} required {WRONG}", WRONG)
        for number, command in enumerate(commands):
            text = f"sasl.jaas.config={logins[number % 3]}\nssl.key.password={WRONG}\n"
            login.write_text(f"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n{text}")
            server.write_text(f"listeners=SASL_PLAINTEXT://127.0.0.1:0\n{text}")
            ran = CliRunner().invoke(main, command, prog_name="headrace")
            evidence.output.write(ran.output)
            evidence.failures += ran.exit_code != 0
    assert evidence.failures > 8
    assert not evidence.found()
