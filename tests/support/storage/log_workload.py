"""Random appends of producers of all kinds: plain, idempotent, transactional, with every codec.

There is no state between appends: the log's producer state determines a producer's next batch, so a workload can
continue after a crash. Every value contains its key, so that tests can also check records whose append was never
acknowledged.
"""

from dataclasses import dataclass
from random import Random
from zlib import crc32

from headrace.common.clock import Clock
from headrace.records import Compression, ControlType, encode_marker, encode_rows
from headrace.storage.log import Log
from headrace.storage.producer_state import AppendOrigin

IDEMPOTENT = range(100, 103)
TRANSACTIONAL = range(200, 204)


@dataclass(frozen=True)
class Mix:
    """The parameters of a workload."""

    keys: int = 12
    largest_value_bytes: int = 120
    most_records: int = 4
    tombstones: float = 0.1
    transactional: float = 0.25
    idempotent: float = 0.2
    codecs: tuple[Compression, ...] = tuple(Compression)


def value_for(key: bytes, payload: bytes) -> bytes:
    return crc32(key + payload).to_bytes(4, "big") + payload


def is_value_of(key: bytes | None, value: bytes | None) -> bool:
    """Returns True if this workload wrote the value for the key."""
    return value is None or (key is not None and crc32(key + value[4:]).to_bytes(4, "big") == value[:4])


def random_rows(random: Random, clock: Clock, mix: Mix) -> list[tuple[bytes | None, bytes | None, int, None]]:
    rows: list[tuple[bytes | None, bytes | None, int, None]] = []
    for _ in range(random.randint(1, mix.most_records)):
        key = b"key-%d" % random.randrange(mix.keys)
        value = value_for(key, random.randbytes(random.randint(4, mix.largest_value_bytes)))
        timestamp = clock.time_ms() - random.choice((0, 0, 0, 5, 50))
        rows.append((key, None if random.random() < mix.tombstones else value, timestamp, None))
    return rows


def random_append(log: Log, random: Random, mix: Mix) -> tuple[bytearray, AppendOrigin]:
    """Bytes to append, and their origin."""
    clock = log.context.clock
    kind = random.random()
    if kind < mix.transactional:
        producer_id = random.choice(TRANSACTIONAL)
        entry = log.producers.entries.get(producer_id)
        if entry is not None and entry.transaction_first_offset is not None and random.random() < 0.4:
            control_type = random.choice((ControlType.COMMIT, ControlType.ABORT))
            return marker_for(log, producer_id, control_type), AppendOrigin.COORDINATOR
        return data_of(log, producer_id, random, mix, transactional=True), AppendOrigin.CLIENT
    if kind < mix.transactional + mix.idempotent:
        return data_of(log, random.choice(IDEMPOTENT), random, mix, transactional=False), AppendOrigin.CLIENT
    return encode_rows(random_rows(random, clock, mix), codec=random.choice(mix.codecs)), AppendOrigin.CLIENT


def data_of(log: Log, producer_id: int, random: Random, mix: Mix, transactional: bool) -> bytearray:
    """Returns the producer's next batch. Sometimes the producer restarts with a new epoch."""
    entry = log.producers.entries.get(producer_id)
    # An unknown producer may have written before the log start: it needs a new epoch.
    epoch, sequence = log.log_end_offset % 2**15, 0
    if entry is not None:
        epoch, sequence = entry.epoch, (entry.last_sequence + 1) % 2**31
    if entry is not None and entry.transaction_first_offset is None and random.random() < 0.05:
        epoch, sequence = epoch + 1, 0
    return encode_rows(
        random_rows(random, log.context.clock, mix),
        codec=random.choice(mix.codecs),
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


def marker_for(log: Log, producer_id: int, control_type: ControlType) -> bytearray:
    entry = log.producers.entries[producer_id]
    return encode_marker(
        control_type,
        producer_id=producer_id,
        producer_epoch=entry.epoch,
        coordinator_epoch=max(0, entry.coordinator_epoch),
        timestamp=log.context.clock.time_ms(),
    )


def open_transactions(log: Log) -> list[int]:
    return [
        producer_id
        for producer_id, entry in log.producers.entries.items()
        if entry.transaction_first_offset is not None
    ]
