"""All messages in all versions, and random ones of each, for tests of the codec."""

import importlib
import random
from collections.abc import Iterator
from typing import Any

from headrace.common.ids import ZERO_UUID, Uuid
from headrace.protocol import APIS, Message
from headrace.protocol import message as m

DATA = {
    "consumer_protocol_assignment": "ConsumerProtocolAssignment",
    "consumer_protocol_subscription": "ConsumerProtocolSubscription",
}
RANGES = {
    m.BOOL: (0, 1),
    m.INT8: (-(2**7), 2**7 - 1),
    m.INT16: (-(2**15), 2**15 - 1),
    m.UINT16: (0, 2**16 - 1),
    m.INT32: (-(2**31), 2**31 - 1),
    m.INT64: (-(2**63), 2**63 - 1),
}


def all_classes() -> list[type[Message]]:
    """Returns every request and response, and the data that group members exchange."""
    classes = [each for api in APIS.values() for each in (api.request, api.response)]
    for module, name in DATA.items():
        classes.append(getattr(importlib.import_module(f"headrace.protocol.messages.{module}"), name))
    return classes


def versions_of(cls: type[Message]) -> range:
    first, last = m.parse_versions(cls.__versions__)
    return range(first, last + 1)


def all_messages() -> list[tuple[type[Message], int]]:
    return [(cls, version) for cls in all_classes() for version in versions_of(cls)]


def has_version(versions: str, version: int) -> bool:
    first, last = m.parse_versions(versions)
    return first <= version <= last


def present_fields(cls: type[Message], version: int) -> Iterator[m.Field]:
    return (field for field in cls.__fields__ if has_version(field.versions, version))


def sample(cls: type[Message], version: int, rng: random.Random, *, full: bool = False) -> Message:
    """Returns a random message. A full one has no nulls, no empty arrays and no tagged field with its default."""
    values: dict[str, Any] = {}
    for field in present_fields(cls, version):
        if not full and field.tag >= 0 and rng.random() < 0.5:
            continue
        if not full and has_version(field.nullable, version) and rng.random() < 0.3:
            values[field.name] = None
        elif field.is_array:
            count = rng.choice((1, 2) if full else (0, 0, 1, 2, 3))
            values[field.name] = [_value(field, version, rng, full) for _ in range(count)]
        else:
            values[field.name] = _value(field, version, rng, full)
    made = cls(**values)
    assert isinstance(made, Message)
    return made


def _value(field: m.Field, version: int, rng: random.Random, full: bool) -> Any:
    if field.kind == m.STRUCT:
        assert field.struct is not None
        return sample(field.struct, version, rng, full=full)
    if field.kind in RANGES:
        low, high = RANGES[field.kind]
        number = rng.choice((low, high, rng.randint(low, high), rng.randint(max(low, -3), min(high, 300))))
        return bool(number) if field.kind == m.BOOL else number
    if field.kind == m.FLOAT64:
        return rng.choice((0.0, -1.5, 1e300, rng.random()))
    if field.kind == m.UUID:
        return rng.choice((ZERO_UUID, Uuid(int=rng.getrandbits(128)))) if not full else Uuid(int=rng.getrandbits(128))
    if field.kind == m.STRING:
        return (
            rng.choice(("x", "Käfer", "東京", "a.b-c_d", "z" * 130))
            if full
            else rng.choice(("", "x", "日本", "y" * 200))
        )
    return rng.randbytes(rng.choice((1, 5, 130)) if full else rng.choice((0, 0, 1, 20)))
