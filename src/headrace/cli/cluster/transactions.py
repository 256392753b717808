"""`headrace transactions`: list, describe and abort transactions, with the commands of `kafka-transactions.sh`.

    headrace transactions --bootstrap-server localhost:9092 find-hanging --broker-id 0

A transaction hangs if it is open in a partition for longer than the maximum transaction timeout, but its coordinator
has no record of it. Consumers with `read_committed` cannot read past it until it is aborted.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from headrace.cli.common.connection import Connection, connection_options
from headrace.cli.common.names import complete_topics
from headrace.cli.common.output import is_terminal, json_option, print_json, print_table
from headrace.cli.common.tool import INT_MAX, LONG_MAX, Failure, Tool, ToolGroup
from headrace.common.clock import SystemClock
from headrace.common.types import TopicPartition

if TYPE_CHECKING:
    from headrace.client.admin.admin import Admin
    from headrace.client.admin.types import ProducerState

_MINUTE_MS = 60_000
pass_connection = click.make_pass_decorator(Connection)


@click.group(cls=ToolGroup)
@connection_options
@click.pass_context
def transactions(ctx: click.Context, connection: Connection) -> None:
    """List and describe transactions, and abort hanging ones."""
    ctx.obj = connection


def _print(columns: Sequence[str], keys: Sequence[str], rows: Iterable[Sequence[object]], as_json: bool) -> None:
    if as_json:
        print_json([dict(zip(keys, row, strict=True)) for row in rows])
        return
    cells = [[_cell(value) for value in row] for row in rows]
    if is_terminal():
        print_table(columns, cells)
    else:
        widths = [max(len(name), *(len(str(row[index])) for row in cells), 0) for index, name in enumerate(columns)]
        lines: list[Sequence[object]] = [columns, *cells]
        for row in lines:
            click.echo("".join(f"{cell!s:<{width}}\t" for cell, width in zip(row, widths, strict=True)))


def _cell(value: object) -> object:
    """Formats a value as Kafka's tool does."""
    if isinstance(value, list):
        return ",".join(f"{tp.topic}-{tp.partition}" for tp in value)
    return "None" if value is None else value


@transactions.command("list", cls=Tool)
@click.option(
    "--duration-filter",
    type=click.IntRange(max=LONG_MAX),
    metavar="MS",
    help="Only transactions that have been open for longer.",
)
@click.option("--transactional-id-pattern", metavar="REGEX", help="Only ids that match.")
@json_option
@pass_connection
def list_(
    connection: Connection, duration_filter: int | None, transactional_id_pattern: str | None, as_json: bool
) -> None:
    """List transactional ids and their states."""
    longer = None if duration_filter is None or duration_filter < 0 else duration_filter
    with connection.admin() as admin:
        listed = admin.list_transactions(duration_filter_ms=longer, transactional_id_pattern=transactional_id_pattern)
    _print(
        ("TransactionalId", "Coordinator", "ProducerId", "TransactionState"),
        ("transactional_id", "coordinator", "producer_id", "state"),
        [
            (transaction.transactional_id, transaction.coordinator_id, transaction.producer_id, transaction.state)
            for transaction in listed
        ],
        as_json,
    )


@transactions.command(cls=Tool)
@click.option("--transactional-id", metavar="ID", required=True, help="The transactional id.")
@json_option
@pass_connection
def describe(connection: Connection, transactional_id: str, as_json: bool) -> None:
    """Show the transaction of a transactional id."""
    from headrace.common.errors import TransactionalIdNotFoundError

    with connection.admin() as admin:
        try:
            transaction = admin.describe_transactions([transactional_id])[transactional_id]
        except TransactionalIdNotFoundError:
            raise Failure(f"Could not find transactional id {transactional_id!r}") from None
    start = transaction.transaction_start_time_ms
    _print(
        (
            "CoordinatorId",
            "TransactionalId",
            "ProducerId",
            "ProducerEpoch",
            "TransactionState",
            "TransactionTimeoutMs",
            "CurrentTransactionStartTimeMs",
            "TransactionDurationMs",
            "TopicPartitions",
        ),
        (
            "coordinator",
            "transactional_id",
            "producer_id",
            "producer_epoch",
            "state",
            "timeout_ms",
            "start_time_ms",
            "duration_ms",
            "partitions",
        ),
        [
            (
                transaction.coordinator_id,
                transaction.transactional_id,
                transaction.producer_id,
                transaction.producer_epoch,
                transaction.state,
                transaction.transaction_timeout_ms,
                start,
                None if start is None else SystemClock().time_ms() - start,
                [tp._asdict() for tp in sorted(transaction.partitions)] if as_json else sorted(transaction.partitions),
            )
        ],
        as_json,
    )


@transactions.command("describe-producers", cls=Tool)
@click.option("--topic", shell_complete=complete_topics, metavar="NAME", required=True, help="The topic.")
@click.option("--partition", type=click.IntRange(0, INT_MAX), metavar="N", required=True, help="The partition.")
@click.option(
    "--broker-id", type=click.IntRange(0, INT_MAX), metavar="ID", help="Query this replica instead of the leader."
)
@json_option
@pass_connection
def describe_producers(
    connection: Connection, topic: str, partition: int, broker_id: int | None, as_json: bool
) -> None:
    """Show the active producers of a partition."""
    tp = TopicPartition(topic, partition)
    with connection.admin() as admin:
        producers = _producers(admin, tp, broker_id)
    _print(
        (
            "ProducerId",
            "ProducerEpoch",
            "LatestCoordinatorEpoch",
            "LastSequence",
            "LastTimestamp",
            "CurrentTransactionStartOffset",
        ),
        (
            "producer_id",
            "producer_epoch",
            "coordinator_epoch",
            "last_sequence",
            "last_timestamp",
            "transaction_start_offset",
        ),
        [
            (
                producer.producer_id,
                producer.producer_epoch,
                producer.coordinator_epoch,
                producer.last_sequence,
                producer.last_timestamp,
                None if producer.current_txn_start_offset < 0 else producer.current_txn_start_offset,
            )
            for producer in producers
        ],
        as_json,
    )


def _producers(admin: "Admin", tp: TopicPartition, broker_id: int | None = None) -> "tuple[ProducerState, ...]":
    from headrace.common.errors import UnknownTopicOrPartitionError

    try:
        return admin.describe_producers([tp], broker_id)[tp].producers
    except UnknownTopicOrPartitionError:
        raise Failure(f"Partition {tp.topic}-{tp.partition} does not exist") from None


@transactions.command(cls=Tool)
@click.option("--topic", shell_complete=complete_topics, metavar="NAME", required=True, help="The topic.")
@click.option("--partition", type=click.IntRange(0, INT_MAX), metavar="N", required=True, help="The partition.")
@click.option(
    "--start-offset",
    type=click.IntRange(0, LONG_MAX),
    metavar="OFFSET",
    help="The transaction's first offset in the partition.",
)
@click.option(
    "--producer-id",
    type=click.IntRange(0, LONG_MAX),
    metavar="ID",
    help="The transaction's producer id, instead of --start-offset.",
)
@click.option("--producer-epoch", type=click.IntRange(0, 32767), metavar="N", help="The producer's epoch.")
@click.option("--coordinator-epoch", type=click.IntRange(-1, INT_MAX), metavar="N", help="The coordinator's epoch.")
@pass_connection
def abort(
    connection: Connection,
    topic: str,
    partition: int,
    start_offset: int | None,
    producer_id: int | None,
    producer_epoch: int | None,
    coordinator_epoch: int | None,
) -> None:
    """Abort a hanging transaction in a partition."""
    from headrace.client.admin.types import AbortTransactionSpec

    tp = TopicPartition(topic, partition)
    if start_offset is None and None in (producer_id, producer_epoch, coordinator_epoch):
        raise click.UsageError(
            "Expected --start-offset, or all of --producer-id, --producer-epoch and --coordinator-epoch"
        )
    with connection.admin() as admin:
        if start_offset is not None:
            for producer in _producers(admin, tp):
                if producer.current_txn_start_offset == start_offset:
                    producer_id, producer_epoch = producer.producer_id, producer.producer_epoch
                    coordinator_epoch = max(producer.coordinator_epoch, 0)
                    break
            else:
                raise Failure(f"Could not find an open transaction in {tp} with start offset {start_offset}")
        assert producer_id is not None
        assert producer_epoch is not None
        assert coordinator_epoch is not None
        admin.abort_transaction(AbortTransactionSpec(tp, producer_id, producer_epoch, coordinator_epoch))


@dataclass(frozen=True)
class Hanging:
    """A hanging transaction: the partition in which it is open, and its producer."""

    tp: TopicPartition
    producer: "ProducerState"


@transactions.command("find-hanging", cls=Tool)
@click.option("--broker-id", type=click.IntRange(0, INT_MAX), metavar="ID", help="Only partitions on this broker.")
@click.option(
    "--max-transaction-timeout",
    type=click.IntRange(min=0),
    default=15,
    show_default=True,
    metavar="MINUTES",
    help="Ignore transactions that have been open for less time.",
)
@click.option("--topic", shell_complete=complete_topics, metavar="NAME", help="Only this topic.")
@click.option("--partition", type=click.IntRange(min=0), metavar="N", help="Only this partition of the topic.")
@json_option
@pass_connection
def find_hanging(
    connection: Connection,
    broker_id: int | None,
    max_transaction_timeout: int,
    topic: str | None,
    partition: int | None,
    as_json: bool,
) -> None:
    """Find hanging transactions."""
    if partition is not None and topic is None:
        raise click.UsageError("--partition needs --topic")
    if topic is None and broker_id is None:
        raise click.UsageError("Expected --broker-id or --topic")
    now = SystemClock().time_ms()
    with connection.admin() as admin:
        hanging_transactions = hanging(admin, now - max_transaction_timeout * _MINUTE_MS, broker_id, topic, partition)
    _print(
        (
            "Topic",
            "Partition",
            "ProducerId",
            "ProducerEpoch",
            "CoordinatorEpoch",
            "StartOffset",
            "LastTimestamp",
            "Duration(min)",
        ),
        (
            "topic",
            "partition",
            "producer_id",
            "producer_epoch",
            "coordinator_epoch",
            "start_offset",
            "last_timestamp",
            "minutes",
        ),
        [
            (
                transaction.tp.topic,
                transaction.tp.partition,
                transaction.producer.producer_id,
                transaction.producer.producer_epoch,
                transaction.producer.coordinator_epoch,
                transaction.producer.current_txn_start_offset,
                transaction.producer.last_timestamp,
                (now - transaction.producer.last_timestamp) // _MINUTE_MS,
            )
            for transaction in hanging_transactions
        ],
        as_json,
    )


def hanging(
    admin: "Admin", before_ms: int, broker_id: int | None, topic: str | None, partition: int | None
) -> list[Hanging]:
    """Returns transactions that opened in a partition before a time and that no coordinator has as open."""
    broker_ids = [broker.id for broker in admin.describe_cluster().brokers]
    if broker_id is not None and broker_id not in broker_ids:
        raise Failure(f"Broker {broker_id} does not exist; the cluster has {', '.join(map(str, broker_ids))}")
    described = admin.describe_topics(None if topic is None else [topic], raise_errors=False)
    partitions = [
        TopicPartition(description.name, partition_description.partition)
        for description in described.values()
        if description.error is None
        for partition_description in description.partitions
        if (partition is None or partition_description.partition == partition)
        and (broker_id is None or broker_id in partition_description.replicas)
    ]
    if topic is not None and not partitions:
        raise Failure(f"Topic {topic} does not exist or has no such partition")
    return hanging_in(admin, partitions, before_ms, broker_id)


def hanging_in(
    admin: "Admin", partitions: Sequence[TopicPartition], before_ms: int, broker_id: int | None = None
) -> list[Hanging]:
    """Returns the hanging transactions of some partitions, as their leaders or one broker know them."""
    found = admin.list_hanging_transactions(partitions, before_ms, broker_id)
    return [Hanging(one.tp, one.producer) for one in found]


@transactions.command("forceTerminateTransaction", cls=Tool)
@click.option(
    "--transactionalId",
    "--transactional-id",
    "transactional_id",
    metavar="ID",
    required=True,
    help="The transactional id.",
)
@pass_connection
def force_terminate(connection: Connection, transactional_id: str) -> None:
    """Abort the open transaction of a transactional id and fence its producer."""
    with connection.admin() as admin:
        admin.fence_producers([transactional_id])
