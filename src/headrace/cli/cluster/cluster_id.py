"""`headrace cluster-id`: the cluster's id, as `kafka-cluster.sh cluster-id` prints it."""

import click

from headrace.cli.common.connection import Connection, cluster_tool_options
from headrace.cli.common.output import json_option, print_json
from headrace.cli.common.tool import Failure, Tool


@click.command("cluster-id", cls=Tool)
@cluster_tool_options
@json_option
def cluster_id(connection: Connection, as_json: bool) -> None:
    """Show the cluster id."""
    with connection.admin() as admin:
        cluster = admin.describe_cluster()
    if cluster.cluster_id is None:
        raise Failure("The cluster has no id because its brokers are older than Kafka 0.10.1")
    if as_json:
        print_json({"cluster_id": cluster.cluster_id})
    else:
        click.echo(f"Cluster ID: {cluster.cluster_id}")
