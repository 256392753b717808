"""Requests with one very long list, for each array in the request of each API."""

from collections.abc import Iterator
from typing import Any

from tests.support.protocol.samples import present_fields

from headrace.broker import handlers
from headrace.broker.apis import REGISTRY, Api
from headrace.common.ids import Uuid
from headrace.protocol import Message
from headrace.protocol import message as m

TOPIC_RESOURCE = 2
_VALUES: dict[str, Any] = {
    "acks": 1,
    "timeout_ms": 1000,
    "group_id": "long-lists",
    "transactional_id": "long-lists",
    "v3_and_below_transactional_id": "long-lists",
    "producer_id": 1,
    "replication_factor": 1,
    "num_partitions": 1,
    "resource_type": TOPIC_RESOURCE,
    "response_partition_limit": 2000,
    "session_epoch": -1,
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 10_000,
    "max_bytes": 1,
    "protocol_type": "consumer",
    "client_software_name": "long-lists",
    "client_software_version": "1",
}
"""Values that lead a request beyond its first check. No request creates, changes or deletes anything: the names in the
lists are not valid names of topics."""

Path = tuple[str, ...]


def served_apis() -> list[Api]:
    handlers.load()
    return [REGISTRY[key] for key in sorted(REGISTRY)]


def array_paths(cls: type[Message], version: int) -> Iterator[Path]:
    """Yields the path of each array in a message, such as `("topics", "partitions")`."""
    for field in present_fields(cls, version):
        if field.is_array:
            yield (field.name,)
        if field.struct is not None:
            for path in array_paths(field.struct, version):
                yield (field.name, *path)


def long_request(cls: type[Message], version: int, path: Path, count: int) -> Message:
    """Returns a request with `count` elements in the array at the path, and one element in the arrays above it."""
    return _struct(cls, version, 0, path, count)


def _struct(cls: type[Message], version: int, number: int, path: Path, count: int) -> Any:
    values = {field.name: _field(field, version, number, path, count) for field in present_fields(cls, version)}
    return cls(**values)


def _field(field: m.Field, version: int, number: int, path: Path, count: int) -> Any:
    on_path = bool(path) and path[0] == field.name
    if field.is_array:
        if not on_path:
            return []
        size = count if len(path) == 1 else 1
        return [_value(field, version, index, path[1:], count) for index in range(size)]
    if field.struct is not None and field.tag >= 0 and not on_path:
        return None
    return _value(field, version, number, path[1:] if on_path else (), count)


def _value(field: m.Field, version: int, number: int, path: Path, count: int) -> Any:
    if field.kind == m.STRUCT:
        assert field.struct is not None
        return _struct(field.struct, version, number, path, count)
    if not field.is_array and field.name in _VALUES and not (number and field.kind == m.STRING):
        return _VALUES[field.name]
    if field.kind == m.STRING:
        return f"no/name/{number}"
    if field.kind in (m.BYTES, m.RECORDS):
        return b""
    if field.kind == m.UUID:
        return Uuid(int=number + 1)
    if field.kind == m.BOOL:
        return False
    if field.kind in (m.INT8, m.INT16, m.UINT16):
        return number % 100
    if field.kind == m.FLOAT64:
        return 0.0
    return number
