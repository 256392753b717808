"""Record batches of other projects decoded by Headrace, and Headrace's by theirs, record by record.

aiokafka (its compiled and its Python code), kafka-python, librdkafka (through its mock broker) and Kafka itself
(through DumpLogSegments). kafka-python's codecs other than gzip need libraries that may be missing; its record code
then runs on aiokafka's codec functions.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import aiokafka.codec
import pytest
from aiokafka.record._crecords import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record._crecords import DefaultRecordBatchBuilder as AiokafkaBuilder
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy as AiokafkaPythonBuilder
from aiokafka.record.default_records import _DefaultRecordBatchPy as AiokafkaPythonBatch
from tests.support.apache_kafka.dump_log import dump_log
from tests.support.client.librdkafka_broker import MockBroker
from tests.support.records import reference_batch as reference
from tests.support.records.other_clients import KafkaPythonBatch, KafkaPythonBuilder, kafka

from headrace.records import (
    Compression,
    ControlType,
    RecordBatch,
    decode_rows,
    encode_empty_batch,
    encode_marker,
    encode_rows,
    recompress,
    split_batches,
)
from headrace.records.arrow import decode_arrow, encode_arrow

CODECS = list(Compression)
BUILDERS = [AiokafkaBuilder, AiokafkaPythonBuilder, KafkaPythonBuilder]
READERS = [AiokafkaBatch, AiokafkaPythonBatch, KafkaPythonBatch]

Row = tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]

# Each field null, empty, short and long; decreasing timestamps; and enough data to compress.
ROWS: list[Row] = [
    (b"key", b"value", 1_700_000_000_000, []),
    (None, b"a value without a key", 1_700_000_000_005, [("name", b"data")]),
    (b"tombstone", None, 1_699_999_999_000, [("empty", b""), ("null", None), ("größe", "ÿ".encode())]),
    (b"", b"", 1_700_000_000_005, [("", b"")]),
    (None, None, 1_700_000_100_000, []),
    *[(b"key %d" % i, b"value %d " % i * i, 1_700_000_000_000 + i, [("n", b"%d" % i)] * (i % 3)) for i in range(100)],
    (b"k" * 20_000, b"large " * 20_000, 1_700_000_000_000, [("h" * 200, b"v" * 20_000)]),
]
NEWEST = max(row[2] for row in ROWS)


class Producer(NamedTuple):
    producer_id: int
    producer_epoch: int
    base_sequence: int
    transactional: bool


PRODUCERS = [Producer(-1, -1, -1, False), Producer(2**40, 7, 2**31 - 1, False), Producer(5, 0, 0, True)]


@pytest.fixture(autouse=True)
def codecs_of_kafka_python(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("snappy", "lz4", "zstd"):
        if not getattr(kafka.codec, f"has_{name}")():
            monkeypatch.setattr(kafka.codec, f"has_{name}", lambda: True)
            for direction in ("encode", "decode"):
                function = getattr(aiokafka.codec, f"{name}_{direction}")
                monkeypatch.setattr(kafka.record.default_records, f"{name}_{direction}", function)


@pytest.fixture(scope="module")
def broker() -> Iterator[MockBroker]:
    with MockBroker() as running:
        yield running


def build_theirs(builder: Callable[..., Any], codec: Compression, producer: Producer) -> bytes:
    theirs = builder(
        magic=2,
        compression_type=int(codec),
        is_transactional=producer.transactional,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=producer.base_sequence,
        batch_size=10**7,
    )
    for offset, (key, value, timestamp, headers) in enumerate(ROWS):
        assert theirs.append(offset, timestamp=timestamp, key=key, value=value, headers=headers) is not None
    return bytes(theirs.build())


def rows_of(batch: RecordBatch) -> list[Row]:
    return [(row.key, row.value, row.timestamp, list(row.headers)) for row in decode_rows(batch.records())]


# ---- aiokafka and kafka-python


@pytest.mark.parametrize("producer", PRODUCERS)
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("builder", BUILDERS)
def test_reads_batches_of_other_clients(builder: Callable[..., Any], codec: Compression, producer: Producer) -> None:
    batch = RecordBatch(build_theirs(builder, codec, producer))
    batch.check_crc()
    assert (batch.codec, batch.count, batch.max_timestamp) == (codec, len(ROWS), NEWEST)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.is_transactional) == producer
    assert (batch.is_control, batch.is_log_append_time) == (False, False)
    assert rows_of(batch) == ROWS
    assert batch.records().check_appendable() == NEWEST
    decoded = decode_arrow([batch])
    assert decoded.column("value").to_pylist() == [row[1] for row in ROWS]


@pytest.mark.parametrize("producer", PRODUCERS)
@pytest.mark.parametrize("builder", BUILDERS)
def test_bytes_match_kio(builder: Callable[..., Any], producer: Producer) -> None:
    theirs = bytearray(build_theirs(builder, Compression.NONE, producer))
    # kafka-python leaves the leader epoch at 0; the CRC does not cover it.
    RecordBatch(theirs).patch_leader_epoch(-1)
    assert encode_rows(ROWS, **producer._asdict()) == theirs
    decoded = decode_arrow([RecordBatch(theirs)])
    assert encode_arrow(decoded, max_bytes=10**7, **producer._asdict()) == [theirs]


@pytest.mark.parametrize("producer", PRODUCERS)
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("reader", READERS)
def test_other_clients_read_our_batches(reader: Callable[..., Any], codec: Compression, producer: Producer) -> None:
    ours = bytes(encode_rows(ROWS, base_offset=2**40, codec=codec, **producer._asdict()))
    batch = reader(ours)
    assert batch.validate_crc()
    assert (batch.base_offset, batch.next_offset) == (2**40, 2**40 + len(ROWS))
    assert (batch.compression_type, batch.is_transactional, batch.is_control_batch) == (
        codec,
        producer.transactional,
        False,
    )
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == producer[:3]
    assert (batch.first_timestamp, batch.max_timestamp) == (ROWS[0][2], NEWEST)
    records = list(batch)
    assert [(record.key, record.value, record.timestamp, list(record.headers)) for record in records] == ROWS
    assert [record.offset for record in records] == list(range(2**40, 2**40 + len(ROWS)))
    assert {record.timestamp_type for record in records} == {0}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("reader", READERS)
def test_other_clients_read_patched_batches(reader: Callable[..., Any], codec: Compression) -> None:
    ours = encode_rows(ROWS, codec=codec)
    batch = RecordBatch(ours)
    batch.patch_base_offset(100)
    batch.patch_leader_epoch(3)
    batch.patch_max_timestamp(5000, True)
    theirs = reader(bytes(ours))
    assert theirs.validate_crc()
    records = list(theirs)
    assert {(record.timestamp, record.timestamp_type) for record in records} == {(5000, 1)}
    assert [record.offset for record in records] == list(range(100, 100 + len(ROWS)))


@pytest.mark.parametrize("control_type", ControlType)
@pytest.mark.parametrize("reader", READERS)
def test_other_clients_read_our_markers(reader: Callable[..., Any], control_type: ControlType) -> None:
    marker = encode_marker(control_type, producer_id=9, producer_epoch=1, coordinator_epoch=3, timestamp=1000)
    batch = reader(bytes(marker))
    assert batch.validate_crc()
    assert (batch.is_control_batch, batch.is_transactional, batch.producer_id) == (True, True, 9)
    (record,) = batch
    assert (record.key, record.value) == (b"\0\0" + control_type.to_bytes(2, "big"), b"\0\0\0\0\0\x03")


@pytest.mark.parametrize("reader", READERS)
def test_other_clients_read_our_empty_batches(reader: Callable[..., Any]) -> None:
    empty = encode_empty_batch(RecordBatch(encode_rows(ROWS, producer_id=9, base_sequence=4, codec=Compression.LZ4)))
    batch = reader(bytes(empty))
    assert batch.validate_crc()
    assert (list(batch), batch.next_offset, batch.producer_id) == ([], len(ROWS), 9)


@pytest.mark.parametrize("builder", BUILDERS)
@pytest.mark.parametrize("second", CODECS)
@pytest.mark.parametrize("first", CODECS)
def test_recompresses_other_clients_batches(
    builder: Callable[..., Any], first: Compression, second: Compression
) -> None:
    theirs = RecordBatch(build_theirs(builder, first, PRODUCERS[2]))
    again = recompress(theirs.records(), second)
    _, rows = reference.decode(bytes(again))
    assert [(row.key, row.value, row.timestamp) for row in rows] == [row[:3] for row in ROWS]


@pytest.mark.parametrize("framed", [True, False])
def test_reads_framed_and_bare_snappy(framed: bool) -> None:
    payload = reference.inflate_snappy(bytes(RecordBatch(encode_rows(ROWS, codec=Compression.SNAPPY)).raw)[61:])
    packed = bytes(aiokafka.codec.snappy_encode(payload, xerial_compatible=framed))
    assert packed.startswith(b"\x82SNAPPY") == framed
    batch = reference.batch_bytes(packed, count=len(ROWS), attributes=2, base_timestamp=ROWS[0][2])
    assert rows_of(RecordBatch(batch)) == ROWS


# ---- librdkafka


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("codec", CODECS)
def test_reads_batches_of_librdkafka(broker: MockBroker, codec: Compression, idempotent: bool) -> None:
    topic = f"theirs-{codec.name}-{idempotent}"
    config = {"compression.type": codec.name.lower(), "enable.idempotence": idempotent}
    broker.send(topic, ROWS, **config)
    batches = split_batches(broker.read(topic))
    assert [row for batch in batches for row in rows_of(batch)] == ROWS
    for batch in batches:
        batch.check_crc()
        assert (batch.producer_id >= 0, batch.base_sequence >= 0) == (idempotent, idempotent)
        batch.records().check_appendable()
    # librdkafka sends a batch uncompressed if compression would make it larger.
    assert codec in {batch.codec for batch in batches}
    if codec == Compression.SNAPPY:
        assert not bytes(batches[-1].raw)[61:].startswith(b"\x82SNAPPY")


@pytest.mark.parametrize("codec", CODECS)
def test_librdkafka_reads_our_batches(broker: MockBroker, codec: Compression) -> None:
    topic = f"ours-{codec.name}"
    marker = encode_marker(ControlType.COMMIT, producer_id=9, producer_epoch=1, coordinator_epoch=3, timestamp=1000)
    fields = {"producer_id": 9, "producer_epoch": 1, "base_sequence": 0, "transactional": True, "codec": codec}
    assert broker.write(topic, bytes(encode_rows(ROWS, **fields))) == 0
    assert broker.write(topic, bytes(marker)) == len(ROWS)
    appended = encode_rows(ROWS, codec=codec)
    RecordBatch(appended).patch_max_timestamp(5000, True)
    assert broker.write(topic, bytes(appended)) == len(ROWS) + 1

    messages = broker.receive(topic, 2 * len(ROWS))
    found = [(message.key(), message.value(), message.headers() or []) for message in messages]
    assert found == [(key, value, headers) for key, value, _, headers in ROWS * 2]
    # The marker has an offset but no record.
    expected = [*range(len(ROWS)), *range(len(ROWS) + 1, 2 * len(ROWS) + 1)]
    assert [message.offset() for message in messages] == expected
    create_time, log_append_time = 1, 2
    assert [message.timestamp() for message in messages] == [
        *((create_time, row[2]) for row in ROWS),
        *((log_append_time, 5000) for _ in ROWS),
    ]


# ---- Kafka


def test_kafka_reads_our_batches(apache_kafka: None, tmp_path: Path) -> None:
    """Creates a segment with every codec at its default, lowest and highest level, markers and an empty batch."""
    fields = {"producer_id": 9, "producer_epoch": 1, "transactional": True}
    batches: list[bytes] = []
    expected: list[tuple[int, Row]] = []
    offset = 0
    for codec in CODECS:
        levels = {"GZIP": (1, 9), "LZ4": (1, 17), "ZSTD": (-5, 19)}.get(codec.name, ())
        for level in (None, *levels):
            batches.append(
                encode_rows(ROWS, base_offset=offset, base_sequence=offset, codec=codec, level=level, **fields)
            )
            expected += [(offset + i, row) for i, row in enumerate(ROWS)]
            offset += len(ROWS)
    marker = {"producer_id": 9, "producer_epoch": 1, "coordinator_epoch": 3, "timestamp": 1000}
    batches.append(encode_marker(ControlType.COMMIT, base_offset=offset, **marker))
    batches.append(encode_marker(ControlType.ABORT, base_offset=offset + 1, **marker))
    batches.append(
        encode_empty_batch(RecordBatch(encode_rows(ROWS[:3], base_offset=offset + 2, codec=Compression.ZSTD)))
    )
    segment = tmp_path / f"{0:020}.log"
    segment.write_bytes(b"".join(batches))

    dump = dump_log(segment, print_data=True)
    assert dump.problems == []
    assert [(batch.first, batch.last) for batch in dump.batches] == [
        (batch.base_offset, batch.last_offset) for batch in map(RecordBatch, batches)
    ]
    for theirs, ours in zip(dump.batches, map(RecordBatch, batches), strict=True):
        assert theirs.fields["isvalid"] is True
        assert theirs.fields["compresscodec"] == Compression(ours.codec).name.lower()
        assert theirs.fields["maxTimestamp"] == ours.max_timestamp
        assert theirs.fields["count"] == ours.count
        assert theirs.fields["crc"] == ours.crc
        assert (theirs.fields["isTransactional"], theirs.fields["isControl"]) == (
            ours.is_transactional,
            ours.is_control,
        )
    data = [record for record in dump.records if record.control is None]
    for record, (offset, (key, value, timestamp, headers)) in zip(data, expected, strict=True):
        assert (record.offset, record.timestamp, record.sequence) == (offset, timestamp, offset)
        assert record.key_size == (-1 if key is None else len(key))
        assert record.value_size == (-1 if value is None else len(value))
        assert ",".join(record.header_keys) == ",".join(name for name, _ in headers)
        assert (record.payload or "") == (value or b"").decode()
    markers = [record.control for record in dump.records if record.control is not None]
    assert ["COMMIT" in markers[0], "ABORT" in markers[1], len(markers)] == [True, True, 2]
