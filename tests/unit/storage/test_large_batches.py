import pytest
from tests.support.storage.logs import START_MS, MakeLog, make_batch

from headrace.common.errors import MessageSizeTooLargeError
from headrace.records import Compression, encode_rows
from headrace.storage.large_batches import LargeBatchError, LargeStoredBatchError

INLINE = 100_000


def large_batch(at: int = START_MS) -> bytearray:
    return encode_rows([(b"k", bytes(INLINE), at, None)] * 2, codec=Compression.ZSTD)


def test_large_batch_is_left_to_the_caller(make_log: MakeLog) -> None:
    log = make_log()
    data = large_batch()
    with pytest.raises(LargeBatchError) as raised:
        log.append_as_leader(data, 0, max_inline_bytes=INLINE)
    assert log.log_end_offset == 0
    result = log.append_as_leader(raised.value.validate(data), 0, max_inline_bytes=INLINE)
    assert (result.base_offset, result.last_offset, log.log_end_offset) == (0, 1, 2)


def test_uncompressed_batch_is_never_large(make_log: MakeLog) -> None:
    log = make_log()
    log.append_as_leader(encode_rows([(b"k", bytes(2 * INLINE), START_MS, None)]), 0, max_inline_bytes=INLINE)
    assert log.log_end_offset == 1


def test_too_large_batch_gets_an_error_that_makes_producers_divide_it(make_log: MakeLog) -> None:
    log = make_log({"max.message.bytes": "30000"})
    data = encode_rows([(b"k", bytes(17 * 1024 * 1024), START_MS, None)], codec=Compression.ZSTD)
    with pytest.raises(LargeBatchError) as raised:
        log.append_as_leader(data, 0, max_inline_bytes=INLINE)
    with pytest.raises(MessageSizeTooLargeError, match="larger than 16777216 bytes uncompressed"):
        raised.value.validate(data)


def test_lookups_in_large_stored_batches_are_left_to_the_caller(make_log: MakeLog) -> None:
    log = make_log()
    log.append_as_leader(make_batch(at=START_MS), 0)
    log.append_as_leader(large_batch(START_MS + 10), 0)
    assert log.find_timestamp(START_MS, max_inline_bytes=INLINE) == (START_MS, 0)
    with pytest.raises(LargeStoredBatchError) as raised:
        log.find_timestamp(START_MS + 5, max_inline_bytes=INLINE)
    assert raised.value.batch.records().first_at_or_after(START_MS + 5) == (START_MS + 10, 1)
    with pytest.raises(LargeStoredBatchError):
        log.max_timestamp(max_inline_bytes=INLINE)
    assert log.find_timestamp(START_MS + 5, min_offset=3, max_inline_bytes=INLINE) is None
    assert log.find_timestamp(START_MS + 5) == (START_MS + 10, 1)
