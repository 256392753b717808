"""Transaction metadata: the state of a transactional id.

    Empty ──► Ongoing ──► PrepareCommit ──► CompleteCommit ──► Ongoing (the next transaction), or Empty
                 └──────► PrepareAbort  ──► CompleteAbort  ──► Ongoing, or Empty
    Empty, CompleteCommit, CompleteAbort ──► Dead (expired)

- A new producer with the same transactional id resets it to Empty.
- PrepareCommit and PrepareAbort are final decisions. The coordinator writes markers to all partitions, and repeats this
  after a crash. The transaction is complete when every partition has its marker.
- A producer that gets a new epoch with each transaction (KIP-890) may abort a transaction without partitions: Empty or
  Complete → PrepareAbort.
"""

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from headrace.common.errors import HeadraceError
from headrace.common.types import TopicPartition

NO_PRODUCER = -1
LAST_EPOCH = 2**15 - 1
EPOCH_PER_TRANSACTION = 2
"""The client transaction version from which each transaction has its own epoch (KIP-890)."""


class TransactionState(Enum):
    """The state of a transaction, with Kafka's name and number."""

    EMPTY = ("Empty", 0)
    ONGOING = ("Ongoing", 1)
    PREPARE_COMMIT = ("PrepareCommit", 2)
    PREPARE_ABORT = ("PrepareAbort", 3)
    COMPLETE_COMMIT = ("CompleteCommit", 4)
    COMPLETE_ABORT = ("CompleteAbort", 5)
    DEAD = ("Dead", 6)
    PREPARE_EPOCH_FENCE = ("PrepareEpochFence", 7)
    """Never written: fencing and abort are one step here. Defined because clients may filter by it."""

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
        raise ValueError(f"unknown transaction state {code}")


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
"""The valid previous states of each state."""


@dataclass(frozen=True, slots=True)
class TransactionMetadata:
    """The stored state of a transactional id. It is immutable: `to` returns the next state."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = -1
    updated_ms: int = -1
    previous_producer_id: int = NO_PRODUCER
    """The producer id before the epochs were exhausted."""
    next_producer_id: int = NO_PRODUCER
    """The producer id after this transaction, which is the last of the exhausted producer id."""
    version: int = 0
    """The client's transaction version: EPOCH_PER_TRANSACTION, or 0 for older clients."""

    def to(self, state: TransactionState, now_ms: int, **changes: Any) -> "TransactionMetadata":
        """Returns the metadata in the next state. The only place that checks state changes."""
        if self.state not in PREDECESSORS[state]:
            raise HeadraceError(
                f"Transaction of {self.transactional_id!r} cannot change from {self.state.label} to {state.label}"
            )
        return replace(self, state=state, updated_ms=now_ms, **changes)

    @property
    def is_exhausted(self) -> bool:
        """True if the producer id has no epoch left. The last epoch is reserved for fencing."""
        return self.producer_epoch >= LAST_EPOCH - 1

    def has_timed_out(self, now_ms: int) -> bool:
        return self.state is TransactionState.ONGOING and self.start_ms + self.timeout_ms < now_ms
