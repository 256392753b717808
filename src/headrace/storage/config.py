"""The settings of a log (Kafka's topic keys) and of the log manager (Kafka's broker keys)."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from headrace.common.config import INT_MAX, LONG_MAX, ConfigKey, ConfigTable, ConfigType, Synonym
from headrace.common.errors import ConfigError
from headrace.records.compression import LEVELS, Compression

_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS


def _level_key(codec: Compression) -> ConfigKey:
    name = codec.name.lower()
    lowest, highest, default = LEVELS[codec]
    return ConfigKey(
        f"compression.{name}.level",
        ConfigType.INT,
        default,
        f"The level to compress with where `compression.type` is `{name}`.",
        low=lowest,
        high=highest,
        synonyms=(Synonym(f"compression.{name}.level"),),
    )


def _check_policy(policies: tuple[str, ...]) -> str | None:
    return None if policies else "at least one of compact and delete"


LOG_KEYS = ConfigTable(
    [
        ConfigKey(
            "cleanup.policy",
            ConfigType.LIST,
            ("delete",),
            "What happens to old data: `delete` drops whole segments by age and size, `compact` keeps the last record "
            "of each key; both may be given.",
            choices=("compact", "delete"),
            synonyms=(Synonym("log.cleanup.policy"),),
            check=_check_policy,
        ),
        ConfigKey(
            "compression.type",
            ConfigType.STRING,
            "producer",
            "The codec that batches are stored with; `producer` keeps what the producer chose.",
            choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
            synonyms=(Synonym("compression.type"),),
        ),
        _level_key(Compression.GZIP),
        _level_key(Compression.LZ4),
        _level_key(Compression.ZSTD),
        ConfigKey(
            "delete.retention.ms",
            ConfigType.LONG,
            _DAY_MS,
            "How long compaction keeps a tombstone, so that a slow reader sees the deletion.",
            low=0,
            synonyms=(Synonym("log.cleaner.delete.retention.ms"),),
        ),
        ConfigKey(
            "file.delete.delay.ms",
            ConfigType.LONG,
            60_000,
            "How long a deleted file stays on disk under another name.",
            low=0,
            synonyms=(Synonym("log.segment.delete.delay.ms"),),
        ),
        ConfigKey(
            "flush.messages",
            ConfigType.LONG,
            LONG_MAX,
            "After how many records an append waits until the log is on disk.",
            low=1,
            synonyms=(Synonym("log.flush.interval.messages"),),
        ),
        ConfigKey(
            "flush.ms",
            ConfigType.LONG,
            LONG_MAX,
            "The longest time that a record may be in memory only.",
            low=0,
            synonyms=(Synonym("log.flush.interval.ms"),),
        ),
        ConfigKey(
            "index.interval.bytes",
            ConfigType.INT,
            4096,
            "How many bytes of the log lie between two index entries.",
            low=0,
            synonyms=(Synonym("log.index.interval.bytes"),),
        ),
        ConfigKey(
            "max.compaction.lag.ms",
            ConfigType.LONG,
            LONG_MAX,
            "The longest time that a record may wait for compaction, whatever the dirty ratio.",
            low=1,
            synonyms=(Synonym("log.cleaner.max.compaction.lag.ms"),),
        ),
        ConfigKey(
            "max.message.bytes",
            ConfigType.INT,
            1024 * 1024 + 12,
            "The largest record batch that may be appended.",
            low=0,
            synonyms=(Synonym("message.max.bytes"),),
        ),
        ConfigKey(
            "message.timestamp.after.max.ms",
            ConfigType.LONG,
            _HOUR_MS,
            "How far a record's timestamp may be ahead of the broker's clock, with CreateTime.",
            low=0,
            synonyms=(Synonym("log.message.timestamp.after.max.ms"),),
        ),
        ConfigKey(
            "message.timestamp.before.max.ms",
            ConfigType.LONG,
            LONG_MAX,
            "How far a record's timestamp may be behind the broker's clock, with CreateTime.",
            low=0,
            synonyms=(Synonym("log.message.timestamp.before.max.ms"),),
        ),
        ConfigKey(
            "message.timestamp.type",
            ConfigType.STRING,
            "CreateTime",
            "Whether a record carries the producer's time or the time of its append.",
            choices=("CreateTime", "LogAppendTime"),
            synonyms=(Synonym("log.message.timestamp.type"),),
        ),
        ConfigKey(
            "min.cleanable.dirty.ratio",
            ConfigType.DOUBLE,
            0.5,
            "How much of a log must be dirty, not yet compacted, before compaction starts.",
            low=0.0,
            high=1.0,
            synonyms=(Synonym("log.cleaner.min.cleanable.ratio"),),
        ),
        ConfigKey(
            "min.compaction.lag.ms",
            ConfigType.LONG,
            0,
            "How long a record is safe from compaction.",
            low=0,
            synonyms=(Synonym("log.cleaner.min.compaction.lag.ms"),),
        ),
        ConfigKey(
            "preallocate",
            ConfigType.BOOLEAN,
            False,
            "Whether a new segment gets its full size on disk at once.",
            synonyms=(Synonym("log.preallocate"),),
        ),
        ConfigKey(
            "retention.bytes",
            ConfigType.LONG,
            -1,
            "How large a partition may grow before its oldest segments are deleted; -1 for no limit.",
            low=-1,
            synonyms=(Synonym("log.retention.bytes"),),
        ),
        ConfigKey(
            "retention.ms",
            ConfigType.LONG,
            7 * _DAY_MS,
            "How long a record is kept before its segment is deleted; -1 for ever.",
            low=-1,
            synonyms=(
                Synonym("log.retention.ms"),
                Synonym("log.retention.minutes", 60_000),
                Synonym("log.retention.hours", _HOUR_MS),
            ),
        ),
        ConfigKey(
            "segment.bytes",
            ConfigType.INT,
            1024 * 1024 * 1024,
            "The size at which a new segment is begun.",
            low=1024,
            synonyms=(Synonym("log.segment.bytes"),),
        ),
        ConfigKey(
            "segment.index.bytes",
            ConfigType.INT,
            10 * 1024 * 1024,
            "The size of an index file at which a new segment is begun.",
            low=24,
            synonyms=(Synonym("log.index.size.max.bytes"),),
        ),
        ConfigKey(
            "segment.jitter.ms",
            ConfigType.LONG,
            0,
            "The largest random time taken off `segment.ms`, so that segments are not all begun at once.",
            low=0,
            synonyms=(Synonym("log.roll.jitter.ms"), Synonym("log.roll.jitter.hours", _HOUR_MS)),
        ),
        ConfigKey(
            "segment.ms",
            ConfigType.LONG,
            7 * _DAY_MS,
            "The time, by record timestamps, after which a new segment is begun even if the old one is not full.",
            low=1,
            synonyms=(Synonym("log.roll.ms"), Synonym("log.roll.hours", _HOUR_MS)),
        ),
    ]
)

MANAGER_KEYS = ConfigTable(
    [
        ConfigKey(
            "log.dirs",
            ConfigType.LIST,
            ("headrace-data",),
            "The directories that hold partitions.",
            dynamic=False,
        ),
        ConfigKey(
            "num.recovery.threads.per.data.dir",
            ConfigType.INT,
            2,
            "Threads per directory that load and recover logs at the start.",
            low=1,
        ),
        ConfigKey(
            "log.retention.check.interval.ms",
            ConfigType.LONG,
            300_000,
            "How often retention is checked.",
            low=1,
            dynamic=False,
        ),
        ConfigKey(
            "log.flush.scheduler.interval.ms",
            ConfigType.LONG,
            1_000,
            "How often `flush.ms` is checked. (Kafka: never, unless set.)",
            low=1,
            dynamic=False,
        ),
        ConfigKey(
            "log.flush.offset.checkpoint.interval.ms",
            ConfigType.INT,
            60_000,
            "How often the recovery points are written down.",
            low=1,
            dynamic=False,
        ),
        ConfigKey(
            "log.flush.start.offset.checkpoint.interval.ms",
            ConfigType.INT,
            60_000,
            "How often the log start offsets are written down.",
            low=1,
            dynamic=False,
        ),
        ConfigKey(
            "log.initial.task.delay.ms",
            ConfigType.LONG,
            30_000,
            "How long after the start the periodic tasks begin.",
            low=0,
            dynamic=False,
        ),
        ConfigKey("log.cleaner.enable", ConfigType.BOOLEAN, True, "Whether compaction runs.", dynamic=False),
        ConfigKey(
            "log.cleaner.backoff.ms", ConfigType.LONG, 15_000, "How long compaction rests when it finds nothing.", low=1
        ),
        ConfigKey(
            "log.cleaner.dedupe.buffer.size",
            ConfigType.LONG,
            128 * 1024 * 1024,
            "Memory for the map of keys of one compaction; 24 bytes a key.",
            low=1024,
        ),
        ConfigKey(
            "log.cleaner.io.buffer.size",
            ConfigType.INT,
            512 * 1024,
            "How much compaction reads and writes at once.",
            low=1024,
        ),
        ConfigKey(
            "log.cleaner.io.buffer.load.factor",
            ConfigType.DOUBLE,
            0.9,
            "How full the map of keys may get.",
            low=0.01,
            high=0.95,
        ),
        ConfigKey(
            "log.cleaner.io.max.bytes.per.second",
            ConfigType.DOUBLE,
            float(LONG_MAX),
            "How many bytes a second compaction may read and write.",
            low=1.0,
        ),
        ConfigKey(
            "producer.id.expiration.ms",
            ConfigType.INT,
            _DAY_MS,
            "After what time without a write a producer id is forgotten.",
            low=1,
        ),
        ConfigKey(
            "producer.id.expiration.check.interval.ms",
            ConfigType.INT,
            600_000,
            "How often idle producer ids are looked for.",
            low=1,
            dynamic=False,
        ),
    ]
)


def _check_table_matches(cls: type, table: ConfigTable) -> None:
    missing = {field.name for field in fields(cls)} ^ {key.attribute for key in table.keys.values()}
    if missing:
        raise TypeError(f"{cls.__name__} and its table disagree about {sorted(missing)}")


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The settings of one log, typed. Make one with `from_properties`."""

    cleanup_policy: tuple[str, ...]
    compression_type: str
    compression_gzip_level: int
    compression_lz4_level: int
    compression_zstd_level: int
    delete_retention_ms: int
    file_delete_delay_ms: int
    flush_messages: int
    flush_ms: int
    index_interval_bytes: int
    max_compaction_lag_ms: int
    max_message_bytes: int
    message_timestamp_after_max_ms: int
    message_timestamp_before_max_ms: int
    message_timestamp_type: str
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    preallocate: bool
    retention_bytes: int
    retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    segment_jitter_ms: int
    segment_ms: int

    @classmethod
    def from_properties(cls, properties: Mapping[str, object] | None = None) -> "LogConfig":
        """Kafka's topic keys, checked; what is not given has its default."""
        config = cls(**LOG_KEYS.parse(properties or {}))
        if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
            raise ConfigError(
                f"min.compaction.lag.ms={config.min_compaction_lag_ms} is more than "
                f"max.compaction.lag.ms={config.max_compaction_lag_ms}"
            )
        return config

    @property
    def compact(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def delete(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def max_segment_ms(self) -> int:
        """After what time a segment is rolled. The active one is not compacted, so on a compacted topic its records may
        get no older than they may wait for that."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compact else self.segment_ms

    @property
    def log_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"

    def stored_codec(self) -> Compression | None:
        """The codec that batches must have in the log; None leaves the producer's."""
        if self.compression_type == "producer":
            return None
        return Compression.from_name(self.compression_type.replace("uncompressed", "none"))

    def level_of(self, codec: Compression) -> int | None:
        levels: dict[Compression, int] = {
            Compression.GZIP: self.compression_gzip_level,
            Compression.LZ4: self.compression_lz4_level,
            Compression.ZSTD: self.compression_zstd_level,
        }
        return levels.get(codec)


@dataclass(frozen=True, slots=True)
class ManagerConfig:
    """The settings of the log manager, typed."""

    log_dirs: tuple[str, ...]
    num_recovery_threads_per_data_dir: int
    log_retention_check_interval_ms: int
    log_flush_scheduler_interval_ms: int
    log_flush_offset_checkpoint_interval_ms: int
    log_flush_start_offset_checkpoint_interval_ms: int
    log_initial_task_delay_ms: int
    log_cleaner_enable: bool
    log_cleaner_backoff_ms: int
    log_cleaner_dedupe_buffer_size: int
    log_cleaner_io_buffer_size: int
    log_cleaner_io_buffer_load_factor: float
    log_cleaner_io_max_bytes_per_second: float
    producer_id_expiration_ms: int
    producer_id_expiration_check_interval_ms: int

    @classmethod
    def from_properties(cls, properties: Mapping[str, object] | None = None) -> "ManagerConfig":
        config: dict[str, Any] = MANAGER_KEYS.parse(properties or {})
        if not config["log_dirs"]:
            raise ConfigError("log.dirs names no directory")
        return cls(**config)


_check_table_matches(LogConfig, LOG_KEYS)
_check_table_matches(ManagerConfig, MANAGER_KEYS)

LARGEST_RELATIVE_OFFSET = INT_MAX
"""Indexes hold offsets relative to their segment's base in 32 bits."""
