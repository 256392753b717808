"""Quota entities as clients name them, and the checks of quotas that clients alter.

An entity has a user, a client id, both, or an IP address. A name of None is the default of all without an own quota.
"""

import ipaddress
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from headrace.cluster.config_store import ConfigEntity
from headrace.cluster.znodes import DEFAULT_ENTITY, IP_CONFIGS
from headrace.common.errors import InvalidRequestError, UnsupportedVersionError

USER = "user"
CLIENT_ID = "client-id"
IP = "ip"

EntityName = str | None
QuotaEntity = dict[str, EntityName]
"""Names by type."""

_CLIENT_KEYS = {
    "producer_byte_rate": True,
    "consumer_byte_rate": True,
    "request_percentage": False,
    "controller_mutation_rate": False,
}
"""The quotas of users and client ids. True: an integer."""
_IP_KEYS = {"connection_creation_rate": True}
QUOTA_KEYS = frozenset((*_CLIENT_KEYS, *_IP_KEYS))

_EPSILON = 1e-6
_INTEGER_MAX = {"connection_creation_rate": 2**31 - 1}


def check_entity(parts: Iterable[tuple[str, EntityName]]) -> ConfigEntity:
    """Returns the stored entity of a request. Raises InvalidRequestError."""
    entity: QuotaEntity = {}
    for kind, name in parts:
        if kind not in (USER, CLIENT_ID, IP):
            raise InvalidRequestError(f"Unhandled client quota entity type: {kind}")
        if kind in entity:
            raise InvalidRequestError(f"Duplicate {kind} in the quota entity")
        if name == "":
            raise InvalidRequestError(f"Empty {kind} not supported")
        entity[kind] = name
    if not entity:
        raise InvalidRequestError("Invalid empty client quota entity")
    if IP in entity:
        if len(entity) > 1:
            raise InvalidRequestError(
                "Invalid quota entity combination, IP entity should not be combined with User or ClientId"
            )
        return ConfigEntity.ip(_check_address(entity[IP]))
    if USER not in entity:
        return ConfigEntity.client(entity[CLIENT_ID])
    if CLIENT_ID not in entity:
        return ConfigEntity.user(entity[USER])
    return ConfigEntity.user_client(entity[USER], entity[CLIENT_ID])


def _check_address(address: EntityName) -> EntityName:
    if address is None:
        return None
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        raise InvalidRequestError(f"{address} is not a valid IP address.") from None


def entity_of(stored: ConfigEntity) -> QuotaEntity:
    """Returns a stored entity as clients name it."""
    if stored.kind == IP_CONFIGS:
        return {IP: _decoded(stored.name)}
    user, client_id = stored.user_and_client
    return {kind: _decoded(name) for kind, name in ((USER, user), (CLIENT_ID, client_id)) if name}


def _decoded(name: str) -> EntityName:
    return None if name == DEFAULT_ENTITY else unquote(name)


def changed_quotas(
    entity: ConfigEntity, before: Mapping[str, str], changes: Iterable[tuple[str, float | None]]
) -> dict[str, str]:
    """Returns the configs of an entity after changes of quotas; None removes one. Other configs, such as the
    credentials of a user, stay. Raises InvalidRequestError."""
    keys = _IP_KEYS if entity.kind == IP_CONFIGS else _CLIENT_KEYS
    after = dict(before)
    for key, value in changes:
        if value is None:
            if key in QUOTA_KEYS:
                after.pop(key, None)
        elif key not in keys:
            raise InvalidRequestError(f"Invalid configuration key {key}")
        else:
            after[key] = _text(key, value, keys[key])
    return after


def _text(key: str, value: float, is_integer: bool) -> str:
    if not math.isfinite(value) or value < 0:
        raise InvalidRequestError(f"Configuration {key} must be a number that is not negative")
    if not is_integer:
        return str(float(value))
    whole = int(value + _EPSILON)
    highest = _INTEGER_MAX.get(key, 2**63 - 1)
    if whole > highest:
        kind = "an INT" if key in _INTEGER_MAX else "a LONG"
        raise InvalidRequestError(f"Proposed value for {key} is too large for {kind}.")
    if abs(whole - value) > _EPSILON:
        raise InvalidRequestError(f"{key} cannot be a fractional value.")
    return str(whole)


# ---- filters


@dataclass(frozen=True, slots=True)
class FilterComponent:
    """What a filter requires of one type: a name, the default (None), or any name."""

    name: EntityName = None
    is_any: bool = False

    def matches(self, entity: QuotaEntity, kind: str) -> bool:
        return kind in entity and (self.is_any or entity[kind] == self.name)


class QuotaFilter:
    """Selects quota entities. A strict filter selects only those that have no other types."""

    def __init__(self, components: Iterable[tuple[str, FilterComponent]], is_strict: bool):
        """Raises InvalidRequestError, or UnsupportedVersionError for an unknown type, as Kafka does."""
        self.components: dict[str, FilterComponent] = {}
        self._is_strict = is_strict
        for kind, component in components:
            if kind == "":
                raise InvalidRequestError("Invalid empty entity type.")
            if kind not in (USER, CLIENT_ID, IP):
                raise UnsupportedVersionError(f"Unsupported entity type {kind}")
            if kind in self.components:
                raise InvalidRequestError(f"Entity type {kind} cannot appear more than once in the filter.")
            self.components[kind] = component
        if IP in self.components and len(self.components) > 1:
            raise InvalidRequestError(
                "Invalid entity filter component combination. IP filter component should not be used with user or "
                "clientId filter component."
            )

    def matches(self, entity: QuotaEntity) -> bool:
        if self._is_strict and entity.keys() != self.components.keys():
            return False
        # Without components the filter selects everything.
        return all(component.matches(entity, kind) for kind, component in self.components.items())


def stored_quotas(config: Mapping[str, str]) -> dict[str, float]:
    """Returns the quotas among the configs of an entity."""
    quotas: dict[str, float] = {}
    for key, value in config.items():
        if key in QUOTA_KEYS:
            try:
                quotas[key] = float(value)
            except ValueError:
                continue  # written by somebody else; the broker has logged it
    return quotas
