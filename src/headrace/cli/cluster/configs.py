"""`headrace configs`: configs of topics, brokers, groups and client metrics, quotas of users, client ids and IP
addresses, and SCRAM credentials of users, with the flags of `kafka-configs.sh`."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.cluster import quota_configs
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
    "client": "clients",
    "user": "users",
    "broker": "brokers",
    "broker_logger": "broker-loggers",
    "group": "groups",
    "ip": "ips",
    "client_metrics": "client-metrics",
}
"""In the order of Kafka's tool, which names the first entity of several."""
_SHORT_DEFAULTS = {
    "client_defaults": "clients",
    "user_defaults": "users",
    "broker_defaults": "brokers",
    "ip_defaults": "ips",
}
_ALL_TYPES = (*_TYPES, *quota_configs.TYPES)
_ARGUMENTS = "headrace.cli.cluster.configs.arguments"


class _ConfigsTool(Tool):
    """Keeps the order of the arguments: --entity-name and --entity-default belong to the types in the same order."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_ARGUMENTS] = list(args)
        return super().parse_args(ctx, args)


def _short_options(function: click.decorators.FC) -> click.decorators.FC:
    for name, kind in reversed(_SHORT.items()):
        flag = "--" + name.replace("_", "-")
        text = f"Short for --entity-type {kind} --entity-name NAME."
        function = click.option(flag, name, metavar="NAME", help=text)(function)
    for name, kind in reversed(_SHORT_DEFAULTS.items()):
        flag = "--" + name.replace("_", "-")
        text = f"Short for --entity-type {kind} --entity-default."
        function = click.option(flag, name, is_flag=True, help=text)(function)
    return function


@click.command(cls=_ConfigsTool)
@connection_options
@click.option("--describe", is_flag=True, help="Describe configs.")
@click.option("--alter", is_flag=True, help="Alter configs.")
@click.option(
    "--entity-type", "types", multiple=True, metavar="TYPE", help=f"The entity type: {', '.join(_ALL_TYPES)}."
)
@click.option("--entity-name", multiple=True, metavar="NAME", help="The entity name; with --describe, default: all.")
@click.option(
    "--entity-default", count=True, help="The default of all brokers, users, clients or ips without an own config."
)
@_short_options
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
    types: tuple[str, ...],
    entity_name: tuple[str, ...],  # noqa: ARG001 - read with its position
    entity_default: int,  # noqa: ARG001
    all_: bool,
    add_config: str | None,
    add_config_file: dict[str, str],
    delete_config: str | None,
    force: bool,  # noqa: ARG001
    as_json: bool,
    **short: str | bool | None,
) -> None:
    """Describe and alter configs of topics, brokers and groups, and quotas of users, clients and IP addresses."""
    action = exactly_one({"--describe": describe, "--alter": alter}, "action")
    entities = _entities(types, _names(click.get_current_context().meta[_ARGUMENTS]), short)
    kind, name = entities[0]
    only_with("--all", all_, action == "--describe", "--describe")
    for flag, is_set in (
        ("--add-config", add_config is not None),
        ("--add-config-file", bool(add_config_file)),
        ("--delete-config", delete_config is not None),
    ):
        only_with(flag, is_set, action == "--alter", "--alter")
    if action == "--alter":
        if any(name is None for _, name in entities):
            raise click.UsageError("--alter needs --entity-name or --entity-default for each --entity-type")
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
            if kind in quota_configs.TYPES:
                quota_configs.alter(admin, entities, changes)
            else:
                _alter(admin, kind, name or "", changes)
    else:
        with connection.admin() as admin:
            if kind in quota_configs.TYPES:
                quota_configs.describe(admin, entities, as_json)
            else:
                _describe(admin, kind, name, all_, as_json)


def _names(arguments: Sequence[str]) -> list[str]:
    """Returns the names of --entity-name and --entity-default ("") in their order."""
    names: list[str] = []
    remaining = iter(arguments)
    for argument in remaining:
        if argument == "--entity-default":
            names.append("")
        elif argument == "--entity-name":
            names.append(next(remaining, ""))
        elif argument.startswith("--entity-name="):
            names.append(argument.partition("=")[2])
    return names


def _entities(
    types: Sequence[str], names: Sequence[str], short: Mapping[str, str | bool | None]
) -> list[tuple[str, str | None]]:
    """Returns types and names. An empty name means the default of all. None means every entity."""
    if len(names) > len(types):
        raise click.UsageError("--entity-name and --entity-default need --entity-type")
    entities: list[tuple[str, str | None]] = [
        (kind, names[position] if position < len(names) else None) for position, kind in enumerate(types)
    ]
    entities += [(kind, str(short[flag])) for flag, kind in _SHORT.items() if short[flag] is not None]
    entities += [(kind, "") for flag, kind in _SHORT_DEFAULTS.items() if short[flag]]
    for kind, name in entities:
        _check_entity(kind, name)
    if any(kind in quota_configs.TYPES for kind, _ in entities):
        quota_configs.check_entities(entities)
    elif len(entities) != 1:
        raise click.UsageError("Expected exactly one entity: --entity-type, or --topic, --broker, --group ...")
    return entities


def _check_entity(kind: str, name: str | None) -> None:
    if kind not in _ALL_TYPES:
        raise click.UsageError(f"--entity-type {kind!r}: expected {', '.join(_ALL_TYPES)}")
    if kind == "brokers" and name and not name.isdigit():
        raise click.UsageError(f"Broker {name!r}: expected a numeric broker id")
    if name == "" and kind != "brokers" and kind not in quota_configs.TYPES:
        raise click.UsageError("--entity-default is only allowed with --entity-type brokers, users, clients or ips")


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
