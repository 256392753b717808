"""`headrace log-dirs`: the brokers' log directories, with the flags of `kafka-log-dirs.sh`.

Prints two lines of text and one line of JSON, as Kafka's tool does, or tables on a terminal.
"""

import json
from typing import Any

import click

from headrace.cli.common.connection import Connection, connection_options
from headrace.cli.common.output import is_terminal, json_option, print_json, print_table, styled
from headrace.cli.common.tool import Failure, Tool
from headrace.diagnosis.snapshot import in_bytes


@click.command("log-dirs", cls=Tool)
@connection_options
@click.option("--describe", is_flag=True, help="Describe the log directories (required).")
@click.option("--broker-list", metavar="ID,...", default="", help="Broker ids; default: all.")
@click.option("--topic-list", metavar="NAME,...", default="", help="Topics; default: all.")
@json_option
def log_dirs(connection: Connection, describe: bool, broker_list: str, topic_list: str, as_json: bool) -> None:
    """Show the brokers' log directories and the sizes of their replicas."""
    if not describe:
        raise click.UsageError("--describe is required")
    try:
        requested = {int(part) for part in broker_list.split(",") if part.strip()}
    except ValueError:
        raise click.UsageError(f"--broker-list {broker_list!r}: expected comma-separated broker ids") from None
    topics = [part.strip() for part in topic_list.split(",") if part.strip()]
    with connection.admin() as admin:
        existing = {broker.id for broker in admin.describe_cluster().brokers}
        if requested - existing:
            raise Failure(f"Broker {_ids(requested - existing)} does not exist; the cluster has {_ids(existing)}")
        brokers = sorted(requested or existing)
        log_dirs_by_broker = admin.describe_log_dirs(topics or None, brokers)
    document = {
        "brokers": [
            {"broker": broker, "logDirs": [_as_json(directory) for directory in log_dirs_by_broker[broker]]}
            for broker in brokers
        ],
        "version": 1,
    }
    if as_json:
        print_json(document)
    elif is_terminal():
        for broker in brokers:
            for directory in log_dirs_by_broker[broker]:
                _print_for_people(broker, directory)
    else:
        click.echo("Querying brokers for log directories information")
        click.echo(f"Received log directory information from brokers {_ids(brokers)}")
        click.echo(json.dumps(document, separators=(",", ":")))


def _ids(brokers: Any) -> str:
    return ",".join(map(str, sorted(brokers)))


def _as_json(directory: Any) -> dict[str, Any]:
    return {
        "partitions": [
            {
                "partition": f"{tp.topic}-{tp.partition}",
                "size": replica.size,
                "offsetLag": replica.offset_lag,
                "isFuture": replica.is_future,
            }
            for tp, replica in sorted(directory.replicas.items())
        ],
        "error": None if directory.error is None else str(directory.error),
        "logDir": directory.path,
    }


def _print_for_people(broker: int, directory: Any) -> None:
    free = f", {in_bytes(directory.usable_bytes)} free" if directory.usable_bytes >= 0 else ""
    used = in_bytes(sum(replica.size for replica in directory.replicas.values()))
    title = styled(f"broker {broker}", bold=True)
    click.echo(f"{title}  {directory.path}  {used} in {len(directory.replicas)} partitions{free}")
    if directory.error is not None:
        click.echo(styled(f"  {directory.error}", fg="red"))
    rows = sorted(directory.replicas.items(), key=lambda item: (-item[1].size, item[0]))
    if rows:
        print_table(
            ("TOPIC", "PARTITION", "SIZE", "LAG", "REPLICA"),
            [
                (
                    tp.topic,
                    tp.partition,
                    in_bytes(replica.size),
                    replica.offset_lag,
                    "future, moving here" if replica.is_future else "current",
                )
                for tp, replica in rows
            ],
        )
