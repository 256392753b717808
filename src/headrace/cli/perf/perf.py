"""`headrace perf`: a producer and a consumer together, with throughput, latency and charts; for any Kafka.

The consumer runs in a process of its own, so that the two do not wait for each other. Each record carries the moment at
which it was sent, of the machine's monotonic clock, which both processes share. Of the producer's records those count
that were acknowledged; records of others in the same topic are passed over.
"""

import multiprocessing
import signal
import struct
from contextlib import suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection as Pipe
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.common.connection import Connection, check_record_size, client_key_values, connects
from headrace.cli.common.connection import producer as connected_producer
from headrace.cli.common.output import is_terminal, json_option, print_json, styled
from headrace.cli.common.progress import Progress
from headrace.cli.common.tool import INT_MAX, Failure, Tool, sentence
from headrace.cli.perf.perf_stats import MEGABYTE, Latencies, Outcomes, Series, bar_lines, letters, spark_line
from headrace.common.clock import SystemClock
from headrace.common.ids import make_random
from headrace.common.types import TopicPartition

if TYPE_CHECKING:
    from headrace.client.producer.producer import Producer

_MOMENT = struct.Struct(">d")
_WAIT_MS, _POLL_MS = 10_000, 500
_SHARES = (0.5, 0.95, 0.99, 0.999)
_GONE = "the process that reads has ended without a word"


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
    "--record-size",
    type=click.IntRange(8, INT_MAX),
    default=1000,
    show_default=True,
    metavar="BYTES",
    help="How large.",
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
    check_record_size(record_size, connection.settings("producer", producer))
    name = topic or f"headrace-perf-{make_random().randrange(1 << 32):08x}"
    with connection.admin() as admin:
        if topic is None:
            admin.create_topics([NewTopic(name, partitions, replication_factor)])
        elif topic not in admin.list_topics():
            raise Failure(f"there is no topic {topic!r}")
        try:
            sender = Sending(connection.settings("producer", producer), name, num_records, record_size, throughput)
            read, interrupt = _measure(
                sender, connection.settings("consumer", consumer), name, num_records, record_size
            )
        finally:
            if topic is None:
                admin.delete_topics([name])
    results = {"producer": sender.found(), "consumer": read}
    if as_json:
        print_json({side: found["summary"] for side, found in results.items()})
    else:
        for side, found in results.items():
            _print(side, found)
    if interrupt is not None:
        raise interrupt
    if sender.outcomes.error is not None:
        failed, error = sender.outcomes.failed, sentence(sender.outcomes.error)
        raise Failure(f"{failed} of {sender.sent} records were not delivered: {error}")
    if read["summary"]["records"] < num_records:
        raise Failure(f"only {read['summary']['records']} of {num_records} records came back")


def _measure(
    sender: "Sending", consumer: dict[str, Any], topic: str, count: int, size: int
) -> tuple[dict[str, Any], KeyboardInterrupt | None]:
    """What the consumer found, and what has put an end to it early: Ctrl-C or SIGTERM."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    reader = context.Process(target=read_all, args=(theirs, consumer, topic, count, size), daemon=True)
    _start_deaf(reader)
    theirs.close()
    interrupt: KeyboardInterrupt | None = None
    try:
        _hear(ours)  # it is at the end of the topic
        try:
            sender.run()
            if sender.outcomes.failed:
                ours.send(sender.acknowledged)  # the others will not come
            read = _hear(ours)
        except KeyboardInterrupt as error:
            interrupt = error
            ours.send(None)  # enough
            read = _hear(ours)
        return read, interrupt
    except BrokenPipeError:
        raise Failure(_GONE) from None
    finally:
        reader.kill()
        reader.join()


def _start_deaf(process: Any) -> None:
    """Starts a process that hears neither Ctrl-C nor SIGTERM, from its first moment on: its parent hears them, and says
    when it is enough."""
    resource_tracker.ensure_running()  # or it would be started now, and end the blocking
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _hear(pipe: Pipe) -> Any:
    try:
        kind, found = pipe.recv()
    except (EOFError, OSError):
        raise Failure(_GONE) from None
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
        self._seconds = 0.0
        self.outcomes = Outcomes()
        self.sent = 0

    @property
    def acknowledged(self) -> int:
        return sum(self.outcomes.records)

    def run(self) -> None:
        rest = letters(self._size - _MOMENT.size)
        began = self._clock.monotonic()
        try:
            with connected_producer(self._settings) as producer, Progress("records", self._count) as progress:
                began = self._clock.monotonic()
                self._send(producer, rest, began, progress)
                producer.flush()
                self._seconds = self._clock.monotonic() - began
        finally:  # the producer is closed: what is not acknowledged now has failed
            self._seconds = self._seconds or self._clock.monotonic() - began
            self.outcomes.look_at_all()

    def _send(self, producer: "Producer", rest: bytes, began: float, progress: Progress) -> None:
        clock, latencies, series = self._clock, self._latencies, self._series
        topic, throughput, size = self._topic, self._throughput, self._size
        outcomes = self.outcomes
        stride = 16 if throughput < 0 or throughput > 20_000 else 1
        for number in range(self._count):
            now = clock.monotonic()
            if throughput > 0 and number / throughput - (now - began) > 0.002:
                clock.sleep(number / throughput - (now - began))
                now = clock.monotonic()
            self.sent = number + 1
            future = producer.send(topic, _MOMENT.pack(now) + rest)
            outcomes.add(future, size)
            if number % stride == 0:
                future.add_callback(_timer(latencies, clock, now))
            series.add(int(now - began), 1)
            if number % 256 == 0 or throughput > 0:
                outcomes.look()
                progress.add(number + 1 - progress.done, latencies.recent)

    def found(self) -> dict[str, Any]:
        count = self.acknowledged
        return _found(count, count * self._size, self._seconds, self._latencies, self._series)


def _timer(latencies: Latencies, clock: SystemClock, began: float) -> Any:
    return lambda _: latencies.add((clock.monotonic() - began) * 1000)


def read_all(pipe: Pipe, settings: dict[str, Any], topic: str, count: int, size: int) -> None:
    """The reading process: says when it is ready, and what it found."""
    from headrace.client.consumer.consumer import Consumer

    try:
        with Consumer({**settings, "auto.offset.reset": "latest"}) as consumer:
            chosen = [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic) or ())]
            consumer.assign(chosen)
            consumer.seek_to_end(*chosen)
            for tp in chosen:
                consumer.position(tp)
            pipe.send(("ready", None))
            pipe.send(("done", read_records(consumer, count, size, pipe)))
    except Exception as error:  # noqa: BLE001 - the sender tells it: a traceback of this process is for nobody
        with suppress(OSError):  # the sender has gone
            pipe.send(("error", sentence(error)))


def read_records(consumer: Any, count: int, size: int, pipe: Pipe) -> dict[str, Any]:
    """Reads so many records of the sender, or as many as it says by then; None says that it is enough."""
    clock = SystemClock()
    latencies, series = Latencies(), Series()
    records = 0
    began = last = None
    ready = heard = clock.monotonic()
    while records < count:
        if pipe.poll():
            word = pipe.recv()
            if word is None:
                break
            count = word
            continue
        polled = consumer.poll(_POLL_MS)
        now = clock.monotonic()
        parts = [
            [each for each in part if each.value is not None and len(each.value) == size] for part in polled.values()
        ]
        if not any(parts):
            if (now - heard) * 1000 > _WAIT_MS:
                break
            continue
        heard = now
        began = now if began is None else began
        last = now
        for part in parts:
            records += len(part)
            series.add(int(now - began), len(part))
            # The first and the last of a portion: the others lie between them.
            for record in part[:1] + part[-1:]:
                moment = _MOMENT.unpack_from(record.value)[0]
                if ready <= moment <= now:  # or it is of somebody else
                    latencies.add((now - moment) * 1000)
    return _found(records, records * size, (last or 0) - (began or 0), latencies, series)


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
