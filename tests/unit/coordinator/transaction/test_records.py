"""The bytes of `__transaction_state` records."""

import pytest

from headrace.common.errors import CorruptRecordError
from headrace.common.types import TopicPartition
from headrace.coordinator.transaction.metadata import TransactionMetadata, TransactionState
from headrace.coordinator.transaction.records import decode_key, decode_transaction, tombstone, transaction_record


def test_empty_transaction() -> None:
    key, value = transaction_record(TransactionMetadata("ab", 7, 3, 60_000, updated_ms=5))
    assert key.hex(" ") == "00 00 00 02 61 62"
    assert value is not None
    assert value.hex() == "0000" + "0000000000000007" + "0003" + "0000ea60" + "00" + "ffffffff" + (
        "0000000000000005" + "ffffffffffffffff"
    )


def test_partitions_are_grouped_by_topic() -> None:
    partitions = frozenset(TopicPartition(topic, index) for topic, index in (("b", 1), ("a", 2), ("b", 0)))
    made = TransactionMetadata("ab", 7, 3, 1, TransactionState.ONGOING, partitions, 4, 5)
    _, value = transaction_record(made)
    assert value is not None
    body = value.hex()
    assert body[:4] == "0000"
    assert body[32:] == (
        "01" + "00000002" + "000161" + "00000001" + "00000002" + "000162" + "00000002" + "00000000" + "00000001"
        "0000000000000005" + "0000000000000004"
    )


@pytest.mark.parametrize("state", TransactionState)
@pytest.mark.parametrize("extra", [{}, {"version": 2}, {"previous_producer_id": 6}, {"next_producer_id": 9}])
def test_round_trip(state: TransactionState, extra: dict[str, int]) -> None:
    partitions = frozenset() if state is TransactionState.EMPTY else frozenset((TopicPartition("t", 3),))
    made = TransactionMetadata("ab", 7, 3, 1, state, partitions, 4, 5, **extra)
    key, value = transaction_record(made)
    assert decode_key(key) == "ab"
    assert value is not None
    assert value[:2] == (b"\x00\x01" if extra else b"\x00\x00")
    assert decode_transaction("ab", value) == made


def test_tombstone() -> None:
    key, value = tombstone("ab")
    assert (decode_key(key), value) == ("ab", None)


def test_skips_unknown_key_types() -> None:
    assert decode_key(b"\x00\x09whatever") is None


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x00\x00\x00\x09ab"])
def test_unreadable_keys_raise(data: bytes) -> None:
    with pytest.raises(CorruptRecordError):
        decode_key(data)


def test_unreadable_values_raise() -> None:
    _, value = transaction_record(TransactionMetadata("ab", 7, 3, 60_000))
    assert value is not None
    for damaged in (value[:-1], value[:16] + b"\x63" + value[17:], b""):
        with pytest.raises(CorruptRecordError):
            decode_transaction("ab", damaged)
