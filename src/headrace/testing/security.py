"""Users, rights and TLS of embedded brokers: broker configs, credentials, and the configs of clients.

    security = Security(users={"alice": "secret"}, acls=[allow("alice", "WRITE", topic="orders")])
    with EmbeddedBroker(security=security) as broker:
        producer = Producer(broker.client_config("alice"))

The broker's own user is `broker`. It may do everything, and has a random password.
"""

import secrets
import ssl
import tempfile
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from headrace.broker.scram_storage import NewCredential
from headrace.broker.server import Broker
from headrace.client.admin.acl_types import ACL
from headrace.client.admin.acl_types import ResourcePattern as AclResourcePattern
from headrace.cluster.config_store import ConfigEntity, ConfigStore
from headrace.cluster.store import CoordinationStore
from headrace.common.errors import ConfigError, HeadraceError
from headrace.security.acls import (
    CLUSTER_NAME,
    AclBinding,
    AclBindingFilter,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from headrace.security.credentials import SCRAM_MECHANISMS
from headrace.security.sasl import PLAIN

if TYPE_CHECKING:
    from headrace.testing.certificates import CertificateAuthority

__all__ = ["BROKER_USER", "ClientLibrary", "Security", "allow", "deny"]

ClientLibrary = Literal["headrace", "confluent", "kafka-python", "aiokafka", "java"]

BROKER_USER = "broker"
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
_PYTHON_KEYWORDS = ("kafka-python", "aiokafka")
_OUR_FILES = ("ssl.cafile", "ssl.certfile", "ssl.keyfile")
_LIBRDKAFKA_FILES = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location")
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

    users: Mapping[str, str] | Collection[str] = field(default=(), repr=False)
    """Passwords by user name. With `mechanism=None`, the names are enough."""
    acls: Iterable[ACL | Iterable[ACL]] | None = None
    """What users may do: ACLs, and lists of them as `allow` and `deny` return them. None: everybody may do
    everything."""
    mechanism: str | None = "SCRAM-SHA-512"
    """The SASL mechanism: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512. None: users have only certificates (`mutual_tls`), or
    everybody is anonymous (`tls`)."""
    tls: bool = False
    """Whether connections are encrypted. The certificates are made for the test."""
    mutual_tls: bool = False
    """Whether clients need a certificate, too. Includes `tls`."""
    super_users: Collection[str] = ()
    """Users who may do everything."""

    def __post_init__(self) -> None:
        if self.mechanism is not None and self.mechanism not in _MECHANISMS:
            raise ValueError(
                f"mechanism={self.mechanism!r} is not valid: expected one of {', '.join(_MECHANISMS)}, or None"
            )
        if BROKER_USER in self.users:
            raise ValueError(f"the user {BROKER_USER!r} is the broker itself: choose another name")
        if self.mechanism is not None and self.users and not isinstance(self.users, Mapping):
            raise ValueError("users must be passwords by user name, for example {'alice': 'secret'}")
        if self.mechanism is None and self.users and not self.mutual_tls:
            raise ValueError("users need a way to log in: a mechanism, or mutual_tls=True")


class BrokerSecurity:
    """The security of one embedded broker or cluster. Owns the password of the broker, keys and certificates.

    Brokers of a cluster use it from several threads; a lock protects what is made at the first use.
    """

    def __init__(self, security: Security):
        self._security = security
        passwords = security.users if isinstance(security.users, Mapping) else dict.fromkeys(security.users, "")
        self._passwords = {**passwords, BROKER_USER: secrets.token_hex(16)}
        self._acls = _flatten(security.acls or ())
        self._uses_tls = security.tls or security.mutual_tls
        self._lock = threading.RLock()
        self._authority: CertificateAuthority | None = None
        self._files: tempfile.TemporaryDirectory[str] | None = None

    @property
    def protocol(self) -> str:
        """The security protocol of the listener."""
        transport = "SSL" if self._uses_tls else "PLAINTEXT"
        return transport if self._security.mechanism is None else f"SASL_{transport}"

    # ---- certificates

    @property
    def authority(self) -> "CertificateAuthority":
        """The authority that the broker trusts, and clients should trust."""
        if not self._uses_tls:
            raise HeadraceError("The broker has no certificates: create it with security=Security(tls=True)")
        with self._lock:
            if self._authority is None:
                from headrace.testing.certificates import CertificateAuthority

                self._authority = CertificateAuthority()
            return self._authority

    def _file(self, name: str, write: Callable[[Path], object]) -> str:
        """Returns the path of a file, which is written at the first time."""
        with self._lock:
            if self._files is None:
                self._files = tempfile.TemporaryDirectory(prefix="headrace-security-")
            path = Path(self._files.name) / name
            if not path.exists():
                write(path)
            return str(path)

    @property
    def ca_file(self) -> str:
        """The PEM file with the certificate of the authority."""
        return self._file("ca.pem", self.authority.write_truststore)

    def keystore(self, user: str) -> str:
        """Returns the PEM file with a user's key and certificate. That of the broker is for localhost."""
        hosts = LOCAL_HOSTS if user == BROKER_USER else ()
        number = [*self._passwords].index(user)
        return self._file(
            f"user-{number}.pem", lambda path: self.authority.issue(user, hosts=hosts).write_keystore(path)
        )

    def close(self) -> None:
        """Deletes keys and certificates."""
        if self._files is not None:
            self._files.cleanup()
            self._files = self._authority = None

    # ---- the broker

    def properties(self) -> dict[str, object]:
        """Returns the broker's configs, without `listeners`."""
        found: dict[str, object] = {"security.inter.broker.protocol": self.protocol}
        if self._uses_tls:
            required = f"listener.name.{self.protocol.lower()}.ssl.client.auth"
            found |= {
                "ssl.keystore.location": self.keystore(BROKER_USER),
                "ssl.truststore.location": self.ca_file,
                "ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/",
                required: "required" if self._security.mutual_tls else "none",
            }
        if (mechanism := self._security.mechanism) is not None:
            options = {"username": BROKER_USER, "password": self._passwords[BROKER_USER]}
            if mechanism == PLAIN:
                options |= {f"user_{user}": password for user, password in self._passwords.items()}
            found |= {
                "sasl.enabled.mechanisms": mechanism,
                "sasl.mechanism.inter.broker.protocol": mechanism,
                f"listener.name.{self.protocol.lower()}.{mechanism.lower()}.sasl.jaas.config": _jaas(
                    mechanism, options
                ),
            }
        if self._security.acls is not None:
            super_users = [BROKER_USER, *self._security.super_users]
            found["authorizer.class.name"] = "headrace"
            found["super.users"] = ";".join(f"User:{user}" for user in super_users)
        return found

    async def create_users(self, store: CoordinationStore) -> None:
        """Stores the credentials of all users."""
        configs = ConfigStore(store)
        for user in self._scram_users:
            new = NewCredential.derive(user, str(self._security.mechanism), self._passwords[user], _ITERATIONS)

            def add(existing: dict[str, str], new: NewCredential = new) -> dict[str, str]:
                return {**existing, new.mechanism: new.credential.format()}

            await configs.alter(ConfigEntity.user(user), add)

    async def create_acls(self, broker: Broker) -> None:
        """Creates the ACLs in a broker that runs."""
        for binding in map(_binding, self._acls):
            assert broker.acl_store is not None
            await broker.acl_store.alter(binding.pattern, partial(_with, binding.entry))

    def is_ready(self, broker: Broker) -> bool:
        """Returns True if the broker knows all users and ACLs."""
        mechanism = str(self._security.mechanism)
        if not all(broker.credentials.scram_credential(mechanism, user) for user in self._scram_users):
            return False
        return broker.authorizer is None or {*map(_binding, self._acls)} <= {
            *broker.authorizer.acls(AclBindingFilter())
        }

    @property
    def _scram_users(self) -> Iterable[str]:
        return self._passwords if self._security.mechanism in SCRAM_MECHANISMS else ()

    # ---- clients

    def client_config(
        self, servers: str, user: str | None, password: str | None, library: ClientLibrary
    ) -> dict[str, Any]:
        """Returns the configs of a client of a library. See `EmbeddedBroker.client_config`."""
        user = BROKER_USER if user is None else user
        if user not in self._passwords and (password is None or self._security.mutual_tls):
            raise HeadraceError(f"There is no user {user!r}: expected one of {', '.join(self._passwords)}")
        if library not in get_args(ClientLibrary):
            raise ValueError(f"library={library!r} is not known: expected one of {', '.join(get_args(ClientLibrary))}")
        config: dict[str, Any] = {"bootstrap.servers": servers, "security.protocol": self.protocol}
        if (mechanism := self._security.mechanism) is not None:
            password = self._passwords[user] if password is None else password
            config["sasl.mechanism"] = mechanism
            if library == "java":
                config["sasl.jaas.config"] = _jaas(mechanism, {"username": user, "password": password})
            else:
                prefix = "sasl.plain" if library in _PYTHON_KEYWORDS else "sasl"
                config |= {f"{prefix}.username": user, f"{prefix}.password": password}
        if self._uses_tls:
            config |= self._tls_config(user, library)
        if library in _PYTHON_KEYWORDS:
            return {name.replace(".", "_"): value for name, value in config.items()}
        return config

    def _tls_config(self, user: str, library: ClientLibrary) -> dict[str, Any]:
        keystore = self.keystore(user) if self._security.mutual_tls else None
        if library == "aiokafka":
            context = ssl.create_default_context(cafile=self.ca_file)
            if keystore is not None:
                context.load_cert_chain(keystore)
            return {"ssl_context": context}
        if library == "java":
            config = {"ssl.truststore.type": "PEM", "ssl.truststore.location": self.ca_file}
            return (
                config if keystore is None else config | {"ssl.keystore.type": "PEM", "ssl.keystore.location": keystore}
            )
        names = _LIBRDKAFKA_FILES if library == "confluent" else _OUR_FILES
        return dict(
            zip(names, (self.ca_file,) if keystore is None else (self.ca_file, keystore, keystore), strict=False)
        )


def client_config(
    security: BrokerSecurity | None, servers: str, user: str | None, password: str | None, library: ClientLibrary
) -> dict[str, Any]:
    """Returns the configs of a client, also of a broker without security."""
    if security is not None:
        return security.client_config(servers, user, password, library)
    if user is not None or password is not None:
        raise HeadraceError("The broker has no users: create it with security=Security(users=...)")
    return {"bootstrap_servers" if library in _PYTHON_KEYWORDS else "bootstrap.servers": servers}


def _binding(acl: ACL) -> AclBinding:
    wanted = acl.resource_pattern
    return AclBinding(
        ResourcePattern(wanted.resource_type, wanted.resource_name, wanted.pattern_type),
        AclEntry(acl.principal, acl.host, acl.operation, acl.permission_type),
    )


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
