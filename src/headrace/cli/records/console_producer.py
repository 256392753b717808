"""`headrace console-producer`: sends lines from standard input, with the flags of `kafka-console-producer.sh`.

Each line is a record. On a terminal the tool shows a prompt, and the number of sent records at the end. The exit code
is 1 if a record was not delivered. The message contains the first error.
"""

import sys
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.common.connection import (
    Connection,
    client_config_options,
    connection_options,
    key_values,
    producer,
    read_config,
)
from headrace.cli.common.names import complete_topics
from headrace.cli.common.tool import Failure, Tool, sentence
from headrace.cli.records.line_reader import LineReader

if TYPE_CHECKING:
    from headrace.client.admin.admin import Admin
    from headrace.client.producer.producer import Producer

_CONFIG_FLAGS = {
    "batch_size": "batch.size",
    "max_partition_memory_bytes": "batch.size",
    "max_block_ms": "max.block.ms",
    "max_memory_bytes": "buffer.memory",
    "message_send_max_retries": "retries",
    "metadata_expiry_ms": "metadata.max.age.ms",
    "request_timeout_ms": "request.timeout.ms",
    "retry_backoff_ms": "retry.backoff.ms",
    "socket_buffer_size": "send.buffer.bytes",
    "timeout": "linger.ms",
}
"""Flags that set a producer config."""


def _config_flags(function: click.decorators.FC) -> click.decorators.FC:
    for name, config in reversed(_CONFIG_FLAGS.items()):
        flag = "--" + name.replace("_", "-")
        text = f"Short for --command-property {config}=N."
        function = click.option(flag, name, type=click.IntRange(min=0), metavar="N", help=text)(function)
    return function


@click.command("console-producer", cls=Tool)
@connection_options
@client_config_options("producer")
@click.option("--topic", shell_complete=complete_topics, metavar="NAME", required=True, help="The topic.")
@click.option(
    "--reader-property",
    "--property",
    "reader_properties",
    metavar="KEY=VALUE",
    multiple=True,
    callback=key_values,
    help="parse.key=true, parse.headers=true, ignore.error=true; key.separator, headers.delimiter, headers.separator, "
    "headers.key.separator, null.marker.",
)
@click.option("--reader-config", metavar="FILE", callback=read_config, help="A property file for the reader.")
@click.option(
    "--line-reader",
    metavar="NAME",
    default="LineMessageReader",
    help="The line reader; only LineMessageReader is supported.",
)
@click.option("--sync", is_flag=True, help="Wait for each record's acknowledgment.")
@click.option("--request-required-acks", metavar="ACKS", help="0, 1 or all.")
@click.option(
    "--compression-codec", is_flag=False, flag_value="gzip", metavar="[CODEC]", help="none, gzip, snappy, lz4 or zstd."
)
@_config_flags
def console_producer(
    connection: Connection,
    client: dict[str, str],
    topic: str,
    reader_properties: dict[str, str],
    reader_config: dict[str, str],
    line_reader: str,
    sync: bool,
    request_required_acks: str | None,
    compression_codec: str | None,
    **named: int | None,
) -> int:
    """Send lines from standard input to a topic."""
    if line_reader.rpartition(".")[2] != "LineMessageReader":
        raise click.UsageError(f"--line-reader {line_reader!r}: expected LineMessageReader")
    reader = LineReader({**reader_config, **reader_properties})
    config = {_CONFIG_FLAGS[name]: str(value) for name, value in named.items() if value is not None}
    if request_required_acks is not None:
        config["acks"] = request_required_acks
    if compression_codec is not None:
        config["compression.type"] = compression_codec
    with connection.admin() as admin:
        _check_topic(admin, topic)
    sender: Sender | None = None
    try:
        with producer(connection.client_config("producer", {**client, **config})) as connected:
            sender = Sender(connected, topic, sync)
            _send_lines(sender, reader)
    finally:  # after Ctrl-C too
        if sender is not None:
            sender.print_summary()
    assert sender is not None
    if sender.failed:
        raise Failure(f"{sender.failed} of {sender.sent} records were not delivered: {sentence(sender.error)}")
    return 0


def _check_topic(admin: "Admin", topic: str) -> None:
    """Raises a Failure if the topic does not exist and brokers do not create it.

    Otherwise the user would learn this only after the producer's timeout.
    """
    from headrace.client.admin.types import ConfigResource
    from headrace.common.errors import UnknownTopicOrPartitionError

    error = admin.describe_topics([topic], raise_errors=False)[topic].error
    if error is None:
        return
    if not isinstance(error, UnknownTopicOrPartitionError):
        raise Failure(f"Topic {topic!r}: {sentence(error)}")
    broker = ConfigResource("broker", str(admin.describe_cluster().brokers[0].id), ["auto.create.topics.enable"])
    if admin.describe_configs([broker])[broker]["auto.create.topics.enable"] == "false":
        raise Failure(
            f"Topic {topic!r} does not exist, and the brokers do not create topics (auto.create.topics.enable=false)"
        )


def _send_lines(sender: "Sender", reader: LineReader) -> None:
    is_person = sys.stdin.isatty()
    lines = sys.stdin.buffer
    while True:
        if is_person:
            sys.stdout.write(">")
            sys.stdout.flush()
        line = lines.readline()
        if not line:
            if is_person:
                click.echo()
            return
        sender.send(reader.read(line.rstrip(b"\r\n")))


class Sender:
    """Sends lines and counts sent and failed records."""

    def __init__(self, producer: "Producer", topic: str, waits: bool):
        self._producer, self._topic, self._waits = producer, topic, waits
        self.sent = self.failed = 0
        self.error: BaseException = Failure("none")

    def send(self, line: Any) -> None:
        self.sent += 1
        future = self._producer.send(self._topic, line.value, key=line.key, headers=line.headers)
        if not self._waits:
            future.add_errback(self._failed)
            return
        from headrace.common.errors import KafkaError

        try:
            future.get()
        except KafkaError as error:
            self._failed(error)
            click.echo(f"Not delivered: {sentence(error)}", err=True)

    def _failed(self, error: BaseException) -> None:
        if not self.failed:
            self.error = error
        self.failed += 1

    def print_summary(self) -> None:
        if sys.stderr.isatty():
            lost = f", {self.failed} not" if self.failed else ""
            click.echo(f"{self.sent - self.failed} records sent{lost}", err=True)
