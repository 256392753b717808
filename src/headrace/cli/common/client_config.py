"""Client configs from property files written for Java clients, and from the command line.

A tool creates several kinds of clients from one file, and the file may also serve other programs. Rules:

- Each client gets only the configs that it knows.
- Configs that no client knows are ignored with a warning, as in Kafka's tools.
- Java's names for TLS configs with PEM files are accepted.
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
    translated = _translate_tls(dotted)
    configs = {name: value for name, value in translated.items() if _is_known(name)}
    if _STRATEGY in configs:
        configs[_STRATEGY] = ",".join(
            _ASSIGNORS.get(part.strip().rpartition(".")[2], part.strip()) for part in configs[_STRATEGY].split(",")
        )
    ignored = sorted(set(translated) - set(configs) - _WARNED)
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


def _translate_tls(properties: Mapping[str, str]) -> dict[str, str]:
    """Drops configs of layers that the connection does not use, and replaces Java's names for PEM files."""
    protocol = properties.get("security.protocol", "PLAINTEXT").strip().upper()
    unused_prefixes = {
        "PLAINTEXT": ("sasl.", "ssl."),
        "SSL": ("sasl.",),
        "SASL_PLAINTEXT": ("ssl.",),
    }.get(protocol, ())
    configs = {name: value for name, value in properties.items() if not name.startswith(unused_prefixes)}
    if protocol not in ("SSL", "SASL_SSL"):
        return configs
    for java, our_names in (("ssl.truststore", ("ssl.cafile",)), ("ssl.keystore", ("ssl.certfile", "ssl.keyfile"))):
        if configs.get(f"{java}.type", "").upper() == "PEM" and f"{java}.location" in configs:
            location = configs.pop(f"{java}.location")
            configs.update(dict.fromkeys(our_names, location))
            configs.pop(f"{java}.type")
    if "ssl.key.password" in configs:
        configs["ssl.password"] = configs.pop("ssl.key.password")
    if configs.get("ssl.endpoint.identification.algorithm") is not None:
        checked = configs.pop("ssl.endpoint.identification.algorithm").strip().lower() == "https"
        configs.setdefault("ssl.check.hostname", "true" if checked else "false")
    return configs
