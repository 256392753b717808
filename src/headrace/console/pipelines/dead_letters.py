"""Dead letters of pipelines: what they say, and their replay.

A dead letter is a JSON object with `reason`, the position of the source record (`topic`, `partition`, `offset`,
`timestamp`) and its `key` and `value` as text, or in base64 if `key_encoding` or `encoding` says so. `value_bytes` is
set if the value was cut off.

Replay writes the source record once more: key, value and headers as they are at the source position. If retention has
deleted it, the dead letter's own key and value take its place, unless they were cut off.
"""

import base64
import binascii
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from headrace.aio.producer import Producer
from headrace.client.consumer.batch_reader import BatchReader
from headrace.common.errors import UnknownTopicOrPartitionError
from headrace.console.records.rows import Row, rows_of
from headrace.records import Record

__all__ = ["DeadLetter", "Replayer", "parse_dead_letter"]

_FETCH_BYTES = 256 * 1024
_LONGEST_TEXT = 100_000


@dataclass(frozen=True)
class DeadLetter:
    """A dead letter and its own position."""

    partition: int
    offset: int
    reason: str | None
    topic: str | None
    source_partition: int
    source_offset: int
    timestamp_ms: int | None
    key: str | None
    value: str | None
    key_encoding: str | None
    encoding: str | None
    value_bytes: int | None

    @property
    def has_source(self) -> bool:
        return self.topic is not None and self.source_partition >= 0 and self.source_offset >= 0

    def bytes_of(self) -> tuple[bytes | None, bytes | None] | None:
        """Returns key and value of the source record; None if they were cut off or are not readable."""
        if self.value_bytes is not None or len(self.key or "") >= _LONGEST_TEXT:
            return None
        try:
            return _bytes(self.key, self.key_encoding), _bytes(self.value, self.encoding)
        except (binascii.Error, ValueError):
            return None

    def as_json(self) -> dict[str, Any]:
        return {
            "partition": self.partition,
            "offset": self.offset,
            "reason": self.reason,
            "source": {
                "topic": self.topic,
                "partition": self.source_partition,
                "offset": self.source_offset,
                "timestamp_ms": self.timestamp_ms,
            }
            if self.has_source
            else None,
            "key": self.key,
            "value": self.value,
            "key_encoding": self.key_encoding,
            "encoding": self.encoding,
            "value_bytes": self.value_bytes,
        }


def _bytes(text: str | None, encoding: str | None) -> bytes | None:
    if text is None:
        return None
    return base64.b64decode(text, validate=True) if encoding == "base64" else text.encode()


def parse_dead_letter(row: Row) -> DeadLetter:
    """Returns the dead letter of a record. A record that is none has no reason, and its bytes as value."""
    record = row.record
    document: Any = None
    try:
        document = json.loads(record.value or b"null")
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        text = None if record.value is None else record.value.decode(errors="replace")
        key = None if record.key is None else record.key.decode(errors="replace")
        return DeadLetter(row.partition, row.offset, None, None, -1, -1, None, key, text, None, None, None)

    def text_of(name: str) -> str | None:
        value = document.get(name)
        return value.encode(errors="replace").decode() if isinstance(value, str) else None

    def number_of(name: str) -> int | None:
        value = document.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63 else None

    partition, offset = number_of("partition"), number_of("offset")
    return DeadLetter(
        row.partition,
        row.offset,
        text_of("reason"),
        text_of("topic"),
        -1 if partition is None else partition,
        -1 if offset is None else offset,
        number_of("timestamp"),
        text_of("key"),
        text_of("value"),
        text_of("key_encoding"),
        text_of("encoding"),
        number_of("value_bytes"),
    )


class Replayer:
    """Replays dead letters as one principal. `replayed` counts the acknowledged records, `lost` those whose source is
    gone and whose dead letter was cut off."""

    def __init__(self, consumer_config: dict[str, object], producer_config: dict[str, object]):
        self._consumer_config = consumer_config
        self._producer_config = {**producer_config, "acks": "all", "allow.auto.create.topics": False}
        self.replayed = 0
        self.lost = 0

    async def replay(self, letters: Iterable[DeadLetter], sources: set[str], target: str | None) -> None:
        """Writes the source records of dead letters to their topics, or to `target`. Without a target, only topics in
        `sources` are written, whatever a dead letter says."""
        by_topic: dict[str, list[DeadLetter]] = {}
        for letter in letters:
            if letter.topic is not None and letter.has_source and (target is not None or letter.topic in sources):
                by_topic.setdefault(letter.topic, []).append(letter)
            else:
                self.lost += 1
        async with Producer(self._producer_config) as producer:
            for topic, group in sorted(by_topic.items()):
                await self._replay_topic(producer, topic, group, target or topic)

    async def _replay_topic(self, producer: Producer, topic: str, letters: list[DeadLetter], target: str) -> None:
        pending = []
        async with BatchReader(self._consumer_config, topic) as reader:
            for letter in sorted(letters, key=lambda one: (one.source_partition, one.source_offset)):
                record = await _source_record(reader, letter)
                fallback = letter.bytes_of()
                if record is not None:
                    key, value, headers = record.key, record.value, list(record.headers)
                elif fallback is not None:
                    key, value, headers = *fallback, []
                else:
                    self.lost += 1
                    continue
                pending.append(await producer.send(target, value, key=key, headers=headers))
        for future in pending:
            await future
            self.replayed += 1


async def _source_record(reader: BatchReader, letter: DeadLetter) -> Record | None:
    """Returns the source record; None if the log does not have it any more."""
    try:
        (fetched,) = await reader.fetch({letter.source_partition: letter.source_offset}, max_bytes=_FETCH_BYTES)
    except UnknownTopicOrPartitionError:
        return None
    if fetched.out_of_range:
        return None
    for row in rows_of(fetched, (), read_committed=False, with_control=False):
        if row.offset == letter.source_offset:
            return row.record
        if row.offset > letter.source_offset:
            break
    return None
