"""`headrace replica-verification`: compares the replicas of partitions, with the flags of
`kafka-replica-verification.sh`.

Reads the same offsets from all replicas of each partition, and compares the checksums of their batches. Prints each
difference, and now and then the largest lag, as Kafka's tool does.
"""

import asyncio
import re
import time
from collections.abc import Iterable, Mapping

import click

from headrace.cli.common.connection import Connection, broker_list_options
from headrace.cli.common.tool import LONG_MAX, Failure, Tool, sentence
from headrace.cli.replicas.comparison import Comparison, compare
from headrace.client.replica_reader import ReplicaRead, ReplicaReader
from headrace.common.clock import Clock, SystemClock
from headrace.common.errors import HeadraceError
from headrace.common.types import TopicPartition

_INT_MAX = 2**31 - 1


@click.command("replica-verification", cls=Tool)
@broker_list_options
@click.option(
    "--fetch-size", type=click.IntRange(1, _INT_MAX), default=1048576, help="The fetch size of each request, in bytes."
)
@click.option(
    "--max-wait-ms",
    type=click.IntRange(0, _INT_MAX),
    default=1000,
    help="How long a broker waits for records, in each request.",
)
@click.option("--topics-include", metavar="REGEX", default=".*", help="The topics to verify; default: all.")
@click.option(
    "--time",
    "timestamp",
    type=click.IntRange(-2, LONG_MAX),
    default=-1,
    help="Where to begin: a timestamp in ms, -1 for the latest offsets (default), -2 for the earliest.",
)
@click.option(
    "--report-interval-ms", type=click.IntRange(0, LONG_MAX), default=30_000, help="How often to print the largest lag."
)
@click.option(
    "--once",
    is_flag=True,
    help="Stop when the records up to now were compared; exit code 1 if replicas differ, or a broker cannot be read. "
    "Without it, the tool runs until Ctrl-C.",
)
def replica_verification(
    connection: Connection,
    fetch_size: int,
    max_wait_ms: int,
    topics_include: str,
    timestamp: int,
    report_interval_ms: int,
    once: bool,
) -> None:
    """Compare the replicas of partitions, batch by batch. Topics with compaction may differ: brokers compact them at
    different times."""
    try:
        pattern = re.compile(topics_include)
    except re.error as error:
        raise click.UsageError(f"--topics-include {topics_include!r} is not a valid regex: {error}") from None
    with connection.admin():
        pass  # fails early, and with a good message, if no broker can be reached
    verification = Verification(
        connection.client_config("admin"),
        SystemClock(),
        fetch_size=fetch_size,
        max_wait_ms=max_wait_ms,
        report_interval_ms=report_interval_ms,
    )
    differences = asyncio.run(verification.run(pattern, timestamp, once=once))
    if differences:
        raise Failure(f"{differences} differences were found")


class Verification:
    """One run of the tool."""

    def __init__(
        self,
        config: Mapping[str, object],
        clock: Clock,
        *,
        fetch_size: int,
        max_wait_ms: int,
        report_interval_ms: int,
    ):
        self._config = config
        self._clock = clock
        self._fetch_size = fetch_size
        self._max_wait_ms = max_wait_ms
        self._report_interval_ms = report_interval_ms
        self._reported_ms = clock.time_ms()
        self._differences = 0

    async def run(self, pattern: "re.Pattern[str]", timestamp: int, *, once: bool) -> int:
        """Verifies the topics whose whole names match. Returns the number of differences, with `once`; otherwise it
        runs until it is cancelled."""
        from headrace.client.admin.core import AdminCore

        async with AdminCore(self._config) as admin:
            replicas = {
                TopicPartition(topic.name, partition.partition): partition.replicas
                for topic in (await admin.describe_topics(raise_errors=False)).values()
                if pattern.fullmatch(topic.name)
                for partition in topic.partitions
            }
            if not replicas:
                raise Failure(
                    "No topics found. --topics-include is either filtering out all topics or there is no topic"
                )
            listed = await admin.list_partition_offsets(dict.fromkeys(replicas, timestamp))
            offsets = {tp: found.offset for tp, found in listed.items()}
            ends = {
                tp: found.offset
                for tp, found in (await admin.list_partition_offsets(dict.fromkeys(replicas, -1))).items()
            }
            offsets = {tp: ends[tp] if offset < 0 else offset for tp, offset in offsets.items()}
            self._print("verification process is started.")
            reader = ReplicaReader(admin.core)
            while True:
                if once:
                    remaining = {tp: offset for tp, offset in offsets.items() if offset < ends[tp]}
                    if not remaining:
                        self._report(len(offsets), {tp: Comparison(offset, ends[tp]) for tp, offset in offsets.items()})
                        return self._differences
                else:
                    remaining = offsets
                results = await self._compare(reader, replicas, remaining, once=once)
                for tp, result in results.items():
                    offsets[tp] = result.next_offset
                    for difference in result.differences:
                        self._print(difference)
                    self._differences += len(result.differences)
                    if once and result.differences:
                        ends[tp] = min(ends[tp], offsets[tp])  # reported; it would be found again
                if self._clock.time_ms() - self._reported_ms > self._report_interval_ms:
                    self._report(len(offsets), results)

    async def _compare(
        self,
        reader: ReplicaReader,
        replicas: Mapping[TopicPartition, Iterable[int]],
        offsets: Mapping[TopicPartition, int],
        *,
        once: bool,
    ) -> dict[TopicPartition, Comparison]:
        by_broker: dict[int, dict[TopicPartition, int]] = {}
        for tp, offset in offsets.items():
            for broker in replicas[tp]:
                by_broker.setdefault(broker, {})[tp] = offset

        async def fetch(broker: int) -> dict[TopicPartition, ReplicaRead]:
            try:
                return await reader.fetch(
                    broker, by_broker[broker], max_bytes=self._fetch_size, max_wait_ms=self._max_wait_ms
                )
            except HeadraceError as error:
                if once:
                    raise Failure(f"Broker {broker} cannot be read: {sentence(error)}") from error
                click.echo(f"Broker {broker} cannot be read, will retry: {sentence(error)}", err=True)
                await asyncio.sleep(self._max_wait_ms / 1000)
                return {}

        reads = dict(zip(by_broker, await asyncio.gather(*map(fetch, by_broker)), strict=True))
        results: dict[TopicPartition, Comparison] = {}
        for tp, offset in offsets.items():
            found = {broker: reads[broker][tp] for broker in replicas[tp] if tp in reads[broker]}
            if len(found) == len(set(replicas[tp])):
                results[tp] = compare(tp, offset, found)
        return results

    def _report(self, partitions: int, results: Mapping[TopicPartition, Comparison]) -> None:
        worst = max(results.items(), key=lambda item: item[1].lag, default=None)
        lag, tp, offset = (-1, None, -1) if worst is None else (worst[1].lag, worst[0], worst[1].next_offset)
        self._print(f"max lag is {lag} for partition {tp} at offset {offset} among {partitions} partitions")
        self._reported_ms = self._clock.time_ms()

    def _print(self, text: str) -> None:
        now_ms = self._clock.time_ms()
        moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now_ms // 1000))
        click.echo(f"{moment},{now_ms % 1000:03}: {text}")
