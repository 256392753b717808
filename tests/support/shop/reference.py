"""A reference for `ods-dwd` in plain Python: slow and obvious, for comparison and for planted violations."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

ROUTES = {
    "order_info": "dwd_order",
    "payment_info": "dwd_payment",
    "refund_info": "dwd_refund",
    "cart_info": "dwd_cart",
}


@dataclass(frozen=True)
class Record:
    """A record of any topic."""

    topic: str
    partition: int
    offset: int
    key: str | None
    value: str | bytes | None
    timestamp_ms: int = 1_790_000_000_000

    def moved(self, **changes: Any) -> "Record":
        return replace(self, **changes)


def partition_of(key: str | None, partitions: int) -> int:
    """Returns a partition that depends only on the key."""
    return sum((key or "").encode()) % partitions


class Topics:
    """Records by topic, with offsets in the order in which they are added."""

    def __init__(self, partitions: int = 2) -> None:
        self.records: dict[str, list[Record]] = {}
        self._partitions = partitions

    def add(self, topic: str, key: str | None, value: str | bytes | None, timestamp_ms: int) -> Record:
        records = self.records.setdefault(topic, [])
        partition = partition_of(key, self._partitions)
        offset = sum(record.partition == partition for record in records)
        records.append(Record(topic, partition, offset, key, value, timestamp_ms))
        return records[-1]

    def of(self, *topics: str) -> list[Record]:
        return [record for topic in topics for record in self.records.get(topic, [])]


def is_sound(topic: str, value: str | bytes | None) -> bool:
    """Returns whether an event is valid."""
    try:
        event = json.loads(value or "")
    except ValueError:
        return False
    if not isinstance(event, dict) or not event.get("event_id") or not isinstance(event.get("ts"), int):
        return False
    if topic == "ods_db":
        known = event.get("type") in ("insert", "update", "delete")
        return bool(event.get("table")) and isinstance(event.get("data"), dict) and known
    common = event.get("common")
    return isinstance(common, dict) and bool(common.get("mid")) and ("start" in event or "page" in event)


def rows_of(topic: str, event: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Returns topic and content of each row of an event."""
    ids = {"event_id": event["event_id"], "ts": event["ts"]}
    if topic == "ods_db":
        route = ROUTES.get(event["table"])
        return [] if route is None else [(route, {**ids, "op": event["type"], **event["data"]})]
    rows: list[tuple[str, dict[str, Any]]] = []
    for part, to in (("start", "dwd_start"), ("page", "dwd_page"), ("err", "dwd_error")):
        if part in event:
            rows.append((to, {**ids, **event[part]}))
    for part, to in (("displays", "dwd_display"), ("actions", "dwd_action")):
        rows += [(to, {**ids, **each, "seq": seq}) for seq, each in enumerate(event.get(part, []))]
    return rows


def run(inputs: Iterable[Record], later_ms: int = 250) -> Topics:
    """Returns the expected records of the DWD topics and of the dead letters (`ods_dwd_dead_letters`)."""
    written = Topics()
    seen: set[tuple[str, str]] = set()
    for record in inputs:
        time_ms = record.timestamp_ms + later_ms
        if not is_sound(record.topic, record.value):
            letter = {"reason": "broken", "topic": record.topic, "partition": record.partition, "offset": record.offset}
            written.add("ods_dwd_dead_letters", record.key, json.dumps(letter), time_ms)
            continue
        event = json.loads(record.value or "")
        if (record.topic, event["event_id"]) in seen:
            continue
        seen.add((record.topic, event["event_id"]))
        for to, row in rows_of(record.topic, event):
            content = {**row, "src": {"p": record.partition, "o": record.offset}}
            written.add(to, record.key, json.dumps(content), time_ms)
    return written
