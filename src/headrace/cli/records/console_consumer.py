"""`headrace console-consumer`: prints records, with the flags of `kafka-console-consumer.sh`.

Standard output contains only records. The total goes to standard error.

- Without `--group`, Kafka's tool creates a group. This tool reads without a group, so the first record does not wait
  for a rebalance.
- With `--group`, the tool does not commit records that it polled but did not print before it exits.
"""

import io
import sys
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from headrace.cli.common.connection import (
    Connection,
    client_config_options,
    connection_options,
    key_values,
    read_config,
)
from headrace.cli.common.names import complete_groups, complete_topics
from headrace.cli.common.output import json_option
from headrace.cli.common.tool import LONG_MAX, Failure, Tool, check_expression, interrupts, sentence
from headrace.cli.records.message_format import formatter, json_line
from headrace.common.clock import SystemClock
from headrace.common.types import TopicPartition

if TYPE_CHECKING:
    from headrace.client.consumer.consumer import Consumer

_POLL_MS = 500
_BUFFER_BYTES = 256 * 1024


@click.command("console-consumer", cls=Tool)
@connection_options
@client_config_options("consumer")
@click.option("--topic", shell_complete=complete_topics, metavar="NAME", help="The topic.")
@click.option("--include", metavar="REGEX", help="All topics that match.")
@click.option("--partition", type=click.IntRange(min=0), metavar="N", help="Only this partition, without a group.")
@click.option("--offset", metavar="OFFSET", help="The start offset: earliest, latest or a number.")
@click.option("--from-beginning", is_flag=True, help="Start at the earliest offset if the group has none.")
@click.option(
    "--group",
    shell_complete=complete_groups,
    metavar="ID",
    help="The consumer group; default: none, read all partitions.",
)
@click.option("--max-messages", type=int, metavar="N", help="Exit after N messages.")
@click.option(
    "--timeout-ms", type=click.IntRange(min=0), metavar="MS", help="Exit if no message arrives for this long."
)
@click.option(
    "--isolation-level",
    type=click.Choice(["read_committed", "read_uncommitted"]),
    help="Whether to skip records of transactions that are not committed. [default: read_uncommitted]",
)
@click.option("--formatter", "formatter_name", metavar="NAME", default="DefaultMessageFormatter", help="The formatter.")
@click.option("--formatter-config", metavar="FILE", callback=read_config, help="A property file for the formatter.")
@click.option(
    "--formatter-property",
    "--property",
    "formatter_properties",
    metavar="KEY=VALUE",
    multiple=True,
    callback=key_values,
    help="print.key=true, print.timestamp, print.partition, print.offset, print.headers, print.epoch, print.value; "
    "key.separator, line.separator, headers.separator, null.literal; key.deserializer, value.deserializer.",
)
@click.option("--key-deserializer", metavar="NAME", help="The key deserializer: LongDeserializer, module:function ...")
@click.option("--value-deserializer", metavar="NAME", help="The value deserializer.")
@click.option("--skip-message-on-error", is_flag=True, help="Skip records that cannot be printed.")
@click.option("--enable-systest-events", is_flag=True, hidden=True)
@json_option
def console_consumer(
    connection: Connection,
    client: dict[str, str],
    topic: str | None,
    include: str | None,
    partition: int | None,
    offset: str | None,
    from_beginning: bool,
    group: str | None,
    max_messages: int | None,
    timeout_ms: int | None,
    isolation_level: str | None,
    formatter_name: str,
    formatter_config: dict[str, str],
    formatter_properties: dict[str, str],
    key_deserializer: str | None,
    value_deserializer: str | None,
    skip_message_on_error: bool,
    enable_systest_events: bool,  # noqa: ARG001
    as_json: bool,
) -> int:
    """Print the records of a topic."""
    if (topic is None) == (include is None):
        raise click.UsageError("Expected either --topic or --include")
    if partition is not None and topic is None:
        raise click.UsageError("--partition needs --topic")
    if offset is not None and partition is None:
        raise click.UsageError("--offset needs --partition")
    if from_beginning and offset is not None:
        raise click.UsageError("Expected either --from-beginning or --offset, not both")
    if group is not None and partition is not None:
        raise click.UsageError("--group cannot be combined with --partition, which reads without a group")
    if include is not None:
        check_expression("--include", include)
    start = "earliest" if from_beginning else _start(offset)
    properties = {**formatter_config, **formatter_properties}
    for name, class_name in (("key.deserializer", key_deserializer), ("value.deserializer", value_deserializer)):
        if class_name is not None:
            properties[name] = class_name
    write = json_line if as_json else formatter(formatter_name, properties)
    with connection.admin() as admin:
        if topic is not None:
            description = admin.describe_topics([topic], raise_errors=False)[topic]
            if description.error is not None:
                raise Failure(
                    f"Topic {topic!r} does not exist" if description.error.code == 3 else str(description.error)
                )
            if partition is not None and partition >= len(description.partitions):
                raise Failure(
                    f"Topic {topic!r} has no partition {partition}; it has {len(description.partitions)} partitions"
                )
    from headrace.client.consumer.consumer import Consumer

    config = connection.client_config("consumer", client, {"auto.offset.reset": "latest"})
    if isolation_level is not None:
        config["isolation.level"] = isolation_level
    if from_beginning:
        config["auto.offset.reset"] = "earliest"
    if group is not None:
        config["group.id"] = group
    consumer = Consumer(config)
    printer = Printer(consumer, write, max_messages, timeout_ms, skip_message_on_error)
    try:
        if partition is not None:
            assert topic is not None
            _assign(consumer, TopicPartition(topic, partition), start)
        elif topic is not None:
            consumer.subscribe([topic])
        else:
            consumer.subscribe(pattern=include)
        return printer.run()
    finally:
        try:
            printer.flush()
        finally:
            printer.seek_to_unprinted()
            consumer.close(timeout_ms=5000)
            click.echo(f"Processed a total of {printer.count} messages", err=True)


def _start(text: str | None) -> int | str:
    if text in (None, "latest"):
        return "latest"
    if text == "earliest":
        return text
    assert text is not None
    if not text.isascii() or not text.isdigit() or int(text) > LONG_MAX:
        raise click.UsageError(f"--offset {text!r}: expected earliest, latest or a non-negative number")
    return int(text)


def _assign(consumer: "Consumer", tp: TopicPartition, start: int | str) -> None:
    consumer.assign([tp])
    if start == "earliest":
        consumer.seek_to_beginning(tp)
    elif start == "latest":
        consumer.seek_to_end(tp)
    else:
        assert isinstance(start, int)
        consumer.seek(tp, start)


def standard_output() -> BinaryIO:
    """Returns buffered standard output.

    With PYTHONUNBUFFERED, Python's own is unbuffered: each write would be a system call and might be partial.
    """
    try:
        return open(sys.stdout.fileno(), "wb", _BUFFER_BYTES, closefd=False)
    except io.UnsupportedOperation:  # replaced, for example by a test
        return sys.stdout.buffer


class Printer:
    """Prints polled records to standard output until a limit, a timeout or an interrupt."""

    def __init__(
        self, consumer: "Consumer", write: Any, max_messages: int | None, timeout_ms: int | None, skip_errors: bool
    ):
        self._consumer, self._write = consumer, write
        self._max_messages = None if max_messages is None or max_messages < 0 else max_messages
        self._timeout_ms, self._skip_errors = timeout_ms, skip_errors
        self._out = standard_output()
        self._buffered_bytes = 0
        self._clock = SystemClock()
        self._first: dict[TopicPartition, int] = {}
        self._next: dict[TopicPartition, int] = {}
        self.count = 0

    def run(self) -> int:
        last = self._clock.monotonic()
        while self._max_messages is None or self.count < self._max_messages:
            wait_ms = float(_POLL_MS)
            if self._timeout_ms is not None:
                remaining_ms = self._timeout_ms - (self._clock.monotonic() - last) * 1000
                if remaining_ms <= 0:
                    click.echo(f"No record arrived for {self._timeout_ms} ms", err=True)
                    return 0
                wait_ms = min(wait_ms, remaining_ms)
            max_records = None if self._max_messages is None else min(self._max_messages - self.count, 500)
            polled = self._consumer.poll(wait_ms, max_records=max_records)
            self._first = {tp: records[0].offset for tp, records in polled.items()}
            self._next = dict(self._first)
            for tp, records in polled.items():
                for record in records:
                    self._print(tp, record)
                del self._next[tp]
            if polled:
                last = self._clock.monotonic()
                self.flush()
        return 0

    def _print(self, tp: TopicPartition, record: Any) -> None:
        try:
            line = memoryview(self._write(record))
        except Exception as error:  # user formatters and deserializers may raise anything
            where = f"{tp} at {record.offset}"
            reason = f"{type(error).__name__}: {sentence(error)}"
            if not self._skip_errors:
                # As in Kafka's tool, the record counts as consumed, so that the next run gets past it.
                self._next[tp] = record.offset + 1
                raise Failure(f"Cannot print the record of {where}: {reason}") from error
            click.echo(f"Skipped the record of {where}: {reason}", err=True)
            line = memoryview(b"")
        self._buffered_bytes += line.nbytes
        if self._buffered_bytes > _BUFFER_BYTES:
            self._out.flush()  # may block until the reader reads, and may be interrupted
            self._buffered_bytes = line.nbytes
        # Count the record together with buffering it: no interrupt may come in between.
        interrupts.hold()
        try:
            self._out.write(line)
            self.count += 1
            self._next[tp] = record.offset + 1
        finally:
            interrupts.release()

    def flush(self) -> None:
        self._out.flush()
        self._buffered_bytes = 0
        self._first = {}

    def seek_to_unprinted(self) -> None:
        """Seeks back to records that were not printed, so that closing does not commit past them.

        If standard output failed, it is unknown how much the reader received, so the whole poll counts as unprinted.
        """
        unprinted = {**self._next, **self._first}
        assigned = self._consumer.assignment()
        for tp, offset in unprinted.items():
            if tp in assigned:
                self._consumer.seek(tp, offset)
