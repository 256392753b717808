"""Counters of records and bytes per partition for the statistics, updated once per batch.

One thread updates them. Another thread may read values that are slightly out of date.
"""

from headrace.common.metrics import Histogram
from headrace.common.types import TopicPartition

__all__ = ["Traffic"]


class Traffic:
    """The counters of one client."""

    __slots__ = ("bytes", "partitions", "records", "sizes")

    def __init__(self) -> None:
        self.records = 0
        self.bytes = 0
        self.partitions: dict[TopicPartition, tuple[int, int]] = {}
        """Records and bytes by partition."""
        self.sizes: dict[str, tuple[Histogram, Histogram]] = {}
        """Bytes and records per batch by topic, since the last `take_sizes`."""

    def note(self, tp: TopicPartition, records: int, size_in_bytes: int) -> None:
        """Counts records of a partition."""
        self.records += records
        self.bytes += size_in_bytes
        counts = self.partitions.get(tp, (0, 0))
        self.partitions[tp] = counts[0] + records, counts[1] + size_in_bytes

    def note_batch(self, tp: TopicPartition, records: int, size_in_bytes: int) -> None:
        """Counts a batch, including its size in the topic's histograms."""
        self.note(tp, records, size_in_bytes)
        windows = self.sizes.get(tp.topic)
        if windows is None:
            windows = self.sizes[tp.topic] = (Histogram(), Histogram())
        windows[0].record(size_in_bytes)
        windows[1].record(records)

    def take_sizes(self) -> dict[str, tuple[Histogram, Histogram]]:
        """Returns the histograms and starts new ones."""
        sizes, self.sizes = self.sizes, {}
        return sizes
