"""`headrace consumer-perf-test`: measures consumer throughput, with the flags of `kafka-consumer-perf-test.sh`.

The columns are Kafka's: total time, rebalance time and fetch time.
"""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.common.connection import Connection, client_config_options, connection_options
from headrace.cli.common.names import complete_groups, complete_topics
from headrace.cli.common.output import json_option, print_json
from headrace.cli.common.progress import Progress
from headrace.cli.common.tool import Failure, Tool, check_expression
from headrace.cli.perf.perf_stats import MEGABYTE
from headrace.common.clock import SystemClock
from headrace.common.ids import make_random

if TYPE_CHECKING:
    from headrace.client.consumer.consumer import Consumer

_COLUMNS = (
    "start.time",
    "end.time",
    "data.consumed.in.MB",
    "MB.sec",
    "data.consumed.in.nMsg",
    "nMsg.sec",
    "rebalance.time.ms",
    "fetch.time.ms",
    "fetch.MB.sec",
    "fetch.nMsg.sec",
)
_DETAILED = ("time", "threadId", *_COLUMNS[2:])


@click.command("consumer-perf-test", cls=Tool)
@connection_options
@client_config_options("consumer")
@click.option("--topic", shell_complete=complete_topics, metavar="NAME", help="The topic.")
@click.option("--include", metavar="REGEX", help="All topics that match.")
@click.option(
    "--num-records",
    "--messages",
    "count",
    type=click.IntRange(min=1),
    required=True,
    metavar="N",
    help="Number of records.",
)
@click.option("--group", shell_complete=complete_groups, metavar="ID", help="The consumer group; default: a new group.")
@click.option("--from-latest", is_flag=True, help="Start at the latest offset if the group has none.")
@click.option(
    "--fetch-size",
    type=click.IntRange(min=1),
    metavar="BYTES",
    help="Bytes per partition and fetch. [default: 1048576]",
)
@click.option("--socket-buffer-size", type=int, metavar="BYTES", help="TCP receive buffer. [default: 2097152]")
@click.option(
    "--timeout",
    type=click.IntRange(min=1),
    default=10_000,
    show_default=True,
    metavar="MS",
    help="Maximum time between two records.",
)
@click.option("--hide-header", is_flag=True, help="Do not print column names.")
@click.option("--show-detailed-stats", is_flag=True, help="Print a line per reporting interval.")
@click.option(
    "--reporting-interval",
    type=click.IntRange(min=1),
    default=5000,
    show_default=True,
    metavar="MS",
    help="The reporting interval.",
)
@click.option("--date-format", metavar="FORMAT", hidden=True)
@click.option("--print-metrics", is_flag=True, help="Print the consumer's metrics at the end.")
@json_option
def consumer_perf_test(
    connection: Connection,
    client: dict[str, str],
    topic: str | None,
    include: str | None,
    count: int,
    group: str | None,
    from_latest: bool,
    fetch_size: int | None,
    socket_buffer_size: int | None,
    timeout: int,
    hide_header: bool,
    show_detailed_stats: bool,
    reporting_interval: int,
    date_format: str | None,  # noqa: ARG001
    print_metrics: bool,
    as_json: bool,
) -> None:
    """Measure consumer throughput."""
    if (topic is None) == (include is None):
        raise click.UsageError("Expected either --topic or --include")
    if include is not None:
        check_expression("--include", include)
    with connection.admin() as admin:
        if topic is not None and topic not in admin.list_topics():
            raise Failure(f"Topic {topic!r} does not exist")
    from headrace.client.consumer.consumer import Consumer

    defaults = {
        "group.id": f"perf-consumer-{make_random().randrange(100_000)}",
        "auto.offset.reset": "earliest",
        "max.partition.fetch.bytes": 1 << 20,
        "receive.buffer.bytes": 2 << 20,
        "check.crcs": False,
    }
    flags = {
        "group.id": group,
        "auto.offset.reset": "latest" if from_latest else None,
        "max.partition.fetch.bytes": fetch_size,
        "receive.buffer.bytes": socket_buffer_size,
    }
    overrides = {**client, **{name: str(value) for name, value in flags.items() if value is not None}}
    if not hide_header and not as_json:
        click.echo(", ".join(_DETAILED if show_detailed_stats else _COLUMNS))
    with Consumer(connection.client_config("consumer", overrides, defaults)) as consumer:
        if topic is not None:
            consumer.subscribe([topic])
        else:
            consumer.subscribe(pattern=include)
        run = Run(consumer, count, timeout, reporting_interval / 1000 if show_detailed_stats else None, as_json)
        try:
            run.read()
        finally:  # also after Ctrl-C
            if as_json:
                print_json(run.document(print_metrics))
            elif not show_detailed_stats:
                click.echo(", ".join(run.columns()))
        if print_metrics and not as_json:
            click.echo(str(consumer.metrics()))
    if run.records < count:
        click.echo(
            f"WARNING: Exiting after {run.records} of {count} records because no record arrived for {timeout} ms.",
            err=True,
        )


class Run:
    """One measurement: polls records and counts them."""

    def __init__(
        self, consumer: "Consumer", count: int, timeout_ms: int, report_seconds: float | None, is_quiet: bool = False
    ):
        self._consumer, self._count, self._timeout_ms = consumer, count, timeout_ms
        self._report_seconds, self._is_quiet = report_seconds, is_quiet
        self._details: list[list[str]] = []
        self._clock = SystemClock()
        self._began_ms, self._began = self._clock.time_ms(), self._clock.monotonic()
        self._assigned_at: float | None = None
        self._ended = self._began
        self.records = self.bytes = 0

    def read(self) -> None:
        last = reported = self._began
        reported_records = reported_bytes = 0
        with Progress("records", self._count) as progress:
            while self.records < self._count:
                polled: Any = self._consumer.poll(100, max_records=self._count - self.records)
                now = self._clock.monotonic()
                if self._assigned_at is None and self._consumer.assignment():
                    self._assigned_at = now
                if polled:
                    last = self._ended = now
                    for records in polled.values():
                        self.records += len(records)
                        for record in records:
                            self.bytes += max(record.serialized_value_size, 0) + max(record.serialized_key_size, 0)
                    progress.add(self.records - progress.done)
                elif (now - last) * 1000 > self._timeout_ms:
                    break
                if self._report_seconds is not None and now - reported >= self._report_seconds:
                    detail = self._detail(now - reported, self.records - reported_records, self.bytes - reported_bytes)
                    if self._is_quiet:
                        self._details.append(detail)
                    else:
                        progress.clear()
                        click.echo(", ".join(detail))
                    reported, reported_records, reported_bytes = now, self.records, self.bytes

    def document(self, with_metrics: bool) -> dict[str, Any]:
        """Returns the result as a document, with intervals and metrics if requested."""
        result: dict[str, Any] = dict(zip(_COLUMNS, self.columns(), strict=True))
        if self._report_seconds is not None:
            result["intervals"] = [dict(zip(_DETAILED, detail, strict=True)) for detail in self._details]
        if with_metrics:
            result["metrics"] = self._consumer.metrics()
        return result

    def columns(self) -> list[str]:
        total_seconds = max(self._ended - self._began, 1e-9)
        rebalancing = (self._assigned_at or self._began) - self._began
        reading = max(total_seconds - rebalancing, 1e-9)
        megabytes = self.bytes / MEGABYTE
        return [
            _stamp(self._began_ms),
            _stamp(self._began_ms + round((self._ended - self._began) * 1000)),
            f"{megabytes:.4f}",
            f"{megabytes / total_seconds:.4f}",
            str(self.records),
            f"{self.records / total_seconds:.4f}",
            str(round(rebalancing * 1000)),
            str(round(reading * 1000)),
            f"{megabytes / reading:.4f}",
            f"{self.records / reading:.4f}",
        ]

    def _detail(self, seconds: float, records: int, size: int) -> list[str]:
        rate, megabytes = records / seconds, size / MEGABYTE / seconds
        rebalancing = 0 if self._assigned_at is None else round((self._assigned_at - self._began) * 1000)
        return [
            _stamp(self._clock.time_ms()),
            "0",
            f"{self.bytes / MEGABYTE:.4f}",
            f"{megabytes:.4f}",
            str(self.records),
            f"{rate:.4f}",
            str(rebalancing),
            str(round(seconds * 1000)),
            f"{megabytes:.4f}",
            f"{rate:.4f}",
        ]


def _stamp(time_ms: int) -> str:
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S}:{time_ms % 1000:03d}"
