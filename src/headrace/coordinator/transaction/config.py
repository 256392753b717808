"""What the transaction coordinator is told by the broker's configuration."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    max_timeout_ms: int = 900_000
    """The longest time that a producer may ask for."""
    abort_interval_ms: int = 10_000
    """How often transactions that took too long are looked for."""
    id_expiration_ms: int = 604_800_000
    """How long a transactional id is remembered that nobody uses."""
    remove_interval_ms: int = 3_600_000
    """How often ids to forget are looked for."""
