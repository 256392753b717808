"""The part of `headrace configs` for users, client ids and IP addresses: quotas, and the SCRAM credentials of users.

users clients ips      the entity types, alone, or users and clients together
name                   None: all entities of the type; "": the default of all without an own quota
"""

import ipaddress
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.cluster import scram_configs
from headrace.cli.common.output import is_terminal, print_json, print_table, styled
from headrace.cli.common.tool import Failure

if TYPE_CHECKING:
    from headrace.client.admin.admin import Admin
    from headrace.client.admin.quota_types import ClientQuotaEntity

Entity = tuple[str, str | None]
"""Type and name."""

TYPES = {"users": "user", "clients": "client-id", "ips": "ip"}
_SHOWN_TYPES = {"user": "user-principal", "client-id": "client-id", "ip": "ip"}
_CLIENT_KEYS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
_IP_KEYS = ("connection_creation_rate",)


def check_entities(entities: Sequence[Entity]) -> None:
    """Raises a UsageError for a combination of types that cannot have quotas."""
    kinds = [kind for kind, _ in entities]
    if len(kinds) > 1 and sorted(kinds) != ["clients", "users"]:
        raise click.UsageError(f"Entity types {', '.join(kinds)} cannot be combined, only users and clients")
    for kind, name in entities:
        if kind == "ips" and name:
            try:
                ipaddress.ip_address(name)
            except ValueError:
                raise click.UsageError(
                    f"The entity name for ips must be a valid IP address, but it is {name}"
                ) from None


def alter(admin: "Admin", entities: Sequence[Entity], changes: Mapping[str, str | None]) -> None:
    """Sets quotas and credentials, or removes them (None)."""
    head, name = entities[0]
    credentials, quotas = scram_configs.split(changes)
    if credentials:
        scram_configs.alter(admin, scram_configs.check_entities(entities), credentials)
    if quotas:
        _alter_quotas(admin, entities, quotas)
    if name:
        click.echo(f"Completed updating config for {head[:-1]} {name}.")
    else:
        click.echo(f"Completed updating default config for {head} in the cluster.")


def _alter_quotas(admin: "Admin", entities: Sequence[Entity], changes: Mapping[str, str | None]) -> None:
    from headrace.client.admin.quota_types import ClientQuotaAlteration, ClientQuotaEntity

    head = entities[0][0]
    keys = _IP_KEYS if head == "ips" else _CLIENT_KEYS
    unknown = [key for key in changes if key not in keys]
    if unknown:
        kinds = " and ".join(kind for kind, _ in entities)
        expected = ", ".join((*keys, *(scram_configs.MECHANISMS if head == "users" else ())))
        raise click.UsageError(f"{', '.join(unknown)}: not a quota of {kinds}; expected {expected}")
    ops = {key: None if value is None else _number(key, value) for key, value in changes.items()}
    removed = [key for key, value in ops.items() if value is None]
    if removed:
        existing = _describe(admin, entities)
        missing = [key for key in removed if not any(key in quotas for quotas in existing.values())]
        if missing:
            raise Failure(f"Invalid config(s): {','.join(missing)} is not set")
    entity = ClientQuotaEntity({TYPES[kind]: name or None for kind, name in entities})
    admin.alter_client_quotas([ClientQuotaAlteration(entity, ops)])


def _number(key: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise click.UsageError(f"Cannot parse quota configuration value for {key}: {value}")
    return number


def describe(admin: "Admin", entities: Sequence[Entity], as_json: bool) -> None:
    """Prints the quotas of entities, and the SCRAM credentials of users."""
    quotas = _describe(admin, entities)
    credentials = {}
    if [kind for kind, _ in entities] == ["users"] and entities[0][1] != "":
        credentials = scram_configs.describe(admin, entities[0][1])
    if as_json:
        shown: list[dict[str, Any]] = [
            {"entity": entity.entries, "quotas": values} for entity, values in quotas.items()
        ]
        shown += [
            {
                "entity": {"user": user},
                "scram": {info.mechanism.sasl_name: info.iterations for info in description.credential_infos},
            }
            for user, description in credentials.items()
        ]
        print_json(shown)
        return
    for entity, values in quotas.items():
        names = entity.entries
        subject = ", ".join(_shown(kind, names[kind]) for kind in _SHOWN_TYPES if kind in names)
        if is_terminal():
            click.echo(styled(f"Quota configs for {subject}:", bold=True))
            print_table(("KEY", "VALUE"), [(key, _java_double(value)) for key, value in values.items()])
        else:
            text = ", ".join(f"{key}={_java_double(value)}" for key, value in values.items())
            click.echo(f"Quota configs for {subject} are {text}")
    scram_configs.show(credentials)


def _describe(admin: "Admin", entities: Sequence[Entity]) -> "dict[ClientQuotaEntity, dict[str, float]]":
    from headrace.client.admin.quota_types import ClientQuotaFilter, ClientQuotaFilterComponent

    components = []
    for kind, name in entities:
        if name is None:
            components.append(ClientQuotaFilterComponent.of_entity_type(TYPES[kind]))
        elif name == "":
            components.append(ClientQuotaFilterComponent.of_default_entity(TYPES[kind]))
        else:
            components.append(ClientQuotaFilterComponent.of_entity(TYPES[kind], name))
    return admin.describe_client_quotas(ClientQuotaFilter.contains_only(components))


def _shown(kind: str, name: str | None) -> str:
    return f"the default {_SHOWN_TYPES[kind]}" if name is None else f"{_SHOWN_TYPES[kind]} '{name}'"


def _java_double(value: float) -> str:
    """Returns a number as Java prints it: 1024.0, 1.0E7."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(float(value))
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    rest = "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{digits[0]}.{rest}E{len(digits) - 1 + int(exponent)}"
