"""Invariants of every log, checked in a slow and obvious way against the bytes of its files.

`check_log` compares everything that is derived (positions, indexes, producer state, aborted transactions, leader
epochs) with values derived from the batches alone, and raises AssertionError with the difference.
"""

from dataclasses import dataclass

from headrace.records import ControlType, Record, RecordBatch, decode_rows, read_marker, split_batches
from headrace.storage.log import FetchIsolation, Log


def stored_batches(log: Log) -> list[RecordBatch]:
    """Returns all batches of the log's files, including those below the log start; checks order and CRCs."""
    found: list[RecordBatch] = []
    previous_end = 0
    for segment in log.segments:
        # The first append creates the file.
        data = segment.path().read_bytes() if segment.existing_paths() else b""
        assert len(data) >= segment.size, f"{segment.path().name} has {len(data)} bytes, the log says {segment.size}"
        for batch in split_batches(data[: segment.size]):
            batch.check_crc()
            assert batch.base_offset >= max(previous_end, segment.base_offset), (batch, previous_end)
            previous_end = batch.next_offset
            assert previous_end <= log.segments.end_of(segment, log.log_end_offset), (batch, segment.base_offset)
            found.append(batch)
    return found


def check_log(log: Log) -> list[RecordBatch]:
    """Checks a log against its bytes; returns the readable batches."""
    log.update_high_watermark(log.log_end_offset)
    stored = stored_batches(log)
    readable = [batch for batch in stored if batch.last_offset >= log.log_start_offset]
    check_offsets(log, readable)
    check_times(log, readable)
    check_epochs(log, readable)
    check_producers(log, stored, readable)
    check_transactions(log, stored)
    return readable


def check_offsets(log: Log, readable: list[RecordBatch]) -> None:
    """Every offset finds the first batch that ends at or after it."""
    offset = log.log_start_offset
    for batch in readable:
        while offset <= batch.last_offset:
            found = log.read(offset, 1).slice
            assert found is not None, f"nothing at {offset}"
            assert found.read() == bytes(batch.raw), f"another batch than {batch} at {offset}"
            offset += 1
    while offset <= log.log_end_offset:
        assert log.read(offset, 1).slice is None, f"something at {offset}"
        offset += 1


def check_times(log: Log, readable: list[RecordBatch]) -> None:
    """Finds the first record at or after every timestamp, and the newest record."""
    records = [(timestamp, offset) for batch in readable for timestamp, offset in _times(batch)]
    records = [(timestamp, offset) for timestamp, offset in records if offset >= log.log_start_offset]
    for wanted in sorted({timestamp + step for timestamp, _ in records for step in (0, 1)}):
        expected = next(((timestamp, offset) for timestamp, offset in records if timestamp >= wanted), None)
        assert log.find_timestamp(wanted) == expected, (wanted, log.find_timestamp(wanted), expected)
    stored = [batch.max_timestamp for segment in log.segments for _, batch in segment.batches()]
    newest = log.max_timestamp()
    assert (newest[0] if newest is not None else -1) == max(stored, default=-1)


def _times(batch: RecordBatch) -> list[tuple[int, int]]:
    records = batch.records()
    return list(zip(records.timestamps(), records.offsets(), strict=True))


def check_epochs(log: Log, readable: list[RecordBatch]) -> None:
    """The cache has the leader epoch of each batch."""
    for batch in readable:
        if batch.leader_epoch >= 0:
            offset = max(batch.base_offset, log.log_start_offset)
            assert log.epochs.epoch_for_offset(offset) == batch.leader_epoch, (batch, log.epochs.entries)
    starts = [entry.start_offset for entry in log.epochs.entries]
    assert starts == sorted(starts), log.epochs.entries
    assert all(start <= log.log_end_offset for start in starts), log.epochs.entries


@dataclass
class ProducerSeen:
    """The state of a producer, derived from the batches alone."""

    epoch: int = -1
    last_sequence: int = -1
    last_offset: int = -1
    transaction_first_offset: int | None = None


def producers_of(batches: list[RecordBatch]) -> dict[int, ProducerSeen]:
    found: dict[int, ProducerSeen] = {}
    for batch in batches:
        if batch.producer_id < 0:
            continue
        seen = found.setdefault(batch.producer_id, ProducerSeen())
        if batch.producer_epoch != seen.epoch:
            seen.epoch, seen.last_sequence, seen.last_offset = batch.producer_epoch, -1, -1
        if not batch.is_control:
            seen.last_sequence, seen.last_offset = batch.last_sequence, batch.last_offset
            if batch.is_transactional and seen.transaction_first_offset is None:
                seen.transaction_first_offset = batch.base_offset
        elif read_marker(batch.records()) is not None:
            seen.transaction_first_offset = None
    return found


def check_producers(log: Log, stored: list[RecordBatch], readable: list[RecordBatch]) -> None:
    """Producer state equals a rebuild from scratch. Batches below the log start may be included or not."""
    of_all, of_readable = producers_of(stored), producers_of(readable)
    ended = {batch.producer_id for batch in readable if batch.is_control}
    begun_before = [
        producer_id
        for producer_id, entry in log.producers.entries.items()
        if entry.transaction_first_offset is not None
        and entry.transaction_first_offset < log.log_start_offset
        and producer_id not in ended
    ]
    for producer_id, seen in of_readable.items():
        entry = log.producers.entries.get(producer_id)
        assert entry is not None, f"producer {producer_id} is not known, expected {seen}"
        last = entry.batches[-1] if entry.batches else None
        known = (entry.epoch, last.last_sequence if last else -1, last.last_offset if last else -1)
        expected = [(each.epoch, each.last_sequence, each.last_offset) for each in (seen, of_all[producer_id])]
        if seen.last_offset < 0 and known[0] == seen.epoch and known[2] < log.log_start_offset:
            expected.append(known)  # only a marker remains, and the snapshot has more
        assert known in expected, (producer_id, known, expected)
        firsts = {seen.transaction_first_offset, of_all[producer_id].transaction_first_offset}
        if producer_id not in begun_before:
            assert entry.transaction_first_offset in firsts, (producer_id, entry.transaction_first_offset, firsts)
    for producer_id, entry in log.producers.entries.items():
        if producer_id not in of_all and producer_id not in begun_before:
            assert entry.transaction_first_offset is None, f"producer {producer_id} has a transaction without data"


def check_transactions(log: Log, stored: list[RecordBatch]) -> None:
    """A read_committed consumer gets the records that were not aborted, up to the first open transaction."""
    entries = log.producers.entries.values()
    undecided = [entry.transaction_first_offset for entry in entries if entry.transaction_first_offset is not None]
    assert log.last_stable_offset == max(log.log_start_offset, min([*undecided, log.log_end_offset]))
    expected = committed_in(stored)
    expected = [record for record in expected if log.log_start_offset <= record.offset < log.last_stable_offset]
    found = committed_records(log)
    assert [record.offset for record in found] == [record.offset for record in expected]


def committed_in(batches: list[RecordBatch]) -> list[Record]:
    """Returns the records outside transactions and those of committed or open transactions, in order."""
    aborted: set[int] = set()
    held: dict[int, list[int]] = {}
    for index, batch in enumerate(batches):
        if not batch.is_transactional:
            continue
        if not batch.is_control:
            held.setdefault(batch.producer_id, []).append(index)
            continue
        marker = read_marker(batch.records())
        if marker is not None:
            of_transaction = held.pop(batch.producer_id, [])
            if marker.control_type is ControlType.ABORT:
                aborted.update(of_transaction)
    return [
        record
        for index, batch in enumerate(batches)
        if index not in aborted and not batch.is_control
        for record in decode_rows(batch.records())
    ]


def committed_records(log: Log, max_bytes: int = 4096) -> list[Record]:
    """Reads a log from its start like a consumer with `isolation.level=read_committed`."""
    found: list[Record] = []
    offset = log.log_start_offset
    while offset < log.last_stable_offset:
        read = log.read(offset, max_bytes, FetchIsolation.TXN_COMMITTED)
        if read.slice is None:
            break
        to_come = sorted(read.aborted or [], key=lambda transaction: transaction.first_offset, reverse=True)
        aborted_now: set[int] = set()
        for batch in read.slice.batches():
            while to_come and to_come[-1].first_offset <= batch.last_offset:
                aborted_now.add(to_come.pop().producer_id)
            if batch.is_control:
                marker = read_marker(batch.records())
                if marker is not None and marker.control_type is ControlType.ABORT:
                    aborted_now.discard(batch.producer_id)
            elif not (batch.is_transactional and batch.producer_id in aborted_now):
                found += [record for record in decode_rows(batch.records()) if record.offset >= offset]
            next_offset = batch.next_offset
        offset = next_offset
    return found


def latest_values(records: list[Record]) -> dict[bytes, bytes]:
    """Returns the last value of each key, without keys whose last record is a tombstone."""
    latest = {record.key: record.value for record in records if record.key is not None}
    return {key: value for key, value in latest.items() if value is not None}
