"""The history detects every kind of anomaly."""

import pytest

from headrace.common.types import TopicPartition
from headrace.testing.simulation.history import History, InvariantViolation, Transaction

TP = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)


def history_of(*values: str) -> History:
    history = History()
    for value in values:
        history.note_sent(TP, value.encode())
    return history


def at(**values: str) -> dict[int, bytes]:
    return {int(offset[1:]): value.encode() for offset, value in values.items()}


def test_a_good_history() -> None:
    history = history_of("p:0", "p:1", "p:2")
    history.note_acknowledged(TP, 0, b"p:0")
    history.note_read(TP, 0, b"p:0")
    history.note_acknowledged(TP, 2, b"p:2")
    records = at(_0="p:0", _1="p:1", _2="p:2")
    history.check_end(TP, records, records)
    assert (history.acknowledged_count, history.read_count) == (2, 3)


def test_lost_write() -> None:
    history = history_of("p:0", "p:1")
    history.note_acknowledged(TP, 1, b"p:1")
    with pytest.raises(InvariantViolation, match="Lost write: b'p:1'"):
        history.check_end(TP, at(_0="p:0"), {})


def test_record_that_was_read_disappears() -> None:
    history = history_of("p:0")
    history.note_read(TP, 0, b"p:0")
    with pytest.raises(InvariantViolation, match="at the end it is missing"):
        history.check_end(TP, {}, {})


def test_record_that_nobody_sent() -> None:
    with pytest.raises(InvariantViolation, match="never sent"):
        history_of().note_read(TP, 0, b"p:0")


def test_two_values_at_one_offset() -> None:
    history = history_of("p:0", "p:1")
    history.note_read(TP, 0, b"p:0")
    with pytest.raises(InvariantViolation, match="was read as b'p:0', and later as b'p:1'"):
        history.note_read(TP, 0, b"p:1")
    with pytest.raises(InvariantViolation, match="Inconsistent offsets"):
        history.note_acknowledged(TP, 0, b"p:1")


def test_duplicate() -> None:
    with pytest.raises(InvariantViolation, match="Duplicate: b'p:0' is at offsets 0 and 1"):
        history_of("p:0").check_end(TP, at(_0="p:0", _1="p:0"), {})


def test_reordered() -> None:
    with pytest.raises(InvariantViolation, match="Reordered: b'p:0'"):
        history_of("p:0", "p:1").check_end(TP, at(_0="p:1", _1="p:0"), {})


def test_committed_offset_goes_back() -> None:
    history = History()
    history.note_fetched_offset("g", TP, None)
    history.note_committed_offset("g", TP, 5)
    history.note_fetched_offset("g", TP, 7)
    for offset in (4, None):
        with pytest.raises(InvariantViolation, match="went back"):
            history.note_fetched_offset("g", TP, offset)


@pytest.mark.parametrize(
    ("committed", "visible", "is_good"),
    [
        (True, (True, True), True),
        (True, (True, False), False),
        (False, (False, False), True),
        (False, (True, True), False),
        (None, (True, True), True),
        (None, (False, False), True),
        (None, (True, False), False),
    ],
)
def test_transactions(committed: bool | None, visible: tuple[bool, bool], is_good: bool) -> None:
    history = History()
    history.transactions.append(Transaction([(TP, b"x:0"), (OTHER, b"x:1")], committed))
    records = {TP: {0: b"x:0"} if visible[0] else {}, OTHER: {0: b"x:1"} if visible[1] else {}}
    if is_good:
        history.check_transactions(records)
    else:
        with pytest.raises(InvariantViolation, match="ransaction"):
            history.check_transactions(records)


def test_aborted_read() -> None:
    history = History()
    transaction = Transaction()
    history.note_in_transaction(transaction, TP, b"x:0")
    history.note_read_committed(TP, 0, b"x:0")
    transaction.committed = False
    with pytest.raises(InvariantViolation, match="Aborted read: b'x:0'"):
        history.note_read_committed(TP, 0, b"x:0")


def test_record_of_a_transaction_disappears() -> None:
    history = history_of("x:0")
    history.note_read_committed(TP, 0, b"x:0")
    with pytest.raises(InvariantViolation, match=r"was read with read_committed .* at the end it is missing"):
        history.check_end(TP, at(_0="x:0"), {})


@pytest.mark.parametrize(
    ("copies", "message"),
    [
        (at(_0="p:0", _3="p:1"), None),
        (at(_0="p:0"), "missing .*p:1"),
        (at(_0="p:0", _3="p:1", _4="p:1"), "unexpected .*p:1"),
        (at(_0="p:0", _3="p:1", _4="p:2"), "unexpected .*p:2"),
    ],
)
def test_copies(copies: dict[int, bytes], message: str | None) -> None:
    sources = {TP: at(_0="p:0", _1="p:1", _2="p:2"), OTHER: at(_0="q:0")}
    offsets = {TP: 2, OTHER: None}
    if message is None:
        History().check_copies(sources, offsets, [copies])
    else:
        with pytest.raises(InvariantViolation, match=message):
            History().check_copies(sources, offsets, [copies])


def test_committed_offset_of_a_transaction_is_lost() -> None:
    history = History()
    history.note_committed_in_transaction("g", TP, 5)
    history.note_fetched_offset("g", TP, 5)
    with pytest.raises(InvariantViolation, match="went back"):
        history.note_fetched_offset("g", TP, 4)
