"""The types of client quotas, with the names of Kafka's Java client (KIP-546)."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from headrace.client.errors import IllegalArgumentError
from headrace.common.errors import KafkaError

__all__ = [
    "AlteredClientQuota",
    "ClientQuotaAlteration",
    "ClientQuotaEntity",
    "ClientQuotaFilter",
    "ClientQuotaFilterComponent",
]


@dataclass(frozen=True, init=False)
class ClientQuotaEntity:
    """Who has a quota: `ClientQuotaEntity({"user": "alice", "client-id": None})`.

    The types are `user`, `client-id` or both, or `ip`. A name of None is the default of all without an own quota.
    """

    USER: ClassVar[str] = "user"
    CLIENT_ID: ClassVar[str] = "client-id"
    IP: ClassVar[str] = "ip"

    _entries: tuple[tuple[str, str | None], ...]

    def __init__(self, entries: Mapping[str, str | None]):
        if not isinstance(entries, Mapping):
            raise TypeError(f"ClientQuotaEntity: entries must be a mapping of types to names, not {entries!r}")
        for kind, name in entries.items():
            if not isinstance(kind, str) or not isinstance(name, str | None):
                raise TypeError(f"ClientQuotaEntity: {kind!r}: {name!r} must be a type and a name or None")
        # Sorted, so that entities with the same entries are equal.
        object.__setattr__(self, "_entries", tuple(sorted(entries.items())))

    @property
    def entries(self) -> dict[str, str | None]:
        """The names by type."""
        return dict(self._entries)

    def __repr__(self) -> str:
        return f"ClientQuotaEntity({self.entries!r})"


@dataclass(frozen=True)
class ClientQuotaAlteration:
    """Quotas of an entity to set, or to remove with None: `{"producer_byte_rate": 1024}`."""

    entity: ClientQuotaEntity
    ops: Mapping[str, float | None]

    def __post_init__(self) -> None:
        if not isinstance(self.entity, ClientQuotaEntity):
            raise TypeError(f"ClientQuotaAlteration: entity must be a ClientQuotaEntity, not {self.entity!r}")
        if not isinstance(self.ops, Mapping):
            raise TypeError(
                f"ClientQuotaAlteration: ops must be a mapping of keys to numbers or None, not {self.ops!r}"
            )
        for key, value in self.ops.items():
            if isinstance(value, bool) or not isinstance(value, int | float | None):
                raise TypeError(f"ClientQuotaAlteration: {key} must be a number or None, not {value!r}")


@dataclass(frozen=True)
class ClientQuotaFilterComponent:
    """What a filter requires of one type. Create it with one of the class methods."""

    entity_type: str
    match_type: int
    match: str | None = None

    @classmethod
    def of_entity(cls, entity_type: str, entity_name: str) -> "ClientQuotaFilterComponent":
        """Requires this name."""
        if not isinstance(entity_name, str):
            raise TypeError(f"entity_name must be a str, not {entity_name!r}; the default is of_default_entity")
        return cls(entity_type, 0, entity_name)

    @classmethod
    def of_default_entity(cls, entity_type: str) -> "ClientQuotaFilterComponent":
        """Requires the default of the type."""
        return cls(entity_type, 1)

    @classmethod
    def of_entity_type(cls, entity_type: str) -> "ClientQuotaFilterComponent":
        """Requires the type, with any name or the default."""
        return cls(entity_type, 2)


@dataclass(frozen=True)
class ClientQuotaFilter:
    """Selects the entities that match all components. Create it with one of the class methods."""

    components: tuple[ClientQuotaFilterComponent, ...]
    strict: bool = False

    @classmethod
    def contains(cls, components: Iterable[ClientQuotaFilterComponent]) -> "ClientQuotaFilter":
        """Selects entities that match, also those with further types."""
        return cls(tuple(_checked(components)))

    @classmethod
    def contains_only(cls, components: Iterable[ClientQuotaFilterComponent]) -> "ClientQuotaFilter":
        """Selects entities that match and have no further types."""
        return cls(tuple(_checked(components)), strict=True)

    @classmethod
    def all(cls) -> "ClientQuotaFilter":
        """Selects all entities."""
        return cls(())


def _checked(components: Iterable[ClientQuotaFilterComponent]) -> Iterator[ClientQuotaFilterComponent]:
    for component in components:
        if not isinstance(component, ClientQuotaFilterComponent):
            raise IllegalArgumentError(f"A filter takes ClientQuotaFilterComponents, not {component!r}")
        yield component


@dataclass(frozen=True)
class AlteredClientQuota:
    """The result of altering the quotas of an entity."""

    error: KafkaError | None = None
