from headrace.broker.handlers.list_offsets import _lookup
from headrace.records import DEFAULT_MAX_INFLATED_BYTES, Compression, RecordBatch, encode_rows


def test_finds_timestamp_in_a_batch_that_is_larger_than_the_default_limit() -> None:
    """A topic with a large `max.message.bytes` accepts it."""
    value = bytes(DEFAULT_MAX_INFLATED_BYTES)
    batch = RecordBatch(encode_rows([(None, value, 5, ())], codec=Compression.ZSTD))
    assert _lookup(batch, 5, 0) == (5, 0)
