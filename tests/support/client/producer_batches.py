"""`send` without an accumulator: records go to batches that the test opens."""

from typing import Any

from headrace.client.producer._batch import ProducerBatch
from headrace.client.producer._send import RecordAppender, SerializedRecord, TopicQueues
from headrace.records import Compression, RecordBatch, decode_rows
from headrace.testing.clock import ManualClock


class OpenBatchAppender(RecordAppender):
    """Appends to batches that the test opens. `send` returns records that do not fit as SerializedRecord."""

    def __init__(self, partitions: int = 1) -> None:
        self._clock = self.clock = ManualClock()
        queues = TopicQueues("t")
        queues.set_leaders([1] * partitions)
        queues.sticky = queues.queues[0]
        self._topics = {"t": queues}

    def open(self, partition: int = 0, size: int = 1000, codec: Compression = Compression.NONE) -> ProducerBatch:
        """Opens a batch for a partition of topic `t`."""
        queue = self._topics["t"].queues[partition]
        queue.open_batch = ProducerBatch(queue.tp, bytearray(size), 0.0, codec)
        return queue.open_batch

    def _append_to_accumulator(self, record: SerializedRecord) -> Any:
        return record


def rows_of(batch: ProducerBatch) -> list[Any]:
    """Returns key, value, timestamp and headers of each record of a batch."""
    records = decode_rows(RecordBatch(batch.build()).records())
    return [(record.key, record.value, record.timestamp, list(record.headers)) for record in records]
