"""Checks of producer configs that depend on each other."""

from dataclasses import replace

from headrace.client.config.types import ProducerConfig
from headrace.common.errors import ConfigError
from headrace.records import Compression

__all__ = ["check_settings", "compression_level", "timeout_seconds"]

_MAX_IDEMPOTENT_IN_FLIGHT = 5


def check_settings(settings: ProducerConfig) -> ProducerConfig:
    """Returns consistent configs. Raises ConfigError if configs that the user set contradict each other; a default
    gives way: idempotence is disabled, and delivery.timeout.ms is raised."""
    settings = _check_idempotence(settings)
    lowest = settings.linger_ms + settings.request_timeout_ms
    if settings.delivery_timeout_ms < lowest:
        if "delivery.timeout.ms" in settings.explicit:
            raise ConfigError(
                f"delivery.timeout.ms={settings.delivery_timeout_ms} is not a valid value: expected at least "
                f"linger.ms + request.timeout.ms, which is {lowest}"
            )
        settings = replace(settings, delivery_timeout_ms=lowest)
    return settings


def _check_idempotence(settings: ProducerConfig) -> ProducerConfig:
    is_transactional = settings.transactional_id is not None
    if not settings.enable_idempotence:
        if is_transactional:
            raise ConfigError(
                "Cannot set a transactional.id without also enabling idempotence (enable.idempotence=true)"
            )
        return settings
    in_flight = settings.max_in_flight_requests_per_connection
    if settings.acks != -1:
        conflict = f"acks to all, but it is {settings.acks}"
    elif settings.retries == 0:
        conflict = "retries to at least 1, but it is 0"
    elif in_flight > _MAX_IDEMPOTENT_IN_FLIGHT:
        conflict = (
            f"max.in.flight.requests.per.connection to at most {_MAX_IDEMPOTENT_IN_FLIGHT}, but it is {in_flight}"
        )
    else:
        return settings
    if is_transactional or "enable.idempotence" in settings.explicit:
        raise ConfigError(f"Must set {conflict}, in order to use the idempotent producer (enable.idempotence=true)")
    return replace(settings, enable_idempotence=False)


def timeout_seconds(timeout_ms: float | None) -> float | None:
    """Checks the timeout of `flush` and `close`, and returns it in seconds."""
    if timeout_ms is None:
        return None
    if not timeout_ms >= 0:
        raise ValueError(f"timeout_ms={timeout_ms} is not valid: expected a number of milliseconds, at least 0")
    return timeout_ms / 1000


def compression_level(codec: Compression, settings: ProducerConfig) -> int | None:
    """Returns the configured level of a codec, or None for the codec's default."""
    if codec is Compression.GZIP:
        level = settings.compression_gzip_level
        return None if level == -1 else level
    if codec is Compression.LZ4:
        return settings.compression_lz4_level
    if codec is Compression.ZSTD:
        return settings.compression_zstd_level
    return None
