"""`headrace zookeeper-server`: runs the ZooKeeper of the pyspark package, for development and tests.

Prints one line to standard output when clients can connect:

    ready 127.0.0.1:2181

The process becomes the Java program (exec), so signals and the exit code are those of ZooKeeper. SIGTERM and SIGINT
stop it. The log goes to standard error.
"""

import os
import sys
from typing import TYPE_CHECKING

import click

from headrace.cli.common.tool import Failure
from headrace.common.clock import SystemClock
from headrace.common.errors import HeadraceError
from headrace.common.properties import read_properties

if TYPE_CHECKING:
    from headrace.cluster.zookeeper.java_server import JavaServer

_READY_SECONDS = 120.0
_PROBE_INTERVAL_SECONDS = 0.05


@click.command()
@click.argument("file", required=False, type=click.Path(dir_okay=False))
@click.option("-o", "--override", "overrides", metavar="KEY=VALUE", multiple=True, help="Override a config of FILE.")
@click.option(
    "--log-level",
    type=click.Choice(["DEBUG", "INFO", "WARN", "ERROR"], case_sensitive=False),
    default="WARN",
    show_default=True,
    help="The level of ZooKeeper's log.",
)
def zookeeper_server(file: str | None, overrides: tuple[str, ...], log_level: str) -> None:
    """Run a ZooKeeper server for development and tests.

    FILE is a zookeeper.properties (zoo.cfg). Without a FILE, the server listens on 127.0.0.1:2181 and stores its data
    in ./zookeeper-data. Lines server.N=host:port:port make it a member of an ensemble; its number is in dataDir/myid.

    Needs Java and the package pyspark, which contains ZooKeeper.
    """
    from headrace.cluster.zookeeper.java_server import LOCAL_DEFAULTS, prepare_server

    try:
        properties = dict(LOCAL_DEFAULTS) if file is None else read_properties(file)
        for override in overrides:
            key, equals, value = override.partition("=")
            if not equals or not key.strip():
                raise click.BadParameter(f"{override!r}: expected KEY=VALUE", param_hint="--override")
            properties[key.strip()] = value.strip()
        server = prepare_server(properties, log_level=log_level.upper())
    except HeadraceError as error:
        raise Failure(str(error)) from error
    _execute(server)


def _execute(server: "JavaServer") -> None:
    """Replaces this process by the server. A process in the background prints the line `ready`."""
    sys.stdout.flush()
    server_pid = os.getpid()
    first = os.fork()
    if first == 0:
        # The second fork makes init the parent: Java would leave a zombie.
        if os.fork() == 0:
            _print_when_ready(server, server_pid)
        os._exit(0)
    os.waitpid(first, 0)
    os.dup2(2, 1)
    os.execv(server.command[0], server.command)


def _print_when_ready(server: "JavaServer", server_pid: int) -> None:
    clock = SystemClock()
    deadline = clock.monotonic() + _READY_SECONDS
    accepted = False
    while clock.monotonic() < deadline and _is_alive(server_pid):
        # ZooKeeper logs an error if it is asked right after it opened its port.
        accepted, accepted_before = server.accepts(), accepted
        if accepted and accepted_before and server.is_serving():
            print(f"ready {server.address}", flush=True)
            return
        clock.sleep(_PROBE_INTERVAL_SECONDS)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True
