import struct
from multiprocessing import Pipe

from headrace.cli.perf.perf import read_records
from headrace.common.clock import SystemClock
from headrace.common.types import TopicPartition
from headrace.records import ConsumerRecord


class OnePoll:
    """A consumer that returns all records in its first poll."""

    def __init__(self, count: int, size: int):
        self._count, self._size = count, size

    def poll(self, _timeout_ms: int) -> dict[TopicPartition, list[ConsumerRecord]]:
        now = SystemClock().monotonic()
        value = struct.pack(">d", now).ljust(self._size, b"x")
        while SystemClock().monotonic() - now < 0.01:  # the records take ten milliseconds to arrive
            pass
        record = ConsumerRecord("t", 0, 0, 0, 0, 0, None, value, [])
        return {TopicPartition("t", 0): [record] * self._count}


def test_rate_of_a_single_poll_is_plausible() -> None:
    ours, _ = Pipe()
    summary = read_records(OnePoll(10, 100), 10, 100, ours)["summary"]
    assert summary["records"] == 10
    assert 0 < summary["records_per_second"] <= 1000
