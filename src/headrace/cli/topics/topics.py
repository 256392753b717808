"""`headrace topics`: list, describe, create, alter and delete topics, with the flags of `kafka-topics.sh`.

With `--create`, `--topic` is a name. With other actions it is a regular expression, and selects all matching topics.
The output for scripts is the same as that of Kafka's tool: names, or lines of tab-separated `Name: value`.

`--describe` counts neither the replicas that a reassignment adds in the replication factor, nor as out of sync.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from headrace.cli.common.connection import Connection, connection_options, key_values
from headrace.cli.common.names import complete_topics
from headrace.cli.common.output import Styled, is_terminal, json_option, print_json, print_table, styled
from headrace.cli.common.progress import in_parts
from headrace.cli.common.tool import INT_MAX, Failure, Tool, exactly_one, only_with
from headrace.common.errors import ClusterAuthorizationFailedError, HeadraceError, UnsupportedVersionError
from headrace.common.ids import ZERO_UUID, Uuid
from headrace.common.types import TopicPartition

if TYPE_CHECKING:
    from headrace.client.admin.admin import Admin
    from headrace.client.admin.types import OngoingReassignment, PartitionDescription, TopicDescription

_AT_ONCE = 100
_REASSIGNMENTS_TIMEOUT_MS = 10_000
"""How long `--describe` waits for the controller, which alone knows the reassignments."""
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


@dataclass(frozen=True)
class _Partition:
    """A partition and its reassignment."""

    topic: str
    description: "PartitionDescription"
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    is_reassigned: bool

    @property
    def replication_factor(self) -> int:
        """The number of replicas without those that a reassignment adds."""
        return len(set(self.description.replicas) - set(self.adding))

    @property
    def is_under_replicated(self) -> bool:
        return len(self.description.isr) < self.replication_factor


@dataclass(frozen=True)
class _Described:
    """A topic with the partitions to show."""

    topic: "TopicDescription"
    overrides: "dict[str, str | None]"
    replication_factor: int
    partitions: list[_Partition]


def _describe(
    admin: "Admin", topics: "Sequence[TopicDescription]", partition_filter: str, only_overridden: bool, as_json: bool
) -> None:
    from headrace.client.admin.types import ConfigResource

    described = []
    resources = {topic.name: ConfigResource("topic", topic.name) for topic in topics}
    configs = admin.describe_configs(resources.values()) if resources else {}
    live = {broker.id for broker in admin.describe_cluster().brokers} if topics else set()
    reassignments = _reassignments(admin) if topics else {}
    for topic in topics:
        entries = configs[resources[topic.name]].entries
        overrides = {name: entry.value for name, entry in entries.items() if not entry.is_default}
        if only_overridden and not any(entry.source.name.startswith("DYNAMIC_TOPIC") for entry in entries.values()):
            continue
        min_isr = int(entries["min.insync.replicas"].value or 1) if "min.insync.replicas" in entries else 1
        partitions = [_partition(topic.name, partition, reassignments) for partition in topic.partitions]
        selected = [
            partition for partition in partitions if _matches_filter(partition, partition_filter, min_isr, live)
        ]
        if partition_filter and not selected:
            continue
        replication_factor = partitions[0].replication_factor if partitions else 0
        described.append(_Described(topic, overrides, replication_factor, selected))
    if as_json:
        print_json([_as_json(one) for one in described])
    elif is_terminal():
        _print_for_people(described, with_partitions=not only_overridden)
    else:
        for one in described:
            if not partition_filter:
                configs_text = ",".join(f"{name}={value}" for name, value in one.overrides.items())
                click.echo(
                    f"Topic: {one.topic.name}\tTopicId: {one.topic.topic_id}\t"
                    f"PartitionCount: {len(one.topic.partitions)}\tReplicationFactor: {one.replication_factor}\t"
                    f"Configs: {configs_text}"
                )
            if not only_overridden:
                for partition in one.partitions:
                    click.echo(_partition_line(partition))


def _reassignments(admin: "Admin") -> "dict[TopicPartition, OngoingReassignment]":
    """Returns the reassignments in progress; none if the cluster or the user's rights do not allow to list them."""
    from headrace.client.errors import KafkaTimeoutError

    try:
        return admin.list_partition_reassignments(timeout_ms=_REASSIGNMENTS_TIMEOUT_MS)
    except (UnsupportedVersionError, ClusterAuthorizationFailedError):
        return {}
    except KafkaTimeoutError as error:
        click.echo(f"Replicas that a reassignment adds count as missing, it could not be listed: {error}", err=True)
        return {}


def _partition(
    topic: str, description: "PartitionDescription", reassignments: "Mapping[TopicPartition, OngoingReassignment]"
) -> _Partition:
    found = reassignments.get(TopicPartition(topic, description.partition))
    if found is None:
        return _Partition(topic, description, (), (), is_reassigned=False)
    return _Partition(topic, description, found.adding_replicas, found.removing_replicas, is_reassigned=True)


def _matches_filter(partition: _Partition, partition_filter: str, min_isr: int, live: set[int]) -> bool:
    leader, in_sync = partition.description.leader, len(partition.description.isr)
    if partition_filter == "under_replicated_partitions":
        return partition.is_under_replicated
    if partition_filter == "unavailable_partitions":
        return leader not in live
    if partition_filter == "under_min_isr_partitions":
        return leader < 0 or in_sync < min_isr
    if partition_filter == "at_min_isr_partitions":
        return in_sync == min_isr
    return True


def _ids(brokers: Iterable[int] | None) -> str:
    return "N/A" if brokers is None else ",".join(map(str, brokers))


def _partition_line(partition: _Partition) -> str:
    description = partition.description
    leader = "none" if description.leader < 0 else str(description.leader)
    changes = (
        f"\tAdding Replicas: {_ids(partition.adding)}\tRemoving Replicas: {_ids(partition.removing)}"
        if partition.is_reassigned
        else ""
    )
    return (
        f"\tTopic: {partition.topic}\tPartition: {description.partition}\tLeader: {leader}\t"
        f"Replicas: {_ids(description.replicas)}\tIsr: {_ids(description.isr)}{changes}\t"
        f"Elr: {_ids(description.eligible_leaders)}\tLastKnownElr: {_ids(description.last_known_eligible_leaders)}"
    )


def _as_json(described: _Described) -> dict[str, object]:
    topic = described.topic
    return {
        "topic": topic.name,
        "topic_id": str(topic.topic_id),
        "internal": topic.is_internal,
        "partition_count": len(topic.partitions),
        "replication_factor": described.replication_factor,
        "configs": described.overrides,
        "partitions": [
            {
                "partition": partition.description.partition,
                "leader": partition.description.leader,
                "replicas": partition.description.replicas,
                "isr": partition.description.isr,
                "adding_replicas": partition.adding,
                "removing_replicas": partition.removing,
            }
            for partition in described.partitions
        ],
    }


def _print_for_people(described: list[_Described], with_partitions: bool) -> None:
    for number, one in enumerate(described):
        if number:
            click.echo()
        topic = one.topic
        summary = f"{len(topic.partitions)} partitions, {one.replication_factor} replicas, id {topic.topic_id}"
        click.echo(f"{styled(topic.name, bold=True, fg='cyan')}  {summary}")
        for name, value in one.overrides.items():
            click.echo(f"  {name} = {value}")
        if with_partitions:
            _print_partitions(one.partitions)


def _print_partitions(partitions: list[_Partition]) -> None:
    with_changes = any(partition.is_reassigned for partition in partitions)
    rows = []
    for partition in partitions:
        description = partition.description
        in_sync = _ids(description.isr)
        row = (
            description.partition,
            Styled("none", fg="red") if description.leader < 0 else description.leader,
            _ids(description.replicas),
            Styled(in_sync, fg="red") if partition.is_under_replicated else in_sync,
        )
        rows.append((*row, _ids(partition.adding), _ids(partition.removing)) if with_changes else row)
    columns = ("PARTITION", "LEADER", "REPLICAS", "IN SYNC")
    print_table((*columns, "ADDING", "REMOVING") if with_changes else columns, rows)
