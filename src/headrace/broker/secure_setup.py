"""Makes the directory of a new broker with TLS, users and their rights: `headrace storage secure`.

    server.properties     for `headrace server`
    admin.properties      for the tools: the user admin, who may do everything
    <user>.properties     for the clients of a user
    ca.pem, ca.key        the certificate authority; clients trust ca.pem
    broker.pem            the broker's key and certificate
    data                  the log directory, with the credentials and ACLs

The passwords are random. Only the owner may read the files.
"""

import os
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from headrace.broker.config.broker import BrokerConfig
from headrace.broker.environment import BrokerEnvironment
from headrace.broker.scram_storage import NewCredential, add_scram_credentials
from headrace.common.errors import ConfigError
from headrace.security.acl_authorizer import AclAuthorizer
from headrace.security.acl_store import AclStore
from headrace.security.acls import (
    AclBinding,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from headrace.security.authority import make_certificates

__all__ = ["ADMIN", "Grant", "consumer_rights", "make_secure_broker", "producer_rights"]

ADMIN = "admin"
_MECHANISM = "SCRAM-SHA-512"
_ITERATIONS = 8192
_PASSWORD_BYTES = 18
_LISTENER = "SASL_SSL"


@dataclass(frozen=True, slots=True)
class Grant:
    """A user who may produce to a topic, or consume it."""

    user: str
    topic: str
    is_producer: bool


def producer_rights(user: str, topic: str) -> list[AclBinding]:
    """Returns what `kafka-acls --producer` grants."""
    return [
        _allow(user, ResourceType.TOPIC, topic, operation)
        for operation in (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE)
    ]


def consumer_rights(user: str, topic: str) -> list[AclBinding]:
    """Returns what `kafka-acls --consumer --group '*'` grants."""
    return [
        _allow(user, ResourceType.TOPIC, topic, Operation.READ),
        _allow(user, ResourceType.TOPIC, topic, Operation.DESCRIBE),
        _allow(user, ResourceType.GROUP, "*", Operation.READ),
    ]


def _allow(user: str, kind: ResourceType, name: str, operation: Operation) -> AclBinding:
    return AclBinding(
        ResourcePattern(kind, name, PatternType.LITERAL), AclEntry(f"User:{user}", "*", operation, Permission.ALLOW)
    )


async def make_secure_broker(
    directory: Path,
    hosts: Sequence[str],
    port: int,
    grants: Iterable[Grant],
    environment: BrokerEnvironment | None = None,
) -> list[str]:
    """Creates the directory and everything in it. Returns the names of the users, without the administrator.

    `hosts`: the names by which clients reach the broker; it listens on the first. Raises ConfigError if the directory
    exists and is not empty, and OSError.
    """
    environment = environment or BrokerEnvironment()
    grants = list(grants)
    directory = directory.absolute()
    if directory.exists() and any(directory.iterdir()):
        raise ConfigError(f"The directory {directory} is not empty: choose a new one")
    users = sorted({grant.user for grant in grants})
    if ADMIN in users:
        raise ConfigError(f"{ADMIN} is the administrator, who may do everything: choose another user")
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    passwords = {user: secrets.token_urlsafe(_PASSWORD_BYTES) for user in (ADMIN, *users)}

    certificates = make_certificates(hosts, environment.clock.time_ms())
    _write(directory / "ca.pem", certificates.authority)
    _write(directory / "ca.key", certificates.authority_key)
    _write(directory / "broker.pem", certificates.keystore)
    for user, password in passwords.items():
        _write(directory / f"{user}.properties", _client_properties(directory, user, password).encode())
    server = directory / "server.properties"
    _write(server, _server_properties(directory, hosts[0], port, passwords[ADMIN]).encode())

    config = BrokerConfig.load(_read(server))
    new = [NewCredential.derive(user, _MECHANISM, password, _ITERATIONS) for user, password in passwords.items()]
    await add_scram_credentials(config, new, environment)
    await _add_acls(config, grants, environment)
    return users


async def _add_acls(config: BrokerConfig, grants: Iterable[Grant], environment: BrokerEnvironment) -> None:
    store = await environment.open_store(config, environment.clock, environment.files)
    try:
        acls = AclStore(store, environment.clock, AclAuthorizer())
        await acls.start()
        try:
            for grant in grants:
                rights = producer_rights if grant.is_producer else consumer_rights
                for binding in rights(grant.user, grant.topic):
                    await acls.alter(binding.pattern, partial(_with, binding.entry))
        finally:
            await acls.stop()
    finally:
        await store.close()


def _with(entry: AclEntry, entries: frozenset[AclEntry] | None) -> frozenset[AclEntry]:
    return (entries or frozenset()) | {entry}


def _jaas(user: str, password: str) -> str:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return f'{module} required username="{user}" password="{password}";'


def _client_properties(directory: Path, user: str, password: str) -> str:
    return f"""security.protocol={_LISTENER}
ssl.cafile={directory / "ca.pem"}
sasl.mechanism={_MECHANISM}
sasl.jaas.config={_jaas(user, password)}
"""


def _server_properties(directory: Path, host: str, port: int, password: str) -> str:
    return f"""listeners={_LISTENER}://{host}:{port}
log.dirs={directory / "data"}

ssl.keystore.location={directory / "broker.pem"}
ssl.truststore.location={directory / "ca.pem"}

security.inter.broker.protocol={_LISTENER}
sasl.enabled.mechanisms={_MECHANISM}
sasl.mechanism.inter.broker.protocol={_MECHANISM}
listener.name.{_LISTENER.lower()}.{_MECHANISM.lower()}.sasl.jaas.config={_jaas(ADMIN, password)}

authorizer.class.name=headrace
super.users=User:{ADMIN}
"""


def _read(file: Path) -> dict[str, str]:
    lines = (line for line in file.read_text().splitlines() if line)
    return {key: value for key, _, value in (line.partition("=") for line in lines)}


def _write(path: Path, data: bytes) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
