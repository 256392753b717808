"""Kafka's broker starts on a directory that Headrace wrote to, and serves Kafka's and Headrace's records.

The directory is a copy of Kafka's. Headrace continues Kafka's topics, fills topics that Kafka created,
and compacts some. Then Kafka's broker runs on it: it serves everything, compacts what Headrace left to it,
writes more, and is killed. Finally, Headrace recovers the directory.
"""

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from tests.support.apache_kafka.broker import (
    CODECS,
    DumpResult,
    KafkaBroker,
    LibrdkafkaProducer,
    SampleRecord,
    dump_log,
    read_back,
    read_back_all,
    run_java,
)
from tests.support.apache_kafka.files import (
    BROKER_PROPERTIES,
    HEADRACE_TOPICS,
    FoundOffset,
    KafkaFiles,
    Partition,
    ask_kafka,
    topic_configs,
    wait_for,
)
from tests.support.storage.files import (
    Journal,
    Row,
    WritingProducer,
    batch_printed,
    consume,
    files_in,
    is_of_an_emptied_batch,
    log_config,
    open_manager,
    write_keys,
)

from headrace.common.clock import SystemClock
from headrace.common.types import TopicPartition
from headrace.records import ControlType
from headrace.testing.clock import ManualClock

COMMIT, ABORT = ControlType.COMMIT, ControlType.ABORT
CLEANINGS = ["first", "second", "second-deletes"]
WRITTEN_ON = ["segments", "appendtime", "headrace-plain"]


@dataclass
class RoundTrip:
    directory: Path
    journals: dict[Partition, Journal]
    served: dict[bool, dict[Partition, list[SampleRecord]]] = field(default_factory=dict)
    """The records that a consumer got from the broker; under True, those of a read_committed consumer."""
    by_timestamp: dict[Partition, dict[int, FoundOffset]] = field(default_factory=dict)
    producers: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Kafka's description of the producers of the topic ``headrace-txn``."""
    written_on: dict[Partition, list[SampleRecord]] = field(default_factory=dict)
    ended: list[SampleRecord] = field(default_factory=list)
    """The committed records of the topic ``txn`` after Kafka completed its open transaction."""
    broker_log: str = ""


class Scribe:
    """Writes to Kafka's directory as Headrace."""

    def __init__(self, directory: Path) -> None:
        self.clock = ManualClock(SystemClock().time_ms())
        # Compaction runs only on request; see `clean`.
        configs = {
            topic: {key: value for key, value in config.items() if key != "cleanup.policy"}
            for topic, config in topic_configs().items()
        }
        self.manager = open_manager(directory, configs, self.clock)
        self.journals: dict[Partition, Journal] = {}

    def journal(self, topic: str, partition: int = 0) -> Journal:
        log = self.manager.get(TopicPartition(topic, partition))
        assert log is not None
        epoch = max(0, log.epochs.latest_epoch)
        return self.journals.setdefault((topic, partition), Journal(log, epoch))

    def rows(self, label: str, count: int = 5) -> list[Row]:
        now_ms = self.clock.time_ms()
        return [
            (f"{label}-{n}".encode(), f"{label} {n} ".ljust(60, ".").encode(), now_ms + n, ()) for n in range(count)
        ]

    def varied(self) -> Iterator[Row]:
        keys = [None, b"", b"key", bytes(range(256))]
        values = [None, b"", b"value", bytes(range(256)), b"repeat me " * 200]
        headers = [
            (),
            (("one", b"1"),),
            (("имя", b"\xff"), ("twice", b"a"), ("twice", b""), ("null", None), ("", b"x")),
        ]
        for n in range(60):
            yield keys[n % 4], values[n % 5], self.clock.time_ms() - 5000 + (n * 37) % 101, headers[n % 3]

    def write_on(self) -> None:
        """Continues Kafka's topics, with producer ids far from Kafka's."""
        for partition, codec in enumerate(CODECS):
            self.journal("codecs", partition).write(self.varied(), codec)
            self.journal("codecs", partition).write(self.rows("codecs", 300), codec, WritingProducer(9001))
        for number in range(30):
            self.journal("segments").write(
                self.rows(f"segments-{number}"), producer=WritingProducer(9001, sequence=5 * number)
            )
            self.journal("trimmed").write(self.rows(f"trimmed-{number}"))
        for codec in CODECS:
            self.clock.advance(10)
            self.journal("appendtime").write(self.rows(codec), codec)
        # After Kafka's open transaction, which stays open.
        self.transactions(self.journal("txn"), 2)
        for topic in ("compacted", "compacted-deletes"):
            self.journal(topic).write(self.rows(topic))

    def fill(self) -> None:
        """Fills topics in which Kafka has written nothing."""
        for codec in CODECS:
            self.journal("headrace-plain").write(self.varied(), codec)
            self.journal("headrace-plain").write(
                self.rows(codec, 200), codec, WritingProducer(9001 + CODECS.index(codec))
            )
            self.clock.advance(10)
            self.journal("headrace-appendtime").write(self.rows(codec), codec)
        journal = self.journal("headrace-txn")
        self.transactions(journal, 5)
        journal.write(self.rows("open"), producer=WritingProducer(9100, transactional=True))
        self.transactions(journal, 1, first_id=9200)

    def transactions(self, journal: Journal, rounds: int, first_id: int = 9010) -> None:
        plain = WritingProducer(first_id)
        one, two = (WritingProducer(first_id + number, transactional=True) for number in (1, 2))
        for number in range(rounds):
            journal.write(self.rows(f"plain-{number}", 1), producer=plain)
            for how in (COMMIT, ABORT):
                journal.write(self.rows(f"{how.name}-{number}"), CODECS[number % 5], one)
                journal.end(one, how)
            journal.write(self.rows(f"outer-{number}"), producer=one)
            journal.write(self.rows(f"inner-{number}"), producer=two)
            journal.end(two, ABORT, coordinator_epoch=number)
            journal.write(self.rows(f"outer-too-{number}"), producer=one)
            journal.end(one, COMMIT)
            self.clock.advance(1)

    def fill_compacted(self) -> None:
        """Writes the same to two topics: Headrace does the last cleaning of one, Kafka that of the other."""
        start_ms = self.clock.time_ms()
        for who in ("headrace", "kafka"):
            for cleaning in CLEANINGS:
                journal = self.journal(f"{cleaning}-by-{who}")
                write_keys(journal, range(12), start_ms)
                if cleaning != "first":
                    self.clean(journal)
                    write_keys(journal, range(12, 17), start_ms)
                if who == "headrace":
                    self.clean(journal)
                else:
                    journal.log.roll()

    def clean(self, journal: Journal) -> None:
        """Compacts one log up to its end."""
        log = journal.log
        log.roll()
        log.update_high_watermark(log.log_end_offset)
        keeping = log.config
        self.manager.update_configs({log.tp.topic: log_config(HEADRACE_TOPICS[log.tp.topic])})
        assert self.manager.clean_next() == log.tp
        self.manager.update_configs({log.tp.topic: keeping})


@pytest.fixture(scope="module")
def round_trip(kafka_files: KafkaFiles, tmp_path_factory: pytest.TempPathFactory) -> RoundTrip:
    directory = tmp_path_factory.mktemp("round-trip") / "data"
    shutil.copytree(kafka_files.clean, directory)
    scribe = Scribe(directory)
    with scribe.manager:
        scribe.write_on()
        scribe.fill()
        scribe.fill_compacted()
    trip = RoundTrip(directory, scribe.journals)
    broker = KafkaBroker(directory, BROKER_PROPERTIES)
    broker.start()
    try:
        ask_for_everything(broker, trip)
        await_cleaning(trip)
        end_open_transaction(broker, trip)
        write_on_as_kafka(broker, trip)
        trip.broker_log = broker.log_file.read_text()
    finally:
        broker.kill()
    return trip


def ask_for_everything(broker: KafkaBroker, trip: RoundTrip) -> None:
    partitions = [partition for partition in trip.journals if "-by-" not in partition[0]]  # being cleaned
    for read_committed in (False, True):
        trip.served[read_committed] = read_back_all(broker.bootstrap, partitions, read_committed=read_committed)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for partition in partitions:
        timestamps = sorted({record.timestamp for record in trip.journals[partition].records})
        asked = {timestamps[0] - 1, *timestamps[:: max(1, len(timestamps) // 8)], timestamps[-1], timestamps[-1] + 1}
        trip.by_timestamp[partition] = {at: ask_kafka(admin, partition, at) for at in sorted(asked)}
    told = run_java(
        "org.apache.kafka.tools.TransactionsCommand",
        ["--bootstrap-server", broker.bootstrap, "describe-producers", "--topic", "headrace-txn", "--partition", "0"],
    )
    for line in told.stdout.splitlines()[1:]:
        producer_id, *rest = (-1 if text == "None" else int(text) for text in line.split())
        trip.producers[producer_id] = tuple(rest)


def await_cleaning(trip: RoundTrip) -> None:
    checkpoint = trip.directory / "cleaner-offset-checkpoint"
    for cleaning in CLEANINGS:
        topic = f"{cleaning}-by-kafka"
        line = f"{topic} 0 {trip.journals[topic, 0].log.log_end_offset}"
        wait_for(lambda line=line: line in checkpoint.read_text().splitlines(), f"the cleaning of {topic}")


def end_open_transaction(broker: KafkaBroker, trip: RoundTrip) -> None:
    """Starts a producer with the same transactional id: Kafka aborts the open transaction of the previous one."""
    LibrdkafkaProducer(broker.bootstrap, {"transactional.id": "txn-open"}).init()
    trip.ended = read_back(broker.bootstrap, "txn", read_committed=True)


def write_on_as_kafka(broker: KafkaBroker, trip: RoundTrip) -> None:
    producer = LibrdkafkaProducer(broker.bootstrap, {"enable.idempotence": True})
    now_ms = SystemClock().time_ms()
    for topic in WRITTEN_ON:
        records = [SampleRecord(-1, now_ms + n, b"key %d" % n, b"Kafka again", (("h", b"v"),)) for n in range(40)]
        for record in records:
            producer.send(topic, 0, record)
        trip.written_on[topic, 0] = [
            SampleRecord(offset, timestamp, record.key, record.value, record.headers)
            for record, (offset, timestamp) in zip(records, producer.sync(), strict=True)
        ]


def test_kafka_starts_without_repair(round_trip: RoundTrip) -> None:
    """The broker logs no warnings about its logs."""
    complaint = r".*\] (?:WARN|ERROR|FATAL) .* \((?:kafka\.log|org\.apache\.kafka\.storage)\..*\)"
    assert re.findall(complaint, round_trip.broker_log) == []
    partitions = len(list(round_trip.directory.glob("*-*/partition.metadata"))) - 1  # without the controllers' log
    assert f"Skipping recovery of {partitions} logs" in round_trip.broker_log


@pytest.mark.parametrize("read_committed", [False, True])
def test_reads_and_appends_to_all_partitions(
    round_trip: RoundTrip, kafka_files: KafkaFiles, read_committed: bool
) -> None:
    sample = kafka_files.sample
    assert len(round_trip.served[read_committed]) == len(sample.records) + 3
    for partition, found in round_trip.served[read_committed].items():
        journal = round_trip.journals[partition]
        expected = sample.records.get(partition, []) + journal.records
        if read_committed:
            expected = sample.committed(*partition) if partition in sample.records else []
            if partition not in sample.last_stable:
                expected = expected + journal.committed()
        assert [record.content for record in found] == [record.content for record in expected], partition


def test_kafka_completes_open_transaction(round_trip: RoundTrip, kafka_files: KafkaFiles) -> None:
    records = kafka_files.sample.records["txn", 0] + round_trip.journals["txn", 0].records
    expected = [record for record in records if record.state in ("plain", "committed")]
    assert [record.content for record in round_trip.ended] == [record.content for record in expected]


def test_kafka_finds_offsets_by_timestamp(round_trip: RoundTrip) -> None:
    for partition, answers in round_trip.by_timestamp.items():
        records = round_trip.served[False][partition]
        for timestamp, answer in answers.items():
            later = [record for record in records if record.timestamp >= timestamp]
            expected = FoundOffset(later[0].timestamp, later[0].offset) if later else FoundOffset(-1, -1)
            assert answer == expected, (partition, timestamp)


def test_kafka_loads_producer_state(round_trip: RoundTrip) -> None:
    """Producer epoch, coordinator epoch, last sequence, timestamp, and start of the open transaction."""
    log = round_trip.journals["headrace-txn", 0].log
    assert round_trip.producers == {
        producer_id: (
            entry.epoch,
            entry.coordinator_epoch,
            entry.last_sequence,
            entry.last_timestamp,
            -1 if entry.transaction_first_offset is None else entry.transaction_first_offset,
        )
        for producer_id, entry in log.producers.entries.items()
    }


@pytest.fixture(scope="module")
def cleaned(round_trip: RoundTrip) -> DumpResult:
    return dump_log(
        *(
            path
            for cleaning in CLEANINGS
            for who in ("headrace", "kafka")
            for path in sealed(round_trip, cleaning, who)
        ),
        print_data=True,
    )


def sealed(round_trip: RoundTrip, cleaning: str, who: str) -> list[Path]:
    """Returns all files of a topic except those of its active segment, which is empty and was not closed."""
    topic = f"{cleaning}-by-{who}"
    end = round_trip.journals[topic, 0].log.log_end_offset
    return [path for path in files_in(round_trip.directory / f"{topic}-0") if int(path.stem) < end]


@pytest.mark.parametrize("cleaning", CLEANINGS)
def test_kafka_compacts_to_same_batches(round_trip: RoundTrip, cleaned: DumpResult, cleaning: str) -> None:
    ours, theirs = (
        {path.name: comparable(cleaned, path) for path in sealed(round_trip, cleaning, who) if path.suffix == ".log"}
        for who in ("headrace", "kafka")
    )
    assert ours == theirs
    assert sum(len(batches) for batches in ours.values()) > 20


def comparable(dump: DumpResult, file: Path) -> list[tuple[object, ...]]:
    """Returns the batches of a file as printed; a delete horizon only as present, since it is a time."""
    printed = (batch_printed(batch) for batch in dump.batches_of(file))
    return [
        (head, producer, (transactional, control, horizon is not None), records)
        for head, producer, (transactional, control, horizon), records in printed
    ]


@pytest.mark.parametrize("cleaning", CLEANINGS)
def test_kafka_compacts_to_same_files(round_trip: RoundTrip, cleaned: DumpResult, cleaning: str) -> None:
    ours, theirs = ({path.name: path for path in sealed(round_trip, cleaning, who)} for who in ("headrace", "kafka"))
    assert ours.keys() == theirs.keys()
    for name, path in ours.items():
        # Positions and sizes depend on the compression library.
        if path.suffix not in (".log", ".index"):
            assert path.read_bytes() == theirs[name].read_bytes(), name
    # The tool reports no problem, and the same message for empty batches of both.
    ours_said, theirs_said = (
        {(Path(each.file).name, each.detail) for each in cleaned.problems if Path(each.file) in files.values()}
        for files in (ours, theirs)
    )
    assert ours_said == theirs_said
    assert all(map(is_of_an_emptied_batch, cleaned.problems))


def test_headrace_recovers_after_kafka(round_trip: RoundTrip, tmp_path: Path) -> None:
    directory = tmp_path / "data"
    shutil.copytree(round_trip.directory, directory)
    with open_manager(directory, topic_configs()) as manager:
        for partition, served in round_trip.served[False].items():
            log = manager.get(TopicPartition(*partition))
            assert log is not None
            report = manager.load_reports[log.tp]
            written_on = round_trip.written_on.get(partition, [])
            assert [record.content for record in consume(log)] == [record.content for record in served + written_on]
            assert report.truncated_bytes == 0
            assert bool(report.scanned_batches) == (bool(written_on) or partition == ("txn", 0))
            if partition == ("txn", 0):
                log.update_high_watermark(log.log_end_offset)
                assert log.last_stable_offset == log.log_end_offset
                found = consume(log, read_committed=True)
                assert [record.content for record in found] == [record.content for record in round_trip.ended]
    dump = dump_log(*(path for path in files_in(directory) if path.parent.name != "__cluster_metadata-0"))
    assert [problem for problem in dump.problems if not is_of_an_emptied_batch(problem)] == []
