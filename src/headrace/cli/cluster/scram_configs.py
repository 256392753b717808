"""The part of `headrace configs` for SCRAM credentials of users, with the syntax of `kafka-configs.sh`:

--entity-type users --entity-name alice --add-config 'SCRAM-SHA-256=[iterations=8192,password=secret]'
"""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from headrace.cli.common.output import is_terminal, print_table, styled

if TYPE_CHECKING:
    from headrace.client.admin.admin import Admin
    from headrace.client.admin.scram_types import UserScramCredentialsDescription

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_DEFAULT_ITERATIONS = 4096
_CREDENTIAL = re.compile(r"(?:iterations=(?P<iterations>-?[0-9]*),)?password=(?P<password>.+)", re.DOTALL)


class Password(NamedTuple):
    """A password, and how many iterations derive the credential."""

    text: str
    iterations: int


def parse_credential(mechanism: str, value: str) -> Password:
    """Parses `[iterations=N,]password=P`. Error messages do not contain the password."""
    match = _CREDENTIAL.fullmatch(value)
    if match is None:
        raise click.UsageError(f"{mechanism}: expected [iterations=NUMBER,password=PASSWORD] or [password=PASSWORD]")
    iterations = int(match["iterations"] or -1)
    return Password(match["password"], _DEFAULT_ITERATIONS if iterations == -1 else iterations)


def split(changes: Mapping[str, str | None]) -> tuple[dict[str, str | None], dict[str, str | None]]:
    """Returns the changes of credentials, and the others."""
    scram = {key: value for key, value in changes.items() if key in MECHANISMS}
    return scram, {key: value for key, value in changes.items() if key not in MECHANISMS}


def check_entities(entities: Sequence[tuple[str, str | None]]) -> str:
    """Returns the user. Raises a UsageError for entities that cannot have credentials."""
    if len(entities) == 1 and entities[0][0] == "users" and entities[0][1]:
        return entities[0][1]
    raise click.UsageError("SCRAM credentials belong to one user: expected --entity-type users --entity-name NAME")


def alter(admin: "Admin", user: str, changes: Mapping[str, str | None]) -> None:
    """Sets credentials, or deletes them (None)."""
    from headrace.client.admin.scram_types import (
        UserScramCredentialDeletion,
        UserScramCredentialUpsertion,
        to_mechanism,
    )

    alterations: list[UserScramCredentialDeletion | UserScramCredentialUpsertion] = []
    for key, value in changes.items():
        mechanism = to_mechanism(key)
        if value is None:
            alterations.append(UserScramCredentialDeletion(user, mechanism))
        else:
            password = parse_credential(key, value)
            alterations.append(UserScramCredentialUpsertion(user, mechanism, password.text, password.iterations))
    admin.alter_user_scram_credentials(alterations)


def describe(admin: "Admin", user: str | None) -> "dict[str, UserScramCredentialsDescription]":
    """Returns the credentials of a user, or of all users (None). Users without one are left out."""
    from headrace.common.errors import KafkaError, ResourceNotFoundError, UnsupportedVersionError

    try:
        found = admin.describe_user_scram_credentials(None if user is None else [user], raise_errors=False)
    except UnsupportedVersionError:
        return {}  # a broker before Kafka 2.7
    described = {}
    for name, description in found.items():
        if isinstance(description.error, KafkaError):
            if isinstance(description.error, ResourceNotFoundError):
                continue
            raise description.error
        described[name] = description
    return described


def show(described: "Mapping[str, UserScramCredentialsDescription]") -> None:
    """Prints credentials as Kafka's tool does."""
    for user, description in described.items():
        infos = description.credential_infos
        if is_terminal():
            click.echo(styled(f"SCRAM credential configs for user-principal '{user}':", bold=True))
            print_table(
                ("MECHANISM", "ITERATIONS"), [(info.mechanism.sasl_name, str(info.iterations)) for info in infos]
            )
        else:
            text = ", ".join(f"{info.mechanism.sasl_name}=iterations={info.iterations}" for info in infos)
            click.echo(f"SCRAM credential configs for user-principal '{user}' are {text}")
