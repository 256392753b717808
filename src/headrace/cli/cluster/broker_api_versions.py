"""`headrace broker-api-versions`: the APIs of each broker, in the format of `kafka-broker-api-versions.sh`."""

from typing import Any

import click

from headrace.cli.common.connection import Connection, connects
from headrace.cli.common.output import is_terminal, json_option, print_json, print_table, styled
from headrace.cli.common.tool import Tool
from headrace.protocol.apis import APIS, ApiKey

_UNSUPPORTED = "UNSUPPORTED"
_KEYS = frozenset(int(key) for key in APIS)
_CONTROLLER_APIS = frozenset({52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 82})
"""APIs between controllers. Brokers do not serve them to clients, so they are not printed as unsupported."""


@click.command("broker-api-versions", cls=Tool)
@connects
@json_option
def broker_api_versions(connection: Connection, as_json: bool) -> None:
    """Show the API versions that each broker supports."""
    with connection.admin() as admin:
        brokers = admin.describe_cluster().brokers
        versions = {broker.id: admin.api_versions(broker.id) for broker in brokers}
    if as_json:
        print_json({str(broker): _as_json(known) for broker, known in versions.items()})
        return
    for broker in brokers:
        known = versions[broker.id]
        rack = "null" if broker.rack is None else broker.rack
        title = f"{broker.host}:{broker.port} (id: {broker.id} rack: {rack} isFenced: {str(broker.is_fenced).lower()})"
        if is_terminal():
            click.echo(styled(title, bold=True))
            print_table(
                ("API", "KEY", "FROM", "TO", "USED"),
                [(_name(key), key, span[0], span[-1], _used(key, span)) for key, span in known.items()],
            )
            continue
        keys = sorted(known.keys() | (_KEYS - _CONTROLLER_APIS))
        lines = [f"\t{_name(key)}({key}): {_versions(key, known.get(key))}" for key in keys]
        click.echo(f"{title} -> (\n" + ",\n".join(lines) + "\n)")


def _name(key: int) -> str:
    return APIS[ApiKey(key)].name if key in _KEYS else "UNKNOWN"


def _versions(key: int, span: range | None) -> str:
    if span is None:
        return _UNSUPPORTED
    known = str(span[0]) if len(span) == 1 else f"{span[0]} to {span[-1]}"
    return f"{known} [usable: {_used(key, span)}]"


def _used(key: int, span: range) -> int | str:
    """Returns the highest version that both sides support."""
    api = APIS.get(ApiKey(key)) if key in _KEYS else None
    if api is None or span[0] > api.last_version or span[-1] < api.first_version:
        return _UNSUPPORTED
    return min(span[-1], api.last_version)


def _as_json(known: dict[int, range]) -> list[dict[str, Any]]:
    return [{"api": _name(key), "key": key, "from": span[0], "to": span[-1]} for key, span in known.items()]
