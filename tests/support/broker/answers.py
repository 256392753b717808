"""Sends the same request to several brokers and compares the responses: every field, error codes and messages.

A request is written as nested dicts, which `build` turns into messages. `plain` turns a response into nested dicts
without the parts that differ between two runs of the same broker, such as ids, ports and times.
"""

import re
import time
from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import UUID

from tests.support.net.wire_client import ConnectionEnded, WireClient

from headrace.protocol import APIS, ApiKey, Message
from headrace.protocol.message import Field, MessageType, parse_versions

_UNSTABLE = {
    "throttle_time_ms",
    "host",
    "port",
    "cluster_id",
    "controller_id",  # Apache Kafka names a random broker
    "log_dir",
    "total_bytes",
    "usable_bytes",
    "documentation",
    "leader_epoch",
    "producer_id",
    "last_timestamp",
    "transaction_start_time_ms",
}
"""Fields that differ between two runs, or (documentation) are our own words."""

CLOSED = {"the broker": "closed the connection"}
"""The answer of a broker that closes the connection."""


GENERAL_MESSAGES = (
    "This server does not host this topic-partition.",
    "This most likely occurs because of a request being malformed by the client library or the message was sent to an "
    "incompatible broker. See the broker logs for more details.",
)
"""Kafka's descriptions of error codes. Where it uses one, ours may be another sentence, which names the item."""

_NOT_READY = (14, 15, 16)
_READY_SECONDS = 20.0


class Case(NamedTuple):
    """A request whose answers are compared."""

    name: str
    key: ApiKey
    request: Mapping[str, Any]
    version: int | None = None


def build(message_class: MessageType, values: Mapping[str, Any]) -> Any:
    """Creates a message from a dict. Lists of structs are lists of dicts."""
    fields = {field.name: field for field in message_class.__fields__}
    return message_class(**{name: _value(fields[name], value) for name, value in values.items()})


def _value(field: Field, value: Any) -> Any:
    if field.struct is None or value is None:
        return value
    if field.is_array:
        return [build(field.struct, item) for item in value]
    return build(field.struct, value)


def plain(message: Message, version: int) -> dict[str, Any]:
    """Returns a response as nested dicts, without unstable parts."""
    result: dict[str, Any] = {}
    for field in type(message).__fields__:
        first, last = parse_versions(field.versions)
        if field.name in _UNSTABLE or not first <= version <= last:
            continue
        value = getattr(message, field.name)
        if field.name == "configs" and value is not None:
            value = {item.name: plain(item, version) for item in value}
        elif field.struct is not None and field.is_array and value is not None:
            value = sorted((plain(item, version) for item in value), key=str)
        elif field.struct is not None and value is not None:
            value = plain(value, version)
        elif isinstance(value, str) and field.name.endswith("message"):
            value = steady(value)
        elif field.name in ("member_id", "leader"):
            value = "an id" if value else "no id"
        elif isinstance(value, UUID):
            value = "an id" if value.int else "no id"
        elif isinstance(value, memoryview):
            value = bytes(value)
        result[field.name] = value
    return result


def steady(text: str) -> str:
    """Replaces the times in a message."""
    return re.sub(r"-?\b\d{13,19}\b", "<time>", text)


def ask(address: tuple[str, int], case: Case) -> dict[str, Any]:
    """Sends a request on its own connection and returns the answer. Repeats it while a coordinator is not ready."""
    api = APIS[case.key]
    version = api.last_version if case.version is None else case.version
    deadline = time.monotonic() + _READY_SECONDS
    with WireClient(address) as client:
        while True:
            try:
                response = client.call(build(api.request, case.request), version)
            except (ConnectionEnded, ConnectionResetError):
                return dict(CLOSED)
            if getattr(response, "error_code", 0) not in _NOT_READY or time.monotonic() > deadline:
                return plain(response, version)
            time.sleep(0.05)


def differences(ours: Any, theirs: Any, path: str = "") -> list[str]:
    """Lists the fields that differ. Our error message may contain more than Kafka's, which may have none."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return [
            line
            for name in sorted({*ours, *theirs})
            for line in differences(ours.get(name), theirs.get(name), f"{path}.{name}")
        ]
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        return [
            line
            for position, (our_item, their_item) in enumerate(zip(ours, theirs, strict=True))
            for line in differences(our_item, their_item, f"{path}[{position}]")
        ]
    if path.endswith("error_message") and isinstance(ours, str) and (theirs is None or theirs in GENERAL_MESSAGES):
        return []
    if path.endswith("error_message") and isinstance(ours, str) and theirs.rstrip(".") in ours:
        return []
    if path.endswith("aborted_transactions") and not ours and not theirs:
        return []
    return [] if ours == theirs else [f"{path}: {ours!r}, Kafka: {theirs!r}"]
