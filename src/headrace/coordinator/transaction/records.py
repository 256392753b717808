"""The records of `__transaction_state`, in Kafka's format.

    key     int16 0, transactional id
    value   int16 version, then the transaction metadata; without a value the record is a tombstone

Version 0 is written if it is sufficient, because every broker since 0.11 reads it. Version 1 has tagged fields for
producers that get a new epoch with each transaction (KIP-890).
"""

import struct

from headrace.common.errors import CorruptRecordError
from headrace.common.types import TopicPartition
from headrace.coordinator.result import CoordinatorRecord
from headrace.coordinator.transaction.metadata import TransactionMetadata, TransactionState
from headrace.protocol import Message, decode, encode
from headrace.protocol.message import INT8, INT16, INT32, INT64, STRING, ProtocolError, field

_VERSION = struct.Struct(">h")
_KEY_VERSION = 0
_VALUE_VERSION = 0
_VALUE_VERSION_WITH_TAGS = 1


class TransactionKey(Message, versions="0-0"):
    transactional_id: str = field(STRING, "0+")


class TransactionPartitions(Message):
    topic: str = field(STRING, "0+")
    partition_ids: list[int] = field([INT32], "0+")


class TransactionValue(Message, versions="0-1", flexible="1+"):
    producer_id: int = field(INT64, "0+")
    previous_producer_id: int = field(INT64, "1+", tag=0, default=-1)
    next_producer_id: int = field(INT64, "1+", tag=1, default=-1)
    producer_epoch: int = field(INT16, "0+")
    next_producer_epoch: int = field(INT16, "1+", tag=3, default=-1)
    transaction_timeout_ms: int = field(INT32, "0+")
    transaction_status: int = field(INT8, "0+")
    transaction_partitions: list[TransactionPartitions] | None = field(
        [TransactionPartitions], "0+", nullable="0+", default=None
    )
    transaction_last_update_timestamp_ms: int = field(INT64, "0+")
    transaction_start_timestamp_ms: int = field(INT64, "0+")
    client_transaction_version: int = field(INT16, "1+", tag=2, default=0)


def decode_key(data: bytes) -> str | None:
    """Returns the transactional id, or None for an unknown key type."""
    if _version(data) != _KEY_VERSION:
        return None
    try:
        return decode(TransactionKey, _KEY_VERSION, data, _VERSION.size).transactional_id
    except ProtocolError as error:
        raise CorruptRecordError(f"Unreadable key in __transaction_state: {error}") from error


def decode_transaction(transactional_id: str, data: bytes) -> TransactionMetadata:
    try:
        value = decode(TransactionValue, _version(data), data, _VERSION.size)
        state = TransactionState.of(value.transaction_status)
    except (ProtocolError, ValueError) as error:
        raise CorruptRecordError(
            f"Unreadable transaction of {transactional_id!r} in __transaction_state: {error}"
        ) from error
    return TransactionMetadata(
        transactional_id,
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=state,
        partitions=frozenset(
            TopicPartition(topic.topic, partition)
            for topic in value.transaction_partitions or ()
            for partition in topic.partition_ids
        ),
        start_ms=value.transaction_start_timestamp_ms,
        updated_ms=value.transaction_last_update_timestamp_ms,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        version=value.client_transaction_version,
    )


def transaction_record(transaction: TransactionMetadata) -> CoordinatorRecord:
    topics: dict[str, list[int]] = {}
    for tp in sorted(transaction.partitions):
        topics.setdefault(tp.topic, []).append(tp.partition)
    value = TransactionValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state.code,
        transaction_partitions=None
        if transaction.state is TransactionState.EMPTY
        else [TransactionPartitions(topic=topic, partition_ids=indexes) for topic, indexes in topics.items()],
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
        client_transaction_version=transaction.version,
    )
    tagged = transaction.version > 0 or transaction.previous_producer_id >= 0 or transaction.next_producer_id >= 0
    version = _VALUE_VERSION_WITH_TAGS if tagged else _VALUE_VERSION
    return CoordinatorRecord(_key(transaction.transactional_id), _VERSION.pack(version) + encode(value, version))


def tombstone(transactional_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(_key(transactional_id), None)


def _key(transactional_id: str) -> bytes:
    return _VERSION.pack(_KEY_VERSION) + encode(TransactionKey(transactional_id=transactional_id), _KEY_VERSION)


def _version(data: bytes) -> int:
    if len(data) < _VERSION.size:
        raise CorruptRecordError(f"Record in __transaction_state is too short for a version: {data!r}")
    version: int = _VERSION.unpack_from(data)[0]
    return version
