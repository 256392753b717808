"""Settings of clients as users have them: in property files made for Java's clients, and on the command line.

A tool makes clients of several kinds from one file, and the file may have been made for other programs too. So what a
client of one kind does not know is left out for it; what none knows is ignored with a warning, as Kafka's tools do it.
Settings of TLS in PEM files are taken by Java's names; those of layers that a connection does not have do no harm.
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


def understood(given: Mapping[str, str]) -> dict[str, str]:
    """What some client knows, under the names that are used here; a line on standard error names the rest."""
    from headrace.client.config.table import ALIASES

    named = {ALIASES.get(name.replace("_", "."), name.replace("_", ".")): value for name, value in given.items()}
    found = _of_tls(named)
    known = {name: value for name, value in found.items() if _is_known(name)}
    if _STRATEGY in known:
        known[_STRATEGY] = ",".join(
            _ASSIGNORS.get(part.strip().rpartition(".")[2], part.strip()) for part in known[_STRATEGY].split(",")
        )
    ignored = sorted(set(found) - set(known) - _WARNED)
    if ignored:
        _WARNED.update(ignored)
        click.echo(f"WARNING: ignored, since no client here has such settings: {', '.join(ignored)}", err=True)
    return known


def settings_for(kind: str, given: Mapping[str, str]) -> dict[str, str]:
    """Those that an `admin`, a `producer` or a `consumer` takes."""
    from headrace.client.config.admin import ADMIN_KEYS
    from headrace.client.config.consumer import CONSUMER_KEYS
    from headrace.client.config.producer import PRODUCER_KEYS
    from headrace.client.config.table import ClientTable

    tables: dict[str, ClientTable[Any]] = {"admin": ADMIN_KEYS, "producer": PRODUCER_KEYS, "consumer": CONSUMER_KEYS}
    table = tables[kind]
    return {
        name: value
        for name, value in given.items()
        if name in table.keys or name in table.refused or name in _by_name(kind)
    }


def _by_name(kind: str) -> tuple[str, ...]:
    """Objects of a client that may also be given by name."""
    return {"producer": (_PARTITIONER,), "consumer": (_STRATEGY,)}.get(kind, ())


def _is_known(name: str) -> bool:
    from headrace.client.config.admin import ADMIN_KEYS
    from headrace.client.config.consumer import CONSUMER_KEYS
    from headrace.client.config.producer import PRODUCER_KEYS

    return name in (_STRATEGY, _PARTITIONER) or any(
        name in table.keys or name in table.refused or name in table.unused
        for table in (ADMIN_KEYS, PRODUCER_KEYS, CONSUMER_KEYS)
    )


def _of_tls(given: Mapping[str, str]) -> dict[str, str]:
    """Without the settings of layers that the connection does not have, and with Java's names of PEM files replaced."""
    protocol = given.get("security.protocol", "PLAINTEXT").strip().upper()
    left_out = {"PLAINTEXT": ("sasl.", "ssl."), "SSL": ("sasl.",)}.get(protocol, ())
    found = {name: value for name, value in given.items() if not name.startswith(left_out)}
    if protocol != "SSL":
        return found
    for java, ours in (("ssl.truststore", ("ssl.cafile",)), ("ssl.keystore", ("ssl.certfile", "ssl.keyfile"))):
        if found.get(f"{java}.type", "").upper() == "PEM" and f"{java}.location" in found:
            location = found.pop(f"{java}.location")
            found.update(dict.fromkeys(ours, location))
            found.pop(f"{java}.type")
    if "ssl.key.password" in found:
        found["ssl.password"] = found.pop("ssl.key.password")
    if found.get("ssl.endpoint.identification.algorithm") is not None:
        checked = found.pop("ssl.endpoint.identification.algorithm").strip().lower() == "https"
        found.setdefault("ssl.check.hostname", "true" if checked else "false")
    return found
