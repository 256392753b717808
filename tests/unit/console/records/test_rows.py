"""Records with the state of their transactions."""

from headrace.client.consumer.batch_reader import FetchedBatches
from headrace.console.records.rows import rows_of
from headrace.records import BatchBuilder, Compression, ControlType, RecordBatch, encode_marker


def _batch(offset: int, producer_id: int = -1, values: int = 1) -> RecordBatch:
    builder = BatchBuilder(
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=offset if producer_id >= 0 else -1,
        transactional=producer_id >= 0,
        codec=Compression.GZIP if producer_id < 0 else Compression.NONE,
    )
    for number in range(values):
        builder.append(None, b"v%d" % (offset + number), 1000)
    return RecordBatch(builder.build())


def _marker(offset: int, producer_id: int, kind: ControlType) -> RecordBatch:
    return RecordBatch(
        encode_marker(
            kind, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp=1000, base_offset=offset
        )
    )


_BATCHES = (
    _batch(10, values=3),
    _batch(13, producer_id=1),
    _marker(14, 1, ControlType.ABORT),
    _batch(15, producer_id=1),
    _batch(16, producer_id=2),
    _marker(17, 1, ControlType.COMMIT),
    _batch(18, producer_id=2),
)
_FETCHED = FetchedBatches(0, 11, _BATCHES, 19, 18, 0, ())


def test_states() -> None:
    rows = list(rows_of(_FETCHED, [(1, 13), (2, 16)], read_committed=False, with_control=True))
    assert [(row.offset, row.control, row.transaction) for row in rows] == [
        (11, None, None),
        (12, None, None),
        (13, None, "aborted"),
        (14, "abort", None),
        (15, None, "committed"),
        (16, None, "aborted"),
        (17, "commit", None),
        (18, None, "open"),
    ]
    assert [row.sequence for row in rows] == [-1, -1, 13, -1, 15, 16, -1, 18]
    assert rows[0].compression == "gzip"
    assert rows[2].compression is None


def test_only_committed_records() -> None:
    rows = rows_of(_FETCHED, [(1, 13), (2, 16)], read_committed=True, with_control=False)
    assert [row.offset for row in rows] == [11, 12, 15]
    assert _FETCHED.next_offset == 19
