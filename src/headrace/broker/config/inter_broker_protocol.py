"""`inter.broker.protocol.version`: which request versions and features brokers use between each other.

A version is a release with an optional step, as in Apache Kafka: `3.9`, `3.9-IV0`, `2.7-IV1`. A release without a step
means its last step. During a rolling upgrade every broker keeps the old version until all run the new software, so a
broker sends only what the oldest broker understands.

The table is that of Apache Kafka 3.9 in ZooKeeper mode. Brokers receive all versions, whatever this config says.
"""

import re
from dataclasses import dataclass

from headrace.common.config import ConfigKey, ConfigTable, ConfigType
from headrace.common.errors import ConfigError

_KEY = "inter.broker.protocol.version"
_STEPS = {
    "0.11.0": 3,
    "1.0": 1,
    "1.1": 1,
    "2.0": 2,
    "2.1": 3,
    "2.2": 2,
    "2.3": 2,
    "2.4": 2,
    "2.5": 1,
    "2.6": 1,
    "2.7": 3,
    "2.8": 2,
    "3.0": 2,
    "3.1": 1,
    "3.2": 1,
    "3.3": 4,
    "3.4": 1,
    "3.5": 3,
    "3.6": 3,
    "3.7": 5,
    "3.8": 1,
    "3.9": 1,
}
"""The number of steps (IV0, IV1, ...) of each release, oldest first."""
_VERSIONS = tuple(f"{release}-IV{step}" for release, steps in _STEPS.items() for step in range(steps))
_RANK = {name: rank for rank, name in enumerate(_VERSIONS)}
_TEXT = re.compile(r"(?P<release>0\.\d+\.\d+|[1-9]\d*\.\d+)(?:\.\d+)*(?P<step>-IV\d+)?")

INTER_BROKER_PROTOCOL_KEYS = ConfigTable(
    [
        ConfigKey(
            _KEY,
            ConfigType.STRING,
            "3.9",
            "The version of the protocol between brokers, from 0.11.0 to 3.9. Set it to the old version before a "
            "rolling upgrade, and to the new one when all brokers are upgraded. Below 2.7 leaders change the ISR "
            "through ZooKeeper, from 2.7 on through the controller.",
            dynamic=False,
        )
    ]
)

_Table = tuple[tuple[str, int], ...]
_LEADER_AND_ISR: _Table = (
    ("3.4-IV0", 7),
    ("3.2-IV0", 6),
    ("2.8-IV1", 5),
    ("2.4-IV1", 4),
    ("2.4-IV0", 3),
    ("2.2-IV0", 2),
    ("1.0-IV0", 1),
)
_STOP_REPLICA: _Table = (("3.4-IV0", 4), ("2.6-IV0", 3), ("2.4-IV1", 2), ("2.2-IV0", 1))
_UPDATE_METADATA: _Table = (
    ("3.4-IV0", 8),
    ("2.8-IV1", 7),
    ("2.4-IV1", 6),
    ("2.2-IV0", 5),
    ("1.0-IV0", 4),
    ("0.11.0-IV0", 3),
)
_FETCH: _Table = (
    ("3.9-IV0", 17),
    ("3.7-IV4", 16),
    ("3.5-IV1", 15),
    ("3.5-IV0", 14),
    ("3.1-IV0", 13),
    ("2.7-IV1", 12),
    ("2.3-IV1", 11),
    ("2.1-IV2", 10),
    ("2.0-IV1", 8),
    ("1.1-IV0", 7),
    ("0.11.0-IV1", 5),
    ("0.11.0-IV0", 4),
)
_OFFSET_FOR_LEADER_EPOCH: _Table = (("2.8-IV0", 4), ("2.3-IV1", 3), ("2.1-IV1", 2), ("2.0-IV0", 1))
_LIST_OFFSETS: _Table = (
    ("3.9-IV0", 9),
    ("3.5-IV0", 8),
    ("3.0-IV1", 7),
    ("2.8-IV0", 6),
    ("2.2-IV1", 5),
    ("2.1-IV1", 4),
    ("2.0-IV1", 3),
    ("0.11.0-IV0", 2),
)


@dataclass(frozen=True, slots=True)
class InterBrokerProtocol:
    """The protocol between brokers in one version. Create it with `parse`."""

    version: str
    """With its step, such as `3.9-IV0`."""

    @classmethod
    def parse(cls, text: str) -> "InterBrokerProtocol":
        """Parses the config's value. Raises ConfigError."""
        match = _TEXT.fullmatch(text.strip())
        if match is not None and (steps := _STEPS.get(match["release"])) is not None:
            version = match["release"] + (match["step"] or f"-IV{steps - 1}")
            if version in _RANK:
                return cls(version)
        raise ConfigError(
            f"{_KEY}={text} is not a supported version: expected a release from {next(iter(_STEPS))} to "
            f"{list(_STEPS)[-1]}, optionally with its step, such as 3.9-IV0"
        )

    def __str__(self) -> str:
        return self.version

    def is_at_least(self, version: str) -> bool:
        """Compares with a version that has its step: `is_at_least("2.7-IV2")`."""
        return _RANK[self.version] >= _RANK[version]

    def _select(self, table: _Table) -> int:
        return next((number for since, number in table if self.is_at_least(since)), 0)

    # ---- versions of requests

    @property
    def leader_and_isr_version(self) -> int:
        return self._select(_LEADER_AND_ISR)

    @property
    def stop_replica_version(self) -> int:
        return self._select(_STOP_REPLICA)

    @property
    def update_metadata_version(self) -> int:
        return self._select(_UPDATE_METADATA)

    @property
    def fetch_version(self) -> int:
        return self._select(_FETCH)

    @property
    def offset_for_leader_epoch_version(self) -> int:
        return self._select(_OFFSET_FOR_LEADER_EPOCH)

    @property
    def list_offsets_version(self) -> int:
        return self._select(_LIST_OFFSETS)

    @property
    def alter_partition_max_version(self) -> int:
        """The newest AlterPartition to use; an older controller may support less. Version 2 introduced topic ids."""
        return 3 if self.has_topic_ids else 1

    @property
    def controlled_shutdown_version(self) -> int:
        """Kafka selects it by this config, too: broker epochs (KIP-380) since 2.2, flexible fields since 2.4."""
        if self.is_at_least("2.4-IV1"):
            return 3
        return 2 if self.is_at_least("2.2-IV0") else 1

    # ---- features

    @property
    def uses_alter_partition(self) -> bool:
        """True if leaders change the ISR through the controller (KIP-497), False through the store."""
        return self.is_at_least("2.7-IV2")

    @property
    def truncates_on_fetch(self) -> bool:
        """True if a fetch response tells followers where to truncate (KIP-595), False if they must ask before."""
        return self.is_at_least("2.7-IV1")

    @property
    def has_topic_ids(self) -> bool:
        """True if topics get ids (KIP-516)."""
        return self.is_at_least("2.8-IV0")

    @property
    def has_leader_recovery_state(self) -> bool:
        """True if the state of a partition tells that its leader recovers from an unclean election (KIP-704)."""
        return self.is_at_least("3.2-IV0")

    @property
    def allocates_producer_ids(self) -> bool:
        """True if the controller assigns blocks of producer ids (KIP-730), False if brokers take them themselves."""
        return self.is_at_least("3.0-IV0")

    @property
    def has_features(self) -> bool:
        """True if the cluster has finalized features (KIP-584)."""
        return self.is_at_least("2.7-IV0")
