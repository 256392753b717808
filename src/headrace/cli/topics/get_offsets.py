"""`headrace get-offsets`: earliest, latest or timed offsets of partitions, with the flags of `kafka-get-offsets.sh`.

Prints `topic:partition:offset` for each partition and leaves out partitions without such an offset. Prints partitions
whose offset could not be listed to standard error. As in Kafka's tool, the exit code is 0 in that case, too.
"""

import re
from typing import TYPE_CHECKING

import click

from headrace.cli.common.connection import Connection, connection_options
from headrace.cli.common.names import complete_topics
from headrace.cli.common.output import json_option, print_json
from headrace.cli.common.tool import Failure, Tool
from headrace.common.types import TopicPartition

if TYPE_CHECKING:
    from headrace.client.admin.admin import Admin

_TIMES = {"latest": -1, "earliest": -2, "max-timestamp": -3, "earliest-local": -4, "latest-tiered": -5}
_PART = re.compile(r"([^:,]*)(?::(?:(\d+)|(\d*)-(\d*)))?")


@click.command("get-offsets", cls=Tool)
@connection_options
@click.option(
    "--topic",
    shell_complete=complete_topics,
    metavar="NAME",
    help="A topic name or regular expression; default: all topics.",
)
@click.option("--partitions", metavar="N,...", help="Partitions; default: all.")
@click.option(
    "--topic-partitions",
    metavar="TOPIC:N,...",
    help="Topics and partitions: 'a:0', 'a:0-3' (0 to 2), 'a:5-', 'a:-3', 'a'.",
)
@click.option(
    "--time",
    metavar="TIME",
    default="latest",
    show_default=True,
    help=f"A timestamp in milliseconds, or {', '.join(_TIMES)}.",
)
@click.option("--exclude-internal-topics", is_flag=True, help="Leave out internal topics.")
@json_option
def get_offsets(
    connection: Connection,
    topic: str | None,
    partitions: str | None,
    topic_partitions: str | None,
    time: str,
    exclude_internal_topics: bool,
    as_json: bool,
) -> None:
    """Show partition offsets: earliest, latest or by time."""
    if topic_partitions is not None and (topic is not None or partitions is not None):
        raise click.UsageError("--topic-partitions cannot be combined with --topic or --partitions")
    offset_spec = _time(time)
    numbers = None if partitions is None else _numbers(partitions)
    rules = [_rule(part) for part in topic_partitions.split(",")] if topic_partitions is not None else None
    name = None if topic is None else _expression(topic)

    def is_selected(tp: TopicPartition) -> bool:
        if rules is not None:
            return any(rule[0].fullmatch(tp.topic) and rule[1] <= tp.partition < rule[2] for rule in rules)
        return (name is None or bool(name.fullmatch(tp.topic))) and (numbers is None or tp.partition in numbers)

    with connection.admin() as admin:
        selected = [tp for tp in _partitions(admin, exclude_internal_topics) if is_selected(tp)]
        if not selected:
            raise Failure(f"Could not match any {_selection(topic, partitions, topic_partitions)}")
        results = admin.list_partition_offsets(dict.fromkeys(selected, offset_spec), raise_errors=False)
    listed = {
        tp: results[tp].offset for tp in sorted(selected) if results[tp].error is None and results[tp].offset >= 0
    }
    if as_json:
        print_json([{"topic": tp.topic, "partition": tp.partition, "offset": offset} for tp, offset in listed.items()])
    else:
        for tp, offset in listed.items():
            click.echo(f"{tp.topic}:{tp.partition}:{offset}")
    for tp in sorted(selected):
        if results[tp].error is not None:
            click.echo(f"Skipping offset of {tp}: {results[tp].error}", err=True)


def _selection(topic: str | None, partitions: str | None, topic_partitions: str | None) -> str:
    """Describes the selected topics and partitions."""
    if topic_partitions is not None:
        return f"topic partition with {topic_partitions!r}"
    which = f"partition {partitions} of " if partitions is not None else ""
    return which + ("topic" if topic is None else f"topic {topic!r}")


def _partitions(admin: "Admin", exclude_internal: bool) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, partition.partition)
        for topic in admin.describe_topics().values()
        if not (exclude_internal and topic.is_internal)
        for partition in topic.partitions
    ]


def _time(text: str) -> int:
    if text in _TIMES:
        return _TIMES[text]
    try:
        timestamp = int(text)
        if not -(1 << 63) <= timestamp < 1 << 63:
            raise ValueError("too large")
        return timestamp
    except ValueError:
        raise click.UsageError(
            f"--time {text!r}: expected a timestamp in milliseconds, or {', '.join(_TIMES)}"
        ) from None


def _numbers(text: str) -> set[int]:
    try:
        return {int(part) for part in text.split(",") if part.strip()}
    except ValueError:
        raise click.UsageError(f"--partitions {text!r}: expected comma-separated numbers") from None


def _expression(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise click.UsageError(f"{text!r} is not a regular expression: {error}") from None


def _rule(text: str) -> tuple[re.Pattern[str], int, int]:
    """Returns a topic pattern and a half-open range of partitions."""
    match = _PART.fullmatch(text.strip())
    if match is None:
        raise click.UsageError(f"--topic-partitions {text!r}: expected TOPIC, TOPIC:N, TOPIC:N-M, TOPIC:N- or TOPIC:-M")
    name, single, first, last = match.groups()
    expression = _expression(name or ".*")
    if single is not None:
        return expression, int(single), int(single) + 1
    return expression, int(first or 0), int(last) if last else 1 << 31
