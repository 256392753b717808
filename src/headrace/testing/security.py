"""Users, rights and TLS of embedded brokers: broker configs, credentials, and the configs of clients.

    security = Security(users={"alice": "secret"}, acls=[allow("alice", "WRITE", topic="orders")])
    with EmbeddedBroker(security=security) as broker:
        producer = Producer(broker.client_config("alice"))

The broker's own user is `broker`. It may do everything, and has a random password.
"""

import secrets
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, get_args

from headrace.broker.scram_storage import NewCredential
from headrace.broker.server import Broker
from headrace.client.admin.acl_types import ACL
from headrace.client.admin.acl_types import ResourcePattern as AclResourcePattern
from headrace.cluster.config_store import ConfigEntity
from headrace.common.errors import ConfigError, HeadraceError
from headrace.security.acls import (
    CLUSTER_NAME,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from headrace.security.credentials import SCRAM_MECHANISMS
from headrace.security.sasl import PLAIN

__all__ = ["BROKER_USER", "ClientLibrary", "Security", "allow", "deny"]

ClientLibrary = Literal["headrace", "confluent", "kafka-python", "aiokafka", "java"]

BROKER_USER = "broker"
_MECHANISMS = (PLAIN, *SCRAM_MECHANISMS)
_ITERATIONS = 4096
_JAAS_CLASSES = {PLAIN: "plain.PlainLoginModule", **dict.fromkeys(SCRAM_MECHANISMS, "scram.ScramLoginModule")}


def allow(
    user: str,
    operations: str | Collection[str],
    *,
    topic: str | None = None,
    group: str | None = None,
    transactional_id: str | None = None,
    cluster: bool = False,
    host: str = "*",
) -> list[ACL]:
    """Returns ACLs that allow a user operations, such as `"WRITE"` or `["READ", "DESCRIBE_CONFIGS"]`.

    A name that ends with `*` is a prefix, `*` means all names. The user `*` is everybody.
    """
    return _acls(Permission.ALLOW, user, operations, topic, group, transactional_id, cluster, host)


def deny(
    user: str,
    operations: str | Collection[str],
    *,
    topic: str | None = None,
    group: str | None = None,
    transactional_id: str | None = None,
    cluster: bool = False,
    host: str = "*",
) -> list[ACL]:
    """Like `allow`, to deny."""
    return _acls(Permission.DENY, user, operations, topic, group, transactional_id, cluster, host)


def _acls(
    permission: Permission,
    user: str,
    operations: str | Collection[str],
    topic: str | None,
    group: str | None,
    transactional_id: str | None,
    cluster: bool,
    host: str,
) -> list[ACL]:
    named = {
        ResourceType.TOPIC: topic,
        ResourceType.GROUP: group,
        ResourceType.TRANSACTIONAL_ID: transactional_id,
        ResourceType.CLUSTER: CLUSTER_NAME if cluster else None,
    }
    patterns = [_pattern(kind, name) for kind, name in named.items() if name is not None]
    if not patterns:
        raise ValueError("name what the user may use: topic, group, transactional_id or cluster=True")
    names = [operations] if isinstance(operations, str) else list(operations)
    known = [operation.name for operation in Operation if operation >= Operation.ALL]
    if unknown := sorted({name for name in names if name.upper() not in known}):
        raise ValueError(f"unknown operations {', '.join(unknown)}: expected some of {', '.join(known)}")
    return [
        ACL(f"User:{user}", host, Operation[name.upper()], permission, pattern)
        for pattern in patterns
        for name in names
    ]


def _pattern(kind: ResourceType, name: str) -> AclResourcePattern:
    if name.endswith("*") and name != "*":
        return AclResourcePattern(kind, name[:-1], PatternType.PREFIXED)
    return AclResourcePattern(kind, name)


@dataclass(frozen=True, kw_only=True)
class Security:
    """What an embedded broker requires of its clients."""

    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Passwords by user name."""
    acls: Iterable[ACL | Iterable[ACL]] | None = None
    """What users may do: ACLs, and lists of them as `allow` and `deny` return them. None: everybody may do
    everything."""
    mechanism: str = "SCRAM-SHA-512"
    """The SASL mechanism: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512."""
    super_users: Collection[str] = ()
    """Users who may do everything."""

    def __post_init__(self) -> None:
        if self.mechanism not in _MECHANISMS:
            raise ValueError(f"mechanism={self.mechanism!r} is not valid: expected one of {', '.join(_MECHANISMS)}")
        if BROKER_USER in self.users:
            raise ValueError(f"the user {BROKER_USER!r} is the broker itself: choose another name")


class BrokerSecurity:
    """The security of one embedded broker or cluster. Owns the password of the broker."""

    def __init__(self, security: Security):
        self._security = security
        self._passwords = {**security.users, BROKER_USER: secrets.token_hex(16)}
        self._acls = _flatten(security.acls or ())

    @property
    def protocol(self) -> str:
        """The security protocol of the listener."""
        return "SASL_PLAINTEXT"

    def properties(self) -> dict[str, object]:
        """Returns the broker's configs, without `listeners`."""
        mechanism = self._security.mechanism
        options = {"username": BROKER_USER, "password": self._passwords[BROKER_USER]}
        if mechanism == PLAIN:
            options |= {f"user_{user}": password for user, password in self._passwords.items()}
        found: dict[str, object] = {
            "security.inter.broker.protocol": self.protocol,
            "sasl.enabled.mechanisms": mechanism,
            "sasl.mechanism.inter.broker.protocol": mechanism,
            f"listener.name.{self.protocol.lower()}.{mechanism.lower()}.sasl.jaas.config": _jaas(mechanism, options),
        }
        if self._security.acls is not None:
            super_users = [BROKER_USER, *self._security.super_users]
            found["authorizer.class.name"] = "headrace"
            found["super.users"] = ";".join(f"User:{user}" for user in super_users)
        return found

    async def create(self, broker: Broker) -> None:
        """Creates users and ACLs in a broker that runs."""
        mechanism = self._security.mechanism
        if mechanism in SCRAM_MECHANISMS:
            for user, password in self._passwords.items():
                new = NewCredential.derive(user, mechanism, password, _ITERATIONS)

                def add(existing: dict[str, str], new: NewCredential = new) -> dict[str, str]:
                    return {**existing, new.mechanism: new.credential.format()}

                await broker.config_store.alter(ConfigEntity.user(user), add)
        for acl in self._acls:
            assert broker.acl_store is not None
            wanted = acl.resource_pattern
            pattern = ResourcePattern(wanted.resource_type, wanted.resource_name, wanted.pattern_type)
            entry = AclEntry(acl.principal, acl.host, acl.operation, acl.permission_type)
            await broker.acl_store.alter(pattern, partial(_with, entry))

    def is_ready(self, broker: Broker) -> bool:
        """Returns True if the broker knows all users."""
        mechanism = self._security.mechanism
        if mechanism not in SCRAM_MECHANISMS:
            return True
        return all(broker.credentials.scram_credential(mechanism, user) for user in self._passwords)

    def client_config(
        self, servers: str, user: str | None, password: str | None, library: ClientLibrary
    ) -> dict[str, Any]:
        """Returns the configs of a client of a library. See `EmbeddedBroker.client_config`."""
        user = BROKER_USER if user is None else user
        if password is None:
            if user not in self._passwords:
                raise HeadraceError(f"There is no user {user!r}: expected one of {', '.join(self._passwords)}")
            password = self._passwords[user]
        values = {
            "bootstrap.servers": servers,
            "security.protocol": self.protocol,
            "sasl.mechanism": self._security.mechanism,
        }
        if library == "java":
            options = {"username": user, "password": password}
            return {**values, "sasl.jaas.config": _jaas(self._security.mechanism, options)}
        if library in ("kafka-python", "aiokafka"):
            values |= {"sasl.plain.username": user, "sasl.plain.password": password}
            return {name.replace(".", "_"): value for name, value in values.items()}
        if library not in ("headrace", "confluent"):
            raise ValueError(f"library={library!r} is not known: expected one of {', '.join(get_args(ClientLibrary))}")
        return {**values, "sasl.username": user, "sasl.password": password}


def _with(entry: AclEntry, entries: frozenset[AclEntry] | None) -> frozenset[AclEntry]:
    return (entries or frozenset()) | {entry}


def _flatten(acls: Iterable[ACL | Iterable[ACL]]) -> list[ACL]:
    found: list[ACL] = []
    for each in acls:
        found += [each] if isinstance(each, ACL) else list(each)
    return found


def _jaas(mechanism: str, options: Mapping[str, str]) -> str:
    texts = [f'{name}="{_escape(value)}"' for name, value in options.items()]
    return f"org.apache.kafka.common.security.{_JAAS_CLASSES[mechanism]} required {' '.join(texts)};"


def _escape(value: str) -> str:
    if "\n" in value:
        raise ConfigError("A password must not contain a line feed")
    return value.replace("\\", "\\\\").replace('"', '\\"')
