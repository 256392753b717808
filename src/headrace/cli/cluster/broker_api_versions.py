"""`headrace broker-api-versions`: the APIs of each broker, in the format of `kafka-broker-api-versions.sh`."""

from typing import Any

import click

from headrace.cli.common.connection import Connection, connection_options
from headrace.cli.common.output import is_terminal, json_option, print_json, print_table, styled
from headrace.cli.common.tool import Tool
from headrace.protocol.apis import APIS, ApiKey

_UNSUPPORTED = "UNSUPPORTED"
_KEYS = frozenset(int(key) for key in APIS)
_CONTROLLER_APIS = frozenset({4, 5, 6, 7, 52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 82})
"""APIs of controllers, and of brokers in ZooKeeper mode. No UNSUPPORTED line is printed for them."""


@click.command("broker-api-versions", cls=Tool)
@connection_options
@json_option
def broker_api_versions(connection: Connection, as_json: bool) -> None:
    """Show the API versions that each broker supports."""
    with connection.admin() as admin:
        brokers = admin.describe_cluster().brokers
        versions_by_broker = {broker.id: admin.api_versions(broker.id) for broker in brokers}
    if as_json:
        print_json({str(broker): _as_json(versions) for broker, versions in versions_by_broker.items()})
        return
    for broker in brokers:
        versions = versions_by_broker[broker.id]
        rack = "null" if broker.rack is None else broker.rack
        title = f"{broker.host}:{broker.port} (id: {broker.id} rack: {rack} isFenced: {str(broker.is_fenced).lower()})"
        if is_terminal():
            click.echo(styled(title, bold=True))
            print_table(
                ("API", "KEY", "FROM", "TO", "USED"),
                [
                    (_name(key), key, supported[0], supported[-1], _usable_version(key, supported))
                    for key, supported in versions.items()
                ],
            )
            continue
        keys = sorted(versions.keys() | (_KEYS - _CONTROLLER_APIS))
        lines = [f"\t{_name(key)}({key}): {_version_text(key, versions.get(key))}" for key in keys]
        click.echo(f"{title} -> (\n" + ",\n".join(lines) + "\n)")


def _name(key: int) -> str:
    return APIS[ApiKey(key)].name if key in _KEYS else "UNKNOWN"


def _version_text(key: int, supported: range | None) -> str:
    if supported is None:
        return _UNSUPPORTED
    text = str(supported[0]) if len(supported) == 1 else f"{supported[0]} to {supported[-1]}"
    return f"{text} [usable: {_usable_version(key, supported)}]"


def _usable_version(key: int, supported: range) -> int | str:
    """Returns the highest version that both this client and the broker support."""
    api = APIS.get(ApiKey(key)) if key in _KEYS else None
    if api is None or supported[0] > api.last_version or supported[-1] < api.first_version:
        return _UNSUPPORTED
    return min(supported[-1], api.last_version)


def _as_json(versions: dict[int, range]) -> list[dict[str, Any]]:
    return [
        {"api": _name(key), "key": key, "from": supported[0], "to": supported[-1]}
        for key, supported in versions.items()
    ]
