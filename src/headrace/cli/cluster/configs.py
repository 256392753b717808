"""`headrace configs`: configs of topics, brokers, groups and client metrics, with the flags of `kafka-configs.sh`.

Users and quotas (`--user`, `--client`, `--ip`) are not supported yet and are rejected.
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.common.connection import Connection, connection_options, read_config
from headrace.cli.common.output import is_terminal, json_option, print_json, print_table, styled
from headrace.cli.common.tool import Failure, Tool, exactly_one, only_with

if TYPE_CHECKING:
    from headrace.client.admin.admin import Admin
    from headrace.client.admin.types import ConfigEntry

_TYPES = {
    "topics": "topic",
    "brokers": "broker",
    "broker-loggers": "broker_logger",
    "groups": "group",
    "client-metrics": "client_metrics",
}
_SINGULAR = {
    "topics": "topic",
    "brokers": "broker",
    "broker-loggers": "broker-logger",
    "groups": "group",
    "client-metrics": "client-metric",
}
_OWN_SOURCE = {
    "topics": "DYNAMIC_TOPIC_CONFIG",
    "brokers": "DYNAMIC_BROKER_CONFIG",
    "broker-loggers": "DYNAMIC_BROKER_LOGGER_CONFIG",
    "groups": "DYNAMIC_GROUP_CONFIG",
    "client-metrics": "DYNAMIC_CLIENT_METRICS_CONFIG",
}
_SHORT = {
    "topic": "topics",
    "broker": "brokers",
    "broker_logger": "broker-loggers",
    "group": "groups",
    "client_metrics": "client-metrics",
}
_NO_QUOTAS = ("users", "clients", "ips")


def _short_options(function: click.decorators.FC) -> click.decorators.FC:
    for name, kind in reversed(_SHORT.items()):
        flag = "--" + name.replace("_", "-")
        text = f"Short for --entity-type {kind} --entity-name NAME."
        function = click.option(flag, name, metavar="NAME", help=text)(function)
    return function


@click.command(cls=Tool)
@connection_options
@click.option("--describe", is_flag=True, help="Describe configs.")
@click.option("--alter", is_flag=True, help="Alter configs.")
@click.option("--entity-type", metavar="TYPE", help=f"The entity type: {', '.join(_TYPES)}.")
@click.option("--entity-name", metavar="NAME", help="The entity name; with --describe, default: all.")
@click.option("--entity-default", is_flag=True, help="The cluster-wide default for brokers.")
@_short_options
@click.option("--broker-defaults", is_flag=True, help="Short for --entity-type brokers --entity-default.")
@click.option("--all", "all_", is_flag=True, help="Also show configs with default values.")
@click.option("--add-config", metavar="KEY=VALUE,...", help="Configs to set; put values with commas in [brackets].")
@click.option("--add-config-file", metavar="FILE", callback=read_config, help="A property file with configs to set.")
@click.option("--delete-config", metavar="KEY,...", help="Configs to reset to their default.")
@click.option("--force", is_flag=True, help="No effect; accepted for compatibility.")
@json_option
def configs(
    connection: Connection,
    describe: bool,
    alter: bool,
    entity_type: str | None,
    entity_name: str | None,
    entity_default: bool,
    broker_defaults: bool,
    all_: bool,
    add_config: str | None,
    add_config_file: dict[str, str],
    delete_config: str | None,
    force: bool,  # noqa: ARG001
    as_json: bool,
    **short: str | None,
) -> None:
    """Describe and alter configs of topics, brokers and groups."""
    action = exactly_one({"--describe": describe, "--alter": alter}, "action")
    kind, name = _entity(entity_type, entity_name, entity_default, broker_defaults, short)
    only_with("--all", all_, action == "--describe", "--describe")
    for flag, is_set in (
        ("--add-config", add_config is not None),
        ("--add-config-file", bool(add_config_file)),
        ("--delete-config", delete_config is not None),
    ):
        only_with(flag, is_set, action == "--alter", "--alter")
    if action == "--alter":
        if name is None:
            raise click.UsageError("--alter needs --entity-name or --entity-default")
        if add_config is not None and add_config_file:
            raise click.UsageError("Expected either --add-config or --add-config-file, not both")
        changes: dict[str, str | None] = {**_pairs(add_config or ""), **add_config_file}
        deleted = [key.strip() for key in (delete_config or "").split(",") if key.strip()]
        conflicting = sorted(set(changes) & set(deleted))
        if conflicting:
            raise click.UsageError(f"{', '.join(conflicting)} cannot be both added and deleted")
        changes.update(dict.fromkeys(deleted))
        if not changes:
            raise click.UsageError("--alter needs --add-config, --add-config-file or --delete-config")
        with connection.admin() as admin:
            _alter(admin, kind, name, changes)
    else:
        with connection.admin() as admin:
            _describe(admin, kind, name, all_, as_json)


def _entity(
    kind: str | None, name: str | None, is_default: bool, broker_defaults: bool, short: Mapping[str, str | None]
) -> tuple[str, str | None]:
    """Returns type and name. An empty name means the default of all brokers. None means every entity."""
    entities: list[tuple[str, str | None]] = [
        (_SHORT[flag], value) for flag, value in short.items() if value is not None
    ]
    if broker_defaults:
        entities.append(("brokers", ""))
    if kind is not None:
        entities.append((kind, "" if is_default else name))
    elif name is not None or is_default:
        raise click.UsageError("--entity-name and --entity-default need --entity-type")
    if len(entities) != 1:
        raise click.UsageError("Expected exactly one entity: --entity-type, or --topic, --broker, --group ...")
    entity_type, entity_name = entities[0]
    if entity_type in _NO_QUOTAS:
        raise click.UsageError(
            f"--entity-type {entity_type}: users and quotas are not supported yet; expected {', '.join(_TYPES)}"
        )
    if entity_type not in _TYPES:
        raise click.UsageError(f"--entity-type {entity_type!r}: expected {', '.join(_TYPES)}")
    if entity_type == "brokers" and entity_name and not entity_name.isdigit():
        raise click.UsageError(f"Broker {entity_name!r}: expected a numeric broker id")
    if is_default and entity_type != "brokers":
        raise click.UsageError("--entity-default is only allowed with --entity-type brokers")
    return entity_type, entity_name


def _pairs(text: str) -> dict[str, str]:
    """Parses configs of the form `k1=v1,k2=[a,b],k3=v3`."""
    configs = {}
    for part in re.findall(r"(?:\[[^\]]*\]|[^,])+", text):
        key, equals, value = part.partition("=")
        if not equals or not key.strip():
            raise click.UsageError(f"--add-config {part.strip()!r}: expected KEY=VALUE")
        value = value.strip()
        configs[key.strip()] = value[1:-1] if value.startswith("[") and value.endswith("]") else value
    return configs


def _alter(admin: "Admin", kind: str, name: str, changes: Mapping[str, str | None]) -> None:
    from headrace.client.admin.types import ConfigResource

    if name and kind == "broker-loggers":
        _check_broker(admin, name)
    admin.alter_configs([ConfigResource(_TYPES[kind], name, changes)])
    click.echo(f"Completed updating {_subject(kind, name, 'config')}.")


def _check_broker(admin: "Admin", name: str) -> None:
    """Raises a Failure for an unknown broker, which the client would otherwise wait for."""
    broker_ids = [str(broker.id) for broker in admin.describe_cluster().brokers]
    if name not in broker_ids:
        raise Failure(f"Broker {name} does not exist; the cluster has {', '.join(broker_ids)}")


def _subject(kind: str, name: str, what: str) -> str:
    if name == "":
        return f"default {what} for {kind} in the cluster"
    return f"{what} for {_SINGULAR[kind]} {name}"


def _describe(admin: "Admin", kind: str, name: str | None, everything: bool, as_json: bool) -> None:
    from headrace.client.admin.types import ConfigResource

    names = _all_names(admin, kind) if name is None else [name]
    if name and kind in ("brokers", "broker-loggers"):
        _check_broker(admin, name)
    if name and kind == "topics" and name not in admin.list_topics():
        click.echo(f"The topic '{name}' doesn't exist and doesn't have dynamic config.")
        return
    entries_by_name: dict[str, list[ConfigEntry]] = {}
    for entity_name in names:
        resource = ConfigResource(_TYPES[kind], entity_name)
        configs = admin.describe_configs([resource], include_synonyms=True)[resource].entries
        own_source = "DYNAMIC_DEFAULT_BROKER_CONFIG" if entity_name == "" else _OWN_SOURCE[kind]
        entries_by_name[entity_name] = [
            entry for _, entry in sorted(configs.items()) if everything or entry.source.name == own_source
        ]
    if as_json:
        print_json(
            {
                entity_name or "<default>": [_as_json(entry) for entry in entries]
                for entity_name, entries in entries_by_name.items()
            }
        )
        return
    for entity_name, entries in entries_by_name.items():
        if is_terminal():
            click.echo(styled(_heading(kind, entity_name, everything), bold=True))
            if entries:
                print_table(
                    ("KEY", "VALUE", "FROM"),
                    [(entry.name, _shown_value(entry), _origin(entry)) for entry in entries],
                    lambda column, cell: {"fg": "cyan"} if column == "FROM" and cell.startswith("set") else None,
                )
        else:
            click.echo(_heading(kind, entity_name, everything))
            for entry in entries:
                synonyms = ", ".join(
                    f"{synonym.source.name}:{synonym.name}={synonym.value or ''}" for synonym in entry.synonyms
                )
                is_secret = "true" if entry.is_sensitive else "false"
                value = "null" if entry.value is None else entry.value
                click.echo(f"  {entry.name}={value} sensitive={is_secret} synonyms={{{synonyms}}}")


def _all_names(admin: "Admin", kind: str) -> list[str]:
    if kind == "topics":
        return admin.list_topics()
    if kind == "brokers":
        return [*(str(broker.id) for broker in admin.describe_cluster().brokers), ""]
    if kind == "groups":
        return sorted(group.group_id for group in admin.list_groups())
    raise Failure(f"--entity-name is required because {kind} cannot be listed")


def _heading(kind: str, name: str, everything: bool) -> str:
    if name == "":
        return f"{'All' if everything else 'Default'} configs for {kind} in the cluster are:"
    return f"{'All' if everything else 'Dynamic'} configs for {_SINGULAR[kind]} {name} are:"


def _shown_value(entry: "ConfigEntry") -> str:
    return "(hidden)" if entry.is_sensitive else (entry.value or "")


def _origin(entry: "ConfigEntry") -> str:
    names = {
        "DEFAULT_CONFIG": "default",
        "STATIC_BROKER_CONFIG": "set in server.properties",
        "DYNAMIC_BROKER_CONFIG": "set for the broker",
        "DYNAMIC_DEFAULT_BROKER_CONFIG": "set for all brokers",
        "DYNAMIC_TOPIC_CONFIG": "set for the topic",
        "DYNAMIC_GROUP_CONFIG": "set for the group",
    }
    return names.get(entry.source.name, entry.source.name.lower().replace("_", " "))


def _as_json(entry: "ConfigEntry") -> dict[str, Any]:
    return {
        "name": entry.name,
        "value": entry.value,
        "source": entry.source.name,
        "read_only": entry.is_read_only,
        "sensitive": entry.is_sensitive,
    }
