"""`headrace producer-perf-test`: how fast records can be sent, with the flags of `kafka-producer-perf-test.sh`.

    20000 records sent, 38395.508543 records/sec (3.66 MB/sec), 4.59 ms avg latency, 41.00 ms max latency ...

Latency is from `send` to the acknowledgement. Above 20,000 records a second it is taken of every 16th record, since the
measuring would cost more than the sending.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.client_settings import understood
from headrace.cli.connection import Connection, connects_if_asked, producer, read_client_config
from headrace.cli.perf_stats import MEGABYTE, Latencies
from headrace.cli.progress import Progress
from headrace.cli.tool import Failure, Tool, sentence
from headrace.common.clock import SystemClock
from headrace.common.ids import make_random

if TYPE_CHECKING:
    from headrace.client.producer.producer import Producer

_MANY = ("--producer-props", "--command-property")
_SAMPLED_ABOVE = 20_000
_STRIDE = 16


class _ManyValues(Tool):
    """Lets a flag have several values, as Kafka's tool does: `--producer-props acks=1 linger.ms=5`."""

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
@connects_if_asked
@click.option("--topic", metavar="NAME", required=True, help="The topic.")
@click.option("--num-records", type=click.IntRange(min=1), metavar="N", required=True, help="How many to send.")
@click.option("--record-size", type=click.IntRange(min=1), metavar="BYTES", help="Records of so many random letters.")
@click.option("--payload-file", metavar="FILE", help="Records from a file, in random order.")
@click.option("--payload-delimiter", default="\\n", metavar="TEXT", help="What is between the records of the file.")
@click.option("--payload-monotonic", is_flag=True, help="Records are the numbers from 0 on.")
@click.option("--throughput", type=float, metavar="N", required=True, help="At most so many a second; -1: no limit.")
@click.option(
    "--producer-props",
    "--command-property",
    "properties",
    multiple=True,
    metavar="KEY=VALUE ...",
    help="Settings of the producer.",
)
@click.option(
    "--producer.config", "producer_config", metavar="FILE", callback=read_client_config, help="Settings, in a file."
)
@click.option("--print-metrics", is_flag=True, help="Print the producer's metrics at the end.")
@click.option("--transactional-id", metavar="ID", help="Send in transactions.")
@click.option(
    "--transaction-duration-ms", type=click.IntRange(min=1), metavar="MS", help="Commit after so long. [default: 3000]"
)
@click.option(
    "--warmup-records", type=click.IntRange(min=0), default=0, metavar="N", help="Report the rest alone, too."
)
@click.option(
    "--reporting-interval", type=click.IntRange(min=1), default=5000, show_default=True, metavar="MS", help="How often."
)
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
) -> None:
    """Measure how fast records can be sent."""
    if sum((record_size is not None, payload_file is not None, payload_monotonic)) != 1:
        raise click.UsageError("expected exactly one of --record-size, --payload-file and --payload-monotonic")
    if throughput == 0 or throughput < -1:
        raise click.UsageError("--throughput: expected records a second, or -1 for no limit")
    if warmup_records >= num_records:
        raise click.UsageError("--warmup-records: expected fewer than --num-records")
    settings = {**producer_config, **understood(dict(_pair(each) for each in properties))}
    if connection.servers:
        settings.pop("bootstrap.servers", None)
    else:
        connection = Connection(str(settings.pop("bootstrap.servers", "")), connection.properties)
    payloads = _payloads(record_size, payload_file, payload_delimiter)
    transactional_id = transactional_id or settings.pop("transactional.id", None)
    if transactional_id is None and transaction_duration_ms is not None:
        transactional_id = f"performance-producer-{make_random().randrange(1 << 60):x}"
    if transactional_id is not None:
        settings["transactional.id"] = transactional_id
    connection.check()
    with producer(connection.settings("producer", settings)) as made:
        run = Run(made, topic, payloads, payload_monotonic, throughput, reporting_interval / 1000, warmup_records)
        if transactional_id is None:
            run.send_all(num_records, None)
        else:
            made.init_transactions()
            run.send_all(num_records, (transaction_duration_ms or 3000) / 1000)
        if print_metrics:
            for name, value in sorted(_flat(made.metrics())):
                click.echo(f"{name:<60} : {value}")
    if run.failed:
        raise Failure(f"{run.failed} records were not delivered: {sentence(run.error)}")


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise click.UsageError(f"--producer-props {text!r}: expected KEY=VALUE")
    return key.strip(), value


def _payloads(size: int | None, file: str | None, delimiter: str) -> list[bytes]:
    random = make_random(0)
    if size is not None:
        return [bytes(random.choices(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", k=size))]
    if file is None:
        return []
    if not Path(file).is_file():
        raise click.UsageError(f"--payload-file: there is no file {file!r}")
    separator = delimiter.replace("\\n", "\n").replace("\\t", "\t").encode()
    found = [part for part in Path(file).read_bytes().split(separator) if part]
    if not found:
        raise click.UsageError(f"--payload-file: {file} is empty")
    random.shuffle(found)
    return found


def _flat(metrics: Any, prefix: str = "") -> list[tuple[str, Any]]:
    if not isinstance(metrics, dict):
        return [(prefix, metrics)]
    return [pair for key, value in metrics.items() for pair in _flat(value, f"{prefix}.{key}" if prefix else str(key))]


class Stats:
    """What was acknowledged since a moment."""

    def __init__(self, now: float):
        self.began = now
        self.records = self.bytes = 0
        self.latencies = Latencies()

    def sent(self, count: int, size: int) -> None:
        self.records += count
        self.bytes += size

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
    """One measurement. Callbacks come on the producer's thread; what they touch is only added to."""

    def __init__(
        self,
        producer: "Producer",
        topic: str,
        payloads: list[bytes],
        monotonic: bool,
        throughput: float,
        report_seconds: float,
        warmup: int,
    ):
        self._producer, self._topic = producer, topic
        self._payloads, self._monotonic = payloads, monotonic
        self._throughput, self._report_seconds, self._warmup = throughput, report_seconds, warmup
        self._clock = SystemClock()
        now = self._clock.monotonic()
        self._whole, self._window, self._steady = Stats(now), Stats(now), None if warmup == 0 else Stats(now)
        self.failed = 0
        self.error: BaseException = Failure("none")

    def send_all(self, count: int, transaction_seconds: float | None) -> None:
        try:
            self._send_all(count, transaction_seconds)
        finally:  # after Ctrl-C too
            self._report()

    def _send_all(self, count: int, transaction_seconds: float | None) -> None:
        producer, topic, clock = self._producer, self._topic, self._clock
        stride = _STRIDE if self._throughput < 0 or self._throughput > _SAMPLED_ABOVE else 1
        began = committed = reported = clock.monotonic()
        payloads = self._payloads
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
                if number % stride:
                    producer.send(topic, value).add_errback(self._fail)
                else:
                    self._send_timed(value, number)
                self._count(len(value), number)
                if number % 256 == 0 or self._throughput > 0:
                    now = clock.monotonic()
                    progress.add(number + 1 - progress.done, self._whole.latencies.recent)
                    if now - reported >= self._report_seconds:
                        progress.clear()
                        click.echo(self._window.line(now, is_last=False))
                        self._window, reported = Stats(now), now
                    if self._throughput > 0:
                        ahead = (number + 1) / self._throughput - (now - began)
                        if ahead > 0.002:
                            clock.sleep(ahead)
            if transaction_seconds is not None:
                producer.commit_transaction()
            producer.flush()

    def _report(self) -> None:
        now = self._clock.monotonic()
        click.echo(self._whole.line(now, is_last=True))
        if self._steady is not None:
            click.echo("steady state: " + self._steady.line(now, is_last=True))

    def _count(self, size: int, number: int) -> None:
        self._whole.sent(1, size)
        self._window.sent(1, size)
        if self._steady is not None and number >= self._warmup:
            self._steady.sent(1, size)

    def _send_timed(self, value: bytes, number: int) -> None:
        clock = self._clock
        began = clock.monotonic()

        def done(_: Any) -> None:
            passed = (clock.monotonic() - began) * 1000
            self._whole.latencies.add(passed)
            self._window.latencies.add(passed)
            if self._steady is not None and number >= self._warmup:
                self._steady.latencies.add(passed)

        self._producer.send(self._topic, value).add_callback(done).add_errback(self._fail)

    def _fail(self, error: BaseException) -> None:
        if not self.failed:
            self.error = error
        self.failed += 1
