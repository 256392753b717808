"""`headrace pipeline audit`: a Spark job that checks the output of `ods-dwd`.

Prints a report. The exit code is 1 if records are lost, duplicated or out of order, or if the audit failed, and 0
otherwise.
"""

import sys
from typing import TYPE_CHECKING

import click

from headrace.cli.common.connection import Connection
from headrace.cli.pipelines.pipeline import key_values
from headrace.common.errors import HeadraceError
from headrace.common.properties import read_properties

if TYPE_CHECKING:
    from headrace.shop.audit import Report


@click.command()
@click.option("--bootstrap-server", required=True, metavar="HOST:PORT", help="The brokers to bootstrap from.")
@click.option(
    "--master",
    default="local[*]",
    show_default=True,
    metavar="URL",
    help="The Spark master: local[*], spark://host:7077.",
)
@click.option("--routes", metavar="FILE", help="The pipeline's routes (--set routes=FILE).")
@click.option("--dead-letters", default="ods_dwd_dead_letters", show_default=True, help="The dead-letter topic.")
@click.option("--conf", multiple=True, callback=key_values, metavar="KEY=VALUE", help="A Spark config.")
@click.option("--command-config", metavar="FILE", help="A property file with client configs.")
def audit(
    bootstrap_server: str,
    master: str,
    routes: str | None,
    dead_letters: str,
    conf: dict[str, str],
    command_config: str | None,
) -> None:
    """Reconcile the inputs, outputs and dead letters of ods-dwd by event id.

    Reads all topics completely. Stop the pipeline first: the audit reports rows that are not written yet as lost.
    """
    try:
        client = read_properties(command_config) if command_config else {}
        Connection(bootstrap_server, client).check()  # fails before Spark starts, and quickly
        report = _audit(bootstrap_server, master, routes, dead_letters, conf, client)
    except (HeadraceError, OSError) as error:
        click.echo(f"headrace: {' '.join(str(error).split()) or type(error).__name__}", err=True)
        sys.exit(1)
    click.echo("\n".join(report.lines()))
    sys.exit(0 if report.ok else 1)


def _audit(
    bootstrap_server: str,
    master: str,
    routes: str | None,
    dead_letters: str,
    conf: dict[str, str],
    client: dict[str, str],
) -> "Report":
    from headrace.pipelines.failures import describe_failure
    from headrace.pipelines.pipeline import PipelineError
    from headrace.pipelines.sessions import quiet_session
    from headrace.shop.audit import audit
    from headrace.shop.routes import ROUTES, load_routes

    loaded_routes = load_routes(routes) if routes else ROUTES
    spark = quiet_session("headrace pipeline audit", master, conf)
    try:
        return audit(spark, bootstrap_server, routes=loaded_routes, dead_letters=dead_letters, client=client)
    except HeadraceError:
        raise
    except Exception as error:
        raise PipelineError(f"the audit failed: {describe_failure(error)}") from error
    finally:
        spark.stop()
