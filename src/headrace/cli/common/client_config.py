"""Client configs from property files written for Java clients, and from the command line.

A tool creates several kinds of clients from one file, and the file may also serve other programs. Rules:

- Each client gets only the configs that it knows.
- Configs that no client knows are ignored with a warning, as in Kafka's tools.
- TLS and SASL configs are ignored if the security protocol does not use them.
"""

from collections.abc import Mapping
from typing import Any

import click

_ASSIGNORS = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "StickyAssignor": "sticky",
    "CooperativeStickyAssignor": "cooperative-sticky",
}
_STRATEGY = "partition.assignment.strategy"
_PARTITIONER = "partitioner"
_WARNED: set[str] = set()


def known_configs(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns the configs that some client knows, under our names. Prints a warning that names the others."""
    from headrace.client.config.table import ALIASES

    dotted = {ALIASES.get(name.replace("_", "."), name.replace("_", ".")): value for name, value in properties.items()}
    used = _without_unused_layers(dotted)
    configs = {name: value for name, value in used.items() if _is_known(name)}
    if _STRATEGY in configs:
        configs[_STRATEGY] = ",".join(
            _ASSIGNORS.get(part.strip().rpartition(".")[2], part.strip()) for part in configs[_STRATEGY].split(",")
        )
    ignored = sorted(set(used) - set(configs) - _WARNED)
    if ignored:
        _WARNED.update(ignored)
        click.echo(f"WARNING: Ignoring unknown client configs: {', '.join(ignored)}", err=True)
    return configs


def configs_for(kind: str, properties: Mapping[str, str]) -> dict[str, str]:
    """Returns the configs that an `admin`, a `producer` or a `consumer` knows."""
    from headrace.client.config.admin import ADMIN_KEYS
    from headrace.client.config.consumer import CONSUMER_KEYS
    from headrace.client.config.producer import PRODUCER_KEYS
    from headrace.client.config.table import ClientTable

    tables: dict[str, ClientTable[Any]] = {"admin": ADMIN_KEYS, "producer": PRODUCER_KEYS, "consumer": CONSUMER_KEYS}
    table = tables[kind]
    return {
        name: value
        for name, value in properties.items()
        if name in table.keys or name in table.refused or name in _keys_with_names(kind)
    }


def _keys_with_names(kind: str) -> tuple[str, ...]:
    """Returns the configs of a client that are objects in Python and names in a property file."""
    return {"producer": (_PARTITIONER,), "consumer": (_STRATEGY,)}.get(kind, ())


def _is_known(name: str) -> bool:
    from headrace.client.config.admin import ADMIN_KEYS
    from headrace.client.config.consumer import CONSUMER_KEYS
    from headrace.client.config.producer import PRODUCER_KEYS

    return name in (_STRATEGY, _PARTITIONER) or any(
        name in table.keys or name in table.refused or name in table.unused
        for table in (ADMIN_KEYS, PRODUCER_KEYS, CONSUMER_KEYS)
    )


def _without_unused_layers(properties: Mapping[str, str]) -> dict[str, str]:
    """Drops configs of layers that the connection does not use."""
    protocol = properties.get("security.protocol", "PLAINTEXT").strip().upper()
    unused_prefixes = {
        "PLAINTEXT": ("sasl.", "ssl."),
        "SSL": ("sasl.",),
        "SASL_PLAINTEXT": ("ssl.",),
    }.get(protocol, ())
    return {name: value for name, value in properties.items() if not name.startswith(unused_prefixes)}
