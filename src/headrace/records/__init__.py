"""The record batch of format v2: encoding, decoding, scanning, compression, rows and Arrow columns.

    _wire      varints and the record parser
    _batch     views of batch headers, and validated records
    _rows      rows
    _columns   Arrow columns
    _fetched   the records of a fetch response
    _keymap    compaction

These modules are compiled. The rest of Headrace accesses records only through the names exported here.
"""

from headrace.records._batch import (
    BATCH_HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    BatchRecords,
    RecordBatch,
    crc32c,
    encode_empty_batch,
    recompress,
    split_batches,
    walk_headers,
)
from headrace.records._fetched import ConsumerRecord, FetchedRecords
from headrace.records._keymap import OffsetMap, rewrite_batch
from headrace.records._rows import BatchBuilder, Record, decode_rows, encode_rows
from headrace.records._wire import (
    decode_varint,
    decode_varlong,
    encode_varint,
    encode_varlong,
    murmur2,
    partition_for_key,
)
from headrace.records.compression import DEFAULT_MAX_INFLATED_BYTES, Compression
from headrace.records.control import ControlType, EndTransactionMarker, encode_marker, read_marker
from headrace.records.undecodable import Undecodable

__all__ = [
    "BATCH_HEADER_BYTES",
    "DEFAULT_MAX_INFLATED_BYTES",
    "LOG_OVERHEAD_BYTES",
    "NO_LEADER_EPOCH",
    "NO_PRODUCER_EPOCH",
    "NO_PRODUCER_ID",
    "NO_SEQUENCE",
    "NO_TIMESTAMP",
    "BatchBuilder",
    "BatchHeader",
    "BatchRecords",
    "Compression",
    "ConsumerRecord",
    "ControlType",
    "EndTransactionMarker",
    "FetchedRecords",
    "OffsetMap",
    "Record",
    "RecordBatch",
    "Undecodable",
    "crc32c",
    "decode_rows",
    "decode_varint",
    "decode_varlong",
    "encode_empty_batch",
    "encode_marker",
    "encode_rows",
    "encode_varint",
    "encode_varlong",
    "murmur2",
    "partition_for_key",
    "read_marker",
    "recompress",
    "rewrite_batch",
    "split_batches",
    "walk_headers",
]
