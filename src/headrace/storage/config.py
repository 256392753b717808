"""Configuration of a log (Kafka's topic configs) and of the log manager (Kafka's broker configs)."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from headrace.common.config import INT_MAX, LONG_MAX, ConfigKey, ConfigTable, ConfigType, Synonym
from headrace.common.errors import ConfigError
from headrace.records.compression import LEVELS, Compression

_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
GZIP_DEFAULT_LEVEL = -1
"""Stands for the codec's own default, as in zlib."""


def _level_key(codec: Compression) -> ConfigKey:
    name = codec.name.lower()
    lowest, highest, default = LEVELS[codec]
    also_allowed: tuple[int, ...] = ()
    if codec is Compression.GZIP:
        default, also_allowed = GZIP_DEFAULT_LEVEL, (GZIP_DEFAULT_LEVEL,)
    return ConfigKey(
        f"compression.{name}.level",
        ConfigType.INT,
        default,
        f"The compression level to use if `compression.type` is `{name}`.",
        low=lowest,
        high=highest,
        also_allowed=also_allowed,
        synonyms=(Synonym(f"compression.{name}.level"),),
    )


def _tiered_storage_key(name: str, kind: ConfigType, default: object, *, broker_key: str | None = None) -> ConfigKey:
    """Returns a key of tiered storage, which does not exist here. Kafka accepts these keys without it, too."""
    return ConfigKey(
        name,
        kind,
        default,
        "No effect: there is no tiered storage.",
        low=None if kind is ConfigType.BOOLEAN else -2,
        synonyms=() if broker_key is None else (Synonym(broker_key),),
        check=_check_tiered_storage if name == "remote.storage.enable" else None,
    )


def _check_tiered_storage(enabled: bool) -> str | None:
    if not enabled:
        return None
    return "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."


LOG_KEYS = ConfigTable(
    [
        ConfigKey(
            "cleanup.policy",
            ConfigType.LIST,
            ("delete",),
            "The retention policy for old segments: `delete` deletes segments by age and size, `compact` keeps the "
            "last record of each key. Both may be combined. With none of them, no record is deleted.",
            choices=("compact", "delete"),
            synonyms=(Synonym("log.cleanup.policy"),),
        ),
        ConfigKey(
            "compression.type",
            ConfigType.STRING,
            "producer",
            "The compression codec of stored batches; `producer` keeps the codec that the producer used.",
            choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
            synonyms=(Synonym("compression.type"),),
        ),
        _level_key(Compression.GZIP),
        _tiered_storage_key("local.retention.bytes", ConfigType.LONG, -2, broker_key="log.local.retention.bytes"),
        _tiered_storage_key("local.retention.ms", ConfigType.LONG, -2, broker_key="log.local.retention.ms"),
        _tiered_storage_key("remote.log.copy.disable", ConfigType.BOOLEAN, False),
        _tiered_storage_key("remote.log.delete.on.disable", ConfigType.BOOLEAN, False),
        _tiered_storage_key("remote.storage.enable", ConfigType.BOOLEAN, False),
        _level_key(Compression.LZ4),
        _level_key(Compression.ZSTD),
        ConfigKey(
            "delete.retention.ms",
            ConfigType.LONG,
            _DAY_MS,
            "How long compaction retains a tombstone, so that slow consumers see the deletion.",
            low=0,
            synonyms=(Synonym("log.cleaner.delete.retention.ms"),),
        ),
        ConfigKey(
            "file.delete.delay.ms",
            ConfigType.LONG,
            60_000,
            "How long to wait before a deleted file is removed from disk. Until then it has the suffix `.deleted`.",
            low=0,
            synonyms=(Synonym("log.segment.delete.delay.ms"),),
        ),
        ConfigKey(
            "flush.messages",
            ConfigType.LONG,
            LONG_MAX,
            "The number of unflushed records after which an append forces an fsync of the log.",
            low=1,
            synonyms=(Synonym("log.flush.interval.messages"),),
        ),
        ConfigKey(
            "flush.ms",
            ConfigType.LONG,
            LONG_MAX,
            "The maximum time before unflushed records are forced to disk with an fsync.",
            low=0,
            synonyms=(Synonym("log.flush.interval.ms"),),
        ),
        ConfigKey(
            "index.interval.bytes",
            ConfigType.INT,
            4096,
            "How many bytes of log lie between two entries of the offset index.",
            low=0,
            synonyms=(Synonym("log.index.interval.bytes"),),
        ),
        ConfigKey(
            "max.compaction.lag.ms",
            ConfigType.LONG,
            LONG_MAX,
            "The maximum time that a record stays uncompacted, regardless of the dirty ratio.",
            low=1,
            synonyms=(Synonym("log.cleaner.max.compaction.lag.ms"),),
        ),
        ConfigKey(
            "max.message.bytes",
            ConfigType.INT,
            1024 * 1024 + 12,
            "The largest record batch size allowed, after compression.",
            low=0,
            synonyms=(Synonym("message.max.bytes"),),
        ),
        ConfigKey(
            "message.timestamp.after.max.ms",
            ConfigType.LONG,
            _HOUR_MS,
            "How far a record's timestamp may be ahead of the broker's clock. Applies to CreateTime only.",
            low=0,
            synonyms=(Synonym("log.message.timestamp.after.max.ms"),),
        ),
        ConfigKey(
            "message.timestamp.before.max.ms",
            ConfigType.LONG,
            LONG_MAX,
            "How far a record's timestamp may be behind the broker's clock. Applies to CreateTime only.",
            low=0,
            synonyms=(Synonym("log.message.timestamp.before.max.ms"),),
        ),
        ConfigKey(
            "message.timestamp.type",
            ConfigType.STRING,
            "CreateTime",
            "Whether record timestamps are set by the producer (`CreateTime`) or by the broker on append "
            "(`LogAppendTime`).",
            choices=("CreateTime", "LogAppendTime"),
            synonyms=(Synonym("log.message.timestamp.type"),),
        ),
        ConfigKey(
            "min.cleanable.dirty.ratio",
            ConfigType.DOUBLE,
            0.5,
            "The minimum ratio of dirty (not yet compacted) log to total log before the log is compacted.",
            low=0.0,
            high=1.0,
            synonyms=(Synonym("log.cleaner.min.cleanable.ratio"),),
        ),
        ConfigKey(
            "min.compaction.lag.ms",
            ConfigType.LONG,
            0,
            "The minimum time that a record stays uncompacted.",
            low=0,
            synonyms=(Synonym("log.cleaner.min.compaction.lag.ms"),),
        ),
        ConfigKey(
            "preallocate",
            ConfigType.BOOLEAN,
            False,
            "Whether to preallocate a new segment file at its full size.",
            synonyms=(Synonym("log.preallocate"),),
        ),
        ConfigKey(
            "retention.bytes",
            ConfigType.LONG,
            -1,
            "The maximum size of a partition before its oldest segments are deleted; -1 for no limit.",
            low=-1,
            synonyms=(Synonym("log.retention.bytes"),),
        ),
        ConfigKey(
            "retention.ms",
            ConfigType.LONG,
            7 * _DAY_MS,
            "How long records are retained before their segment is deleted; -1 for no limit.",
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
            "The maximum size of a segment file; a larger log rolls to a new segment.",
            low=1024,
            synonyms=(Synonym("log.segment.bytes"),),
        ),
        ConfigKey(
            "segment.index.bytes",
            ConfigType.INT,
            10 * 1024 * 1024,
            "The maximum size of an index file; a full index rolls the log to a new segment.",
            low=24,
            synonyms=(Synonym("log.index.size.max.bytes"),),
        ),
        ConfigKey(
            "segment.jitter.ms",
            ConfigType.LONG,
            0,
            "The maximum random jitter subtracted from `segment.ms`, so that partitions do not all roll at once.",
            low=0,
            synonyms=(Synonym("log.roll.jitter.ms"), Synonym("log.roll.jitter.hours", _HOUR_MS)),
        ),
        ConfigKey(
            "segment.ms",
            ConfigType.LONG,
            7 * _DAY_MS,
            "The time, by record timestamps, after which the log rolls to a new segment even if the old one has room.",
            low=1,
            synonyms=(Synonym("log.roll.ms"), Synonym("log.roll.hours", _HOUR_MS)),
        ),
    ]
)

DEFAULT_INFLATION_RATIO = 128

MANAGER_KEYS = ConfigTable(
    [
        ConfigKey(
            "log.dirs",
            ConfigType.LIST,
            ("headrace-data",),
            "The directories that store the logs.",
            dynamic=False,
        ),
        ConfigKey(
            "headrace.max.inflation.ratio",
            ConfigType.INT,
            DEFAULT_INFLATION_RATIO,
            "A producer's batch may be this many times as large as `max.message.bytes` uncompressed, at least 16 MB. A "
            "larger one gets MESSAGE_TOO_LARGE. (Not a Kafka config: Kafka limits only the compressed size.)",
            low=1,
            dynamic=False,
        ),
        ConfigKey(
            "num.recovery.threads.per.data.dir",
            ConfigType.INT,
            2,
            "The number of threads per log directory that load and recover logs at startup.",
            low=1,
        ),
        ConfigKey(
            "log.retention.check.interval.ms",
            ConfigType.LONG,
            300_000,
            "How often to check for segments to delete.",
            low=1,
            dynamic=False,
        ),
        ConfigKey(
            "log.flush.scheduler.interval.ms",
            ConfigType.LONG,
            1_000,
            "How often to check `flush.ms`. (Kafka's default: never.)",
            low=1,
            dynamic=False,
        ),
        ConfigKey(
            "log.flush.offset.checkpoint.interval.ms",
            ConfigType.INT,
            60_000,
            "How often to write the recovery point checkpoint.",
            low=1,
            dynamic=False,
        ),
        ConfigKey(
            "log.flush.start.offset.checkpoint.interval.ms",
            ConfigType.INT,
            60_000,
            "How often to write the log start offset checkpoint.",
            low=1,
            dynamic=False,
        ),
        ConfigKey(
            "log.initial.task.delay.ms",
            ConfigType.LONG,
            30_000,
            "How long after startup the periodic tasks begin.",
            low=0,
            dynamic=False,
        ),
        ConfigKey("log.cleaner.enable", ConfigType.BOOLEAN, True, "Whether to run the log cleaner.", dynamic=False),
        ConfigKey(
            "log.cleaner.backoff.ms", ConfigType.LONG, 15_000, "How long the log cleaner sleeps between checks.", low=1
        ),
        ConfigKey(
            "log.cleaner.dedupe.buffer.size",
            ConfigType.LONG,
            128 * 1024 * 1024,
            "The memory for the log cleaner's map of keys, at 24 bytes per key.",
            low=1024,
        ),
        ConfigKey(
            "log.cleaner.io.buffer.size",
            ConfigType.INT,
            512 * 1024,
            "The size of the log cleaner's read and write buffers.",
            low=1024,
        ),
        ConfigKey(
            "log.cleaner.io.buffer.load.factor",
            ConfigType.DOUBLE,
            0.9,
            "The load factor of the log cleaner's map of keys.",
            low=0.01,
            high=0.95,
        ),
        ConfigKey(
            "log.cleaner.io.max.bytes.per.second",
            ConfigType.DOUBLE,
            float(LONG_MAX),
            "The maximum number of bytes per second that the log cleaner reads and writes.",
            low=1.0,
        ),
        ConfigKey(
            "producer.id.expiration.ms",
            ConfigType.INT,
            _DAY_MS,
            "How long an idle producer id is remembered after its last write.",
            low=1,
        ),
        ConfigKey(
            "producer.id.expiration.check.interval.ms",
            ConfigType.INT,
            600_000,
            "How often to check for expired producer ids.",
            low=1,
            dynamic=False,
        ),
    ]
)


def _check_table_matches(cls: type, table: ConfigTable) -> None:
    mismatched = {field.name for field in fields(cls)} ^ {key.attribute for key in table.keys.values()}
    if mismatched:
        raise TypeError(f"{cls.__name__} and its config table differ in {sorted(mismatched)}")


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The typed configuration of one log. Create it with `from_properties`."""

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
    local_retention_bytes: int
    local_retention_ms: int
    max_compaction_lag_ms: int
    max_message_bytes: int
    message_timestamp_after_max_ms: int
    message_timestamp_before_max_ms: int
    message_timestamp_type: str
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    preallocate: bool
    remote_log_copy_disable: bool
    remote_log_delete_on_disable: bool
    remote_storage_enable: bool
    retention_bytes: int
    retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    segment_jitter_ms: int
    segment_ms: int

    @classmethod
    def from_properties(cls, properties: Mapping[str, object] | None = None) -> "LogConfig":
        """Parses and validates Kafka's topic configs. Missing configs have their defaults."""
        config = cls(**LOG_KEYS.parse(properties or {}))
        if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
            raise ConfigError(
                f"conflict topic config setting min.compaction.lag.ms ({config.min_compaction_lag_ms}) > "
                f"max.compaction.lag.ms ({config.max_compaction_lag_ms})"
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
        """The time after which the active segment rolls.

        The active segment is never compacted, so a compacted topic must also roll within `max.compaction.lag.ms`.
        """
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compact else self.segment_ms

    @property
    def log_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"

    def stored_codec(self) -> Compression | None:
        """Returns the codec that batches must have in the log; None keeps the producer's codec."""
        if self.compression_type == "producer":
            return None
        return Compression.from_name(self.compression_type.replace("uncompressed", "none"))

    @property
    def _gzip_level(self) -> int:
        level = self.compression_gzip_level
        return LEVELS[Compression.GZIP][2] if level == GZIP_DEFAULT_LEVEL else level

    def level_of(self, codec: Compression) -> int | None:
        levels: dict[Compression, int] = {
            Compression.GZIP: self._gzip_level,
            Compression.LZ4: self.compression_lz4_level,
            Compression.ZSTD: self.compression_zstd_level,
        }
        return levels.get(codec)


@dataclass(frozen=True, slots=True)
class ManagerConfig:
    """The typed configuration of the log manager."""

    log_dirs: tuple[str, ...]
    headrace_max_inflation_ratio: int
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
            raise ConfigError("log.dirs must name at least one directory")
        return cls(**config)


_check_table_matches(LogConfig, LOG_KEYS)
_check_table_matches(ManagerConfig, MANAGER_KEYS)

LARGEST_RELATIVE_OFFSET = INT_MAX
"""The largest offset in an index, which stores offsets relative to the segment's base offset in 32 bits."""
