"""`headrace pipeline audit`: checks the output of a pipeline, without Spark.

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
    from headrace.pipelines.audit import AuditReport
    from headrace.shop.audit import Report

_SHOP = "ods-dwd"


@click.command()
@click.argument("name", default=_SHOP)
@click.option("--bootstrap-server", required=True, metavar="HOST:PORT", help="The brokers to bootstrap from.")
@click.option(
    "--master",
    default="local[*]",
    show_default=True,
    metavar="URL",
    help="ods-dwd: the Spark master for records that only Spark's JSON parser can judge.",
)
@click.option("--routes", metavar="FILE", help="ods-dwd: the pipeline's routes (--set routes=FILE).")
@click.option(
    "--dead-letters", default="ods_dwd_dead_letters", show_default=True, help="ods-dwd: the dead-letter topic."
)
@click.option("--conf", multiple=True, callback=key_values, metavar="KEY=VALUE", help="A Spark config.")
@click.option("--command-config", metavar="FILE", help="A property file with client configs.")
def audit(
    name: str,
    bootstrap_server: str,
    master: str,
    routes: str | None,
    dead_letters: str,
    conf: dict[str, str],
    command_config: str | None,
) -> None:
    """Reconcile the inputs, outputs and dead letters of a pipeline by event id.

    NAME is ods-dwd (the default), or a Python file with a pipeline that declares an Audit: mine.py, or mine.py:orders
    if it has several. Reads all topics completely. Stop the pipeline first: the audit reports rows that are not written
    yet as lost.
    """
    try:
        client = read_properties(command_config) if command_config else {}
        if name == _SHOP:
            Connection(bootstrap_server, client).check()
            report: Report | AuditReport = _audit(bootstrap_server, master, routes, dead_letters, conf, client)
        else:
            report = _audit_file(name, bootstrap_server, client)
    except (HeadraceError, OSError) as error:
        click.echo(f"headrace: {' '.join(str(error).split()) or type(error).__name__}", err=True)
        sys.exit(1)
    click.echo("\n".join(report.lines()))
    sys.exit(0 if report.ok else 1)


def _audit_file(name: str, bootstrap_server: str, client: dict[str, str]) -> "AuditReport":
    from headrace.pipelines.audit import audit_of, audit_pipeline
    from headrace.pipelines.loading import load_pipeline, module_of

    definition = load_pipeline(name)
    declared = audit_of(definition, module_of(name))
    Connection(bootstrap_server, client).check()
    return audit_pipeline(definition, declared, bootstrap_server, client)


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
    from headrace.shop.audit import audit
    from headrace.shop.routes import ROUTES, load_routes

    loaded_routes = load_routes(routes) if routes else ROUTES
    try:
        return audit(
            bootstrap_server,
            routes=loaded_routes,
            dead_letters=dead_letters,
            client=client,
            master=master,
            conf=conf,
        )
    except PipelineError:
        raise
    except Exception as error:
        raise PipelineError(f"the audit failed: {describe_failure(error)}") from error
