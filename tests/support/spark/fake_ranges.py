"""A cluster without sockets for the driver's side of the Spark source: partitions, offsets, and outages."""

from collections.abc import Iterable, Mapping
from typing import Any

from headrace.client.consumer.range_client import EARLIEST, LATEST
from headrace.client.errors import KafkaTimeoutError
from headrace.common.types import TopicPartition


class FakeRanges:
    """Implements the cluster requests of `RangeClient`. `logs` has the first and the end offset of each partition."""

    def __init__(self, **topics: int):
        self.logs: dict[TopicPartition, tuple[int, int]] = {}
        for name, partitions in topics.items():
            self.add(name, partitions)
        self.times: dict[tuple[TopicPartition, int], int] = {}
        self.outage = 0
        """The number of requests that fail next."""
        self.asked = 0

    def add(self, topic: str, partitions: int, begin: int = 0) -> None:
        for number in range(partitions):
            self.logs.setdefault(TopicPartition(topic, number), (begin, begin))

    def append(self, topic: str, partition: int, records: int) -> None:
        begin, end = self.logs[TopicPartition(topic, partition)]
        self.logs[TopicPartition(topic, partition)] = begin, end + records

    def _ask(self) -> None:
        self.asked += 1
        if self.outage:
            self.outage -= 1
            raise KafkaTimeoutError("nobody answers")

    def topics(self, timeout_ms: float | None = None) -> list[str]:
        self._ask()
        return sorted({tp.topic for tp in self.logs})

    def partitions(self, topics: Iterable[str], timeout_ms: float | None = None) -> dict[str, list[int]]:
        self._ask()
        requested = set(topics)
        found: dict[str, list[int]] = {}
        for tp in sorted(self.logs):
            if tp.topic in requested:
                found.setdefault(tp.topic, []).append(tp.partition)
        return found

    def offsets(self, timestamps: Mapping[TopicPartition, int], timeout_ms: float | None = None) -> dict[Any, int]:
        self._ask()
        found: dict[Any, int] = {}
        for tp, timestamp in timestamps.items():
            begin, end = self.logs[tp]
            found[tp] = {EARLIEST: begin, LATEST: end}.get(timestamp, self.times.get((tp, timestamp), -1))
        return found

    def wait_for_records(self, positions: Mapping[TopicPartition, int], timeout_ms: float) -> bool:
        return any(self.logs[tp][1] > offset for tp, offset in positions.items() if tp in self.logs)
