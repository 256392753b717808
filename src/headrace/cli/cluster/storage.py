"""`headrace storage add-scram`: SCRAM credentials before the first start, as `kafka-storage.sh format --add-scram`."""

import asyncio
import re

import click

from headrace.cli.cluster.scram_configs import MECHANISMS, parse_credential
from headrace.cli.cluster.server import collect_properties
from headrace.cli.common.tool import Failure, Tool
from headrace.common.errors import HeadraceError

_CREDENTIAL = re.compile(r"(?P<mechanism>[A-Z0-9-]+)=\[name=(?P<name>[^,\]]+),(?P<rest>.*)\]", re.DOTALL)


@click.group()
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


def _parse(text: str) -> tuple[str, str, str, int]:
    """Returns user, mechanism, password and iterations. Error messages do not contain the password."""
    match = _CREDENTIAL.fullmatch(text.strip())
    if match is None or match["mechanism"] not in MECHANISMS:
        raise click.UsageError(
            f"--add-scram: expected MECHANISM=[name=USER,iterations=N,password=P] with {' or '.join(MECHANISMS)}"
        )
    password = parse_credential(match["mechanism"], match["rest"])
    return match["name"], match["mechanism"], password.text, password.iterations
