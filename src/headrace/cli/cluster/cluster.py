"""`headrace cluster`: the cluster id and the brokers' addresses, with the commands of `kafka-cluster.sh`.

headrace cluster list-endpoints --bootstrap-server localhost:9092
"""

import click

from headrace.cli.cluster.cluster_id import cluster_id
from headrace.cli.common.connection import Connection, cluster_tool_options
from headrace.cli.common.output import is_terminal, json_option, print_json, print_table
from headrace.cli.common.tool import INT_MAX, Failure, Tool, ToolGroup

_COLUMNS = ("ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE")


@click.group(cls=ToolGroup)
def cluster() -> None:
    """Show the cluster id and the brokers' addresses."""


cluster.add_command(cluster_id)


@cluster.command("list-endpoints", cls=Tool)
@cluster_tool_options
@click.option(
    "--include-fenced-brokers",
    is_flag=True,
    help="Also brokers that are registered but fenced, in clusters with KRaft.",
)
@json_option
def list_endpoints(connection: Connection, include_fenced_brokers: bool, as_json: bool) -> None:
    """Show the brokers and their addresses."""
    with connection.admin() as admin:
        brokers = admin.describe_cluster(include_fenced_brokers=include_fenced_brokers).brokers
    rows = [
        (
            broker.id,
            broker.host,
            broker.port,
            broker.rack,
            "fenced" if broker.is_fenced else "unfenced",
            "broker",
        )
        for broker in sorted(brokers, key=lambda broker: broker.id)
    ]
    if as_json:
        print_json([dict(zip(map(str.lower, _COLUMNS), row, strict=True)) for row in rows])
    elif is_terminal():
        print_table(_COLUMNS, rows)
    else:
        widths = (
            10,
            max((len(broker.host) for broker in brokers), default=100),
            10,
            max((len(broker.rack) for broker in brokers if broker.rack), default=10),
            10,
            15,
        )
        for row in (_COLUMNS, *rows):
            cells = ("null" if cell is None else str(cell) for cell in row)
            click.echo(" ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)))


@cluster.command(cls=Tool)
@cluster_tool_options
@click.option("--id", "broker_id", type=click.IntRange(0, INT_MAX), required=True, help="The broker to unregister.")
def unregister(connection: Connection, broker_id: int) -> None:
    """Unregister a broker that does not run any more, in clusters of Apache Kafka with KRaft."""
    from headrace.common.errors import UnsupportedVersionError

    with connection.admin() as admin:
        try:
            admin.unregister_broker(broker_id)
        except UnsupportedVersionError:
            raise Failure(
                "The target cluster does not support the broker unregistration API. Only clusters with KRaft do: with "
                "ZooKeeper, and in Headrace, a broker is registered only while it runs"
            ) from None
    click.echo(f"Broker {broker_id} is no longer registered.")
