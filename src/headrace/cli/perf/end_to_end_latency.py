"""`headrace end-to-end-latency`: measures the latency from `send` to `poll`, as `kafka-e2e-latency.sh` does.

Sends one record at a time. Accepts options, or positional arguments in the order of Kafka's old tool:

    headrace end-to-end-latency localhost:9092 topic 10000 all 100 [client.properties]
"""

from typing import TYPE_CHECKING, Any

import click

from headrace.cli.common.client_config import known_configs
from headrace.cli.common.connection import Connection, check_record_size, optional_connection_options, producer
from headrace.cli.common.names import complete_topics
from headrace.cli.common.output import json_option, print_json
from headrace.cli.common.progress import Progress
from headrace.cli.common.tool import Failure, Tool
from headrace.cli.perf.perf_stats import Latencies
from headrace.common.clock import SystemClock
from headrace.common.ids import make_random
from headrace.common.properties import read_properties
from headrace.common.types import TopicPartition

if TYPE_CHECKING:
    from headrace.client.admin.admin import Admin
    from headrace.client.consumer.consumer import Consumer

_POSITIONS = ("bootstrap server", "topic", "number of records", "acks", "size of records")
_WAIT_MS = 60_000


@click.command("end-to-end-latency", cls=Tool)
@optional_connection_options
@click.option(
    "--topic", shell_complete=complete_topics, metavar="NAME", help="The topic; created if it does not exist."
)
@click.option("--num-records", type=click.IntRange(min=1), metavar="N", help="Number of records.")
@click.option("--producer-acks", metavar="ACKS", help="1 or all.")
@click.option("--record-size", type=click.IntRange(min=1), metavar="BYTES", help="Size of each value.")
@click.option("--record-key-size", type=click.IntRange(min=0), default=0, metavar="BYTES", help="Size of each key.")
@click.option("--num-headers", type=click.IntRange(min=0), default=0, metavar="N", help="Number of headers.")
@click.option(
    "--record-header-key-size", type=click.IntRange(min=0), default=0, metavar="BYTES", help="Size of each header key."
)
@click.option(
    "--record-header-size", type=click.IntRange(min=0), default=0, metavar="BYTES", help="Size of each header value."
)
@json_option
@click.argument("positional", nargs=-1)
def end_to_end_latency(
    connection: Connection,
    topic: str | None,
    num_records: int | None,
    producer_acks: str | None,
    record_size: int | None,
    record_key_size: int,
    num_headers: int,
    record_header_key_size: int,
    record_header_size: int,
    as_json: bool,
    positional: tuple[str, ...],
) -> None:
    """Measure the latency from producer to consumer."""
    if positional:
        connection, topic, num_records, producer_acks, record_size = _by_position(connection, positional)
    if topic is None or num_records is None or producer_acks is None or record_size is None:
        raise click.UsageError("Expected --topic, --num-records, --producer-acks and --record-size")
    check_record_size(record_size, connection.client_config("producer"))
    if producer_acks not in ("1", "all", "-1"):
        raise click.UsageError(f"--producer-acks {producer_acks!r}: expected 1 or all")
    with connection.admin() as admin:
        _create_topic(admin, topic, as_json)
    from headrace.client.consumer.consumer import Consumer

    random = make_random()
    key = random.randbytes(record_key_size) or None
    headers = [("h" * record_header_key_size, random.randbytes(record_header_size)) for _ in range(num_headers)]
    latencies = Latencies()
    clock = SystemClock()
    with (
        Consumer({**connection.client_config("consumer"), "auto.offset.reset": "latest"}) as consumer,
        producer({**connection.client_config("producer"), "linger.ms": 0, "acks": producer_acks}) as sender,
        Progress("records", num_records) as progress,
    ):
        _seek_to_end(consumer, topic)
        try:
            for number in range(num_records):
                value = random.randbytes(record_size)
                started = clock.monotonic()
                sender.send(topic, value, key=key, headers=headers).get(timeout_ms=_WAIT_MS)
                _receive(consumer, value)
                passed = (clock.monotonic() - started) * 1000
                latencies.add(passed)
                progress.add(1, latencies.recent)
                if number % 1000 == 0 and not as_json:
                    progress.clear()
                    click.echo(f"{number}\t{passed}")
        finally:  # also after Ctrl-C
            progress.clear()
            if latencies.count:
                _report(latencies, as_json)


def _report(latencies: Latencies, as_json: bool) -> None:
    p50, p99, p999 = latencies.percentiles(0.5, 0.99, 0.999)
    if as_json:
        count = latencies.count
        print_json({"records": count, "mean_ms": latencies.mean, "p50_ms": p50, "p99_ms": p99, "p99.9_ms": p999})
        return
    click.echo(f"Avg latency: {latencies.mean:.4f} ms")
    click.echo(f"Percentiles: 50th = {p50:.3g}, 99th = {p99:.3g}, 99.9th = {p999:.3g}")


def _by_position(connection: Connection, arguments: tuple[str, ...]) -> tuple[Connection, str, int, str, int]:
    if len(arguments) not in (5, 6):
        raise click.UsageError(f"Expected {', '.join(_POSITIONS)} [properties file]; got {len(arguments)} arguments")
    servers, topic, count, acks, size = arguments[:5]
    if not all(text.isascii() and text.isdigit() and int(text) > 0 for text in (count, size)):
        raise click.UsageError("Number and size of records must be greater than 0")
    properties = known_configs(read_properties(arguments[5])) if len(arguments) == 6 else connection.properties
    return Connection(servers, properties), topic, int(count), acks, int(size)


def _create_topic(admin: "Admin", topic: str, as_json: bool) -> None:
    if topic in admin.list_topics():
        return
    message = f'Topic "{topic}" does not exist. Will create topic with 1 partition(s) and replication factor = 1'
    click.echo(message, err=as_json)
    from headrace.client.admin.types import NewTopic

    admin.create_topics([NewTopic(topic, 1, 1)])


def _seek_to_end(consumer: "Consumer", topic: str) -> None:
    partitions = consumer.partitions_for_topic(topic) or set()
    topic_partitions = [TopicPartition(topic, number) for number in sorted(partitions)]
    consumer.assign(topic_partitions)
    consumer.seek_to_end(*topic_partitions)
    for tp in topic_partitions:
        consumer.position(tp)


def _receive(consumer: "Consumer", value: bytes) -> None:
    polled: Any = consumer.poll(_WAIT_MS)
    records = [record for part in polled.values() for record in part]
    if not records:
        raise Failure(f"The record was not received within {_WAIT_MS} ms")
    if len(records) > 1:
        raise Failure(f"Received {len(records)} records instead of one; does another producer write to the topic?")
    if records[0].value != value:
        raise Failure("Received a different record than the one sent; does another producer write to the topic?")
