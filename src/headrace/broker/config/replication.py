"""Configs of replication: the fetchers of followers, throttles, fetching from followers, moves between directories."""

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.broker.config.inter_broker_protocol import InterBrokerProtocol
from headrace.common.config import LONG_MAX, ConfigKey, ConfigTable, ConfigType
from headrace.common.errors import ConfigError

LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
_FIRST_EPOCH_VERSION = 2
"""Older versions of OffsetForLeaderEpoch are not supported."""

REPLICATION_KEYS = ConfigTable(
    [
        ConfigKey(
            "num.replica.fetchers",
            ConfigType.INT,
            1,
            "The number of fetchers that replicate records from each leader, each with its own connection.",
            low=1,
        ),
        ConfigKey(
            "replica.fetch.max.bytes",
            ConfigType.INT,
            1_048_576,
            "How many bytes a follower fetches of a partition at a time. A larger first batch is fetched all the same.",
            low=0,
            dynamic=False,
        ),
        ConfigKey(
            "replica.fetch.response.max.bytes",
            ConfigType.INT,
            10_485_760,
            "The maximum number of bytes of a response to a follower's fetch.",
            low=0,
            dynamic=False,
        ),
        ConfigKey(
            "replica.fetch.min.bytes",
            ConfigType.INT,
            1,
            "The leader delays the response to a follower until it has this many bytes, at most for "
            "`replica.fetch.wait.max.ms`.",
            dynamic=False,
        ),
        ConfigKey(
            "replica.fetch.wait.max.ms",
            ConfigType.INT,
            500,
            "How long a leader delays the response to a follower without new records. It must be less than "
            "`replica.lag.time.max.ms`.",
            low=0,
            dynamic=False,
        ),
        ConfigKey(
            "replica.fetch.backoff.ms",
            ConfigType.INT,
            1_000,
            "How long a follower waits after an error before it fetches a partition again.",
            low=0,
            dynamic=False,
        ),
        ConfigKey(
            "replica.socket.timeout.ms",
            ConfigType.INT,
            30_000,
            "How long a follower waits for its leader's response; at least `replica.fetch.wait.max.ms`.",
            low=1,
            dynamic=False,
        ),
        ConfigKey(
            "replica.selector.class",
            ConfigType.STRING,
            None,
            "How a replica is selected for consumers. `org.apache.kafka.common.replica.RackAwareReplicaSelector`: in "
            "the consumer's rack (`client.rack`), if possible. By default consumers fetch from the leader.",
            choices=("", LEADER_SELECTOR, RACK_AWARE_SELECTOR),
            dynamic=False,
        ),
        ConfigKey(
            "leader.replication.throttled.rate",
            ConfigType.LONG,
            LONG_MAX,
            "How many bytes per second a leader sends to the throttled replicas of all topics together.",
            low=0,
        ),
        ConfigKey(
            "follower.replication.throttled.rate",
            ConfigType.LONG,
            LONG_MAX,
            "How many bytes per second a follower fetches for the throttled replicas of all topics together.",
            low=0,
        ),
        ConfigKey(
            "replication.quota.window.num",
            ConfigType.INT,
            11,
            "The number of samples over which the rates of throttled replicas are measured.",
            low=1,
            dynamic=False,
        ),
        ConfigKey(
            "replication.quota.window.size.seconds",
            ConfigType.INT,
            1,
            "The duration of a sample of `replication.quota.window.num`.",
            low=1,
            dynamic=False,
        ),
        ConfigKey(
            "num.replica.alter.log.dirs.threads",
            ConfigType.INT,
            None,
            "How many replicas are moved between log directories at the same time. By default as many as there are log "
            "directories. They are tasks of the event loop, which read files in background threads.",
            low=1,
            dynamic=False,
        ),
        ConfigKey(
            "replica.alter.log.dirs.io.max.bytes.per.second",
            ConfigType.LONG,
            LONG_MAX,
            "How many bytes per second are copied between log directories, for all moving replicas together.",
            low=0,
        ),
        ConfigKey(
            "alter.log.dirs.replication.quota.window.num",
            ConfigType.INT,
            11,
            "The number of samples over which the rate of replicas that move between log directories is measured.",
            low=1,
            dynamic=False,
        ),
        ConfigKey(
            "alter.log.dirs.replication.quota.window.size.seconds",
            ConfigType.INT,
            1,
            "The duration of a sample of `alter.log.dirs.replication.quota.window.num`.",
            low=1,
            dynamic=False,
        ),
    ]
)


@dataclass(frozen=True, slots=True)
class FetcherConfig:
    """The config of all replica fetchers, and of moves between log directories, typed and checked."""

    fetchers: int = 1
    max_bytes: int = 1_048_576
    response_max_bytes: int = 10_485_760
    min_bytes: int = 1
    wait_max_ms: int = 500
    backoff_ms: int = 1_000
    timeout_ms: int = 30_000
    fetch_version: int = 17
    epoch_version: int = 4
    list_offsets_version: int = 9
    truncates_on_fetch: bool = True
    """True if fetch responses tell where logs diverge (from `inter.broker.protocol.version` 2.7 on)."""
    throttle_samples: int = 11
    throttle_sample_seconds: int = 1
    log_dir_movers: int | None = None
    log_dir_throttle_samples: int = 11
    log_dir_throttle_sample_seconds: int = 1

    @classmethod
    def from_properties(cls, properties: Mapping[str, object], protocol: InterBrokerProtocol) -> "FetcherConfig":
        """Raises ConfigError."""
        values = REPLICATION_KEYS.parse(properties)
        if values["replica_fetch_wait_max_ms"] > values["replica_socket_timeout_ms"]:
            raise ConfigError(
                f"replica.socket.timeout.ms={values['replica_socket_timeout_ms']} must be at least "
                f"replica.fetch.wait.max.ms={values['replica_fetch_wait_max_ms']}: otherwise fetches without new "
                "records time out"
            )
        return cls(
            fetchers=values["num_replica_fetchers"],
            max_bytes=values["replica_fetch_max_bytes"],
            response_max_bytes=values["replica_fetch_response_max_bytes"],
            min_bytes=values["replica_fetch_min_bytes"],
            wait_max_ms=values["replica_fetch_wait_max_ms"],
            backoff_ms=values["replica_fetch_backoff_ms"],
            timeout_ms=values["replica_socket_timeout_ms"],
            fetch_version=protocol.fetch_version,
            epoch_version=max(_FIRST_EPOCH_VERSION, protocol.offset_for_leader_epoch_version),
            list_offsets_version=protocol.list_offsets_version,
            truncates_on_fetch=protocol.truncates_on_fetch,
            throttle_samples=values["replication_quota_window_num"],
            throttle_sample_seconds=values["replication_quota_window_size_seconds"],
            log_dir_movers=values["num_replica_alter_log_dirs_threads"],
            log_dir_throttle_samples=values["alter_log_dirs_replication_quota_window_num"],
            log_dir_throttle_sample_seconds=values["alter_log_dirs_replication_quota_window_size_seconds"],
        )
