"""Consumed records as one Arrow table. A separate module, so that only users of Arrow import pyarrow.

    topic: dictionary<string>  partition: int32  offset: int64  timestamp: timestamp[ms, UTC]  timestamp_type: int32
    key: binary                value: binary     headers: list<struct<key: string, value: binary>>

The records of a partition are one chunk (or several if they are large), in order. The order of partitions is undefined.
"""

from headrace.common.extras import requires_extra
from headrace.common.types import TopicPartition
from headrace.records.arrow import ArrowDecoder, records_schema

with requires_extra("arrow"):
    import pyarrow as pa


_TOPIC_TYPE = pa.dictionary(pa.int32(), pa.string())
_RECORDS = records_schema()
_ORDER = ("offset", "timestamp", "timestamp_type", "key", "value", "headers")
_COLUMN_INDEXES = [_RECORDS.names.index(name) for name in _ORDER]
CONSUMED_SCHEMA = pa.schema(
    [
        pa.field("topic", _TOPIC_TYPE),
        pa.field("partition", pa.int32()),
        *(_RECORDS.field(name) for name in _ORDER),
    ]
)
_MAX_CHUNK_BYTES = 1 << 30
"""Bytes of keys and values in one chunk. A column of a chunk must stay below 2 GiB."""


class TableBuilder:
    """Collects the records of one poll."""

    def __init__(self) -> None:
        self._decoders: dict[TopicPartition, ArrowDecoder] = {}
        self._finished: list[pa.RecordBatch] = []
        self._discarded: dict[TopicPartition, list[tuple[int, int]]] = {}
        self._rows = 0

    def __len__(self) -> int:
        return self._rows

    def columns(self, tp: TopicPartition, size_hint: int, rows_hint: int) -> ArrowDecoder:
        """Returns the decoder of a partition. The hints are the expected bytes and rows."""
        decoder = self._decoders.get(tp)
        if decoder is None:
            decoder = self._decoders[tp] = ArrowDecoder(size_hint=size_hint, rows_hint=rows_hint)
        elif decoder.size_in_bytes > _MAX_CHUNK_BYTES:
            self._finish(tp, decoder)
        return decoder

    def added(self, count: int) -> None:
        self._rows += count

    def discard(self, tp: TopicPartition, count: int) -> None:
        """Removes the last `count` records of a partition."""
        end = len(self._decoders[tp])
        self._discarded.setdefault(tp, []).append((end - count, end))

    def _finish(self, tp: TopicPartition, decoder: ArrowDecoder) -> None:
        batch = _with_source(tp, len(decoder), decoder.finish_arrays())
        discarded = self._discarded.pop(tp, [])
        parts: list[pa.RecordBatch] = []
        start = 0
        for begin, end in [*discarded, (batch.num_rows, batch.num_rows)]:
            if begin > start:
                parts.append(batch.slice(start, begin - start))
            start = end
        self._finished += parts

    def finish(self) -> pa.Table:
        for tp, decoder in self._decoders.items():
            self._finish(tp, decoder)
        self._decoders = {}
        return pa.Table.from_batches(self._finished, schema=CONSUMED_SCHEMA)


def _with_source(tp: TopicPartition, rows: int, arrays: list[pa.Array]) -> pa.RecordBatch:
    """Adds the columns topic and partition."""
    zeros = pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(bytes(4 * rows))], null_count=0)
    topics = pa.DictionaryArray.from_arrays(zeros, pa.array([tp.topic], pa.string()), safe=False)
    partitions = zeros if tp.partition == 0 else pa.repeat(pa.scalar(tp.partition, pa.int32()), rows)
    return pa.RecordBatch.from_arrays(
        [topics, partitions, *(arrays[index] for index in _COLUMN_INDEXES)], schema=CONSUMED_SCHEMA
    )
