"""Checks of producer configs that depend on each other."""

from dataclasses import replace

from headrace.client.config.types import ProducerConfig
from headrace.common.errors import ConfigError
from headrace.records import Compression

__all__ = ["check_config", "compression_level", "timeout_seconds"]

_MAX_IDEMPOTENT_IN_FLIGHT = 5


def check_config(config: ProducerConfig) -> ProducerConfig:
    """Returns consistent configs. Raises ConfigError if configs that the user set contradict each other. If a default
    contradicts them, the default changes: idempotence is disabled, and delivery.timeout.ms is raised."""
    config = _check_idempotence(config)
    lowest = config.linger_ms + config.request_timeout_ms
    if config.delivery_timeout_ms < lowest:
        if "delivery.timeout.ms" in config.explicit:
            raise ConfigError(
                f"delivery.timeout.ms={config.delivery_timeout_ms} is not a valid value: expected at least "
                f"linger.ms + request.timeout.ms, which is {lowest}"
            )
        config = replace(config, delivery_timeout_ms=lowest)
    return config


def _check_idempotence(config: ProducerConfig) -> ProducerConfig:
    is_transactional = config.transactional_id is not None
    if not config.enable_idempotence:
        if is_transactional:
            raise ConfigError(
                "Cannot set a transactional.id without also enabling idempotence (enable.idempotence=true)"
            )
        return config
    in_flight = config.max_in_flight_requests_per_connection
    if config.acks != -1:
        conflict = f"acks to all, but it is {config.acks}"
    elif config.retries == 0:
        conflict = "retries to at least 1, but it is 0"
    elif in_flight > _MAX_IDEMPOTENT_IN_FLIGHT:
        conflict = (
            f"max.in.flight.requests.per.connection to at most {_MAX_IDEMPOTENT_IN_FLIGHT}, but it is {in_flight}"
        )
    else:
        return config
    if is_transactional or "enable.idempotence" in config.explicit:
        raise ConfigError(f"Must set {conflict}, in order to use the idempotent producer (enable.idempotence=true)")
    return replace(config, enable_idempotence=False)


def timeout_seconds(timeout_ms: float | None) -> float | None:
    """Checks the timeout of `flush` and `close`, and returns it in seconds."""
    if timeout_ms is None:
        return None
    if not isinstance(timeout_ms, int | float) or not timeout_ms >= 0:
        raise ValueError(f"timeout_ms={timeout_ms!r} is not valid: expected a number of milliseconds, at least 0")
    return timeout_ms / 1000


def compression_level(codec: Compression, config: ProducerConfig) -> int | None:
    """Returns the configured level of a codec, or None for the codec's default."""
    if codec is Compression.GZIP:
        level = config.compression_gzip_level
        return None if level == -1 else level
    if codec is Compression.LZ4:
        return config.compression_lz4_level
    if codec is Compression.ZSTD:
        return config.compression_zstd_level
    return None
