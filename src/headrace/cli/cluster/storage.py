"""`headrace storage`: SCRAM credentials before the first start, as `kafka-storage.sh format --add-scram`, and whole
directories of brokers with TLS, users and rights."""

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.cli.cluster.scram_configs import MECHANISMS, parse_credential
from headrace.cli.cluster.server import collect_properties
from headrace.cli.common.tool import Failure, Tool, ToolGroup
from headrace.common.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.broker.secure_setup import Grant

_USER = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
_CREDENTIAL = re.compile(r"(?P<mechanism>[A-Z0-9-]+)=\[name=(?P<name>[^,\]]+),(?P<rest>.*)\]", re.DOTALL)


@click.group(cls=ToolGroup)
def storage() -> None:
    """Prepare the store of a broker that does not run."""


@storage.command("add-scram", cls=Tool)
@click.argument("file", required=False, type=click.Path(dir_okay=False))
@click.option("-o", "--override", "overrides", metavar="KEY=VALUE", multiple=True, help="Override a config of FILE.")
@click.option(
    "--add-scram",
    "-S",
    "credentials",
    metavar="'MECHANISM=[name=USER,iterations=N,password=P]'",
    multiple=True,
    required=True,
    help="A credential to create or replace; iterations are optional.",
)
def add_scram(file: str | None, overrides: tuple[str, ...], credentials: tuple[str, ...]) -> None:
    """Create SCRAM credentials, for brokers that authenticate with them among each other.

    FILE is the server.properties of the broker, as for `headrace server`. The credentials go to ZooKeeper
    (zookeeper.connect), or to the store in the first log directory; in that case the broker must not run.
    """
    from headrace.broker.config.broker import BrokerConfig
    from headrace.broker.scram_storage import NewCredential, add_scram_credentials

    parsed = [_parse(text) for text in credentials]
    try:
        config = BrokerConfig.load(collect_properties(file, overrides))
        new = [NewCredential.derive(*each) for each in parsed]
        asyncio.run(add_scram_credentials(config, new))
    except (HeadraceError, OSError) as error:
        raise Failure(str(error)) from error
    for user, mechanism, _, _ in parsed:
        click.echo(f"Added the {mechanism} credential of user {user}.")


@storage.command("secure", cls=Tool)
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--host",
    "hosts",
    metavar="HOST",
    multiple=True,
    default=("localhost",),
    help="A name or IP address by which clients reach the broker; it listens on the first. Default: localhost.",
)
@click.option("--port", type=click.IntRange(1, 65_535), default=9093, help="The broker's port. Default: 9093.")
@click.option("--producer", "producers", metavar="USER:TOPIC", multiple=True, help="A user who may write to a topic.")
@click.option("--consumer", "consumers", metavar="USER:TOPIC", multiple=True, help="A user who may read a topic.")
def secure(
    directory: Path, hosts: tuple[str, ...], port: int, producers: tuple[str, ...], consumers: tuple[str, ...]
) -> None:
    """Make a new broker with TLS, users and their rights in DIRECTORY.

    The directory gets a server.properties for `headrace server`, a certificate authority and the broker's certificate,
    and for each user a file with its password for --command-config. The user admin may do everything. Rights are those
    of kafka-acls --producer and --consumer --group '*'.
    """
    from headrace.broker.secure_setup import ADMIN, make_secure_broker

    grants = [*(_grant(text, True) for text in producers), *(_grant(text, False) for text in consumers)]
    try:
        users = asyncio.run(make_secure_broker(directory, hosts, port, grants))
    except (HeadraceError, OSError) as error:
        raise Failure(str(error)) from error
    click.echo(f"Made a broker in {directory} with the users {', '.join((ADMIN, *users))}.")
    click.echo(f"Start it: headrace server {directory / 'server.properties'}")


def _grant(text: str, is_producer: bool) -> "Grant":
    from headrace.broker.secure_setup import Grant

    user, colon, topic = text.partition(":")
    if not colon or not _USER.fullmatch(user) or not topic:
        raise click.UsageError(f"{text!r}: expected USER:TOPIC, where the user has letters, digits, '.', '_' and '-'")
    return Grant(user, topic, is_producer)


def _parse(text: str) -> tuple[str, str, str, int]:
    """Returns user, mechanism, password and iterations. Error messages do not contain the password."""
    match = _CREDENTIAL.fullmatch(text.strip())
    if match is None or match["mechanism"] not in MECHANISMS:
        raise click.UsageError(
            f"--add-scram: expected MECHANISM=[name=USER,iterations=N,password=P] with {' or '.join(MECHANISMS)}"
        )
    password = parse_credential(match["mechanism"], match["rest"])
    return match["name"], match["mechanism"], password.text, password.iterations
