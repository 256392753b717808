"""Requests that can be read and should not have been sent: numbers at their limits, names of 32 KB, thousands of
elements, the same element many times, nulls wherever they may be, batches that lie.

Every one of them must be answered. They may break the topic VICTIM, which is there for that, and make and delete topics
of names in NAMES; they leave all others alone.
"""

import random
import re
import struct
from typing import Any

import crc32c
from tests.support.protocol.samples import RANGES, has_version, present_fields

from headrace.broker import handlers
from headrace.broker.apis import REGISTRY, Api
from headrace.common.ids import ZERO_UUID, Uuid
from headrace.protocol import ApiKey, Message, TooManyElementsError, decode, encode
from headrace.protocol import message as m
from headrace.protocol.messages import (
    alter_configs,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    fetch,
    incremental_alter_configs,
    join_group,
    metadata,
    produce,
    write_txn_markers,
)
from headrace.records import BatchBuilder, Compression

VICTIM = "victim"
STRANGERS_FROM = 1 << 40
"""Producer ids that no producer has."""
VICTIM_PARTITIONS = 3
LONGEST_STRING = 0x7FFF
NAMES = (VICTIM, "hostile-1", "hostile.2", "hostile_2", "h" * 249)
STRINGS = (
    *(VICTIM,) * 12,
    *NAMES[1:],
    "",
    ".",
    "..",
    "../../etc/passwd",
    "a/b",
    "nul\x00",
    "new\nline",
    "h" * 250,
    "__consumer_offsets",
    "__transaction_state",
    "consumer",
    "range",
    "(a+)+$",
    "__cluster_metadata",
    "東京" * 5000,
    "n" * LONGEST_STRING,
    "-1",
    "0",
    "9" * 5000,
    "1e9",
    "NaN",
    "true",
    "{}%s%n",
    "retention.ms",
    "segment.bytes",
    "cleanup.policy",
    "compression.type",
    "max.message.bytes",
    "min.insync.replicas",
    "compact,delete,,compact",
    "," * 1000,
    str(2**63),
    str(-(2**63)),
)
_COUNTS = (0, 1, 1, 1, 1, 2, 2, 3, 40)
_MANY = 2000
_MOST_BYTES = 4_000_000
_MOST_ELEMENTS = 200_000
_BROKER_RESOURCES = (4, 8)
ADMIN_REQUESTS = (
    alter_configs.AlterConfigsRequest,
    incremental_alter_configs.IncrementalAlterConfigsRequest,
    create_partitions.CreatePartitionsRequest,
    delete_records.DeleteRecordsRequest,
    delete_topics.DeleteTopicsRequest,
)
_crc = struct.Struct(">I")


handlers.load()

CONTROLLER_APIS = (
    ApiKey.LEADER_AND_ISR,
    ApiKey.STOP_REPLICA,
    ApiKey.UPDATE_METADATA,
    ApiKey.CONTROLLED_SHUTDOWN,
)
"""The broker obeys whoever sends them, as Apache Kafka does without an authorizer."""
CLIENT_APIS = [api for key, api in sorted(REGISTRY.items()) if key not in CONTROLLER_APIS]


class AbsurdRequests:
    """Generates absurd requests from a seed. `victim_id` is the id of the topic VICTIM."""

    def __init__(self, rng: random.Random, victim_id: Uuid = ZERO_UUID):
        self.random = rng
        self.victim_id = victim_id

    def any(self) -> tuple[Message, int]:
        """Returns a request and its version."""
        return self.of(self.random.choice(CLIENT_APIS))

    def of(self, api: Api) -> tuple[Message, int]:
        version = self.random.randint(api.lowest, api.highest)
        while True:
            self._large = self.random.random() < 0.1  # one large array is enough in a request
            request = self._struct(api.request, version)
            self._keep_within_bounds(request)
            encoded = encode(request, version)
            try:
                decode(api.request, version, bytearray(encoded), 0, _MOST_ELEMENTS)
            except TooManyElementsError:
                continue  # refused for its elements
            if len(encoded) < _MOST_BYTES:  # a larger one would be refused for its size
                return request, version

    def _struct(self, cls: type[Message], version: int) -> Message:
        made = cls(**{field.name: self._field(field, version) for field in present_fields(cls, version)})
        assert isinstance(made, Message)
        return made

    def _field(self, field: m.Field, version: int) -> Any:
        if has_version(field.nullable, version) and self.random.random() < 0.2:
            return None
        if not field.is_array:
            return self._value(field, version)
        if self._large:
            self._large = False
            return [self._value(field, version) for _ in range(5)] * (_MANY // 5)
        values = [self._value(field, version) for _ in range(self.random.choice(_COUNTS))]
        return values * self.random.choice((1, 1, 1, 2, 5))

    def _value(self, field: m.Field, version: int) -> Any:
        rng = self.random
        if field.kind == m.STRUCT:
            assert field.struct is not None
            return self._struct(field.struct, version)
        if field.kind in RANGES:
            low, high = RANGES[field.kind]
            values = (low, low + 1, high, high - 1, high // 2, 0, 0, 0, 1, 1, 2, max(low, -1), max(low, -2), 1000)
            number = min(rng.choice(values), high)
            return bool(number) if field.kind == m.BOOL else number
        if field.kind == m.FLOAT64:
            return rng.choice((0.0, -1.0, 1e308, float("inf"), float("nan")))
        if field.kind == m.UUID:
            return rng.choice((self.victim_id, self.victim_id, ZERO_UUID, Uuid(int=rng.getrandbits(128))))
        if field.kind == m.STRING:
            return rng.choice(STRINGS)
        return self.records() if field.kind == m.RECORDS else rng.randbytes(rng.choice((0, 1, 1000)))

    # ---- batches

    def records(self) -> bytes:
        """Returns a batch with a correct checksum and wrong fields, or no batch at all."""
        rng = self.random
        kind = rng.randrange(8)
        if kind == 0:
            return rng.randbytes(rng.choice((0, 1, 60, 61, 500)))
        builder = BatchBuilder(codec=rng.choice(list(Compression)))
        for _ in range(rng.choice((1, 3, 50))):
            value = rng.choice((None, b"", b"victim", bytes(5000)))
            builder.append(rng.choice((None, b"", b"key")), value, rng.choice((0, -1, 1_700_000_000_000)))
        batch = bytearray(builder.build())
        if kind == 1:
            return bytes(batch)
        if kind == 2:
            return bytes(batch[: rng.randrange(len(batch))])
        for _ in range(rng.choice((1, 1, 2, 5))):
            self._lie(batch)
        if kind != 3:
            with_crc(batch)
        return bytes(batch)

    def _lie(self, batch: bytearray) -> None:
        """Sets a header field to its limit, or damages the records."""
        rng = self.random
        at, form = rng.choice(
            (
                (0, ">q"),  # base offset
                (8, ">i"),  # length
                (12, ">i"),  # leader epoch
                (16, ">b"),  # magic
                (21, ">h"),  # attributes
                (23, ">i"),  # last offset delta
                (27, ">q"),  # base timestamp
                (35, ">q"),  # max timestamp
                (43, ">q"),  # producer id
                (51, ">h"),  # producer epoch
                (53, ">i"),  # base sequence
                (57, ">i"),  # count
                (61, ""),
                (61, ""),
            )
        )
        if form:
            bits = 8 * struct.calcsize(form)
            low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
            struct.pack_into(form, batch, at, rng.choice((low, high, high - 1, -1, -2, 0, 1, 2, 1000 % high)))
        elif len(batch) > at:
            batch[rng.randrange(at, len(batch))] ^= 1 << rng.randrange(8)

    # ---- limits for tests

    def _keep_within_bounds(self, request: Message) -> None:
        rng = self.random
        if isinstance(request, ADMIN_REQUESTS):
            _spare_internal_topics(request)
        if isinstance(request, fetch.FetchRequest):
            request.max_wait_ms = rng.choice((-(2**31), -1, 0, 0, 1, 5))
        elif isinstance(request, produce.ProduceRequest):
            request.acks = request.acks or 1  # acks=0 has no response
        elif isinstance(request, metadata.MetadataRequest):
            request.allow_auto_topic_creation = False
        elif isinstance(request, create_topics.CreateTopicsRequest):
            request.timeout_ms = 10_000
            for topic in request.topics:
                topic.num_partitions = _few(topic.num_partitions)
                topic.assignments = topic.assignments[:5]
        elif isinstance(request, create_partitions.CreatePartitionsRequest):
            request.timeout_ms = 10_000
            for grown in request.topics:
                grown.count = _few(grown.count)
        elif isinstance(request, delete_topics.DeleteTopicsRequest):
            request.timeout_ms = 10_000
        elif isinstance(request, join_group.JoinGroupRequest):
            request.session_timeout_ms = min(request.session_timeout_ms, rng.choice((1, 50, 2**31 - 1)))
        elif isinstance(request, write_txn_markers.WriteTxnMarkersRequest):
            for marker in request.markers:  # no producer with an open transaction
                marker.producer_id = max(marker.producer_id, STRANGERS_FROM) if marker.producer_id >= 0 else -1
        elif isinstance(
            request, alter_configs.AlterConfigsRequest | incremental_alter_configs.IncrementalAlterConfigsRequest
        ):
            for resource in request.resources:
                if resource.resource_type in _BROKER_RESOURCES:
                    resource.resource_type = 2  # a change of all topics would affect the good clients


def _spare_internal_topics(asked: Message) -> None:
    """Replaces names of internal topics: deleting or changing them would affect all clients, as in Kafka."""
    for field in type(asked).__fields__:
        value = getattr(asked, field.name)
        if isinstance(value, str) and value.startswith("__"):
            setattr(asked, field.name, VICTIM)
        elif field.is_array and value:
            value[:] = [VICTIM if isinstance(each, str) and each.startswith("__") else each for each in value]
            for each in value:
                if isinstance(each, Message):
                    _spare_internal_topics(each)


def _few(count: int) -> int:
    """Returns a number of partitions that is small or must be refused."""
    return count if abs(count) > 10_000 else min(count, 4)


def with_crc(batch: bytearray) -> None:
    if len(batch) >= 21:
        _crc.pack_into(batch, 17, crc32c.crc32c(bytes(batch[21:])))


def brief(request: Message) -> str:
    """Returns a short description of a request for error messages."""
    return re.sub(r"('[^']{30})[^']+'", r"\1...'", repr(request))[:1000]
