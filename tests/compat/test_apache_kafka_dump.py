"""Kafka's DumpLogSegments reads Headrace's files, reports no problem, and prints what was written.

Each function below writes a log. The tool then runs once over all files, and once more for the index checks that a
broker performs at startup; the tests check its output.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.apache_kafka.broker import CODECS, DumpBatch, DumpResult, SampleRecord, dump_log
from tests.support.storage.files import (
    BatchSeen,
    Journal,
    Row,
    WritingProducer,
    batch_printed,
    files_in,
    is_of_an_emptied_batch,
    open_manager,
    write_keys,
)

from headrace.common.types import TopicPartition
from headrace.records import ControlType, encode_rows
from headrace.testing.clock import ManualClock

COMMIT, ABORT = ControlType.COMMIT, ControlType.ABORT
START_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


class Site(Journal):
    """A log in its own data directory, with a stopped clock."""

    def __init__(self, directory: Path, topic: str, config: dict[str, object]) -> None:
        self.directory = directory
        self.tp = TopicPartition(topic, 0)
        self.clock = ManualClock(START_MS)
        self._configs = {topic: config}
        self.manager = open_manager(directory, self._configs, self.clock).start()
        super().__init__(self.manager.create(self.tp))

    def restart(self) -> None:
        self.manager = open_manager(self.directory, self._configs, self.clock).start()
        log = self.manager.get(self.tp)
        assert log is not None
        self.log = log

    def clean(self) -> None:
        """Rolls the log and compacts the sealed segments."""
        self.log.roll()
        self.log.update_high_watermark(self.log.log_end_offset)
        assert self.manager.clean_next() == self.tp
        assert self.log.cleaned_up_to == self.log.segments.active.base_offset


Writer = Callable[[Site], None]
WRITERS: dict[str, tuple[Writer, dict[str, object]]] = {}


def writes(**properties: object) -> Callable[[Writer], Writer]:
    """Registers a function that writes a log with these configs, in a topic of its name."""

    def register(function: Writer) -> Writer:
        config = {key.replace("_", "."): value for key, value in properties.items()}
        WRITERS[function.__name__] = (function, config)
        return function

    return register


def rows(label: str, count: int, size: int = 40, at: int = 0) -> list[Row]:
    """Ordinary records; the timestamps go up and down."""
    return [
        (f"{label}-{n}".encode(), f"{label} {n} ".ljust(size, ".").encode(), START_MS + at + (n * 37) % 101, ())
        for n in range(count)
    ]


def varied(label: str) -> Iterator[Row]:
    """Every kind of key, value and headers (but only text, since the tool prints text)."""
    keys = [None, b"", label.encode(), "ключ".encode(), b"k" * 300]
    values = [None, b"", f"value of {label}".encode(), b"two\nlines", b"repeat me " * 400, "ÿ".encode() * 99]
    headers = [(), (("trace", b"1"),), (("twice", b"a"), ("twice", b"\xff"), ("empty", b""), ("null", None))]
    for n in range(len(keys) * len(values)):
        yield keys[n % 5], values[n % 6], START_MS + (n * 37) % 101, headers[n % 3]


# ---- the logs


def write_codec(site: Site) -> None:
    codec = site.tp.topic
    for n in range(6):
        site.write(rows(f"{codec}-{n}", (1, 200)[n % 2]), codec)
        site.write(varied(f"{codec}-{n}"), codec)


for codec_name in CODECS:
    WRITERS[codec_name] = (write_codec, {"segment.bytes": 65536, "index.interval.bytes": 1024})


@writes(compression_type="zstd")
def recompressed(site: Site) -> None:
    """The topic has its own codec."""
    producer = WritingProducer(7)
    for codec in CODECS:
        site.write(varied(codec), codec, producer, stored_codec="zstd")


@writes(segment_bytes=4096, index_interval_bytes=300)
def segments(site: Site) -> None:
    for n in range(120):
        site.write(rows(f"segment-{n}", 3, 60, at=n * 50 if n % 7 else 0))
        site.leader_epoch = n // 30


@writes(segment_bytes=4096, index_interval_bytes=300)
def idempotent(site: Site) -> None:
    producers = [WritingProducer(1), WritingProducer(2**40, 7), WritingProducer(3, sequence=2**31 - 30)]
    for n in range(42):
        site.write(rows(f"idempotent-{n}", 7), "lz4" if n % 2 else "none", producers[n % 3])
    end = site.log.log_end_offset
    last = producers[0].sequence - 7  # a late retry of its last batch, which is not written twice
    retry = encode_rows(rows("retry", 7), producer_id=1, producer_epoch=0, base_sequence=last, transactional=False)
    assert site.log.append_as_leader(retry, 0).duplicate
    assert site.log.log_end_offset == end
    producers[1].epoch, producers[1].sequence = 8, 0
    site.write(rows("new-epoch", 7), "none", producers[1])


@writes(segment_bytes=2048, index_interval_bytes=200)
def transactions(site: Site) -> None:
    plain = WritingProducer(10)
    one, two, opener = (WritingProducer(number, transactional=True) for number in (11, 12, 13))
    for n in range(4):
        site.write(rows(f"plain-{n}", 1), producer=plain)
        for producer in (one, two):
            for how in (COMMIT, ABORT):
                site.write(rows(f"{how.name}-{n}", 3), "gzip" if n % 2 else "none", producer)
                site.end(producer, how, coordinator_epoch=n)
        # Two at once: the later one ends first, with a new epoch as in KIP-890.
        site.write(rows(f"outer-{n}", 2), producer=one)
        site.write(rows(f"inner-{n}", 2), producer=two)
        two.epoch, two.sequence = two.epoch + 1, 0
        site.end(two, ABORT, coordinator_epoch=n)
        site.write(rows(f"outer-too-{n}", 2), producer=one)
        site.end(one, ABORT if n == 2 else COMMIT, coordinator_epoch=n)
    site.write(rows("open", 2), producer=opener)
    for producer, how in ((one, COMMIT), (two, ABORT)):
        site.write(rows("after-open", 2), producer=producer)
        site.end(producer, how, coordinator_epoch=4)
    site.write(rows("last", 2), producer=plain)


@writes(message_timestamp_type="LogAppendTime", segment_bytes=4096, index_interval_bytes=300)
def append_time(site: Site) -> None:
    producer = WritingProducer(20, transactional=True)
    for n in range(20):
        site.clock.advance(250)
        site.write(rows(f"append-{n}", 10), CODECS[n % 5], producer)
        site.end(producer, COMMIT)


@writes(segment_bytes=4096, index_interval_bytes=300, file_delete_delay_ms=0)
def trimmed(site: Site) -> None:
    """Deletes records up to the middle of a batch: segments below are deleted, the batch stays complete."""
    for n in range(60):
        site.write(rows(f"trim-{n}", 5), producer=WritingProducer(30, sequence=5 * n))
    site.log.update_high_watermark(site.log.log_end_offset)
    site.log.delete_records(152)
    assert site.manager.apply_retention() > 1
    assert 0 < site.log.segments.first.base_offset < 152


@writes(segment_bytes=4096, index_interval_bytes=300, file_delete_delay_ms=0)
def truncated(site: Site) -> None:
    """Truncated between batches and inside one, across the end of a transaction, then continued by another leader."""
    producer = WritingProducer(40, transactional=True)
    for n in range(30):
        site.write(rows(f"truncate-{n}", 4, 60), producer=producer)
        site.end(producer, ABORT if n % 2 else COMMIT)
    for offset in (130, 72):
        assert site.log.truncate_to(offset)
        site.forget_from(offset)
        site.leader_epoch += 1
    # The batch of offsets 70 to 73 was removed as a whole, but the log ends at 72.
    assert (site.batches[-1].last_offset, site.log.log_end_offset) == (69, 72)
    for n in range(50):
        site.write(rows(f"on-{n}", 4, 60), "snappy")


@writes(segment_bytes=4096, index_interval_bytes=300)
def recovered(site: Site) -> None:
    """A crash with half a batch at the end of the file; then continued."""
    one, two = (WritingProducer(number, transactional=True) for number in (50, 51))
    for n in range(30):
        site.write(rows(f"crash-{n}", 4, 60), "zstd" if n % 3 else "none", one)
        site.write(rows(f"crash-too-{n}", 2), producer=two)
        site.end(one, ABORT if n % 2 else COMMIT)
        if n % 5 == 4:
            site.end(two, ABORT)
        if n == 20:
            site.log.flush()
            site.manager.checkpoint_recovery_points()
    site.manager.abandon()
    torn = encode_rows(rows("torn", 9), base_offset=site.log.log_end_offset)
    with files_in(site.directory, ".log")[-1].open("ab") as file:
        file.write(torn[:-5])
    site.restart()
    report = site.manager.load_reports[site.tp]
    assert report.scanned_batches
    assert report.truncated_bytes == len(torn) - 5
    site.leader_epoch = 1
    for _ in range(9):
        site.write(rows("after", 4, 60), producer=one)
        site.end(one, ABORT)


@writes(segment_bytes=4096, index_interval_bytes=300)
def restarted(site: Site) -> None:
    """Stopped in the middle of a transaction and of a segment."""
    producer = WritingProducer(60, transactional=True)
    for n in range(25):
        site.write(rows(f"before-{n}", 4, 60), producer=producer)
    site.manager.close()
    site.restart()
    assert site.manager.load_reports[site.tp].scanned_batches == 0
    for n in range(25):
        site.write(rows(f"after-{n}", 4, 60), producer=producer)
    site.end(producer, ABORT)


@writes(segment_bytes=8192, preallocate="true")
def preallocated(site: Site) -> None:
    for n in range(50):
        site.write(rows(f"room-{n}", 5))


@writes(segment_bytes=4096, index_interval_bytes=0)
def far(site: Site) -> None:
    """A follower's log: large offsets with gaps, one of which exceeds the range of an index."""
    offset = 2**40
    site.log.truncate_fully_and_start_at(offset)
    for n in range(20):
        content = rows(f"far-{n}", 3)
        site.log.append_as_follower(encode_rows(content, base_offset=offset, leader_epoch=5))
        records = tuple(
            SampleRecord(offset + at, timestamp, key, value, headers)
            for at, (key, value, timestamp, headers) in enumerate(content)
        )
        newest = max(each.timestamp for each in records)
        site.batches.append(BatchSeen(offset, offset + 2, "none", "CreateTime", newest, 5, records=records))
        offset += 2**31 + 5 if n == 9 else 3 + n % 2


@writes()
def empty(site: Site) -> None:
    """Nothing was ever written to it."""


COMPACTED: dict[str, object] = {
    "cleanup_policy": "compact",
    "segment_bytes": 4096,
    "index_interval_bytes": 300,
    "min_cleanable_dirty_ratio": 0.01,
    "file_delete_delay_ms": 0,
}


@writes(**COMPACTED, delete_retention_ms=24 * HOUR_MS)
def compacted(site: Site) -> None:
    """Compacted twice; tombstones and markers must be retained."""
    write_keys(site, range(12), START_MS)
    site.clean()
    write_keys(site, range(12, 20), START_MS)
    site.clean()
    write_keys(site, range(20, 22), START_MS)


@writes(**COMPACTED, delete_retention_ms=HOUR_MS)
def compacted_long_ago(site: Site) -> None:
    """Compacted again after the retention of tombstones and markers."""
    write_keys(site, range(12), START_MS)
    site.clean()
    site.clock.advance(2 * HOUR_MS)
    write_keys(site, range(12, 13), START_MS)
    site.clean()
    site.clock.advance(2 * HOUR_MS)
    site.write([(b"last", b"value", START_MS, ())])
    site.clean()


IN_ORDER = [name for name in WRITERS if not name.startswith("compacted")]
CLEANED = [name for name in WRITERS if name.startswith("compacted")]


# ---- output of the tool


@dataclass
class Dumped:
    sites: dict[str, Site]
    dump: DumpResult
    sanity: DumpResult

    def batches(self, name: str) -> list[DumpBatch]:
        return [batch for file in self.files(name, ".log") for batch in self.dump.batches_of(file)]

    def files(self, name: str, suffix: str) -> list[Path]:
        return files_in(self.sites[name].directory, suffix)

    def entries(self, file: Path, *names: str) -> list[tuple[object, ...]]:
        """Returns the named fields of each entry that the tool printed for an index or a snapshot."""
        return [tuple(entry.get(name) for name in names) for entry in self.dump.entries[str(file)]]


@pytest.fixture(scope="module")
def dumped(apache_kafka: None, tmp_path_factory: pytest.TempPathFactory) -> Dumped:
    root = tmp_path_factory.mktemp("dumped")
    sites: dict[str, Site] = {}
    for name, (write, config) in WRITERS.items():
        site = sites[name] = Site(root / name, name, config)
        write(site)
        site.manager.close()
    files = files_in(root)
    indexes = files_in(root, ".index", ".timeindex")
    return Dumped(sites, dump_log(*files, print_data=True), dump_log(*indexes, index_sanity=True))


def test_fuzzer_finds_nothing(dumped: Dumped) -> None:
    assert [problem for problem in dumped.dump.problems if not is_of_an_emptied_batch(problem)] == []
    assert dumped.dump.padding == {}


def test_kafka_accepts_indexes_at_start(dumped: Dumped) -> None:
    assert dumped.sanity.problems == []
    indexes = {
        str(file) for name in WRITERS for suffix in (".index", ".timeindex") for file in dumped.files(name, suffix)
    }
    assert {*dumped.sanity.passed_sanity, *dumped.sanity.empty} == indexes


@pytest.mark.parametrize("name", IN_ORDER)
def test_batches_equal_written_ones(dumped: Dumped, name: str) -> None:
    if name == "empty":
        assert dumped.files(name, ".log") == [], "the first append creates the file"
        return
    start = int(dumped.files(name, ".log")[0].stem)
    written = [batch for batch in dumped.sites[name].batches if batch.base_offset >= start]
    assert [batch_printed(batch) for batch in dumped.batches(name)] == [batch.printed for batch in written]


def test_offsets_have_only_expected_gaps(dumped: Dumped) -> None:
    with_gaps = {Path(file).parent.name for file, _, _ in dumped.dump.gaps}
    assert with_gaps <= {"far-0", "truncated-0", *(f"{name}-0" for name in CLEANED)}


@pytest.mark.parametrize("name", ["segments", "idempotent", "transactions", "trimmed", "truncated", "recovered"])
def test_there_are_many_segments(dumped: Dumped, name: str) -> None:
    assert len(dumped.files(name, ".log")) > 3


@pytest.mark.parametrize("name", [name for name in IN_ORDER if name not in ("truncated", "recovered", "restarted")])
def test_indexes_match_kafkas(dumped: Dumped, name: str) -> None:
    """Kafka's rule for a segment: an entry for the first batch after more than
    `index.interval.bytes` since the last entry, and the largest timestamp again at the end."""
    interval = dumped.sites[name].log.config.index_interval_bytes
    for log, index, time_index in zip(
        *(dumped.files(name, each) for each in (".log", ".index", ".timeindex")), strict=True
    ):
        offsets: list[tuple[object, ...]] = []
        times: list[tuple[int, int]] = []
        since_entry, newest = 0, (-1, -1)
        for batch in dumped.dump.batches_of(log):
            newest = max(newest, (int(batch.fields["maxTimestamp"] or 0), batch.last), key=lambda pair: pair[0])
            if since_entry > interval:
                offsets.append((batch.last, batch.fields["position"]))
                times.append(newest)
                since_entry = 0
            since_entry += int(batch.fields["size"] or 0)
        times = list(dict.fromkeys([*times, newest] if newest[0] >= 0 else times))
        assert dumped.entries(index, "offset", "position") == offsets
        assert dumped.entries(time_index, "timestamp", "offset") == times


@pytest.mark.parametrize("name", WRITERS)
def test_snapshots_have_producer_state(dumped: Dumped, name: str) -> None:
    fields = ("producerId", "producerEpoch", "coordinatorEpoch", "currentTxnFirstOffset", "lastTimestamp")
    of_batch = ("firstSequence", "lastSequence", "lastOffset", "offsetDelta")
    snapshots = dumped.files(name, ".snapshot")
    if name == "empty":
        assert snapshots == []
        return
    assert int(snapshots[-1].stem) == dumped.sites[name].log.log_end_offset
    for snapshot in snapshots:
        expected = producers_at(dumped.sites[name], int(snapshot.stem))
        assert dict(
            zip(dumped.entries(snapshot, "producerId"), dumped.entries(snapshot, *fields, *of_batch), strict=True)
        ) == {(producer,): state for producer, state in expected.items()}


def producers_at(site: Site, end: int) -> dict[int, tuple[object, ...]]:
    """Returns the producer state from the batches below an offset."""
    states: dict[int, tuple[object, ...]] = {}
    for batch in site.batches:
        if batch.producer_id < 0 or batch.last_offset >= end:
            continue
        _, epoch, coordinator_epoch, first_offset, _, *last = states.get(batch.producer_id, (None, -1, -1, None, -1))
        if epoch != batch.producer_epoch:
            last = [None] * 4
        if batch.control is not None:
            coordinator_epoch, first_offset = int(batch.control.split()[-1]), None
        else:
            delta = batch.last_offset - batch.base_offset
            last = [batch.base_sequence, (batch.base_sequence + delta) % 2**31, batch.last_offset, delta]
            if batch.transactional and first_offset is None:
                first_offset = batch.base_offset
        head = (batch.producer_id, batch.producer_epoch, coordinator_epoch, first_offset, batch.max_timestamp)
        states[batch.producer_id] = (*head, *last)
    return states


@pytest.mark.parametrize("name", IN_ORDER)
def test_transaction_indexes_list_aborted_transactions(dumped: Dumped, name: str) -> None:
    fields = ("producerId", "firstOffset", "lastOffset", "lastStableOffset")
    indexed = [entry for file in dumped.files(name, ".txnindex") for entry in dumped.entries(file, *fields)]
    began: dict[int, int] = {}
    aborted: list[tuple[object, ...]] = []
    for batch in dumped.sites[name].batches:
        if batch.transactional and batch.control is None:
            began.setdefault(batch.producer_id, batch.base_offset)
        elif batch.control is not None:
            first = began.pop(batch.producer_id)
            if "ABORT" in batch.control:
                stable = min(began.values(), default=batch.last_offset + 1)
                aborted.append((batch.producer_id, first, batch.last_offset, stable))
    assert indexed == aborted


@pytest.mark.parametrize("name", CLEANED)
def test_compaction_retains_last_record_of_each_key(dumped: Dumped, name: str) -> None:
    site = dumped.sites[name]
    cleaned_up_to = site.log.cleaned_up_to or 0
    written = {record.offset: record for record in site.records}
    latest = {record.key: record.offset for record in site.records if record.state != "aborted"}
    latest_clean = {
        record.key: record.offset
        for record in site.records
        if record.state != "aborted" and record.offset < cleaned_up_to
    }
    found = [record for batch in dumped.batches(name) for record in batch.records if not record.control]
    for record in found:
        original = written[record.offset]
        assert (record.key, record.payload) == tuple(text and text.decode() for text in (original.key, original.value))
        assert record.timestamp == original.timestamp
        assert record.offset >= cleaned_up_to or latest_clean[original.key] == record.offset
    offsets = {record.offset for record in found}
    gone = {key for key, offset in latest.items() if offset not in offsets}
    assert all(written[latest[key]].value is None for key in gone)
    assert bool(gone) == (name == "compacted_long_ago")


@pytest.mark.parametrize("name", CLEANED)
def test_compaction_keeps_producer_and_transaction_state(dumped: Dumped, name: str) -> None:
    site = dumped.sites[name]
    batches = [batch for batch in dumped.batches(name) if batch.last < (site.log.cleaned_up_to or 0)]
    [only] = [batch for batch in batches if batch.fields["producerId"] == 71]
    assert (only.first, only.last, only.records) == (0, 9, [])
    assert (only.fields["baseSequence"], only.fields["lastSequence"]) == (0, 9)
    markers = {batch.fields["producerId"] for batch in batches if batch.fields["isControl"] and batch.records}
    now_ms = site.clock.time_ms()
    for batch in batches:
        horizon = batch.fields["deleteHorizonMs"]
        has_tombstones = any(record.value_size < 0 for record in batch.records)
        assert horizon is not None or not has_tombstones
        if horizon is not None and (has_tombstones or (batch.fields["isControl"] and batch.records)):
            assert int(horizon) > now_ms
    if name == "compacted":
        # Only the header remains of 74's transaction; its marker is retained until the delete horizon.
        assert {72, 73, 74} <= markers
