import struct
from pathlib import Path
from typing import Any

import pytest
from tests.support.storage.logs import TP, MakeLog, make_batch, make_marker, send

from headrace.common.errors import KafkaStorageError
from headrace.records import ControlType, RecordBatch, crc32c
from headrace.storage.files import FileSystem
from headrace.storage.loader import open_log
from headrace.storage.log import Log
from headrace.storage.producer_snapshots import ProducerSnapshots, decode_snapshot, encode_snapshot, snapshot_name
from headrace.storage.producer_state import ProducerStateManager

AT = 1_700_000_000_000
PATH = Path("00000000000000000012.snapshot")


def states() -> ProducerStateManager:
    """Producer 7 has written sequences 3 to 5 in an open transaction; producer 8 has only a marker."""
    made = ProducerStateManager()
    fields: dict[str, Any] = {"producer_id": 7, "producer_epoch": 2, "transactional": True}
    made.apply(RecordBatch(make_batch(2, base_offset=6, base_sequence=1, at=AT, **fields)))
    made.apply(RecordBatch(make_batch(3, base_offset=8, base_sequence=3, at=AT + 5, **fields)))
    marker = RecordBatch(make_marker(ControlType.COMMIT, 8, epoch=1, coordinator_epoch=4))
    marker.patch_base_offset(11)
    made.apply(marker)
    return made


BODY = struct.pack(">i", 2) + struct.pack(">qhiqiqiq", 7, 2, 5, 10, 2, AT + 5, -1, 6)
BODY += struct.pack(">qhiqiqiq", 8, 1, -1, -1, 0, AT, 4, -1)


def with_crc(body: bytes, version: int = 1) -> bytes:
    return struct.pack(">hI", version, crc32c(body)) + body


def test_snapshot_has_kafka_format() -> None:
    encoded = encode_snapshot(states())
    assert encoded == with_crc(BODY)
    assert len(encoded) == 2 + 4 + 4 + 2 * 46


def test_encodes_and_decodes() -> None:
    seven, eight = decode_snapshot(PATH, with_crc(BODY))
    assert (seven.producer_id, seven.epoch, seven.coordinator_epoch) == (7, 2, -1)
    assert (seven.last_timestamp, seven.transaction_first_offset) == (AT + 5, 6)
    assert [(kept.base_sequence, kept.last_sequence) for kept in seven.batches] == [(3, 5)]
    assert [(kept.base_offset, kept.last_offset) for kept in seven.batches] == [(8, 10)]
    assert (eight.epoch, eight.coordinator_epoch, eight.last_sequence) == (1, 4, -1)
    assert eight.transaction_first_offset is None
    assert not eight.batches


def test_snapshot_without_producers() -> None:
    assert encode_snapshot(ProducerStateManager()) == with_crc(struct.pack(">i", 0))
    assert decode_snapshot(PATH, with_crc(struct.pack(">i", 0))) == []


def test_decodes_batch_across_sequence_wrap() -> None:
    made = ProducerStateManager()
    made.apply(RecordBatch(make_batch(4, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2)))
    (entry,) = decode_snapshot(PATH, encode_snapshot(made))
    assert entry.batches == made.entries[1].batches


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"", "is truncated: it has only 0 bytes"),
        (with_crc(BODY)[:9], "is truncated: it has only 9 bytes"),
        (with_crc(BODY, version=2), "has unsupported version 2; expected 1"),
        (with_crc(BODY)[:-1], "is corrupt: its CRC does not match"),
        (with_crc(BODY)[:-1] + b"\0", "is corrupt: its CRC does not match"),
        (with_crc(BODY + b"\0"), "is damaged: 103 bytes do not match 2 producers"),
        (with_crc(struct.pack(">i", -1)), "is damaged: 10 bytes do not match -1 producers"),
    ],
)
def test_rejects_damaged_file(content: bytes, named: str) -> None:
    with pytest.raises(KafkaStorageError, match=f"^{PATH} {named}$"):
        decode_snapshot(PATH, content)


def test_takes_and_lists_snapshots(tmp_path: Path) -> None:
    snapshots = ProducerSnapshots(tmp_path, FileSystem())
    made = states()
    snapshots.take(made)
    snapshots.take(made)
    assert [path.name for path in tmp_path.iterdir()] == ["00000000000000000012.snapshot"]
    assert (tmp_path / snapshot_name(12)).read_bytes() == with_crc(BODY)
    assert snapshots.offsets == [12]


def taken_at(directory: Path, *offsets: int) -> ProducerSnapshots:
    snapshots = ProducerSnapshots(directory, FileSystem())
    for offset in offsets:
        made = ProducerStateManager()
        made.apply(RecordBatch(make_batch(producer_id=offset, producer_epoch=0, base_sequence=0)))
        made.end_offset = offset
        snapshots.take(made)
    return snapshots


@pytest.mark.parametrize(
    ("lowest", "highest", "found"), [(0, 99, 30), (0, 30, 30), (0, 29, 20), (20, 25, 20), (21, 25, None), (0, 9, None)]
)
def test_loads_newest_snapshot_in_range(tmp_path: Path, lowest: int, highest: int, found: int | None) -> None:
    made = ProducerStateManager()
    taken_at(tmp_path, 10, 20, 30).load_latest(made, lowest, highest)
    assert made.end_offset == (lowest if found is None else found)
    assert list(made.entries) == ([] if found is None else [found])


def test_removes_damaged_snapshot_and_loads_previous(tmp_path: Path) -> None:
    snapshots = taken_at(tmp_path, 10, 20)
    (tmp_path / snapshot_name(20)).write_bytes(b"damaged")
    made = ProducerStateManager()
    snapshots.load_latest(made, 0, 99)
    assert (made.end_offset, list(made.entries)) == (10, [10])
    assert snapshots.offsets == [10]
    assert not (tmp_path / snapshot_name(20)).exists()


def test_drops_snapshots(tmp_path: Path) -> None:
    snapshots = taken_at(tmp_path, 10, 20, 30)
    snapshots.drop_beyond(20)
    assert snapshots.offsets == [10, 20]
    snapshots.keep_only({20})
    assert snapshots.offsets == [20]
    assert [path.name for path in tmp_path.iterdir()] == [snapshot_name(20)]


def test_opens_snapshots_to_sync(tmp_path: Path) -> None:
    opened = taken_at(tmp_path, 10, 20, 30).open_for_sync(above=10, up_to=20)
    assert [file.path.name for file in opened] == [snapshot_name(20)]


def test_truncation_removes_later_snapshots(make_log: MakeLog) -> None:
    """A log that was truncated within its only batch and closed ends before its snapshot when reopened."""
    log = make_log()
    send(log, 1, count=4)
    log.truncate_to(3)
    log = reopen(log)
    assert (log.log_end_offset, log.snapshots.offsets) == (0, [])
    send(log, 2, count=3)
    log = reopen(log)
    assert log.log_end_offset == 3
    assert list(log.producers.entries) == [2]


def reopen(log: Log) -> Log:
    log.close()
    return open_log(log.directory, TP, log.config, log.context, clean=True, recovery_point=log.recovery_point)[0]
