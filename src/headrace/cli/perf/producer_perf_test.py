"""`headrace producer-perf-test`: measures producer throughput, with the flags of `kafka-producer-perf-test.sh`.

    20000 records sent, 38395.508543 records/sec (3.66 MB/sec), 4.59 ms avg latency, 41.00 ms max latency ...

Latency is the time from `send` to the acknowledgment. Above 20,000 records per second it is measured for every 16th
record, because measuring costs more than sending. Only acknowledged records count. The totals are printed after the
producer is closed.
"""

from typing import TYPE_CHECKING, Any

import click

from headrace.cli.common.client_config import known_configs
from headrace.cli.common.connection import (
    Connection,
    check_record_size,
    optional_connection_options,
    producer,
    read_client_config,
)
from headrace.cli.common.names import complete_topics
from headrace.cli.common.output import json_option, print_json
from headrace.cli.common.progress import Progress
from headrace.cli.common.tool import INT_MAX, Failure, Tool, interrupts, read_file, sentence
from headrace.cli.perf.perf_stats import MEGABYTE, DeliveryCounts, Latencies, letters
from headrace.common.clock import SystemClock
from headrace.common.ids import make_random

if TYPE_CHECKING:
    from headrace.client.producer.producer import Producer

_MANY = ("--producer-props", "--command-property")
_SAMPLED_ABOVE = 20_000
_STRIDE = 16


class _ManyValues(Tool):
    """Accepts several values after one flag, as Kafka's tool does: `--producer-props acks=1 linger.ms=5`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        spread: list[str] = []
        flag: str | None = None
        for arg in args:
            if arg.startswith("--"):
                flag = arg if arg in _MANY else None
                if flag is None:
                    spread.append(arg)
            elif flag is not None:
                spread += [flag, arg]
            else:
                spread.append(arg)
        return super().parse_args(ctx, spread)


@click.command("producer-perf-test", cls=_ManyValues)
@optional_connection_options
@click.option("--topic", shell_complete=complete_topics, metavar="NAME", required=True, help="The topic.")
@click.option("--num-records", type=click.IntRange(min=1), metavar="N", required=True, help="Number of records.")
@click.option("--record-size", type=click.IntRange(1, INT_MAX), metavar="BYTES", help="Size of each record.")
@click.option("--payload-file", metavar="FILE", help="A file with records to send in random order.")
@click.option("--payload-delimiter", default="\\n", metavar="TEXT", help="The separator between records of the file.")
@click.option("--payload-monotonic", is_flag=True, help="Send increasing numbers as records.")
@click.option("--throughput", type=float, metavar="N", required=True, help="Maximum records per second; -1: no limit.")
@click.option(
    "--producer-props",
    "--command-property",
    "properties",
    multiple=True,
    metavar="KEY=VALUE ...",
    help="Producer configs.",
)
@click.option(
    "--producer.config",
    "producer_config",
    metavar="FILE",
    callback=read_client_config,
    help="A property file with producer configs.",
)
@click.option("--print-metrics", is_flag=True, help="Print the producer's metrics at the end.")
@click.option("--transactional-id", metavar="ID", help="Send in transactions.")
@click.option(
    "--transaction-duration-ms",
    type=click.IntRange(min=1),
    metavar="MS",
    help="Commit after this time. [default: 3000]",
)
@click.option(
    "--warmup-records",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Also report results without the first N records.",
)
@click.option(
    "--reporting-interval",
    type=click.IntRange(min=1),
    default=5000,
    show_default=True,
    metavar="MS",
    help="The reporting interval.",
)
@json_option
def producer_perf_test(
    connection: Connection,
    topic: str,
    num_records: int,
    record_size: int | None,
    payload_file: str | None,
    payload_delimiter: str,
    payload_monotonic: bool,
    throughput: float,
    properties: tuple[str, ...],
    producer_config: dict[str, str],
    print_metrics: bool,
    transactional_id: str | None,
    transaction_duration_ms: int | None,
    warmup_records: int,
    reporting_interval: int,
    as_json: bool,
) -> None:
    """Measure producer throughput."""
    if sum((record_size is not None, payload_file is not None, payload_monotonic)) != 1:
        raise click.UsageError("Expected exactly one of --record-size, --payload-file and --payload-monotonic")
    if throughput == 0 or throughput < -1:
        raise click.UsageError("--throughput: expected records per second, or -1 for no limit")
    if warmup_records >= num_records:
        raise click.UsageError("--warmup-records: expected fewer than --num-records")
    config = {**producer_config, **known_configs(dict(_pair(text) for text in properties))}
    if connection.servers:
        config.pop("bootstrap.servers", None)
    else:
        connection = Connection(str(config.pop("bootstrap.servers", "")), connection.properties)
    check_record_size(record_size, connection.client_config("producer", config))
    payloads = _payloads(record_size, payload_file, payload_delimiter)
    transactional_id = transactional_id or config.pop("transactional.id", None)
    if transactional_id is None and transaction_duration_ms is not None:
        transactional_id = f"performance-producer-{make_random().randrange(1 << 60):x}"
    if transactional_id is not None:
        config["transactional.id"] = transactional_id
    connection.check()
    run: Run | None = None
    metrics: dict[str, Any] = {}
    try:
        with producer(connection.client_config("producer", config)) as client:
            report_seconds = None if as_json else reporting_interval / 1000
            if transactional_id is not None:
                client.init_transactions()
            run = Run(client, topic, payloads, payload_monotonic, throughput, report_seconds, warmup_records)
            try:
                run.send_all(
                    num_records, None if transactional_id is None else (transaction_duration_ms or 3000) / 1000
                )
            finally:
                interrupts.release()
            if print_metrics:
                metrics = dict(sorted(_flat(client.metrics())))
    finally:  # also after Ctrl-C; the producer is closed, so all results are known
        if run is not None:
            run.report(metrics, as_json)
    if run.deliveries.error is not None:
        raise Failure(f"{run.deliveries.failed} records were not delivered: {sentence(run.deliveries.error)}")


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise click.UsageError(f"--producer-props {text!r}: expected KEY=VALUE")
    return key.strip(), value


def _payloads(size: int | None, file: str | None, delimiter: str) -> list[bytes]:
    if size is not None:
        return [letters(size)]
    if file is None:
        return []
    separator = delimiter.replace("\\n", "\n").replace("\\t", "\t").encode()
    if not separator:
        raise click.UsageError("--payload-delimiter is empty; expected at least one character")
    payloads = [part for part in read_file(file).split(separator) if part]
    if not payloads:
        raise click.UsageError(f"--payload-file: {file} is empty")
    make_random(0).shuffle(payloads)
    return payloads


def _flat(metrics: Any, prefix: str = "") -> list[tuple[str, Any]]:
    if not isinstance(metrics, dict):
        return [(prefix, metrics)]
    return [pair for key, value in metrics.items() for pair in _flat(value, f"{prefix}.{key}" if prefix else str(key))]


class Stats:
    """Records acknowledged since a point in time."""

    def __init__(self, now: float):
        self.began = now
        self.records = self.bytes = 0
        self.latencies = Latencies()

    def document(self, now: float) -> dict[str, Any]:
        seconds = max(now - self.began, 1e-9)
        p50, p95, p99, p999 = self.latencies.percentiles(0.5, 0.95, 0.99, 0.999)
        return {
            "records": self.records,
            "records_per_second": self.records / seconds,
            "mb_per_second": self.bytes / seconds / MEGABYTE,
            "mean_ms": self.latencies.mean,
            "max_ms": self.latencies.largest,
            "p50_ms": p50,
            "p95_ms": p95,
            "p99_ms": p99,
            "p99.9_ms": p999,
        }

    def line(self, now: float, is_last: bool) -> str:
        seconds = max(now - self.began, 1e-9)
        rate, megabytes = self.records / seconds, self.bytes / seconds / MEGABYTE
        mean, largest = self.latencies.mean, self.latencies.largest
        if not is_last:
            return (
                f"{self.records} records sent, {rate:.1f} records/sec ({megabytes:.2f} MB/sec), "
                f"{mean:.1f} ms avg latency, {largest:.1f} ms max latency."
            )
        p50, p95, p99, p999 = self.latencies.percentiles(0.5, 0.95, 0.99, 0.999)
        return (
            f"{self.records} records sent, {rate:.6f} records/sec ({megabytes:.2f} MB/sec), {mean:.2f} ms avg latency, "
            f"{largest:.2f} ms max latency, {p50:.0f} ms 50th, {p95:.0f} ms 95th, {p99:.0f} ms 99th, "
            f"{p999:.0f} ms 99.9th."
        )


class Run:
    """One measurement. Callbacks run on the producer's thread and only add to counters."""

    def __init__(
        self,
        producer: "Producer",
        topic: str,
        payloads: list[bytes],
        monotonic: bool,
        throughput: float,
        report_seconds: float | None,
        warmup: int,
    ):
        self._producer, self._topic = producer, topic
        self._payloads, self._monotonic = payloads, monotonic
        self._throughput, self._report_seconds, self._warmup = throughput, report_seconds, warmup
        self._clock = SystemClock()
        now = self._clock.monotonic()
        self._whole, self._window, self._steady = Stats(now), Stats(now), None if warmup == 0 else Stats(now)
        self.deliveries, self._reported = DeliveryCounts(), (0, 0)
        self._ended: float | None = None

    def send_all(self, count: int, transaction_seconds: float | None) -> None:
        producer, topic, clock = self._producer, self._topic, self._clock
        stride = _STRIDE if self._throughput < 0 or self._throughput > _SAMPLED_ABOVE else 1
        began = committed = reported = clock.monotonic()
        payloads = self._payloads
        deliveries, is_steady, is_throttled = self.deliveries, False, self._throughput > 0
        with Progress("records", count) as progress:
            for number in range(count):
                if transaction_seconds is not None and (
                    number == 0 or clock.monotonic() - committed > transaction_seconds
                ):
                    if number:
                        producer.commit_transaction()
                    producer.begin_transaction()
                    committed = clock.monotonic()
                value = b"%d" % number if self._monotonic else payloads[number % len(payloads)]
                if number == self._warmup and self._steady is not None:
                    self._steady = Stats(clock.monotonic())
                    is_steady = True
                began_one = 0.0 if number % stride else clock.monotonic()
                if is_throttled:  # a record that is sent also counts; at full speed `send` may block for long
                    interrupts.hold()
                future = producer.send(topic, value)
                if began_one:
                    future.add_callback(self._timed(began_one, is_steady))
                deliveries.add(future, len(value), is_steady)
                if is_throttled:
                    interrupts.release()
                if number % 256 == 0 or self._throughput > 0:
                    now = clock.monotonic()
                    deliveries.check()
                    progress.add(number + 1 - progress.done, self._whole.latencies.recent)
                    if self._report_seconds is not None and now - reported >= self._report_seconds:
                        progress.clear()
                        self._report_window(now)
                        reported = now
                    if self._throughput > 0:
                        ahead = (number + 1) / self._throughput - (now - began)
                        if ahead > 0.002:
                            clock.sleep(ahead)
            if transaction_seconds is not None:
                producer.commit_transaction()
            producer.flush()
            self._ended = clock.monotonic()

    def report(self, metrics: dict[str, Any], as_json: bool) -> None:
        now = self._ended or self._clock.monotonic()
        self.deliveries.check_all()
        records, size = self.deliveries.records, self.deliveries.bytes
        self._whole.records, self._whole.bytes = sum(records), sum(size)
        if self._steady is not None:
            self._steady.records, self._steady.bytes = records[True], size[True]
        if as_json:
            document = self._whole.document(now)
            if self._steady is not None:
                document["steady_state"] = self._steady.document(now)
            print_json({**document, "metrics": metrics} if metrics else document)
            return
        click.echo(self._whole.line(now, is_last=True))
        if self._steady is not None:
            click.echo("steady state: " + self._steady.line(now, is_last=True))
        for name, value in metrics.items():
            click.echo(f"{name:<60} : {value}")

    def _report_window(self, now: float) -> None:
        window, records, size = self._window, sum(self.deliveries.records), sum(self.deliveries.bytes)
        window.records, window.bytes = records - self._reported[0], size - self._reported[1]
        click.echo(window.line(now, is_last=False))
        self._window, self._reported = Stats(now), (records, size)

    def _timed(self, began: float, is_steady: bool) -> Any:
        clock = self._clock

        def timed(_: Any) -> None:
            passed = (clock.monotonic() - began) * 1000
            self._whole.latencies.add(passed)
            self._window.latencies.add(passed)
            if self._steady is not None and is_steady:
                self._steady.latencies.add(passed)

        return timed
