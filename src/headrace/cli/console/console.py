"""`headrace console`: runs the web console.

    headrace console --bootstrap-server localhost:9092

Prints one line to standard output when browsers can connect:

    console http://127.0.0.1:8080

It starts also while no broker is reachable, and shows the cluster as soon as one is. The log goes to standard error.
"""

import os
import re
import signal
import sys
import threading
from pathlib import Path

import click

from headrace.cli.common.connection import Connection, connection_options, read_client_config
from headrace.cli.common.tool import Tool
from headrace.common.errors import ConfigError
from headrace.common.extras import requires_extra
from headrace.common.logs import set_up_logging

_NAMED = re.compile(r"([A-Za-z0-9._-]+)=(.+)", re.DOTALL)


class _Service(Tool):
    """A tool with a log, as the broker has one: it contains the audit log of logins and changes."""

    logs_in_lines = False


@click.command(cls=_Service)
@connection_options
@click.option(
    "--listen", default="127.0.0.1:8080", show_default=True, metavar="HOST:PORT", help="The address of the console."
)
@click.option("--write", is_flag=True, help="Allow changes on clusters without login. With a login, ACLs decide.")
@click.option("--name", default="default", show_default=True, help="The name of the first cluster in the console.")
@click.option(
    "--cluster",
    "clusters",
    metavar="NAME=HOST:PORT[,...]",
    multiple=True,
    help="Another cluster to show.",
)
@click.option(
    "--cluster-config", "configs", metavar="NAME=FILE", multiple=True, help="The client configs of another cluster."
)
@click.option(
    "--broker-metrics",
    "metrics",
    metavar="[NAME:]ID=URL",
    multiple=True,
    help="The metrics endpoint of a broker, such as 1=http://broker1:9404/metrics.",
)
@click.option("--history-hours", type=click.FloatRange(0.1, 24 * 31), default=24.0, show_default=True, metavar="H")
@click.option(
    "--history-topic",
    default="__headrace_console",
    show_default=True,
    metavar="NAME",
    help="The compacted topic that keeps the history; an empty name keeps it in memory only.",
)
@click.option(
    "--interval",
    type=click.FloatRange(0.5, 300),
    default=5.0,
    show_default=True,
    metavar="S",
    help="How often to read.",
)
@click.option(
    "--allowed-host", "hosts", metavar="NAME", multiple=True, help="A name under which browsers reach the console."
)
@click.option(
    "--decoder",
    "decoders",
    metavar="NAME=KIND:...",
    multiple=True,
    help="A decoder of keys and values: NAME=avro:FILE, NAME=avro-registry:PATH, NAME=protobuf:FILE#MESSAGE or "
    "NAME=MODULE:FUNCTION.",
)
@click.option("--tls-certificate", type=click.Path(dir_okay=False, exists=True), help="PEM file; serves HTTPS.")
@click.option("--tls-key", type=click.Path(dir_okay=False, exists=True), help="PEM file with the private key.")
@click.option("--secure-cookies", is_flag=True, help="Set behind a proxy that serves HTTPS.")
@click.option(
    "--log-level",
    "levels",
    metavar="[LOGGER=]LEVEL",
    multiple=True,
    help="DEBUG, INFO, WARNING or ERROR, for all loggers or for one: audit=WARNING hides logins and changes.",
)
@click.option("--supervised", is_flag=True, hidden=True, help="End when the standard input is closed.")
def console(
    connection: Connection,
    listen: str,
    write: bool,
    name: str,
    clusters: tuple[str, ...],
    configs: tuple[str, ...],
    metrics: tuple[str, ...],
    history_hours: float,
    history_topic: str,
    interval: float,
    hosts: tuple[str, ...],
    decoders: tuple[str, ...],
    tls_certificate: str | None,
    tls_key: str | None,
    secure_cookies: bool,
    levels: tuple[str, ...],
    supervised: bool,
) -> None:
    """Run the web console for one or more clusters."""
    with requires_extra("console"):
        from headrace.console.decoders.registry import DecoderRegistry
        from headrace.console.server import ConsoleServer
        from headrace.console.settings import ClusterSettings, ConsoleSettings
        from headrace.monitoring.endpoint import parse_address

    properties = {name: connection.properties, **_configs(configs)}
    servers = {name: connection.servers, **_servers(clusters, name)}
    unknown = sorted(properties.keys() - servers.keys())
    if unknown:
        raise click.UsageError(f"--cluster-config {unknown[0]}=...: there is no --cluster {unknown[0]}=HOST:PORT")
    urls = _metrics_urls(metrics, name, servers)
    try:
        host, port = parse_address(listen)
        settings = ConsoleSettings(
            clusters=tuple(
                ClusterSettings(
                    name=cluster,
                    servers=address,
                    config=properties.get(cluster, {}),
                    metrics_urls=urls.get(cluster, {}),
                )
                for cluster, address in servers.items()
            ),
            host=host,
            port=port,
            write=write,
            interval_seconds=interval,
            history_hours=history_hours,
            history_topic=history_topic or None,
            allowed_hosts=hosts,
            tls_certificate=None if tls_certificate is None else Path(tls_certificate),
            tls_key=None if tls_key is None else Path(tls_key),
            secure_cookies=secure_cookies,
            decoders=decoders,
        )
        if decoders:
            sys.path.insert(0, os.getcwd())  # where Python looks for modules without an installed script, too
            DecoderRegistry(decoders)
        set_up_logging(levels, source="console" if supervised else "")
    except ConfigError as error:
        raise click.UsageError(str(error)) from None
    server = ConsoleServer(settings)
    server.start()
    print(f"console {server.url}", flush=True)
    if supervised:
        threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        while not server.join(1.0):
            pass
    finally:
        server.stop()


def _end_with_parent() -> None:
    """Ends this process cleanly when the standard input is closed: it is a pipe of the broker that started it."""
    sys.stdin.read()
    signal.raise_signal(signal.SIGTERM)


def _servers(texts: tuple[str, ...], first: str) -> dict[str, str]:
    servers: dict[str, str] = {}
    for text in texts:
        match = _NAMED.fullmatch(text)
        if match is None:
            raise click.UsageError(f"--cluster {text!r}: expected NAME=HOST:PORT[,...]")
        if match[1] in servers or match[1] == first:
            raise click.UsageError(f"--cluster {text!r}: there is another cluster with this name")
        servers[match[1]] = match[2]
    return servers


def _configs(texts: tuple[str, ...]) -> dict[str, dict[str, str]]:
    context = click.get_current_context()
    option = next(param for param in context.command.params if param.name == "configs")
    found = {}
    for text in texts:
        match = _NAMED.fullmatch(text)
        if match is None:
            raise click.UsageError(f"--cluster-config {text!r}: expected NAME=FILE")
        found[match[1]] = read_client_config(context, option, match[2])
    return found


def _metrics_urls(texts: tuple[str, ...], first: str, servers: dict[str, str]) -> dict[str, dict[int, str]]:
    urls: dict[str, dict[int, str]] = {}
    for text in texts:
        match = re.fullmatch(r"(?:([A-Za-z0-9._-]+):)?([0-9]{1,10})=(https?://.+)", text)
        if match is None or (match[1] or first) not in servers:
            raise click.UsageError(f"--broker-metrics {text!r}: expected [NAME:]ID=http://HOST:PORT/metrics")
        urls.setdefault(match[1] or first, {})[int(match[2])] = match[3]
    return urls
