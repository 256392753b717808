"""`headrace perf`: a producer and a consumer together, with throughput, latency and charts; for any Kafka.

The consumer runs in a process of its own, so that the two do not wait for each other. Each record carries the moment at
which it was sent, of the machine's monotonic clock, which both processes share.
"""

import multiprocessing
import signal
import struct
from multiprocessing.connection import Connection as Pipe
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.connection import Connection, client_key_values, connects
from headrace.cli.connection import producer as connected_producer
from headrace.cli.output import is_terminal, json_option, print_json, styled
from headrace.cli.perf_stats import MEGABYTE, Latencies, Series, bar_lines, spark_line
from headrace.cli.progress import Progress
from headrace.cli.tool import INT_MAX, Failure, Tool
from headrace.common.clock import SystemClock
from headrace.common.ids import make_random
from headrace.common.types import TopicPartition

if TYPE_CHECKING:
    from headrace.client.producer.producer import Producer

_MOMENT = struct.Struct(">d")
_WAIT_MS, _POLL_MS = 10_000, 500
_SHARES = (0.5, 0.95, 0.99, 0.999)


@click.command(cls=Tool)
@connects
@click.option("--topic", metavar="NAME", help="An existing topic; without it one is made, and deleted at the end.")
@click.option(
    "--partitions", type=click.IntRange(1, INT_MAX), default=4, show_default=True, metavar="N", help="Of a new topic."
)
@click.option(
    "--replication-factor",
    type=click.IntRange(1, 32767),
    default=1,
    show_default=True,
    metavar="N",
    help="Of a new topic.",
)
@click.option(
    "--num-records", type=click.IntRange(min=1), default=1_000_000, show_default=True, metavar="N", help="How many."
)
@click.option(
    "--record-size", type=click.IntRange(min=8), default=1000, show_default=True, metavar="BYTES", help="How large."
)
@click.option(
    "--throughput", type=float, default=-1, metavar="N", help="At most so many a second; latency means more then."
)
@click.option(
    "--producer-property",
    "producer",
    multiple=True,
    metavar="KEY=VALUE",
    callback=client_key_values,
    help="A setting of the producer.",
)
@click.option(
    "--consumer-property",
    "consumer",
    multiple=True,
    metavar="KEY=VALUE",
    callback=client_key_values,
    help="A setting of the consumer.",
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
    """Measure producing and consuming together."""
    from headrace.client.admin.types import NewTopic

    if throughput == 0:
        raise click.UsageError("--throughput 0: expected records a second, or -1 for no limit")
    name = topic or f"headrace-perf-{make_random().randrange(1 << 32):08x}"
    with connection.admin() as admin:
        if topic is None:
            admin.create_topics([NewTopic(name, partitions, replication_factor)])
        elif topic not in admin.list_topics():
            raise Failure(f"there is no topic {topic!r}")
        try:
            results = _measure(connection, name, num_records, record_size, throughput, producer, consumer)
        finally:
            if topic is None:
                admin.delete_topics([name])
    interrupted = results.pop("interrupted")
    if as_json:
        print_json({side: found["summary"] for side, found in results.items()})
    else:
        for side, found in results.items():
            _print(side, found)
    if interrupted:
        raise KeyboardInterrupt
    if results["consumer"]["summary"]["records"] < num_records:
        raise Failure(f"only {results['consumer']['summary']['records']} of {num_records} records came back")


def _measure(
    connection: Connection,
    topic: str,
    count: int,
    size: int,
    throughput: float,
    producer: dict[str, str],
    consumer: dict[str, str],
) -> dict[str, Any]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    settings = connection.settings("consumer", consumer)
    reader = context.Process(target=read_all, args=(theirs, settings, topic, count), daemon=True)
    reader.start()
    theirs.close()
    sending = Sending(connection.settings("producer", producer), topic, count, size, throughput)
    try:
        _hear(ours)  # it is at the end of the topic
        interrupted = False
        try:
            sending.run()
        except KeyboardInterrupt:
            interrupted = True
        try:
            if interrupted:
                ours.send(None)  # enough
            read = _hear(ours)
        except KeyboardInterrupt:
            interrupted = True
            ours.send(None)
            read = _hear(ours)
        return {"producer": sending.found(), "consumer": read, "interrupted": interrupted}
    finally:
        reader.terminate()
        reader.join()


def _hear(pipe: Pipe) -> Any:
    try:
        kind, found = pipe.recv()
    except (EOFError, OSError):
        raise Failure("the process that reads has ended without a word") from None
    if kind == "error":
        raise Failure(f"the consumer failed: {found}")
    return found


class Sending:
    """The producer's side."""

    def __init__(self, settings: dict[str, Any], topic: str, count: int, size: int, throughput: float):
        self._settings, self._topic = settings, topic
        self._count, self._size, self._throughput = count, size, throughput
        self._clock = SystemClock()
        self._latencies, self._series = Latencies(), Series()
        self._sent, self._seconds = 0, 0.0

    def run(self) -> None:
        rest = bytes(make_random(0).choices(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", k=self._size - _MOMENT.size))
        with connected_producer(self._settings) as producer, Progress("records", self._count) as progress:
            began = self._clock.monotonic()
            try:
                self._send(producer, rest, began, progress)
                producer.flush()
            finally:
                self._seconds = self._clock.monotonic() - began

    def _send(self, producer: "Producer", rest: bytes, began: float, progress: Progress) -> None:
        clock, latencies, series = self._clock, self._latencies, self._series
        topic, throughput = self._topic, self._throughput
        stride = 16 if throughput < 0 or throughput > 20_000 else 1
        for number in range(self._count):
            now = clock.monotonic()
            if throughput > 0 and number / throughput - (now - began) > 0.002:
                clock.sleep(number / throughput - (now - began))
                now = clock.monotonic()
            future = producer.send(topic, _MOMENT.pack(now) + rest)
            if number % stride == 0:
                future.add_callback(_timer(latencies, clock, now))
            series.add(int(now - began), 1)
            self._sent = number + 1
            if number % 256 == 0 or throughput > 0:
                progress.add(number + 1 - progress.done, latencies.recent)

    def found(self) -> dict[str, Any]:
        return _found(self._sent, self._sent * self._size, self._seconds, self._latencies, self._series)


def _timer(latencies: Latencies, clock: SystemClock, began: float) -> Any:
    return lambda _: latencies.add((clock.monotonic() - began) * 1000)


def read_all(pipe: Pipe, settings: dict[str, Any], topic: str, count: int) -> None:
    """The reading process: says when it is ready, and what it found."""
    from headrace.client.consumer.consumer import Consumer
    from headrace.common.errors import HeadraceError

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the sender hears it, and says when it is enough
    try:
        with Consumer({**settings, "auto.offset.reset": "latest"}) as consumer:
            chosen = [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic) or ())]
            consumer.assign(chosen)
            consumer.seek_to_end(*chosen)
            for tp in chosen:
                consumer.position(tp)
            pipe.send(("ready", None))
            pipe.send(("done", _read(consumer, count, pipe)))
    except (HeadraceError, OSError) as error:
        pipe.send(("error", str(error)))


def _read(consumer: Any, count: int, pipe: Pipe) -> dict[str, Any]:
    clock = SystemClock()
    latencies, series = Latencies(), Series()
    records = size = 0
    began = last = None
    heard = clock.monotonic()
    while records < count and not pipe.poll():
        polled = consumer.poll(_POLL_MS)
        now = clock.monotonic()
        if not polled:
            if (now - heard) * 1000 > _WAIT_MS:
                break
            continue
        heard = now
        began = now if began is None else began
        last = now
        for part in polled.values():
            records += len(part)
            series.add(int(now - began), len(part))
            for record in part:
                size += len(record.value)
            # The first and the last of a portion: the others lie between them.
            for record in (part[0], part[-1]):
                latencies.add((now - _MOMENT.unpack_from(record.value)[0]) * 1000)
    return _found(records, size, (last or 0) - (began or 0), latencies, series)


def _found(records: int, size: int, seconds: float, latencies: Latencies, series: Series) -> dict[str, Any]:
    seconds = max(seconds, 1e-9)
    names = ("p50_ms", "p95_ms", "p99_ms", "p99.9_ms")
    return {
        "summary": {
            "records": records,
            "seconds": round(seconds, 3),
            "records_per_second": round(records / seconds, 1),
            "mb_per_second": round(size / seconds / MEGABYTE, 2),
            **{name: round(value, 3) for name, value in zip(names, latencies.percentiles(*_SHARES), strict=True)},
            "max_ms": round(latencies.largest, 3),
        },
        "series": series.counts,
        "bars": bar_lines(latencies, 40),
    }


def _print(side: str, found: dict[str, Any]) -> None:
    summary = found["summary"]
    what = "send to acknowledgement" if side == "producer" else "send to poll"
    click.echo(
        f"{styled(side, bold=True)}: {summary['records']:,} records in {summary['seconds']} s, "
        f"{summary['records_per_second']:,.0f} records/s, {summary['mb_per_second']} MB/s"
    )
    click.echo(
        f"  latency, {what}: p50 {summary['p50_ms']} ms, p95 {summary['p95_ms']} ms, p99 {summary['p99_ms']} ms, "
        f"p99.9 {summary['p99.9_ms']} ms, max {summary['max_ms']} ms"
    )
    if len(found["series"]) > 1:
        click.echo(f"  each second  {spark_line(found['series'])}")
    for line in found["bars"]:
        click.echo("  " + (styled(line, fg="cyan") if is_terminal() else line))
