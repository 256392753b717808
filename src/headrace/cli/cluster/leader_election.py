"""`headrace leader-election`: preferred and unclean leader elections, with the flags of `kafka-leader-election.sh`."""

import json

import click

from headrace.cli.common.connection import Connection, connection_options
from headrace.cli.common.names import complete_topics
from headrace.cli.common.output import json_option, print_json
from headrace.cli.common.tool import Failure, Tool, exactly_one, read_file, sentence
from headrace.common.errors import ElectionNotNeededError
from headrace.common.types import TopicPartition


@click.command("leader-election", cls=Tool)
@connection_options
@click.option(
    "--election-type",
    type=click.Choice(["preferred", "unclean"], case_sensitive=False),
    required=True,
    help="preferred: the first replica, if it is in sync. unclean: any live replica of a partition without leader; "
    "records that it does not have are lost.",
)
@click.option("--all-topic-partitions", is_flag=True, help="Elect leaders of all partitions that need it.")
@click.option("--topic", shell_complete=complete_topics, metavar="NAME", help="The topic of --partition.")
@click.option("--partition", type=click.IntRange(min=0), metavar="N", help="A partition of --topic.")
@click.option("--path-to-json-file", metavar="FILE", help='{"partitions": [{"topic": "t", "partition": 0}, ...]}')
@json_option
def leader_election(
    connection: Connection,
    election_type: str,
    all_topic_partitions: bool,
    topic: str | None,
    partition: int | None,
    path_to_json_file: str | None,
    as_json: bool,
) -> None:
    """Elect preferred leaders, or leaders of partitions that have lost all in-sync replicas."""
    exactly_one(
        {
            "--topic": topic is not None,
            "--all-topic-partitions": all_topic_partitions,
            "--path-to-json-file": path_to_json_file is not None,
        },
        "option",
    )
    if (topic is None) != (partition is None):
        raise click.UsageError("--topic and --partition are only allowed together")
    tps = None
    if topic is not None and partition is not None:
        tps = [TopicPartition(topic, partition)]
    elif path_to_json_file is not None:
        tps = _partitions(path_to_json_file)
    with connection.admin() as admin:
        results = admin.elect_leaders(election_type, tps, raise_errors=False)
    elected = sorted(tp for tp, result in results.items() if result.error is None)
    unneeded = sorted(tp for tp, result in results.items() if isinstance(result.error, ElectionNotNeededError))
    failed = {tp: error for tp, error in sorted(results.errors.items()) if tp not in unneeded}
    if as_json:
        print_json(
            {
                "elected": [tp._asdict() for tp in elected],
                "not_needed": [tp._asdict() for tp in unneeded],
                "failed": [{**tp._asdict(), "error": sentence(error)} for tp, error in failed.items()],
            }
        )
    else:
        name = election_type.upper()
        if elected:
            click.echo(f"Successfully completed leader election ({name}) for partitions {_names(elected)}")
        if unneeded:
            click.echo(f"Valid replica already elected for partitions {_names(unneeded)}")
        for tp, error in failed.items():
            click.echo(
                f"Error completing leader election ({name}) for partition: {tp.topic}-{tp.partition}: {sentence(error)}"
            )
    if failed:
        raise Failure(f"{len(failed)} replica(s) could not be elected")


def _names(tps: list[TopicPartition]) -> str:
    return ", ".join(f"{tp.topic}-{tp.partition}" for tp in tps)


def _partitions(path: str) -> list[TopicPartition]:
    try:
        return [
            TopicPartition(str(one["topic"]), int(one["partition"]))
            for one in json.loads(read_file(path))["partitions"]
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise click.UsageError(
            f'{path}: expected {{"partitions": [{{"topic": "t", "partition": 0}}, ...]}}; '
            f"{type(error).__name__}: {error}"
        ) from None
