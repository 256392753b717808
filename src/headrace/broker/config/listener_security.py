"""The security configs of each listener: its own, with a prefix, over those of the broker.

    ssl.keystore.location=/etc/broker.pem                                        all listeners
    listener.name.external.ssl.keystore.location=/etc/external.pem               the listener EXTERNAL
    listener.name.external.scram-sha-256.sasl.jaas.config=...                    one SASL mechanism of EXTERNAL

Every key of `LISTENER_KEYS` may have the prefix. The listener's name is written in lower case, as in Kafka.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.broker.config.kafka_only import NO_EFFECT, REFUSED
from headrace.broker.config.quotas import CONNECTION_KEYS
from headrace.broker.config.sasl import SASL_LISTENER_KEYS
from headrace.common.config import ConfigKey, ConfigTable, unknown_key
from headrace.common.errors import ConfigError
from headrace.net.listeners import Listener
from headrace.security.tls_keys import TLS_KEYS, UNSUPPORTED, check_unsupported, listener_values

PREFIX = "listener.name."
MECHANISMS = ("plain", "scram-sha-256", "scram-sha-512", "oauthbearer", "gssapi")
"""The SASL mechanisms that may follow a listener's name."""

SECURITY_KEYS = ConfigTable([*TLS_KEYS.keys.values(), *SASL_LISTENER_KEYS.keys.values()])
"""The keys whose values `ListenerSecurity.values` has."""

DYNAMIC_TLS_KEYS = frozenset(name for name, key in TLS_KEYS.keys.items() if key.dynamic)
"""The keys of certificates, which a listener's prefix makes dynamic."""

LISTENER_KEYS = ConfigTable([*SECURITY_KEYS.keys.values(), *CONNECTION_KEYS.keys.values()])
"""The keys that may have a listener's prefix."""


@dataclass(frozen=True, slots=True)
class ListenerSecurity:
    """The protocol of a listener, and its parsed values of `SECURITY_KEYS` by the names of the keys."""

    protocol: str
    values: Mapping[str, Any] = field(repr=False)
    by_mechanism: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)
    """The values that are set for a SASL mechanism of the listener, by its name in lower case."""

    @property
    def uses_tls(self) -> bool:
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        return self.protocol.startswith("SASL_")

    def for_mechanism(self, mechanism: str) -> Mapping[str, Any]:
        """Returns the values for a SASL mechanism: its own over those of the listener."""
        return {**self.values, **self.by_mechanism.get(mechanism.lower(), {})}


@dataclass(frozen=True, slots=True)
class PrefixedKey:
    """A key with a listener's prefix, in its parts."""

    listener: str
    """In lower case."""
    mechanism: str
    """A SASL mechanism, or empty."""
    key: str


def split_prefixed(name: str) -> PrefixedKey | None:
    """Splits `listener.name.<listener>.[<mechanism>.]<key>`. Returns None for a name without the prefix.

    Raises ConfigError if no key of a listener is at its end.
    """
    if not name.startswith(PREFIX):
        return None
    rest = name.removeprefix(PREFIX)
    known = [*LISTENER_KEYS.keys, *NO_EFFECT, *REFUSED, *UNSUPPORTED]
    matches = [key for key in known if rest.endswith(f".{key}")]
    if not matches:
        parts = rest.split(".")
        suffix = ".".join(parts[1:]) if len(parts) > 1 else rest
        raise ConfigError(f"{name}: {unknown_key(suffix, LISTENER_KEYS.keys)} for a single listener")
    key = max(matches, key=len)
    listener = rest.removesuffix(f".{key}")
    for mechanism in MECHANISMS:
        if listener.lower().endswith(f".{mechanism}"):
            return PrefixedKey(listener[: -len(mechanism) - 1].lower(), mechanism, key)
    return PrefixedKey(listener.lower(), "", key)


def prefixed_key(name: str) -> ConfigKey | None:
    """Returns the key at the end of a name with a listener's prefix; None if there is none."""
    try:
        parts = split_prefixed(name)
    except ConfigError:
        return None
    return None if parts is None else LISTENER_KEYS.keys.get(parts.key)


def check_prefixed(name: str, value: object, listeners: Iterable[str]) -> Iterator[str]:
    """Checks a config with a listener's prefix. Yields notes for the log. Raises ConfigError."""
    parts = split_prefixed(name)
    assert parts is not None
    names = [listener.lower() for listener in listeners]
    if parts.listener not in names:
        raise ConfigError(f"{name}: there is no listener {parts.listener}: expected one of {', '.join(names)}")
    if parts.key in LISTENER_KEYS.keys:
        LISTENER_KEYS.keys[parts.key].parse(value, name)
    elif parts.key in UNSUPPORTED:
        check_unsupported(parts.key, value, name)
    elif parts.key in REFUSED:
        raise ConfigError(f"{name} cannot be set: {REFUSED[parts.key]}")
    else:
        yield f"{name} has no effect: {NO_EFFECT[parts.key]}"


def values_by_listener(key: str, properties: Mapping[str, object]) -> dict[str, Any]:
    """Returns the parsed values of one key with a listener's prefix, by the names of the listeners."""
    found: dict[str, Any] = {}
    for name, value in properties.items():
        parts = split_prefixed(name)
        if parts is not None and parts.key == key:
            found[parts.listener.upper()] = LISTENER_KEYS.keys[key].parse(value, name)
    return found


def security_of(listener: Listener, properties: Mapping[str, object]) -> ListenerSecurity:
    """Returns the security of a listener. `properties` have been checked."""
    broker_values = SECURITY_KEYS.values(SECURITY_KEYS.select(properties))
    own: dict[str, Any] = {}
    by_mechanism: dict[str, dict[str, Any]] = {}
    for name, value in properties.items():
        parts = split_prefixed(name) if name.startswith(PREFIX) else None
        if parts is None or parts.listener != listener.name.lower() or parts.key not in SECURITY_KEYS.keys:
            continue
        target = by_mechanism.setdefault(parts.mechanism, {}) if parts.mechanism else own
        target[parts.key] = SECURITY_KEYS.keys[parts.key].parse(value, name)
    values = listener_values(broker_values, own, uses_sasl=listener.uses_sasl)
    return ListenerSecurity(listener.security_protocol, values, by_mechanism)
