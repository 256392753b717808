"""The configs of the transaction coordinator: Kafka's broker keys for transactions."""

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.common.config import ConfigKey, ConfigTable, ConfigType

VERIFICATION = "transaction.partition.verification.enable"

TRANSACTION_KEYS = ConfigTable(
    [
        ConfigKey(
            "transaction.max.timeout.ms",
            ConfigType.INT,
            900_000,
            "The longest transaction timeout that a producer may request.",
            low=1,
            dynamic=False,
        ),
        ConfigKey(
            "transaction.abort.timed.out.transaction.cleanup.interval.ms",
            ConfigType.INT,
            10_000,
            "How often transactions that exceeded their timeout are searched for and aborted.",
            low=1,
            dynamic=False,
        ),
        ConfigKey(
            "transaction.remove.expired.transaction.cleanup.interval.ms",
            ConfigType.INT,
            3_600_000,
            "How often expired transactional ids are searched for and removed.",
            low=1,
            dynamic=False,
        ),
        ConfigKey(
            "transactional.id.expiration.ms",
            ConfigType.INT,
            604_800_000,
            "How long a transactional id is kept after its last use.",
            low=1,
            dynamic=False,
        ),
        ConfigKey(
            VERIFICATION,
            ConfigType.BOOLEAN,
            True,
            "Whether the broker checks that a partition was added to the transaction before it appends transactional "
            "records.",
        ),
    ]
)


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """The configs of the transaction coordinator, typed and checked."""

    max_timeout_ms: int = 900_000
    abort_interval_ms: int = 10_000
    """How often timed-out transactions are searched for."""
    id_expiration_ms: int = 604_800_000
    remove_interval_ms: int = 3_600_000
    """How often expired transactional ids are searched for."""

    @classmethod
    def from_properties(cls, properties: Mapping[str, object] | None = None) -> "TransactionConfig":
        """Parses and checks TRANSACTION_KEYS."""
        values = TRANSACTION_KEYS.parse(properties or {})
        return cls(
            max_timeout_ms=values["transaction_max_timeout_ms"],
            abort_interval_ms=values["transaction_abort_timed_out_transaction_cleanup_interval_ms"],
            id_expiration_ms=values["transactional_id_expiration_ms"],
            remove_interval_ms=values["transaction_remove_expired_transaction_cleanup_interval_ms"],
        )
