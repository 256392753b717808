"""Configs of the group and transaction coordinators and of their internal topics."""

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.cluster.topics import TopicSpec
from headrace.common.config import ConfigKey, ConfigTable, ConfigType
from headrace.coordinator.group.config import GROUP_KEYS, GroupConfig

GROUP_TOPIC = "__consumer_offsets"
TRANSACTION_TOPIC = "__transaction_state"

COORDINATOR_KEYS = ConfigTable(
    [
        *GROUP_KEYS.keys.values(),
        ConfigKey(
            "offsets.commit.timeout.ms",
            ConfigType.INT,
            5_000,
            "How long an offset commit or group change waits for the in-sync replicas of the offsets topic.",
            low=1,
            dynamic=False,
        ),
        ConfigKey(
            "offsets.load.buffer.size",
            ConfigType.INT,
            5_242_880,
            "How many bytes are read at a time while a partition of the offsets topic is loaded. Values above 256 KiB "
            "act like 256 KiB: the broker handles other requests between reads.",
            low=1,
            dynamic=False,
        ),
        ConfigKey(
            "offsets.topic.num.partitions",
            ConfigType.INT,
            50,
            "The number of partitions of the offsets topic. Do not change it once the topic exists.",
            low=1,
            dynamic=False,
        ),
        ConfigKey(
            "offsets.topic.replication.factor",
            ConfigType.INT,
            3,
            "The replication factor of the offsets topic. The topic is created when so many brokers are alive. Without "
            "this setting and without `zookeeper.connect` the factor is capped at the number of live brokers.",
            low=1,
            high=32_767,
            dynamic=False,
        ),
        ConfigKey(
            "offsets.topic.segment.bytes",
            ConfigType.INT,
            104_857_600,
            "The segment size of the offsets topic. Small segments keep compaction and loading fast.",
            low=1,
            dynamic=False,
        ),
        ConfigKey(
            "transaction.state.log.num.partitions",
            ConfigType.INT,
            50,
            "The number of partitions of the transaction topic. Do not change it once the topic exists.",
            low=1,
            dynamic=False,
        ),
        ConfigKey(
            "transaction.state.log.replication.factor",
            ConfigType.INT,
            3,
            "The replication factor of the transaction topic. The topic is created when so many brokers are alive. "
            "Without this setting and without `zookeeper.connect` the factor is capped at the number of live brokers.",
            low=1,
            high=32_767,
            dynamic=False,
        ),
        ConfigKey(
            "transaction.state.log.segment.bytes",
            ConfigType.INT,
            104_857_600,
            "The segment size of the transaction topic.",
            low=1,
            dynamic=False,
        ),
        ConfigKey(
            "transaction.state.log.min.isr",
            ConfigType.INT,
            2,
            "`min.insync.replicas` of the transaction topic, capped at its replication factor.",
            low=1,
            dynamic=False,
        ),
    ]
)


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """The configured size of an internal topic."""

    name: str
    partitions: int
    replication_factor: int
    segment_bytes: int
    min_insync_replicas: int = 1
    is_capped: bool = True
    """True if fewer live brokers than `replication_factor` suffice."""

    def spec(self, live_brokers: int) -> TopicSpec:
        """Returns the topic to create while `live_brokers` brokers are alive.

        A topic with too few replicas would keep them for good, so a cluster waits for its brokers.
        """
        factor = max(1, min(self.replication_factor, live_brokers)) if self.is_capped else self.replication_factor
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(self.segment_bytes),
        }
        if self.min_insync_replicas > 1:
            configs["min.insync.replicas"] = str(min(self.min_insync_replicas, factor))
        return TopicSpec(self.name, self.partitions, factor, configs=configs)


@dataclass(frozen=True, slots=True)
class CoordinatorConfig:
    """The parsed and checked configs of the coordinators."""

    groups: GroupConfig
    commit_timeout_ms: int
    load_buffer_bytes: int
    topics: Mapping[str, InternalTopic]

    @classmethod
    def from_properties(
        cls, properties: Mapping[str, object] | None = None, *, has_other_brokers: bool = False
    ) -> "CoordinatorConfig":
        """Parses and checks COORDINATOR_KEYS. `has_other_brokers`: the brokers of the cluster start one by one."""
        values = COORDINATOR_KEYS.parse(properties or {})

        def is_capped(factor: str) -> bool:
            return not has_other_brokers and factor not in (properties or {})

        return cls(
            groups=GroupConfig.from_properties(GROUP_KEYS.select(properties or {})),
            commit_timeout_ms=values["offsets_commit_timeout_ms"],
            load_buffer_bytes=values["offsets_load_buffer_size"],
            topics={
                GROUP_TOPIC: InternalTopic(
                    GROUP_TOPIC,
                    values["offsets_topic_num_partitions"],
                    values["offsets_topic_replication_factor"],
                    values["offsets_topic_segment_bytes"],
                    is_capped=is_capped("offsets.topic.replication.factor"),
                ),
                TRANSACTION_TOPIC: InternalTopic(
                    TRANSACTION_TOPIC,
                    values["transaction_state_log_num_partitions"],
                    values["transaction_state_log_replication_factor"],
                    values["transaction_state_log_segment_bytes"],
                    values["transaction_state_log_min_isr"],
                    is_capped("transaction.state.log.replication.factor"),
                ),
            },
        )
