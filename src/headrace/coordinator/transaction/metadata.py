"""The life of a transactional id.

    Empty ──► Ongoing ──► PrepareCommit ──► CompleteCommit ──► Ongoing (the next transaction), or Empty
                 └──────► PrepareAbort  ──► CompleteAbort  ──► Ongoing, or Empty
    Empty, CompleteCommit, CompleteAbort ──► Dead (forgotten)

A new producer of the same id makes it Empty again. Once a transaction is prepared its end is decided: markers are
written to its partitions, again after a crash, until all have theirs, and then it is complete. A producer that takes a
new epoch with each transaction (KIP-890) may abort one to which nothing was added: from Empty or Complete to
PrepareAbort.
"""

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from headrace.common.errors import HeadraceError
from headrace.common.types import TopicPartition

NO_PRODUCER = -1
LAST_EPOCH = 2**15 - 1
EPOCH_PER_TRANSACTION = 2
"""The version of a client's transactions from which on each has an epoch of its own (KIP-890)."""


class TransactionState(Enum):
    """Name and number are Kafka's."""

    EMPTY = ("Empty", 0)
    ONGOING = ("Ongoing", 1)
    PREPARE_COMMIT = ("PrepareCommit", 2)
    PREPARE_ABORT = ("PrepareAbort", 3)
    COMPLETE_COMMIT = ("CompleteCommit", 4)
    COMPLETE_ABORT = ("CompleteAbort", 5)
    DEAD = ("Dead", 6)
    PREPARE_EPOCH_FENCE = ("PrepareEpochFence", 7)
    """Never written: here it is one step with the abort. Known, as clients may ask for it."""

    @property
    def label(self) -> str:
        return self.value[0]

    @property
    def code(self) -> int:
        return self.value[1]

    @property
    def is_prepared(self) -> bool:
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_complete(self) -> bool:
        return self in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)

    @staticmethod
    def of(code: int) -> "TransactionState":
        for state in TransactionState:
            if state.code == code:
                return state
        raise ValueError(f"no state of a transaction has the number {code}")


_S = TransactionState
PREDECESSORS: dict[TransactionState, frozenset[TransactionState]] = {
    _S.EMPTY: frozenset((_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT)),
    _S.ONGOING: frozenset((_S.EMPTY, _S.ONGOING, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT)),
    _S.PREPARE_COMMIT: frozenset((_S.ONGOING,)),
    _S.PREPARE_ABORT: frozenset((_S.ONGOING, _S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT)),
    _S.COMPLETE_COMMIT: frozenset((_S.PREPARE_COMMIT,)),
    _S.COMPLETE_ABORT: frozenset((_S.PREPARE_ABORT,)),
    _S.DEAD: frozenset((_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT)),
    _S.PREPARE_EPOCH_FENCE: frozenset(),
}
"""From where each state can be reached."""


@dataclass(frozen=True, slots=True)
class TransactionMetadata:
    """What is written down of a transactional id. A change makes a new one."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = -1
    updated_ms: int = -1
    previous_producer_id: int = NO_PRODUCER
    """The id that it had before its epochs ran out."""
    next_producer_id: int = NO_PRODUCER
    """The id that it goes on with when this transaction, the last of the old id, is complete."""
    version: int = 0
    """How its client does transactions: EPOCH_PER_TRANSACTION, or 0 for the older ways."""

    def to(self, state: TransactionState, now_ms: int, **changes: Any) -> "TransactionMetadata":
        """The next state. That it can come from this one is checked here, and nowhere else."""
        if self.state not in PREDECESSORS[state]:
            raise HeadraceError(
                f"the transaction of {self.transactional_id!r} cannot go from {self.state.label} to {state.label}"
            )
        return replace(self, state=state, updated_ms=now_ms, **changes)

    @property
    def is_exhausted(self) -> bool:
        """Whether no epoch is left to give out; the very last one is kept for fencing."""
        return self.producer_epoch >= LAST_EPOCH - 1

    def has_timed_out(self, now_ms: int) -> bool:
        return self.state is TransactionState.ONGOING and self.start_ms + self.timeout_ms < now_ms
