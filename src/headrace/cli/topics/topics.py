"""`headrace topics`: list, describe, create, alter and delete topics, with the flags of `kafka-topics.sh`.

With `--create`, `--topic` is a name. With other actions it is a regular expression, and selects all matching topics.
The output for scripts is the same as that of Kafka's tool: names, or lines of tab-separated `Name: value`.
"""

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

from headrace.cli.common.connection import Connection, connection_options, key_values
from headrace.cli.common.names import complete_topics
from headrace.cli.common.output import Styled, is_terminal, json_option, print_json, print_table, styled
from headrace.cli.common.progress import in_parts
from headrace.cli.common.tool import INT_MAX, Failure, Tool, exactly_one, only_with
from headrace.common.errors import HeadraceError
from headrace.common.ids import ZERO_UUID, Uuid

if TYPE_CHECKING:
    from headrace.client.admin.admin import Admin
    from headrace.client.admin.types import PartitionDescription, TopicDescription

_AT_ONCE = 100
_FILTERS = {
    "under_replicated_partitions": "with replicas out of sync",
    "unavailable_partitions": "without a leader",
    "under_min_isr_partitions": "with fewer in-sync replicas than min.insync.replicas",
    "at_min_isr_partitions": "with exactly min.insync.replicas in-sync replicas",
}


def _filter_options(function: click.decorators.FC) -> click.decorators.FC:
    for name, condition in reversed(_FILTERS.items()):
        flag = "--" + name.replace("_", "-")
        function = click.option(flag, name, is_flag=True, help=f"Describe only partitions {condition}.")(function)
    return function


@click.command(cls=Tool)
@connection_options
@click.option("--list", "list_", is_flag=True, help="List topic names.")
@click.option("--describe", is_flag=True, help="Show partitions, replicas and configs.")
@click.option("--create", is_flag=True, help="Create a topic.")
@click.option("--alter", is_flag=True, help="Add partitions to a topic.")
@click.option("--delete", is_flag=True, help="Delete topics and their data.")
@click.option(
    "--topic",
    shell_complete=complete_topics,
    metavar="NAME",
    help="The topic, or a regular expression (except with --create).",
)
@click.option("--topic-id", metavar="ID", help="The id of the topic to describe.")
@click.option("--partitions", type=click.IntRange(1, INT_MAX), metavar="N", help="Number of partitions.")
@click.option(
    "--replication-factor", type=click.IntRange(1, 32767), metavar="N", help="Number of replicas of each partition."
)
@click.option(
    "--replica-assignment",
    metavar="0:1,1:2,...",
    help="The broker ids of each partition's replicas.",
)
@click.option(
    "--config",
    "configs",
    multiple=True,
    metavar="KEY=VALUE",
    callback=key_values,
    help="A topic config (with --create).",
)
@click.option("--if-not-exists", is_flag=True, help="Do nothing if the topic exists.")
@click.option("--if-exists", is_flag=True, help="Do nothing if the topic does not exist.")
@click.option("--exclude-internal", is_flag=True, help="Leave out internal topics.")
@click.option("--topics-with-overrides", is_flag=True, help="Describe only topics with overridden configs.")
@_filter_options
@click.option(
    "--partition-size-limit-per-response",
    type=click.IntRange(min=1),
    metavar="N",
    help="Request N partitions at a time.",
)
@json_option
def topics(
    connection: Connection,
    list_: bool,
    describe: bool,
    create: bool,
    alter: bool,
    delete: bool,
    topic: str | None,
    topic_id: str | None,
    partitions: int | None,
    replication_factor: int | None,
    replica_assignment: str | None,
    configs: dict[str, str],
    if_not_exists: bool,
    if_exists: bool,
    exclude_internal: bool,
    topics_with_overrides: bool,
    partition_size_limit_per_response: int | None,
    as_json: bool,
    **filters: bool,
) -> None:
    """List, describe, create, alter and delete topics."""
    action = exactly_one(
        {"--list": list_, "--describe": describe, "--create": create, "--alter": alter, "--delete": delete}, "action"
    )
    for flag, is_set, where in (
        ("--topic-id", topic_id is not None, ("--describe",)),
        ("--partitions", partitions is not None, ("--create", "--alter")),
        ("--replication-factor", replication_factor is not None, ("--create",)),
        ("--replica-assignment", replica_assignment is not None, ("--create", "--alter")),
        ("--config", bool(configs), ("--create",)),
        ("--if-not-exists", if_not_exists, ("--create",)),
        ("--if-exists", if_exists, ("--alter", "--delete", "--describe")),
        ("--exclude-internal", exclude_internal, ("--list", "--describe")),
        ("--topics-with-overrides", topics_with_overrides, ("--describe",)),
        *(("--" + name.replace("_", "-"), is_set, ("--describe",)) for name, is_set in filters.items()),
    ):
        only_with(flag, is_set, action in where, " or ".join(where))
    chosen_filters = [name for name, is_set in filters.items() if is_set]
    if len(chosen_filters) + topics_with_overrides > 1:
        raise click.UsageError("Expected at most one flag that filters --describe")
    if action in ("--create", "--alter", "--delete") and topic is None:
        raise click.UsageError(f"{action} needs --topic")
    assignment = None if replica_assignment is None else _assignment(replica_assignment)
    if action == "--create" and assignment and (partitions or replication_factor):
        raise click.UsageError("--replica-assignment cannot be combined with --partitions or --replication-factor")
    if action == "--alter" and partitions is None:
        raise click.UsageError("--alter needs --partitions")
    with connection.admin() as admin:
        if action == "--list":
            _print_names(_matching_names(admin, topic, exclude_internal), as_json)
        elif action == "--describe":
            descriptions = _selected_topics(
                admin, topic, topic_id, exclude_internal, if_exists, partition_size_limit_per_response
            )
            _describe(admin, descriptions, chosen_filters[0] if chosen_filters else "", topics_with_overrides, as_json)
        elif action == "--create":
            assert topic is not None
            _create(admin, topic, partitions, replication_factor, assignment, configs, if_not_exists, as_json)
        elif action == "--alter":
            assert partitions is not None
            _alter(admin, _existing_names(admin, topic, False, if_exists), partitions, assignment)
        else:
            for part in in_parts("topics", _existing_names(admin, topic, False, if_exists), _AT_ONCE):
                admin.delete_topics(part)


def _assignment(text: str) -> list[list[int]]:
    try:
        assignment = [[int(broker) for broker in part.split(":")] for part in text.split(",")]
    except ValueError:
        raise click.UsageError(
            f"--replica-assignment {text!r}: expected broker ids, with ':' between replicas and ',' between partitions"
        ) from None
    for number, replicas in enumerate(assignment):
        if any(not 0 <= broker <= INT_MAX for broker in replicas):
            raise click.UsageError(f"--replica-assignment: partition {number} has an invalid broker id")
        if len(set(replicas)) < len(replicas):
            raise click.UsageError(f"--replica-assignment: partition {number} lists a broker twice")
        if len(replicas) != len(assignment[0]):
            raise click.UsageError("--replica-assignment: every partition must have the same number of replicas")
    return assignment


def _matching_names(admin: "Admin", pattern: str | None, exclude_internal: bool) -> list[str]:
    names = admin.list_topics(include_internal=not exclude_internal)
    if pattern is None:
        return names
    try:
        # Commas separate alternatives, as in Kafka's include lists.
        expression = re.compile(pattern.strip().replace(",", "|").replace('"', "").replace("'", ""))
    except re.error as error:
        raise click.UsageError(f"--topic {pattern!r} is not a regular expression: {error}") from None
    return [name for name in names if expression.fullmatch(name)]


def _existing_names(admin: "Admin", pattern: str | None, exclude_internal: bool, if_exists: bool) -> list[str]:
    names = _matching_names(admin, pattern, exclude_internal)
    if not names and pattern is not None and not if_exists:
        raise Failure(f"Topic {pattern!r} does not exist as expected")
    return names


def _print_names(names: list[str], as_json: bool) -> None:
    if as_json:
        print_json(names)
        return
    for name in names:
        click.echo(name)


def _create(
    admin: "Admin",
    name: str,
    partitions: int | None,
    replicas: int | None,
    assignment: list[list[int]] | None,
    configs: dict[str, str],
    if_not_exists: bool,
    as_json: bool,
) -> None:
    from headrace.client.admin.types import NewTopic
    from headrace.common.errors import TopicAlreadyExistsError

    if "." in name or "_" in name:
        click.echo(
            "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could collide."
            " To avoid issues it is best to use either, but not both.",
            err=True,
        )
    new_topic = NewTopic(
        name,
        partitions or -1,
        replicas or -1,
        None if assignment is None else dict(enumerate(assignment)),
        configs,
    )
    try:
        admin.create_topics([new_topic])
    except TopicAlreadyExistsError:
        if not if_not_exists:
            raise
        created = False
    else:
        created = True
    if as_json:
        print_json({"topic": name, "created": created})
    elif created:
        click.echo(f"Created topic {name}.")


def _alter(admin: "Admin", names: list[str], partitions: int, assignment: list[list[int]] | None) -> None:
    from headrace.client.admin.types import NewPartitions

    descriptions = admin.describe_topics(names) if names else {}
    new_partitions = {}
    for name in names:
        current = len(descriptions[name].partitions)
        if partitions < current:
            raise Failure(
                f"Topic {name} has {current} partitions, which can only be increased, not changed to {partitions}"
            )
        if partitions == current:
            raise Failure(f"Topic {name} already has {current} partitions")
        # As in Kafka's tool, the flag lists the replicas of all partitions. The request takes only those of the new
        # ones.
        new_partitions[name] = NewPartitions(partitions, None if assignment is None else assignment[current:])
    if new_partitions:
        admin.create_partitions(new_partitions)


def _selected_topics(
    admin: "Admin", pattern: str | None, topic_id: str | None, exclude_internal: bool, if_exists: bool, page: int | None
) -> "list[TopicDescription]":
    from headrace.common.errors import UnknownTopicIdError, UnknownTopicOrPartitionError

    uuid = None if topic_id is None else _uuid(topic_id)
    # As in Kafka's tool, the id takes precedence over the name, unless it is the zero id.
    if uuid is not None and (uuid != ZERO_UUID or pattern is None):
        try:
            return list(admin.describe_topics([uuid]).values())
        except (UnknownTopicIdError, UnknownTopicOrPartitionError):
            if if_exists:
                return []
            raise Failure(f"Topic with id {topic_id} does not exist") from None
    names = _existing_names(admin, pattern, exclude_internal, if_exists)
    if not names:
        return []
    # DescribeTopicPartitions also returns the eligible leader replicas.
    if admin.api_versions().get(75):
        return list(admin.describe_topic_partitions(names, page or 2000).values())
    return list(admin.describe_topics(names).values())


def _uuid(text: str) -> Uuid:
    try:
        return Uuid.parse(text)
    except HeadraceError:
        raise click.UsageError(f"--topic-id {text!r}: expected 22 characters, as printed by --describe") from None


def _describe(
    admin: "Admin", topics: "Sequence[TopicDescription]", partition_filter: str, only_overridden: bool, as_json: bool
) -> None:
    from headrace.client.admin.types import ConfigResource

    described = []
    resources = {topic.name: ConfigResource("topic", topic.name) for topic in topics}
    configs = admin.describe_configs(resources.values()) if resources else {}
    for topic in topics:
        entries = configs[resources[topic.name]].entries
        overrides = {name: entry.value for name, entry in entries.items() if not entry.is_default}
        if only_overridden and not any(entry.source.name.startswith("DYNAMIC_TOPIC") for entry in entries.values()):
            continue
        min_isr = int(entries["min.insync.replicas"].value or 1) if "min.insync.replicas" in entries else 1
        partitions = [
            partition for partition in topic.partitions if _matches_filter(partition, partition_filter, min_isr)
        ]
        if partition_filter and not partitions:
            continue
        described.append((topic, overrides, partitions))
    if as_json:
        print_json([_as_json(topic, overrides, partitions) for topic, overrides, partitions in described])
    elif is_terminal():
        _print_for_people(described, with_partitions=not only_overridden)
    else:
        for topic, overrides, partitions in described:
            if not partition_filter:
                configs_text = ",".join(f"{name}={value}" for name, value in overrides.items())
                click.echo(
                    f"Topic: {topic.name}\tTopicId: {topic.topic_id}\tPartitionCount: {len(topic.partitions)}\t"
                    f"ReplicationFactor: {_replicas(topic)}\tConfigs: {configs_text}"
                )
            if not only_overridden:
                for partition in partitions:
                    click.echo(_partition_line(topic.name, partition))


def _matches_filter(partition: "PartitionDescription", partition_filter: str, min_isr: int) -> bool:
    in_sync = len(partition.isr)
    if partition_filter == "under_replicated_partitions":
        return in_sync < len(partition.replicas)
    if partition_filter == "unavailable_partitions":
        return partition.leader < 0
    if partition_filter == "under_min_isr_partitions":
        return in_sync < min_isr
    if partition_filter == "at_min_isr_partitions":
        return in_sync == min_isr
    return True


def _replicas(topic: "TopicDescription") -> int:
    return len(topic.partitions[0].replicas) if topic.partitions else 0


def _ids(brokers: Iterable[int] | None) -> str:
    return "N/A" if brokers is None else ",".join(map(str, brokers))


def _partition_line(name: str, partition: "PartitionDescription") -> str:
    leader = "none" if partition.leader < 0 else str(partition.leader)
    return (
        f"\tTopic: {name}\tPartition: {partition.partition}\tLeader: {leader}\tReplicas: {_ids(partition.replicas)}\t"
        f"Isr: {_ids(partition.isr)}\tElr: {_ids(partition.eligible_leaders)}\t"
        f"LastKnownElr: {_ids(partition.last_known_eligible_leaders)}"
    )


def _as_json(
    topic: "TopicDescription", overrides: "dict[str, str | None]", partitions: "list[PartitionDescription]"
) -> dict[str, object]:
    return {
        "topic": topic.name,
        "topic_id": str(topic.topic_id),
        "internal": topic.is_internal,
        "partition_count": len(topic.partitions),
        "replication_factor": _replicas(topic),
        "configs": overrides,
        "partitions": [
            {
                "partition": partition.partition,
                "leader": partition.leader,
                "replicas": partition.replicas,
                "isr": partition.isr,
            }
            for partition in partitions
        ],
    }


def _print_for_people(
    described: "list[tuple[TopicDescription, dict[str, str | None], list[PartitionDescription]]]", with_partitions: bool
) -> None:
    for number, (topic, overrides, partitions) in enumerate(described):
        if number:
            click.echo()
        summary = f"{len(topic.partitions)} partitions, {_replicas(topic)} replicas, id {topic.topic_id}"
        click.echo(f"{styled(topic.name, bold=True, fg='cyan')}  {summary}")
        for name, value in overrides.items():
            click.echo(f"  {name} = {value}")
        if with_partitions:
            _print_partitions(partitions)


def _print_partitions(partitions: "list[PartitionDescription]") -> None:
    print_table(
        ("PARTITION", "LEADER", "REPLICAS", "IN SYNC"),
        [
            (
                partition.partition,
                Styled("none", fg="red") if partition.leader < 0 else partition.leader,
                _ids(partition.replicas),
                Styled(_ids(partition.isr), fg="red")
                if len(partition.isr) < len(partition.replicas)
                else _ids(partition.isr),
            )
            for partition in partitions
        ],
    )
