"""How much went through a client, by partition: counted once per batch or portion of records, for the statistics.

One thread adds, another may read: what it sees is at most a moment old.
"""

from headrace.common.metrics import Histogram
from headrace.common.types import TopicPartition

__all__ = ["Traffic"]


class Traffic:
    __slots__ = ("bytes", "partitions", "records", "sizes")

    def __init__(self) -> None:
        self.records = 0
        self.bytes = 0
        self.partitions: dict[TopicPartition, tuple[int, int]] = {}
        """Records and bytes of each."""
        self.sizes: dict[str, tuple[Histogram, Histogram]] = {}
        """Bytes and records of the batches of a topic, since the last look."""

    def note(self, tp: TopicPartition, records: int, size_in_bytes: int) -> None:
        self.records += records
        self.bytes += size_in_bytes
        known = self.partitions.get(tp, (0, 0))
        self.partitions[tp] = known[0] + records, known[1] + size_in_bytes

    def note_batch(self, tp: TopicPartition, records: int, size_in_bytes: int) -> None:
        """As `note`, and the batch counts for the sizes of its topic's batches."""
        self.note(tp, records, size_in_bytes)
        windows = self.sizes.get(tp.topic)
        if windows is None:
            windows = self.sizes[tp.topic] = (Histogram(), Histogram())
        windows[0].record(size_in_bytes)
        windows[1].record(records)

    def take_sizes(self) -> dict[str, tuple[Histogram, Histogram]]:
        sizes, self.sizes = self.sizes, {}
        return sizes
