"""The configs of the transaction coordinator."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """The broker's `transaction.*` and `transactional.id.*` configs that the transaction coordinator uses."""

    max_timeout_ms: int = 900_000
    """The largest transaction timeout that a producer may request."""
    abort_interval_ms: int = 10_000
    """How often timed-out transactions are aborted."""
    id_expiration_ms: int = 604_800_000
    """How long an unused transactional id is kept."""
    remove_interval_ms: int = 3_600_000
    """How often expired transactional ids are removed."""
