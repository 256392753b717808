"""What clients did and saw: the values they sent, the acknowledgements, reads, commits and transactions.

Every value is unique. A value is acknowledged, failed, or unknown: sent without a response. The checks, each with the
name that Jepsen uses for it where it has one:

    lost write              an acknowledged value must be read at its offset
    duplicate               a value has one offset, also after retries of idempotent producers
    inconsistent offsets    an offset has one value, for all readers and at all times
    reordered               the values of one producer are in order, in each partition
    aborted read            a value of an aborted transaction is never read with read_committed
    fractured transaction   a transaction is visible in all its partitions, or in none
    committed offsets       never go back
    copied once             a group that commits its offsets in transactions has copied exactly the records below them
"""

from collections import Counter
from dataclasses import dataclass, field

from headrace.common.types import TopicPartition


class InvariantViolation(AssertionError):
    """A guarantee of the cluster was broken."""


@dataclass
class Transaction:
    """The values of a transaction, and its outcome: None if the client does not know it."""

    values: list[tuple[TopicPartition, bytes]] = field(default_factory=list)
    committed: bool | None = None


class History:
    """The history of one run."""

    def __init__(self) -> None:
        self.sent: dict[TopicPartition, dict[bytes, None]] = {}
        self.acknowledged: dict[TopicPartition, dict[int, bytes]] = {}
        self.read: dict[TopicPartition, dict[int, bytes]] = {}
        self.transactions: list[Transaction] = []
        self.transaction_of: dict[bytes, Transaction] = {}
        self.read_committed: dict[TopicPartition, dict[int, bytes]] = {}
        """What was read with read_committed."""
        self.committed_offsets: dict[tuple[str, TopicPartition], int] = {}
        self.committed_in_transactions: dict[tuple[str, TopicPartition], int] = {}
        self.failures: dict[str, int] = {}
        """The number of failed calls of clients, by the name of the error."""

    # ---- events

    def note_sent(self, tp: TopicPartition, value: bytes) -> None:
        self.sent.setdefault(tp, {})[value] = None

    def note_acknowledged(self, tp: TopicPartition, offset: int, value: bytes) -> None:
        before = self.acknowledged.setdefault(tp, {}).setdefault(offset, value)
        if before != value:
            raise InvariantViolation(
                f"Inconsistent offsets: {value!r} was acknowledged at offset {offset} of {tp}, and so was {before!r}"
            )
        self._compare(tp, offset, value, self.read)

    def note_read(self, tp: TopicPartition, offset: int, value: bytes) -> None:
        if value not in self.sent.get(tp, {}):
            raise InvariantViolation(f"{value!r} was read at offset {offset} of {tp}, but never sent")
        before = self.read.setdefault(tp, {}).setdefault(offset, value)
        if before != value:
            raise InvariantViolation(f"Offset {offset} of {tp} was read as {before!r}, and later as {value!r}")
        self._compare(tp, offset, value, self.acknowledged)

    def note_in_transaction(self, transaction: Transaction, tp: TopicPartition, value: bytes) -> None:
        """A value is about to be sent in a transaction."""
        self.note_sent(tp, value)
        transaction.values.append((tp, value))
        self.transaction_of[value] = transaction

    def note_read_committed(self, tp: TopicPartition, offset: int, value: bytes) -> None:
        self.note_read(tp, offset, value)
        self.read_committed.setdefault(tp, {})[offset] = value
        transaction = self.transaction_of.get(value)
        if transaction is not None and transaction.committed is False:
            raise InvariantViolation(f"Aborted read: {value!r} was read at offset {offset} of {tp}")

    def _compare(
        self, tp: TopicPartition, offset: int, value: bytes, other: dict[TopicPartition, dict[int, bytes]]
    ) -> None:
        found = other.get(tp, {}).get(offset, value)
        if found != value:
            raise InvariantViolation(f"Inconsistent offsets: offset {offset} of {tp} has {value!r} and {found!r}")

    def note_committed_offset(self, group: str, tp: TopicPartition, offset: int) -> None:
        """A commit was acknowledged."""
        self.committed_offsets[group, tp] = max(offset, self.committed_offsets.get((group, tp), 0))

    def note_committed_in_transaction(self, group: str, tp: TopicPartition, offset: int) -> None:
        """A transaction with a commit was acknowledged. The coordinator may get the marker later."""
        key = group, tp
        self.committed_in_transactions[key] = max(offset, self.committed_in_transactions.get(key, 0))

    def note_fetched_offset(self, group: str, tp: TopicPartition, offset: int | None) -> None:
        """A consumer has read its committed offset."""
        key = group, tp
        expected = self.committed_offsets.get(key, self.committed_in_transactions.get(key))
        if expected is not None and (offset is None or offset < expected):
            raise InvariantViolation(f"The committed offset of group {group} in {tp} went back: {expected} to {offset}")

    def note_failure(self, error: Exception) -> None:
        name = type(error).__name__
        self.failures[name] = self.failures.get(name, 0) + 1

    @property
    def acknowledged_count(self) -> int:
        return sum(map(len, self.acknowledged.values()))

    @property
    def read_count(self) -> int:
        return sum(map(len, self.read.values()))

    # ---- the end

    def check_end(self, tp: TopicPartition, uncommitted: dict[int, bytes], committed: dict[int, bytes]) -> None:
        """Checks what a partition contains at the end, read with read_uncommitted and with read_committed."""
        for offset, value in uncommitted.items():
            self.note_read(tp, offset, value)
        for offset, value in self.acknowledged.get(tp, {}).items():
            if uncommitted.get(offset) != value:
                raise InvariantViolation(
                    f"Lost write: {value!r} was acknowledged at offset {offset} of {tp}; at the end there is "
                    f"{uncommitted.get(offset)!r}"
                )
        for offset, value in self.read.get(tp, {}).items():
            if uncommitted.get(offset) != value:
                raise InvariantViolation(f"{value!r} was read at offset {offset} of {tp}; at the end it is missing")
        self._check_duplicates(tp, uncommitted)
        self._check_order(tp, uncommitted)
        for offset, value in committed.items():
            if uncommitted.get(offset) != value:
                raise InvariantViolation(f"Offset {offset} of {tp} differs between isolation levels")
        for offset, value in self.read_committed.get(tp, {}).items():
            if committed.get(offset) != value:
                raise InvariantViolation(
                    f"{value!r} was read with read_committed at offset {offset} of {tp}; at the end it is missing"
                )

    def _check_duplicates(self, tp: TopicPartition, values: dict[int, bytes]) -> None:
        offsets: dict[bytes, int] = {}
        for offset, value in values.items():
            if value in offsets:
                raise InvariantViolation(f"Duplicate: {value!r} is at offsets {offsets[value]} and {offset} of {tp}")
            offsets[value] = offset

    def _check_order(self, tp: TopicPartition, values: dict[int, bytes]) -> None:
        last: dict[bytes, tuple[int, int]] = {}
        for offset in sorted(values):
            name, _, number = values[offset].rpartition(b":")
            before, before_offset = last.get(name, (-1, -1))
            if int(number) < before:
                raise InvariantViolation(
                    f"Reordered: {values[offset]!r} is at offset {offset} of {tp}, number {before} of the same "
                    f"producer is at offset {before_offset}"
                )
            last[name] = int(number), offset

    def check_transactions(self, visible: dict[TopicPartition, dict[int, bytes]]) -> None:
        """Checks what is visible at the end with read_committed."""
        values = {tp: set(records.values()) for tp, records in visible.items()}
        for transaction in self.transactions:
            seen = [value in values.get(tp, set()) for tp, value in transaction.values]
            visibility = list(zip(transaction.values, seen, strict=True))
            if transaction.committed is None:
                if any(seen) and not all(seen):
                    raise InvariantViolation(f"Fractured transaction: {visibility}")
            elif seen != [transaction.committed] * len(seen):
                outcome = "committed" if transaction.committed else "aborted"
                raise InvariantViolation(f"A transaction was {outcome}, but is visible as {visibility}")

    def check_copies(
        self,
        sources: dict[TopicPartition, dict[int, bytes]],
        offsets: dict[TopicPartition, int | None],
        copies: list[dict[int, bytes]],
    ) -> None:
        """Checks the copies of a group that reads, writes and commits its offsets in one transaction: everything below
        its committed offsets was copied once, and nothing else."""
        expected = Counter(
            value for tp, records in sources.items() for offset, value in records.items() if offset < (offsets[tp] or 0)
        )
        found = Counter(value for records in copies for value in records.values())
        if found != expected:
            missing, unexpected = expected - found, found - expected
            raise InvariantViolation(
                f"The copies differ from the records below the committed offsets {offsets}: missing "
                f"{sorted(missing.elements())[:5]}, unexpected {sorted(unexpected.elements())[:5]}"
            )
