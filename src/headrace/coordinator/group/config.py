"""The configs of the group coordinator: Kafka's broker keys for groups and committed offsets."""

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.common.config import INT_MAX, ConfigKey, ConfigTable, ConfigType

GROUP_KEYS = ConfigTable(
    [
        ConfigKey(
            "group.min.session.timeout.ms",
            ConfigType.INT,
            6_000,
            "The shortest session timeout that a member of a group may request.",
            low=1,
            dynamic=False,
        ),
        ConfigKey(
            "group.max.session.timeout.ms",
            ConfigType.INT,
            1_800_000,
            "The longest session timeout that a member of a group may request.",
            low=1,
            dynamic=False,
        ),
        ConfigKey(
            "group.max.size",
            ConfigType.INT,
            INT_MAX,
            "The maximum number of members of a group.",
            low=1,
            dynamic=False,
        ),
        ConfigKey(
            "group.initial.rebalance.delay.ms",
            ConfigType.INT,
            3_000,
            "How long an empty group waits for more members after the first one, before it assigns partitions. Each "
            "new member extends the delay, up to the rebalance timeout.",
            low=0,
            dynamic=False,
        ),
        ConfigKey(
            "offset.metadata.max.bytes",
            ConfigType.INT,
            4_096,
            "The maximum size of the metadata that a client commits with an offset.",
            low=0,
            dynamic=False,
        ),
        ConfigKey(
            "offsets.retention.minutes",
            ConfigType.INT,
            10_080,
            "How long committed offsets are kept after their group became empty, or, without a group, after the "
            "commit.",
            low=1,
            dynamic=False,
        ),
        ConfigKey(
            "offsets.retention.check.interval.ms",
            ConfigType.LONG,
            600_000,
            "How often expired offsets are searched for.",
            low=1,
            dynamic=False,
        ),
    ]
)


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """The configs of the group coordinator, typed and checked."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = INT_MAX
    initial_rebalance_delay_ms: int = 3_000
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    offsets_retention_check_interval_ms: int = 600_000

    @classmethod
    def from_properties(cls, properties: Mapping[str, object] | None = None) -> "GroupConfig":
        """Parses and checks GROUP_KEYS."""
        values = GROUP_KEYS.parse(properties or {})
        return cls(
            min_session_timeout_ms=values["group_min_session_timeout_ms"],
            max_session_timeout_ms=values["group_max_session_timeout_ms"],
            max_size=values["group_max_size"],
            initial_rebalance_delay_ms=values["group_initial_rebalance_delay_ms"],
            offset_metadata_max_bytes=values["offset_metadata_max_bytes"],
            offsets_retention_ms=values["offsets_retention_minutes"] * 60_000,
            offsets_retention_check_interval_ms=values["offsets_retention_check_interval_ms"],
        )
