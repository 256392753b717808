"""FetchedRecords: the records of a fetch response in portions, as rows and as columns."""

import pickle

import pytest

from headrace.common.errors import CorruptRecordError
from headrace.records import (
    Compression,
    ConsumerRecord,
    ControlType,
    FetchedRecords,
    RecordBatch,
    Undecodable,
    encode_marker,
    encode_rows,
    rewrite_batch,
)
from headrace.records.arrow import ArrowDecoder


def batch_of(base_offset, *values, **fields):
    rows = [(b"k", value, 1_000 + i, None) for i, value in enumerate(values)]
    return bytes(encode_rows(rows, base_offset=base_offset, **fields))


def fetched(buffer, offset=0, **options):
    return FetchedRecords("t", 3, buffer, offset, **options)


def columns_of(found, max_records=2**31 - 1):
    decoder = ArrowDecoder()
    count = found.take_columns(decoder, max_records)
    made = decoder.finish()
    assert made.num_rows == count
    return made.column("offset").to_pylist(), made.column("value").to_pylist()


def offsets_in_portions(found, portion):
    offsets = []
    while rows := found.take(portion):
        assert len(rows) <= portion
        offsets += [row.offset for row in rows]
        assert found.next_offset > offsets[-1]
    return offsets


TWO = batch_of(10, b"a", b"b", b"c") + batch_of(13, b"d", b"e", leader_epoch=7)


def test_row_has_fields_of_kafka_python():
    raw = bytes(encode_rows([(None, b"value", 5, [("h", b"xy"), ("é", None)])], base_offset=4, leader_epoch=2))
    (row,) = fetched(raw).take(10)
    assert row._asdict() == {
        "topic": "t",
        "partition": 3,
        "leader_epoch": 2,
        "offset": 4,
        "timestamp": 5,
        "timestamp_type": 0,
        "key": None,
        "value": b"value",
        "headers": [("h", b"xy"), ("é", None)],
        "checksum": None,
        "serialized_key_size": -1,
        "serialized_value_size": 5,
        "serialized_header_size": 5,
    }
    assert tuple(row) == tuple(row._asdict().values())
    assert row[3] == row.offset
    assert len(row) == len(row._fields)
    assert pickle.loads(pickle.dumps(row)) == row
    assert hash(row) == hash(pickle.loads(pickle.dumps(row)))
    assert "offset=4" in repr(row)


def test_row_without_headers_has_empty_list():
    (row,) = fetched(batch_of(0, b"a")).take(10)
    assert row.headers == []
    assert row.serialized_header_size == -1
    assert row != "a row"
    with pytest.raises(AttributeError):
        row.offset = 3


def test_log_append_time_sets_timestamp_type():
    (row,) = fetched(batch_of(0, b"a", log_append_time=True)).take(10)
    assert row.timestamp_type == 1


@pytest.mark.parametrize("portion", [1, 2, 3, 4, 5, 100])
def test_portions_cover_everything_in_order(portion):
    found = fetched(TWO)
    assert (found.end_offset, found.is_done, found.has_batches) == (15, False, True)
    assert offsets_in_portions(found, portion) == [10, 11, 12, 13, 14]
    assert found.is_done
    assert found.next_offset == 15
    assert found.leader_epoch == 7


@pytest.mark.parametrize("offset", range(10, 16))
def test_read_starts_at_requested_offset(offset):
    assert offsets_in_portions(fetched(TWO, offset), 2) == list(range(offset, 15))
    assert columns_of(fetched(TWO, offset))[0] == list(range(offset, 15))


@pytest.mark.parametrize("cut", [1, 30, 61, 69])
def test_omits_incomplete_last_batch(cut):
    whole = batch_of(10, b"a", b"b", b"c")
    found = fetched(whole + batch_of(13, b"d")[:cut])
    assert found.end_offset == 13
    assert offsets_in_portions(found, 10) == [10, 11, 12]


def test_only_incomplete_batch_yields_nothing():
    found = fetched(TWO[:40], 10)
    assert not found.has_batches
    assert (found.end_offset, found.take(5)) == (10, [])


@pytest.mark.parametrize("codec", list(Compression))
def test_compressed_batches(codec):
    found = fetched(batch_of(0, b"a" * 100, b"b" * 100, codec=codec))
    assert [row.value for row in found.take(5)] == [b"a" * 100, b"b" * 100]


def test_columns_in_portions():
    found = fetched(TWO, 11)
    assert columns_of(found, 1) == ([11], [b"b"])
    assert found.next_offset == 12
    assert columns_of(found, 2) == ([12, 13], [b"c", b"d"])
    assert columns_of(found, 2) == ([14], [b"e"])
    assert columns_of(found, 2) == ([], [])


def test_columns_with_headers_in_portions():
    rows = [(None, b"v", 1, [(f"h{i}", b"x")] * i) for i in range(4)]
    found = fetched(bytes(encode_rows(rows)))
    decoder = ArrowDecoder()
    assert found.take_columns(decoder, 3) == 3
    assert [len(headers) for headers in decoder.finish().column("headers").to_pylist()] == [0, 1, 2]
    assert found.take_columns(decoder, 3) == 1
    assert decoder.finish().column("headers").to_pylist() == [[{"key": "h3", "value": b"x"}] * 3]


def test_offsets_may_have_gaps():
    # A compacted batch: records 1 and 3 remain of 0 to 5.
    raw = batch_of(0, b"0", b"1", b"2", b"3", b"4", b"5")
    kept = rewrite_batch(RecordBatch(raw).records(), bytes([0, 1, 0, 1, 0, 0]))
    found = fetched(bytes(kept), 0)
    assert found.end_offset == 6
    assert [row.offset for row in found.take(1)] == [1]
    assert found.next_offset == 2
    assert [row.offset for row in found.take(9)] == [3]
    assert found.next_offset == 6


class TestTransactions:
    def batch(self, producer_id, base_offset, *values):
        return batch_of(
            base_offset, *values, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True
        )

    def marker(self, kind, producer_id, offset):
        return bytes(
            encode_marker(
                kind, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp=1, base_offset=offset
            )
        )

    def log(self):
        return b"".join(
            [
                self.batch(1, 0, b"a0", b"a1"),
                self.batch(2, 2, b"c2"),
                batch_of(3, b"p3"),
                self.marker(ControlType.ABORT, 1, 4),
                self.batch(1, 5, b"c5"),
                self.marker(ControlType.COMMIT, 2, 6),
                self.marker(ControlType.COMMIT, 1, 7),
                self.batch(1, 8, b"a8"),
                self.marker(ControlType.ABORT, 1, 9),
            ]
        )

    @pytest.mark.parametrize("portion", [1, 2, 100])
    def test_returns_all_records_without_aborted_list(self, portion):
        found = fetched(self.log())
        assert offsets_in_portions(found, portion) == [0, 1, 2, 3, 5, 8]
        assert found.next_offset == 10

    @pytest.mark.parametrize("portion", [1, 2, 100])
    def test_omits_aborted_transactions(self, portion):
        found = fetched(self.log(), aborted=[(1, 8), (1, 0)])
        assert offsets_in_portions(found, portion) == [2, 3, 5]
        assert found.next_offset == 10
        assert found.is_done

    def test_omits_aborted_transactions_from_columns(self):
        assert columns_of(fetched(self.log(), aborted=[(1, 0), (1, 8)]))[1] == [b"c2", b"p3", b"c5"]

    def test_markers_advance_position(self):
        found = fetched(self.marker(ControlType.COMMIT, 1, 4), 4)
        assert found.take(3) == []
        assert (found.next_offset, found.is_done) == (5, True)


class TestErrors:
    def broken(self):
        """Returns two valid batches, a corrupt one, and another valid one."""
        bad = bytearray(batch_of(15, b"bad"))
        bad[-1] ^= 1
        return TWO + bytes(bad) + batch_of(16, b"after")

    def test_returns_records_before_error_first(self):
        found = fetched(self.broken())
        assert [row.offset for row in found.take(100)] == [10, 11, 12, 13, 14]
        for _ in range(2):
            with pytest.raises(CorruptRecordError, match="computed crc"):
                found.take(100)
        assert found.next_offset == 15

    def test_decodes_columns(self):
        found = fetched(self.broken())
        assert columns_of(found)[0] == [10, 11, 12, 13, 14]
        with pytest.raises(CorruptRecordError, match="computed crc"):
            columns_of(found)

    def test_crcs_are_checked_only_on_request(self):
        bad = bytearray(batch_of(15, b"bad"))
        bad[17] ^= 1  # the CRC itself
        assert [row.value for row in fetched(bytes(bad), check_crcs=False).take(100)] == [b"bad"]
        with pytest.raises(CorruptRecordError):
            fetched(bytes(bad)).take(100)

    def test_garbage_raises_when_reached(self):
        found = fetched(TWO + b"\xff" * 100)
        assert len(found.take(100)) == 5
        with pytest.raises(CorruptRecordError):
            found.take(100)

    def test_failed_deserializer_stops_at_its_record(self):
        found = fetched(TWO)
        assert [row.value for row in found.take(100, None, deserialize_but_d)] == ["a", "b", "c"]
        for _ in range(2):
            with pytest.raises(Undecodable) as raised:
                found.take(100, None, deserialize_but_d)
            assert (raised.value.offset, raised.value.field) == (13, "value")
            assert isinstance(raised.value.__cause__, ValueError)
        assert found.next_offset == 13

    def test_deserializer_must_not_consume(self):
        found = fetched(TWO)
        with pytest.raises(RuntimeError, match="must not consume"):
            found.take(100, None, lambda value: found.take(100))


def deserialize_but_d(value):
    if value == b"d":
        raise ValueError("not d")
    return value.decode()


class Deserializer:
    def __init__(self):
        self.calls = []

    def deserialize(self, topic, headers, data):
        self.calls.append((topic, headers, data))
        return data.upper()


def test_deserializers_as_functions_and_as_objects():
    deserializer = Deserializer()
    rows = fetched(TWO).take(2, bytes.decode, deserializer)
    assert [(row.key, row.value, row.serialized_value_size) for row in rows] == [("k", b"A", 1), ("k", b"B", 1)]
    assert deserializer.calls == [("t", [], b"a"), ("t", [], b"b")]


def test_records_do_not_reference_response():
    buffer = bytearray(TWO)
    found = fetched(buffer)
    rows = found.take(100)
    del found
    buffer += b"x"  # raises BufferError if the buffer is still referenced
    assert [row.value for row in rows] == [b"a", b"b", b"c", b"d", b"e"]


def test_consumer_record_constructor():
    record = ConsumerRecord("t", 0, -1, 5, 1, 0, b"k", b"v", [("a", b"b")])
    assert (record.key, record.value, record.headers) == (b"k", b"v", [("a", b"b")])
