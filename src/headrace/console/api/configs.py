"""Configs of topics and brokers, as the API shows and changes them."""

from dataclasses import dataclass, field

from headrace.client.admin.types import ConfigEntry, ConfigResource, ConfigSource
from headrace.console.calls import Call
from headrace.console.errors import ApiError

__all__ = ["ChangeConfigs", "ConfigItem", "ConfigList", "change_configs", "read_configs"]

_TIMEOUT_MS = 20_000
_SOURCES = {
    ConfigSource.DYNAMIC_TOPIC_CONFIG: "topic",
    ConfigSource.DYNAMIC_BROKER_CONFIG: "broker",
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG: "cluster",
    ConfigSource.STATIC_BROKER_CONFIG: "static",
    ConfigSource.DEFAULT_CONFIG: "default",
    ConfigSource.DYNAMIC_GROUP_CONFIG: "group",
}


@dataclass(frozen=True)
class ConfigItem:
    """A config and its value. The value of a sensitive one is null."""

    name: str
    value: str | None
    default: str | None
    """The value after a reset: what the cluster, the broker's file or Kafka's default says. Null if the broker does not
    return it."""
    source: str
    """`topic`, `broker`, `cluster` (dynamic default of all brokers), `static` (the broker's file), `default`."""
    is_default: bool
    read_only: bool
    sensitive: bool
    type: str
    documentation: str | None


@dataclass(frozen=True)
class ConfigList:
    """All configs of a resource."""

    configs: list[ConfigItem]


@dataclass(frozen=True)
class ChangeConfigs:
    """Configs to set, and configs to reset to their defaults."""

    set: dict[str, str] = field(default_factory=dict)
    reset: list[str] = field(default_factory=list)
    validate_only: bool = False


async def read_configs(call: Call, resource: ConfigResource) -> ConfigList:
    """Reads the configs as the principal of the call."""
    admin = await call.admin()
    described = await admin.describe_configs(
        [resource], include_synonyms=True, include_documentation=True, timeout_ms=_TIMEOUT_MS
    )
    entries = described[resource].entries
    return ConfigList([_item(entry) for _, entry in sorted(entries.items())])


async def change_configs(call: Call, resource: ConfigResource, body: ChangeConfigs) -> ConfigList:
    """Changes configs as the principal of the call, and reads them again."""
    both = sorted(set(body.set) & set(body.reset))
    if both:
        raise ApiError(400, "INVALID_REQUEST", f"{both[0]} is to be set and reset at the same time", "reset")
    if not body.set and not body.reset:
        raise ApiError(400, "INVALID_REQUEST", "Nothing to change: `set` and `reset` are empty")
    call.audit(resource.name or "default", set=sorted(body.set), reset=body.reset, validate_only=body.validate_only)
    admin = await call.admin()
    changes = {**body.set, **dict.fromkeys(body.reset)}
    changed = ConfigResource(resource.resource_type, resource.name, changes)
    await admin.alter_configs([changed], body.validate_only, timeout_ms=_TIMEOUT_MS)
    return await read_configs(call, resource)


def _item(entry: ConfigEntry) -> ConfigItem:
    fallback = next((synonym for synonym in entry.synonyms if synonym.source != entry.source), None)
    is_default = entry.source in (ConfigSource.DEFAULT_CONFIG, ConfigSource.UNKNOWN)
    default = entry.value if is_default else None if fallback is None else fallback.value
    return ConfigItem(
        entry.name,
        entry.value,
        default,
        _SOURCES.get(entry.source, "default"),
        is_default,
        entry.is_read_only,
        entry.is_sensitive,
        entry.type.lower(),
        entry.documentation,
    )
