"""Broker keys of the transaction coordinator."""

from collections.abc import Mapping
from typing import Any

from headrace.common.config import ConfigKey, ConfigType
from headrace.coordinator.transaction.config import TransactionConfig

VERIFICATION = "transaction.partition.verification.enable"

TRANSACTION_KEYS = [
    ConfigKey(
        "transaction.max.timeout.ms",
        ConfigType.INT,
        900_000,
        "The longest transaction timeout that a producer may ask for.",
        low=1,
        dynamic=False,
    ),
    ConfigKey(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        ConfigType.INT,
        10_000,
        "How often transactions that have taken too long are looked for, and aborted.",
        low=1,
        dynamic=False,
    ),
    ConfigKey(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        ConfigType.INT,
        3_600_000,
        "How often transactional ids that nobody has used for long are looked for, and forgotten.",
        low=1,
        dynamic=False,
    ),
    ConfigKey(
        "transactional.id.expiration.ms",
        ConfigType.INT,
        604_800_000,
        "How long a transactional id is remembered after its last use.",
        low=1,
        dynamic=False,
    ),
    ConfigKey(
        VERIFICATION,
        ConfigType.BOOLEAN,
        True,
        "Whether records of a transaction are taken only for partitions that were added to it.",
    ),
]


def transaction_config(values: Mapping[str, Any]) -> TransactionConfig:
    """From the values of the table's keys."""
    return TransactionConfig(
        max_timeout_ms=values["transaction_max_timeout_ms"],
        abort_interval_ms=values["transaction_abort_timed_out_transaction_cleanup_interval_ms"],
        id_expiration_ms=values["transactional_id_expiration_ms"],
        remove_interval_ms=values["transaction_remove_expired_transaction_cleanup_interval_ms"],
    )
