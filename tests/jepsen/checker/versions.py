"""The order of values in each key, from the offsets of sends and polls.

Polls always count, because a consumer must get only committed records, whatever becomes of its own transaction. The
offsets of sends count if the transaction has certainly committed. Each value's *index* is its position among the known
values of its key, without the gaps between offsets. All analyses share one `Analysis`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.jepsen.checker.findings import Finding
from tests.jepsen.checker.history import Key, Op, Pair, Value


@dataclass(slots=True, eq=False)
class Transaction:
    """A completed operation with sends and polls."""

    op: Op
    writes: dict[Key, list[Pair]]
    reads: dict[Key, list[Pair]]
    has_committed: bool = False
    """It is ok, or a value that it wrote has been read although its outcome is unknown."""

    def __str__(self) -> str:
        return str(self.op)


@dataclass(slots=True)
class VersionOrder:
    """The known log of one key."""

    log: dict[int, list[Value]] = field(default_factory=dict)
    """The values that were seen at each offset: one, if all is well."""
    by_index: list[Value] = field(default_factory=list)
    index_of: dict[Value, int] = field(default_factory=dict)
    """The first index of each value."""
    offsets: list[int] = field(default_factory=list)

    def see(self, offset: int | None, value: Value) -> None:
        if offset is not None:
            values = self.log.setdefault(offset, [])
            if value not in values:
                values.append(value)

    def finish(self) -> None:
        self.offsets = sorted(self.log)
        self.by_index = [self.log[offset][0] for offset in self.offsets]
        for index, offset in enumerate(self.offsets):
            for value in self.log[offset]:
                self.index_of.setdefault(value, index)

    def distance(self, first: Value, second: Value) -> int:
        """Returns how far a value is behind another one: 1 if it is the next one, or if an index is unknown."""
        one, other = self.index_of.get(first), self.index_of.get(second)
        return 1 if one is None or other is None else other - one

    def between(self, first: Value, second: Value) -> list[Value]:
        return self.by_index[self.index_of[first] + 1 : self.index_of[second]]


class Analysis:
    """What all checks use."""

    def __init__(self, history: list[Op]):
        self.history = history
        self.transactions = [
            Transaction(op, op.writes(), op.reads()) for op in history if op.f == "txn" and op.type != "invoke"
        ]
        self.writer_of: dict[Key, dict[Value, Transaction]] = {}
        self.read_by_ok: dict[Key, set[Value]] = {}
        self.unfinished_writes = self._unfinished_writes()
        """Sends of operations without a completion, such as those of a worker that was killed."""
        for transaction in self.transactions:
            for key, pairs in transaction.writes.items():
                writers = self.writer_of.setdefault(key, {})
                for _, value in pairs:
                    writers[value] = transaction
            if transaction.op.type == "ok":
                for key, pairs in transaction.reads.items():
                    self.read_by_ok.setdefault(key, set()).update(value for _, value in pairs)
        for transaction in self.transactions:
            transaction.has_committed = transaction.op.type == "ok" or (
                transaction.op.type == "info" and self._was_read(transaction)
            )
        self.orders: dict[Key, VersionOrder] = {}
        self._order_versions()

    def order(self, key: Key) -> VersionOrder:
        return self.orders.setdefault(key, VersionOrder())

    def writer(self, key: Key, value: Value) -> Transaction | None:
        return self.writer_of.get(key, {}).get(value)

    def by_process(self) -> Iterator[list[Op]]:
        """Returns the completed operations of each process, in order."""
        found: dict[int, list[Op]] = {}
        for op in self.history:
            if op.type != "invoke":
                found.setdefault(op.process, []).append(op)
        return iter(found.values())

    def _unfinished_writes(self) -> dict[Key, set[Value]]:
        running: dict[int, Op] = {}
        for op in self.history:
            if op.type == "invoke":
                running[op.process] = op
            else:
                running.pop(op.process, None)
        found: dict[Key, set[Value]] = {}
        for op in running.values():
            for key, pairs in op.writes().items():
                found.setdefault(key, set()).update(value for _, value in pairs)
        return found

    def _was_read(self, transaction: Transaction) -> bool:
        return any(
            value in self.read_by_ok.get(key, ()) for key, pairs in transaction.writes.items() for _, value in pairs
        )

    def _order_versions(self) -> None:
        for transaction in self.transactions:
            for key, pairs in transaction.reads.items():
                order = self.order(key)
                for pair in pairs:
                    order.see(*pair)
            if transaction.has_committed:
                for key, pairs in transaction.writes.items():
                    order = self.order(key)
                    for pair in pairs:
                        order.see(*pair)
        for order in self.orders.values():
            order.finish()


def find_inconsistent_offsets(analysis: Analysis) -> Iterator[Finding]:
    for key, order in analysis.orders.items():
        for offset, values in order.log.items():
            if len(values) > 1:
                yield Finding("inconsistent-offsets", f"{key} has at offset {offset} the values {values}", key)


def find_duplicates(analysis: Analysis) -> Iterator[Finding]:
    for key, order in analysis.orders.items():
        first: dict[Value, int] = {}
        for offset in order.offsets:
            for value in order.log[offset]:
                if first.setdefault(value, offset) != offset:
                    yield Finding("duplicate", f"{key} has {value} at the offsets {first[value]} and {offset}", key)
