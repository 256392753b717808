"""Broker keys of the coordinators: groups with their offsets, and the internal topics."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.cluster.topics import TopicSpec
from headrace.common.config import INT_MAX, ConfigKey, ConfigType
from headrace.coordinator.group.config import GroupConfig

GROUP_TOPIC = "__consumer_offsets"
TRANSACTION_TOPIC = "__transaction_state"

COORDINATOR_KEYS = [
    ConfigKey(
        "group.min.session.timeout.ms",
        ConfigType.INT,
        6_000,
        "The shortest session timeout that a member of a group may ask for.",
        low=1,
        dynamic=False,
    ),
    ConfigKey(
        "group.max.session.timeout.ms",
        ConfigType.INT,
        1_800_000,
        "The longest session timeout that a member of a group may ask for.",
        low=1,
        dynamic=False,
    ),
    ConfigKey("group.max.size", ConfigType.INT, INT_MAX, "How many members a group may have.", low=1, dynamic=False),
    ConfigKey(
        "group.initial.rebalance.delay.ms",
        ConfigType.INT,
        3_000,
        "How long an empty group waits for more members after the first, before it shares out partitions. Each that "
        "comes prolongs it, up to the rebalance timeout.",
        low=0,
        dynamic=False,
    ),
    ConfigKey(
        "offset.metadata.max.bytes",
        ConfigType.INT,
        4_096,
        "How long the text may be that a client commits with an offset.",
        low=0,
        dynamic=False,
    ),
    ConfigKey(
        "offsets.commit.timeout.ms",
        ConfigType.INT,
        5_000,
        "How long a commit, or the change of a group, waits for the replicas of the offsets topic.",
        low=1,
        dynamic=False,
    ),
    ConfigKey(
        "offsets.load.buffer.size",
        ConfigType.INT,
        5_242_880,
        "The most that is read at a time when a partition of the offsets topic is loaded; other requests are served in "
        "between, so at most 256 KiB are.",
        low=1,
        dynamic=False,
    ),
    ConfigKey(
        "offsets.retention.minutes",
        ConfigType.INT,
        10_080,
        "How long offsets are kept after their group has become empty, or, without a group, after they were committed.",
        low=1,
        dynamic=False,
    ),
    ConfigKey(
        "offsets.retention.check.interval.ms",
        ConfigType.LONG,
        600_000,
        "How often it is looked for offsets that are too old.",
        low=1,
        dynamic=False,
    ),
    ConfigKey(
        "offsets.topic.num.partitions",
        ConfigType.INT,
        50,
        "Partitions of the topic that holds groups and offsets; to be left as it is once the topic is there.",
        low=1,
        dynamic=False,
    ),
    ConfigKey(
        "offsets.topic.replication.factor",
        ConfigType.INT,
        3,
        "Replicas of the topic that holds groups and offsets; as many as there are brokers, if those are fewer when it "
        "is made.",
        low=1,
        high=32_767,
        dynamic=False,
    ),
    ConfigKey(
        "offsets.topic.segment.bytes",
        ConfigType.INT,
        104_857_600,
        "Segment size of the topic that holds groups and offsets: small, so that compaction and loading stay quick.",
        low=1,
        dynamic=False,
    ),
    ConfigKey(
        "transaction.state.log.num.partitions",
        ConfigType.INT,
        50,
        "Partitions of the topic that holds transactions; to be left as it is once the topic is there.",
        low=1,
        dynamic=False,
    ),
    ConfigKey(
        "transaction.state.log.replication.factor",
        ConfigType.INT,
        3,
        "Replicas of the topic that holds transactions; as many as there are brokers, if those are fewer when it is "
        "made.",
        low=1,
        high=32_767,
        dynamic=False,
    ),
    ConfigKey(
        "transaction.state.log.segment.bytes",
        ConfigType.INT,
        104_857_600,
        "Segment size of the topic that holds transactions.",
        low=1,
        dynamic=False,
    ),
    ConfigKey(
        "transaction.state.log.min.isr",
        ConfigType.INT,
        2,
        "`min.insync.replicas` of the topic that holds transactions; at most as many as it gets replicas.",
        low=1,
        dynamic=False,
    ),
]


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """How an internal topic is to be made."""

    name: str
    partitions: int
    replication_factor: int
    segment_bytes: int
    min_in_sync: int = 1

    def spec(self, live_brokers: int) -> TopicSpec:
        factor = max(1, min(self.replication_factor, live_brokers))
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(self.segment_bytes),
        }
        if self.min_in_sync > 1:
            configs["min.insync.replicas"] = str(min(self.min_in_sync, factor))
        return TopicSpec(self.name, self.partitions, factor, configs=configs)


@dataclass(frozen=True, slots=True)
class CoordinatorConfig:
    groups: GroupConfig
    commit_timeout_ms: int
    load_buffer_bytes: int
    topics: Mapping[str, InternalTopic]


def coordinator_config(values: Mapping[str, Any]) -> CoordinatorConfig:
    """From the values of the table's keys."""
    return CoordinatorConfig(
        groups=GroupConfig(
            min_session_timeout_ms=values["group_min_session_timeout_ms"],
            max_session_timeout_ms=values["group_max_session_timeout_ms"],
            max_size=values["group_max_size"],
            initial_rebalance_delay_ms=values["group_initial_rebalance_delay_ms"],
            offset_metadata_max_bytes=values["offset_metadata_max_bytes"],
            offsets_retention_ms=values["offsets_retention_minutes"] * 60_000,
            offsets_retention_check_interval_ms=values["offsets_retention_check_interval_ms"],
        ),
        commit_timeout_ms=values["offsets_commit_timeout_ms"],
        load_buffer_bytes=values["offsets_load_buffer_size"],
        topics={
            GROUP_TOPIC: InternalTopic(
                GROUP_TOPIC,
                values["offsets_topic_num_partitions"],
                values["offsets_topic_replication_factor"],
                values["offsets_topic_segment_bytes"],
            ),
            TRANSACTION_TOPIC: InternalTopic(
                TRANSACTION_TOPIC,
                values["transaction_state_log_num_partitions"],
                values["transaction_state_log_replication_factor"],
                values["transaction_state_log_segment_bytes"],
                values["transaction_state_log_min_isr"],
            ),
        },
    )
