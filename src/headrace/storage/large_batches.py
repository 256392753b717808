"""Batches that are too large uncompressed for the thread that owns the log: it must not wait for their decompression.

Functions that decompress batches take `max_inline_bytes`. For a larger batch they raise one of these errors, before
anything has changed. The caller does the work in another thread.
"""

from collections.abc import Callable
from typing import Any

from headrace.common.errors import HeadraceError, InflatedTooLargeError
from headrace.common.types import Buffer
from headrace.records import DEFAULT_MAX_INFLATED_BYTES, BatchRecords, RecordBatch

MAX_INLINE_BYTES = 4 * 1024 * 1024
"""Batches up to this uncompressed size are decompressed at once, in a few milliseconds."""


class LargeBatchError(HeadraceError):
    """A producer's batch is too large to be decompressed at once."""

    def __init__(self, validate: Callable[[Buffer], Any]):
        super().__init__("a batch is too large to be decompressed at once")
        self.validate = validate
        """Validates the same bytes without this limit, in any thread; the result can be appended."""


class LargeStoredBatchError(HeadraceError):
    """A batch in the log is too large to be decompressed at once."""

    def __init__(self, batch: RecordBatch):
        super().__init__("a batch in the log is too large to be decompressed at once")
        self.batch = batch


def records_of(batch: RecordBatch, max_inline_bytes: int) -> BatchRecords:
    """Returns the records of a batch in the log."""
    try:
        return batch.records(min(max_inline_bytes, DEFAULT_MAX_INFLATED_BYTES))
    except InflatedTooLargeError:
        if max_inline_bytes >= DEFAULT_MAX_INFLATED_BYTES:
            raise
        raise LargeStoredBatchError(batch) from None
