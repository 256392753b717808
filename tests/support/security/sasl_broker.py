"""Brokers with SASL listeners, and the configs of their clients."""

from typing import Any

from headrace.admin import UserScramCredentialUpsertion
from headrace.client.admin.admin import Admin
from headrace.testing import EmbeddedBroker

MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
USERS = {"broker": "broker-secret", "alice": "alice-secret", "bob": "bob-secret"}


def jaas(mechanism: str = "PLAIN", user: str = "broker", users: bool = True) -> str:
    """Returns a JAAS config with the login of a user, and with all users of PLAIN."""
    options = {"username": user, "password": USERS[user]}
    if mechanism == "PLAIN" and users:
        options |= {f"user_{name}": password for name, password in USERS.items()}
    texts = [f'{key}="{value}"' for key, value in options.items()]
    return f"{MODULES[mechanism]} required {' '.join(texts)};"


def sasl_properties(mechanism: str = "PLAIN", **more: object) -> dict[str, object]:
    """Returns broker configs: one listener with SASL, on which brokers use this mechanism. `_` stands for `.`."""
    return {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": mechanism,
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas("PLAIN"),
        f"listener.name.sasl_plaintext.{mechanism.lower()}.sasl.jaas.config": jaas(mechanism),
        **{key.replace("_", "."): value for key, value in more.items()},
    }


def sasl_broker(topics: dict[str, int] | None = None, **more: object) -> EmbeddedBroker:
    return EmbeddedBroker(sasl_properties(**more), topics=topics or {"t": 1})


def client_config(
    servers: str, mechanism: str = "PLAIN", user: str = "alice", password: str | None = None
) -> dict[str, Any]:
    """Returns the configs of one of our clients."""
    return {
        "bootstrap.servers": servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": USERS[user] if password is None else password,
    }


def add_scram_users(servers: str) -> None:
    """Creates the SCRAM credentials of all users."""
    with Admin(client_config(servers)) as admin:
        admin.alter_user_scram_credentials(
            [
                UserScramCredentialUpsertion(user, mechanism, password)  # type: ignore[arg-type]
                for user, password in USERS.items()
                for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
            ]
        )
