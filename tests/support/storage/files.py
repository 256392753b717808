"""Log files in tests: opened, written with a record of the written batches, read, compared.

A :class:`Journal` writes to a log through its public methods and derives from the inputs alone the records that readers
must see.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tests.support.apache_kafka.clients import Headers, SampleRecord, State
from tests.support.apache_kafka.dump_log import DumpBatch, DumpProblem
from tests.support.apache_kafka.samples import CODECS

from headrace.common.clock import Clock
from headrace.records import Compression, ControlType, decode_rows, encode_marker, encode_rows, read_marker
from headrace.storage.checkpoints import MetaProperties
from headrace.storage.config import LogConfig, ManagerConfig
from headrace.storage.files import FileSystem
from headrace.storage.log import AppendResult, FetchIsolation, Log
from headrace.storage.manager import LogManager
from headrace.storage.producer_state import AppendOrigin

Row = tuple[bytes | None, bytes | None, int, Headers]

LOG_FILES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


def open_manager(
    directory: Path, configs: Mapping[str, Mapping[str, object]] | None = None, clock: Clock | None = None
) -> LogManager:
    """Returns a manager that is not started, for the cluster and node that own the directory (or new ones).

    *configs* are the topic configs by Kafka's names.
    """
    meta = MetaProperties.read(directory, FileSystem()) or MetaProperties("headrace-files", 1)
    return LogManager(
        ManagerConfig.from_properties({"log.dirs": str(directory)}),
        config_of=lambda topic: log_config((configs or {}).get(topic, {})),
        cluster_id=meta.cluster_id,
        node_id=meta.node_id,
        clock=clock,
    )


def log_config(properties: Mapping[str, object]) -> LogConfig:
    """Returns topic configs by Kafka's names; maps the internal config for small segments to the public one."""
    return LogConfig.from_properties({key.removeprefix("internal."): value for key, value in properties.items()})


def files_in(directory: Path, *suffixes: str) -> list[Path]:
    """Returns the log files at or below a directory, in order."""
    wanted = suffixes or LOG_FILES
    return sorted(path for path in directory.rglob("*") if path.suffix in wanted and path.stem.isdigit())


@dataclass
class WritingProducer:
    """An idempotent producer."""

    producer_id: int
    epoch: int = 0
    sequence: int = 0
    transactional: bool = False


@dataclass(frozen=True)
class BatchSeen:
    """A batch as written, or as printed by Kafka; *control* is the text of a marker."""

    base_offset: int
    last_offset: int
    codec: str
    timestamp_type: str
    max_timestamp: int
    leader_epoch: int
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    transactional: bool = False
    control: str | None = None
    delete_horizon_ms: int | None = None
    records: tuple[SampleRecord, ...] = ()

    @property
    def printed(self) -> tuple[object, ...]:
        """Returns everything that Kafka's tool prints of a batch: only the names of headers, and no state."""
        records = [
            (each.offset, each.timestamp, each.key, each.value, [k for k, _ in each.headers]) for each in self.records
        ]
        return (
            (self.base_offset, self.last_offset, self.codec, self.timestamp_type, self.max_timestamp),
            (self.leader_epoch, self.producer_id, self.producer_epoch, self.base_sequence),
            (self.transactional, self.control, self.delete_horizon_ms),
            records,
        )


class Journal:
    """Writes to a log as its leader and keeps the written records."""

    def __init__(self, log: Log, leader_epoch: int = 0, batches: Iterable[BatchSeen] = ()) -> None:
        self.log = log
        self.leader_epoch = leader_epoch
        self.batches = list(batches)

    @property
    def records(self) -> list[SampleRecord]:
        return [record for batch in self.batches for record in batch.records]

    def committed(self) -> list[SampleRecord]:
        """The records that a ``read_committed`` consumer gets."""
        first_open = next((each.offset for each in self.records if each.state == "open"), self.log.log_end_offset)
        return [each for each in self.records if each.state in ("plain", "committed") and each.offset < first_open]

    def write(
        self,
        rows: Iterable[Row],
        codec: str = "none",
        producer: WritingProducer | None = None,
        stored_codec: str | None = None,
    ) -> BatchSeen:
        """Appends one batch; *stored_codec* is the codec in the log, if the topic changes it."""
        listed = list(rows)
        fields = {"codec": Compression.from_name(codec)}
        batch = BatchSeen(self.log.log_end_offset, 0, stored_codec or codec, "CreateTime", 0, self.leader_epoch)
        if producer is not None:
            batch = replace(
                batch,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                base_sequence=producer.sequence,
                transactional=producer.transactional,
            )
            fields |= {
                "producer_id": producer.producer_id,
                "producer_epoch": producer.epoch,
                "base_sequence": producer.sequence,
                "transactional": producer.transactional,
            }
            producer.sequence = (producer.sequence + len(listed)) % 2**31
        state: State = "open" if batch.transactional else "plain"
        batch = self._note(batch, listed, state)
        self._check(batch, self.log.append_as_leader(encode_rows(listed, **fields), self.leader_epoch))
        return batch

    def _note(self, batch: BatchSeen, rows: list[Row], state: State) -> BatchSeen:
        append_time = self.log.context.clock.time_ms() if self.log.config.log_append_time else None
        records = tuple(
            SampleRecord(batch.base_offset + at, append_time or timestamp, key, value, headers, state)
            for at, (key, value, timestamp, headers) in enumerate(rows)
        )
        batch = replace(
            batch,
            last_offset=batch.base_offset + len(rows) - 1,
            timestamp_type="CreateTime" if append_time is None else "LogAppendTime",
            max_timestamp=max(each.timestamp for each in records),
            records=records,
        )
        self.batches.append(batch)
        return batch

    def end(self, producer: WritingProducer, how: ControlType, coordinator_epoch: int = 0) -> None:
        """Commits or aborts the producer's open transaction."""
        now_ms = self.log.context.clock.time_ms()
        offset = self.log.log_end_offset
        marker = encode_marker(
            how,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp=now_ms,
        )
        state: State = "committed" if how is ControlType.COMMIT else "aborted"
        self.batches = [self._ended(batch, producer, state) for batch in self.batches]
        batch = BatchSeen(
            offset,
            offset,
            "none",
            "LogAppendTime" if self.log.config.log_append_time else "CreateTime",
            now_ms,
            self.leader_epoch,
            producer.producer_id,
            producer.epoch,
            transactional=True,
            control=f"endTxnMarker: {how.name} coordinatorEpoch: {coordinator_epoch}",
        )
        self.batches.append(batch)
        self._check(batch, self.log.append_as_leader(marker, self.leader_epoch, AppendOrigin.COORDINATOR))

    @staticmethod
    def _ended(batch: BatchSeen, producer: WritingProducer, state: State) -> BatchSeen:
        if batch.producer_id != producer.producer_id or not any(each.state == "open" for each in batch.records):
            return batch
        return replace(batch, records=tuple(replace(each, state=state) for each in batch.records))

    @staticmethod
    def _check(batch: BatchSeen, result: AppendResult) -> None:
        assert (result.base_offset, result.last_offset, result.duplicate) == (
            batch.base_offset,
            batch.last_offset,
            False,
        )
        assert result.max_timestamp == batch.max_timestamp

    def forget_from(self, offset: int) -> None:
        """Records a truncation before a batch, or inside a batch, which is then removed as well."""
        self.batches = [batch for batch in self.batches if batch.last_offset < offset]


def batch_printed(batch: DumpBatch) -> tuple[object, ...]:
    """Parses the tool's output for a batch, in the form of `BatchSeen.printed`."""
    fields = batch.fields
    assert fields["count"] == len(batch.records)
    controls = [record.control for record in batch.records if record.control]
    assert bool(fields["isControl"]) == bool(controls) or not batch.records
    records = [
        (
            record.offset,
            record.timestamp,
            None if record.key_size < 0 else (record.key or "").encode(),
            None if record.value_size < 0 else (record.payload or "").encode(),
            list(record.header_keys),
        )
        for record in batch.records
        if not record.control
    ]
    return (
        (batch.first, batch.last, fields["compresscodec"], fields["timestampType"], fields["maxTimestamp"]),
        (fields["partitionLeaderEpoch"], fields["producerId"], fields["producerEpoch"], fields["baseSequence"]),
        (fields["isTransactional"], controls[0] if controls else None, fields["deleteHorizonMs"]),
        records,
    )


def is_of_an_emptied_batch(problem: DumpProblem) -> bool:
    """Returns True if a reported problem is not one: after compaction a batch without records has its timestamp in the
    header and in the time index, but the tool looks for it in the records. It reports this for Kafka's own files,
    too."""
    return problem.kind == "timestamp mismatch" and problem.detail.endswith(", log timestamp: -1")


def consume(log: Log, *, read_committed: bool = False, max_bytes: int = 1024 * 1024) -> list[SampleRecord]:
    """Returns every record from the log start, read in slices and filtered like Kafka's consumer does."""
    isolation = FetchIsolation.TXN_COMMITTED if read_committed else FetchIsolation.LOG_END
    found: list[SampleRecord] = []
    offset = log.log_start_offset
    while True:
        read = log.read(offset, max_bytes, isolation)
        if read.slice is None:
            return found
        to_come = sorted(read.aborted or [], key=lambda transaction: transaction.first_offset)
        aborted: set[int] = set()
        for batch in read.slice.batches():
            while to_come and to_come[0].first_offset <= batch.last_offset:
                aborted.add(to_come.pop(0).producer_id)
            if batch.is_control:
                marker = read_marker(batch.records())
                if marker is not None and marker.control_type is ControlType.ABORT:
                    aborted.discard(batch.producer_id)
            elif not (batch.is_transactional and batch.producer_id in aborted):
                batch.check_crc()
                found += [
                    SampleRecord(row.offset, row.timestamp, row.key, row.value, row.headers)
                    for row in decode_rows(batch.records(), offset)
                ]
            offset = batch.next_offset


def write_keys(journal: Journal, rounds: range, start_ms: int) -> None:
    """Writes data to compact: the same keys in every round, with tombstones, by producers of all kinds. Later rounds
    overwrite all records of producers 71 and 74, which write only in the first round.
    """
    plain = WritingProducer(70, rounds.start)
    committing, aborting = (WritingProducer(number, rounds.start, transactional=True) for number in (72, 73))
    if rounds.start == 0:
        journal.write(_keyed(0, range(10), start_ms), "gzip", WritingProducer(71))
        once = WritingProducer(74, transactional=True)
        journal.write(_keyed(0, range(5), start_ms), producer=once)
        journal.end(once, ControlType.COMMIT)
    for number in rounds:
        journal.write(_keyed(number, range(number % 10, 30, 2), start_ms), "lz4", plain)
        journal.write(_keyed(number, range(number % 7, 30, 3), start_ms), CODECS[number % 5])
        journal.write(_keyed(number, range(20, 25 + number % 5), start_ms), "none", committing)
        journal.write(_keyed(number, range(0, 30, 5), start_ms), "zstd", aborting)
        journal.end(committing, ControlType.COMMIT)
        journal.end(aborting, ControlType.ABORT)


def _keyed(number: int, keys: range, start_ms: int) -> list[Row]:
    return [
        (
            f"key-{key:02}".encode(),
            None if key % 10 == 3 and number % 4 == 3 else f"round {number} of {key} ".ljust(80, "-").encode(),
            start_ms + number * 1000 + key,
            (("round", str(number).encode()),),
        )
        for key in keys
    ]
