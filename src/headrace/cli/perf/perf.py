"""`headrace perf`: measures throughput and latency of a producer and a consumer that run at the same time.

The consumer runs in its own process, so that the two do not wait for each other. Each record contains its send time by
the monotonic clock, which both processes share. Only acknowledged records count. Records of other producers in the
same topic are ignored.
"""

import multiprocessing
import signal
import struct
from contextlib import suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection as Pipe
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.common.connection import Connection, check_record_size, client_key_values, connection_options
from headrace.cli.common.connection import producer as connected_producer
from headrace.cli.common.names import complete_topics
from headrace.cli.common.output import is_terminal, json_option, print_json, styled
from headrace.cli.common.progress import Progress
from headrace.cli.common.tool import INT_MAX, Failure, Tool, sentence
from headrace.cli.perf.perf_stats import MEGABYTE, DeliveryCounts, Latencies, Series, bar_lines, letters, spark_line
from headrace.common.clock import SystemClock
from headrace.common.ids import make_random
from headrace.common.types import TopicPartition

if TYPE_CHECKING:
    from headrace.client.producer.producer import Producer

_SEND_TIME = struct.Struct(">d")
_WAIT_MS, _POLL_MS = 10_000, 500
_PERCENTILES = (0.5, 0.95, 0.99, 0.999)
_READER_DIED = "The consumer process ended unexpectedly"


@click.command(cls=Tool)
@connection_options
@click.option(
    "--topic", shell_complete=complete_topics, metavar="NAME", help="An existing topic; default: a temporary topic."
)
@click.option(
    "--partitions",
    type=click.IntRange(1, INT_MAX),
    default=4,
    show_default=True,
    metavar="N",
    help="Partitions of the temporary topic.",
)
@click.option(
    "--replication-factor",
    type=click.IntRange(1, 32767),
    default=1,
    show_default=True,
    metavar="N",
    help="Replication factor of the temporary topic.",
)
@click.option(
    "--num-records",
    type=click.IntRange(min=1),
    default=1_000_000,
    show_default=True,
    metavar="N",
    help="Number of records.",
)
@click.option(
    "--record-size",
    type=click.IntRange(8, INT_MAX),
    default=1000,
    show_default=True,
    metavar="BYTES",
    help="Size of each record.",
)
@click.option(
    "--throughput",
    type=float,
    default=-1,
    metavar="N",
    help="Maximum records per second, for meaningful latencies; -1: no limit.",
)
@click.option(
    "--producer-property",
    "producer",
    multiple=True,
    metavar="KEY=VALUE",
    callback=client_key_values,
    help="A producer config.",
)
@click.option(
    "--consumer-property",
    "consumer",
    multiple=True,
    metavar="KEY=VALUE",
    callback=client_key_values,
    help="A consumer config.",
)
@json_option
def perf(
    connection: Connection,
    topic: str | None,
    partitions: int,
    replication_factor: int,
    num_records: int,
    record_size: int,
    throughput: float,
    producer: dict[str, str],
    consumer: dict[str, str],
    as_json: bool,
) -> None:
    """Measure producing and consuming at the same time."""
    from headrace.client.admin.types import NewTopic

    if throughput == 0:
        raise click.UsageError("--throughput 0: expected records per second, or -1 for no limit")
    check_record_size(record_size, connection.client_config("producer", producer))
    name = topic or f"headrace-perf-{make_random().randrange(1 << 32):08x}"
    with connection.admin() as admin:
        if topic is None:
            admin.create_topics([NewTopic(name, partitions, replication_factor)])
        elif topic not in admin.list_topics():
            raise Failure(f"Topic {topic!r} does not exist")
        try:
            sender = SendRun(connection.client_config("producer", producer), name, num_records, record_size, throughput)
            read, interrupt = _measure(
                sender, connection.client_config("consumer", consumer), name, num_records, record_size
            )
        finally:
            if topic is None:
                admin.delete_topics([name])
    results = {"producer": sender.result(), "consumer": read}
    if as_json:
        print_json({side: result["summary"] for side, result in results.items()})
    else:
        for side, result in results.items():
            _print(side, result)
    if interrupt is not None:
        raise interrupt
    if sender.deliveries.error is not None:
        failed, error = sender.deliveries.failed, sentence(sender.deliveries.error)
        raise Failure(f"{failed} of {sender.sent} records were not delivered: {error}")
    if read["summary"]["records"] < num_records:
        raise Failure(f"The consumer received only {read['summary']['records']} of {num_records} records")


def _measure(
    sender: "SendRun", consumer: dict[str, Any], topic: str, count: int, size: int
) -> tuple[dict[str, Any], KeyboardInterrupt | None]:
    """Returns the consumer's results, and the interrupt (Ctrl-C or SIGTERM) that ended the run early."""
    context = multiprocessing.get_context("spawn")
    parent_end, child_end = context.Pipe()
    reader = context.Process(target=read_all, args=(child_end, consumer, topic, count, size), daemon=True)
    _start_without_signals(reader)
    child_end.close()
    interrupt: KeyboardInterrupt | None = None
    try:
        _receive(parent_end)  # the consumer is at the end of the topic
        try:
            sender.run()
            if sender.deliveries.failed:
                parent_end.send(sender.acknowledged)  # the other records were never written
            read = _receive(parent_end)
        except KeyboardInterrupt as error:
            interrupt = error
            parent_end.send(None)  # stop
            read = _receive(parent_end)
        return read, interrupt
    except BrokenPipeError:
        raise Failure(_READER_DIED) from None
    finally:
        reader.kill()
        reader.join()


def _start_without_signals(process: Any) -> None:
    """Starts a process that ignores Ctrl-C and SIGTERM from the start. Its parent handles them and tells it to stop."""
    resource_tracker.ensure_running()  # otherwise process.start() starts it and unblocks the signals
    previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)


def _receive(pipe: Pipe) -> Any:
    try:
        kind, content = pipe.recv()
    except (EOFError, OSError):
        raise Failure(_READER_DIED) from None
    if kind == "error":
        raise Failure(f"The consumer failed: {content}")
    return content


class SendRun:
    """Sends the records and measures latency."""

    def __init__(self, config: dict[str, Any], topic: str, count: int, size: int, throughput: float):
        self._config, self._topic = config, topic
        self._count, self._size, self._throughput = count, size, throughput
        self._clock = SystemClock()
        self._latencies, self._series = Latencies(), Series()
        self._seconds = 0.0
        self.deliveries = DeliveryCounts()
        self.sent = 0

    @property
    def acknowledged(self) -> int:
        return sum(self.deliveries.records)

    def run(self) -> None:
        padding = letters(self._size - _SEND_TIME.size)
        started = self._clock.monotonic()
        try:
            with connected_producer(self._config) as producer, Progress("records", self._count) as progress:
                started = self._clock.monotonic()
                self._send(producer, padding, started, progress)
                producer.flush()
                self._seconds = self._clock.monotonic() - started
        finally:  # the producer is closed, so unacknowledged records have failed
            self._seconds = self._seconds or self._clock.monotonic() - started
            self.deliveries.check_all()

    def _send(self, producer: "Producer", padding: bytes, started: float, progress: Progress) -> None:
        clock, latencies, series = self._clock, self._latencies, self._series
        topic, throughput, size = self._topic, self._throughput, self._size
        deliveries = self.deliveries
        stride = 16 if throughput < 0 or throughput > 20_000 else 1
        for number in range(self._count):
            now = clock.monotonic()
            if throughput > 0 and number / throughput - (now - started) > 0.002:
                clock.sleep(number / throughput - (now - started))
                now = clock.monotonic()
            self.sent = number + 1
            future = producer.send(topic, _SEND_TIME.pack(now) + padding)
            deliveries.add(future, size)
            if number % stride == 0:
                future.add_callback(_timer(latencies, clock, now))
            series.add(int(now - started), 1)
            if number % 256 == 0 or throughput > 0:
                deliveries.check()
                progress.add(number + 1 - progress.done, latencies.recent)

    def result(self) -> dict[str, Any]:
        count = self.acknowledged
        return _result(count, count * self._size, self._seconds, self._latencies, self._series)


def _timer(latencies: Latencies, clock: SystemClock, started: float) -> Any:
    return lambda _: latencies.add((clock.monotonic() - started) * 1000)


def read_all(pipe: Pipe, config: dict[str, Any], topic: str, count: int, size: int) -> None:
    """Runs in the consumer process: reports that it is ready, and then its results."""
    from headrace.client.consumer.consumer import Consumer

    try:
        with Consumer({**config, "auto.offset.reset": "latest"}) as consumer:
            partitions = [
                TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic) or ())
            ]
            consumer.assign(partitions)
            consumer.seek_to_end(*partitions)
            for tp in partitions:
                consumer.position(tp)
            pipe.send(("ready", None))
            pipe.send(("done", read_records(consumer, count, size, pipe)))
    except Exception as error:  # noqa: BLE001 - the parent process reports it
        with suppress(OSError):  # the parent has exited
            pipe.send(("error", sentence(error)))


def read_records(consumer: Any, count: int, size: int, pipe: Pipe) -> dict[str, Any]:
    """Reads `count` records. The parent may send a lower count through the pipe, or None to stop."""
    clock = SystemClock()
    latencies, series = Latencies(), Series()
    records = 0
    started = last = None
    ready = received_at = clock.monotonic()
    while records < count:
        if pipe.poll():
            message = pipe.recv()
            if message is None:
                break
            count = message
            continue
        polled = consumer.poll(_POLL_MS)
        now = clock.monotonic()
        parts = [
            [record for record in part if record.value is not None and len(record.value) == size]
            for part in polled.values()
        ]
        if not any(parts):
            if (now - received_at) * 1000 > _WAIT_MS:
                break
            continue
        received_at = now
        if started is None:
            # From the time when the first record was sent: a single poll may return all records.
            sent = [_SEND_TIME.unpack_from(record.value)[0] for part in parts for record in part[:1]]
            started = min((at for at in sent if ready <= at <= now), default=ready)
        last = now
        for part in parts:
            records += len(part)
            series.add(int(now - started), len(part))
            # The latencies of the others lie between those of the first and the last.
            for record in part[:1] + part[-1:]:
                sent_at = _SEND_TIME.unpack_from(record.value)[0]
                if ready <= sent_at <= now:  # otherwise another producer wrote it
                    latencies.add((now - sent_at) * 1000)
    return _result(records, records * size, (last or 0) - (started or 0), latencies, series)


def _result(records: int, size: int, seconds: float, latencies: Latencies, series: Series) -> dict[str, Any]:
    seconds = max(seconds, 1e-9)
    names = ("p50_ms", "p95_ms", "p99_ms", "p99.9_ms")
    return {
        "summary": {
            "records": records,
            "seconds": round(seconds, 3),
            "records_per_second": round(records / seconds, 1),
            "mb_per_second": round(size / seconds / MEGABYTE, 2),
            **{name: round(value, 3) for name, value in zip(names, latencies.percentiles(*_PERCENTILES), strict=True)},
            "max_ms": round(latencies.largest, 3),
        },
        "series": series.counts,
        "bars": bar_lines(latencies, 40),
    }


def _print(side: str, result: dict[str, Any]) -> None:
    summary = result["summary"]
    what = "send to acknowledgment" if side == "producer" else "send to poll"
    click.echo(
        f"{styled(side, bold=True)}: {summary['records']:,} records in {summary['seconds']} s, "
        f"{summary['records_per_second']:,.0f} records/s, {summary['mb_per_second']} MB/s"
    )
    click.echo(
        f"  latency, {what}: p50 {summary['p50_ms']} ms, p95 {summary['p95_ms']} ms, p99 {summary['p99_ms']} ms, "
        f"p99.9 {summary['p99.9_ms']} ms, max {summary['max_ms']} ms"
    )
    if len(result["series"]) > 1:
        click.echo(f"  per second  {spark_line(result['series'])}")
    for line in result["bars"]:
        click.echo("  " + (styled(line, fg="cyan") if is_terminal() else line))
