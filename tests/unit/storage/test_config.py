import pytest

from headrace.common.config import LONG_MAX
from headrace.common.errors import ConfigError
from headrace.records import Compression
from headrace.storage.config import LOG_KEYS, MANAGER_KEYS, LogConfig, ManagerConfig


def test_defaults_equal_kafkas() -> None:
    config = LogConfig.from_properties()
    assert config.segment_bytes == 1_073_741_824
    assert config.segment_ms == config.retention_ms == 604_800_000
    assert config.retention_bytes == -1
    assert config.max_message_bytes == 1_048_588
    assert config.index_interval_bytes == 4096
    assert config.segment_index_bytes == 10_485_760
    assert config.min_cleanable_dirty_ratio == 0.5
    assert config.delete_retention_ms == 86_400_000
    assert config.file_delete_delay_ms == 60_000
    assert config.flush_messages == config.flush_ms == config.max_compaction_lag_ms == LONG_MAX
    assert config.message_timestamp_after_max_ms == 3_600_000
    assert config.cleanup_policy == ("delete",)
    assert (config.delete, config.compact, config.log_append_time) == (True, False, False)


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("cleanup.policy", "burn", "String must be one of: compact, delete"),
        ("compression.type", "brotli", "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer"),
        ("message.timestamp.type", "createtime", "String must be one of: CreateTime, LogAppendTime"),
        ("segment.bytes", 1023, "Value must be at least 1024"),
        ("segment.ms", 0, "Value must be at least 1"),
        ("retention.ms", -2, "Value must be at least -1"),
        ("min.cleanable.dirty.ratio", 1.1, "Value must be no more than 1"),
        ("compression.gzip.level", 10, "Value must be between 1 and 9 or equal to -1"),
        ("preallocate", "maybe", "Expected value to be either true or false"),
        ("remote.storage.enable", "true", "Tiered Storage functionality is disabled in the broker"),
    ],
)
def test_rejects_invalid_values(name: str, value: object, problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        LogConfig.from_properties({name: value})
    assert str(refused.value).startswith(f"Invalid value {value} for configuration {name}: {problem}")


def test_rejects_misspelled_key() -> None:
    with pytest.raises(ConfigError, match=r"'segment\.byte', did you mean 'segment\.bytes'"):
        LogConfig.from_properties({"segment.byte": 2048})


def test_rejects_min_lag_above_max_lag() -> None:
    with pytest.raises(
        ConfigError, match=r"conflict .* min\.compaction\.lag\.ms \(20\) > max\.compaction\.lag\.ms \(10\)"
    ):
        LogConfig.from_properties({"min.compaction.lag.ms": 20, "max.compaction.lag.ms": 10})


def test_parses_cleanup_policies() -> None:
    both = LogConfig.from_properties({"cleanup.policy": "compact, delete"})
    assert (both.compact, both.delete) == (True, True)
    only = LogConfig.from_properties({"cleanup.policy": ["compact"]})
    assert (only.compact, only.delete) == (True, False)
    neither = LogConfig.from_properties({"cleanup.policy": ""})
    assert (neither.compact, neither.delete) == (False, False)


@pytest.mark.parametrize(
    ("name", "codec"),
    [
        ("producer", None),
        ("uncompressed", Compression.NONE),
        ("gzip", Compression.GZIP),
        ("snappy", Compression.SNAPPY),
        ("lz4", Compression.LZ4),
        ("zstd", Compression.ZSTD),
    ],
)
def test_parses_compression_types(name: str, codec: Compression | None) -> None:
    assert LogConfig.from_properties({"compression.type": name}).stored_codec() == codec


def test_parses_compression_levels() -> None:
    config = LogConfig.from_properties(
        {"compression.gzip.level": 1, "compression.lz4.level": 2, "compression.zstd.level": 3}
    )
    assert [config.level_of(codec) for codec in (Compression.GZIP, Compression.LZ4, Compression.ZSTD)] == [1, 2, 3]
    assert config.level_of(Compression.SNAPPY) is None


@pytest.mark.parametrize(
    ("server", "found"),
    [
        ({"log.retention.hours": 1}, {"retention.ms": 3_600_000}),
        ({"log.retention.hours": 1, "log.retention.minutes": 5}, {"retention.ms": 300_000}),
        ({"log.retention.hours": 1, "log.retention.minutes": 5, "log.retention.ms": 7}, {"retention.ms": 7}),
        ({"log.roll.hours": 2}, {"segment.ms": 7_200_000}),
        ({"log.roll.jitter.hours": 1}, {"segment.jitter.ms": 3_600_000}),
        ({"message.max.bytes": "2000"}, {"max.message.bytes": 2000}),
        ({"log.cleanup.policy": "compact"}, {"cleanup.policy": ("compact",)}),
    ],
)
def test_broker_configs_set_defaults(server: dict[str, object], found: dict[str, object]) -> None:
    defaults = LOG_KEYS.defaults_from_server(server)
    assert defaults == found
    LogConfig.from_properties(defaults)


def test_every_key_is_documented_and_accepts_its_default() -> None:
    for key in [*LOG_KEYS.keys.values(), *MANAGER_KEYS.keys.values()]:
        assert key.doc.endswith((".", ".)")), key.name
        assert key.parse(key.default) == key.default
    without_broker_key = {"remote.log.copy.disable", "remote.log.delete.on.disable", "remote.storage.enable"}
    assert {key.name for key in LOG_KEYS.keys.values() if not key.synonyms} == without_broker_key


def test_parses_manager_config() -> None:
    config = ManagerConfig.from_properties({"log.dirs": "a, b", "log.cleaner.enable": "false"})
    assert config.log_dirs == ("a", "b")
    assert config.log_cleaner_enable is False
    assert config.log_retention_check_interval_ms == 300_000
    with pytest.raises(ConfigError, match=r"log\.dirs must name at least one directory"):
        ManagerConfig.from_properties({"log.dirs": " , "})
    with pytest.raises(ConfigError, match=r"'log\.dir', did you mean 'log\.dirs'"):
        ManagerConfig.from_properties({"log.dir": "a"})
