"""Creating many topics, and starting and stopping with many partitions, next to Apache Kafka.

In every round each broker starts on an empty directory, alone on the machine, creates the topics, is killed, starts,
stops cleanly, and starts again. A start ends when every partition has a leader in the response to a metadata request.
"""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.net.wire_client import WireClient

from bench.broker_sides import Headrace, Kafka, Side
from bench.broker_wire import HOST, await_condition
from bench.harness import Measurement, describe, from_pairs, seconds_of
from headrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.protocol.messages.metadata import MetadataRequest

ROUNDS = 3
SECONDS = 600.0
TOPICS_PER_REQUEST = 1_000
"""Apache Kafka rejects 2,000 topics with 5 partitions in one request."""
NOTES = [
    "Start: from the start of the process until every partition has a leader.",
    "Apache Kafka does not start if it could not stop within 60 seconds; then the row is missing.",
]


@dataclass(frozen=True)
class Sizes:
    """Topics and partitions per topic: of the small and of the large request, and of the largest broker."""

    small: tuple[int, int] = (100, 4)
    large: tuple[int, int] = (2_000, 5)
    largest: tuple[int, int] = (50, 1_000)


QUICK = Sizes(small=(20, 4), large=(100, 5), largest=(5, 400))


def run(directory: Path, rounds: int, *, quick: bool = False) -> tuple[list[Measurement], list[str]]:
    sizes = QUICK if quick else Sizes()
    pairs: dict[str, list[tuple[float, float]]] = {}
    for number in range(rounds):
        kinds: Sequence[type[Side]] = (Headrace, Kafka) if number % 2 == 0 else (Kafka, Headrace)
        values = {kind: _measure(kind, directory / f"{number}-{kind.__name__}", sizes) for kind in kinds}
        for case, value in values[Headrace].items():
            pairs.setdefault(case, []).append((value, values[Kafka][case]))
    measurements = [
        from_pairs(case, "s", Kafka.name, values, 1.0, lower_is_better=True) for case, values in pairs.items()
    ]
    for measured in measurements:
        print(describe(measured), file=sys.stderr, flush=True)
    notes = [*NOTES, _largest(directory / "largest", sizes)]
    print(notes[-1], file=sys.stderr, flush=True)
    return measurements, notes


def _measure(kind: type[Side], directory: Path, sizes: Sizes) -> dict[str, float]:
    """Returns the seconds of each case."""
    side = kind(directory)
    small, large = (_name(size) for size in (sizes.small, sizes.large))
    seconds: dict[str, float] = {}
    side.start()
    try:
        seconds[f"create {small}"] = seconds_of(lambda: _create(side, "small", sizes.small))
        seconds[f"create {large}"] = seconds_of(lambda: _create(side, "large", sizes.large))
        partitions = _count(sizes.small) + _count(sizes.large)
        side.kill()
        seconds[f"start after a kill, {partitions:,} partitions"] = _start(side, partitions)
        seconds[f"clean stop, {partitions:,} partitions"] = seconds_of(side.stop)
        seconds[f"start after a clean stop, {partitions:,} partitions"] = _start(side, partitions)
    finally:
        side.kill()
    # The files stay until the end of the benchmark: on ext4, creating files is slow for minutes after a mass deletion,
    # because the kernel examines every recently deleted inode.
    for case, value in seconds.items():
        print(f"{kind.name:<22} {case:<45} {value:8.2f} s", file=sys.stderr, flush=True)
    return seconds


def _largest(directory: Path, sizes: Sizes) -> str:
    """Creates as many partitions as a large cluster has, on one Headrace broker. Returns a note with the times."""
    side = Headrace(directory)
    topics, partitions = sizes.largest
    total = _count(sizes.largest)
    side.start()
    try:
        # A request can create 10,000 partitions.
        per_request = max(1, 10_000 // partitions)
        created = sum(
            seconds_of(lambda first=first: _create(side, f"t{first}", (min(per_request, topics - first), partitions)))  # type: ignore[misc]
            for first in range(0, topics, per_request)
        )
        memory = side.memory_mb()[0]
        stopped = seconds_of(side.stop)
        started = _start(side, total)
        side.kill()
        recovered = _start(side, total)
    finally:
        side.kill()
    return (
        f"{total:,} partitions on one Headrace broker: created in {created:.1f} s, {memory:.0f} MB, clean stop "
        f"{stopped:.1f} s, start {started:.1f} s, start after a kill {recovered:.1f} s."
    )


def _create(side: Side, prefix: str, size: tuple[int, int]) -> None:
    topics, partitions = size
    new_topics = [
        CreatableTopic(name=f"{prefix}-{number}", num_partitions=partitions, replication_factor=1)
        for number in range(topics)
    ]
    with WireClient((HOST, side.port), timeout=SECONDS) as client:
        for first in range(0, topics, TOPICS_PER_REQUEST):
            part = new_topics[first : first + TOPICS_PER_REQUEST]
            response = client.call(CreateTopicsRequest(topics=part, timeout_ms=int(SECONDS * 1000)), 5)
            errors = [topic.error_message or topic.error_code for topic in response.topics if topic.error_code]
            assert not errors, errors[:3]
        # Apache Kafka responds before the brokers have created the partitions.
        _await(lambda: _leaders(client, f"{prefix}-") == topics * partitions)


def _start(side: Side, partitions: int) -> float:
    started = time.perf_counter()
    side.start(SECONDS)
    with WireClient((HOST, side.port), timeout=SECONDS) as client:
        _await(lambda: _leaders(client) == partitions)
    return time.perf_counter() - started


def _leaders(client: WireClient, prefix: str = "") -> int:
    """Returns the number of partitions that have a leader."""
    topics = client.call(MetadataRequest(topics=None), 8).topics
    return sum(
        partition.leader_id >= 0 and not partition.error_code
        for topic in topics
        if topic.name.startswith(prefix)
        for partition in topic.partitions
    )


def _await(condition: Callable[[], bool]) -> None:
    await_condition("leaders of all partitions", condition, SECONDS)


def _name(size: tuple[int, int]) -> str:
    return f"{size[0]:,} topics x {size[1]} partitions"


def _count(size: tuple[int, int]) -> int:
    return size[0] * size[1]
