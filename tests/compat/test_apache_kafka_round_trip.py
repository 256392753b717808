"""A broker of Kafka starts on a directory that Headrace wrote to, and serves all of it: Kafka's records and Headrace's.

The directory is a copy of one that Kafka left. Headrace writes on in Kafka's topics, fills topics that Kafka created, and
compacts some. Then a broker runs on it: it is asked for everything there is, compacts what Headrace had left to it,
writes on, and is killed. At last Headrace recovers that.
"""

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from tests.support.apache_kafka import (
    CODECS,
    DumpResult,
    KafkaBroker,
    LibrdkafkaProducer,
    SampleRecord,
    dump_log,
    read_back,
    run_java,
)
from tests.support.headrace_files import (
    Journal,
    Row,
    WritingProducer,
    batch_printed,
    consume,
    files_in,
    log_config,
    open_manager,
    write_keys,
)
from tests.support.kafka_files import (
    BROKER_PROPERTIES,
    HEADRACE_TOPICS,
    FoundOffset,
    KafkaFiles,
    Partition,
    ask_kafka,
    topic_configs,
    wait_for,
)

from headrace.common.clock import SystemClock
from headrace.records import ControlType
from headrace.storage.checkpoints import TopicPartition
from headrace.testing.clock import ManualClock

COMMIT, ABORT = ControlType.COMMIT, ControlType.ABORT
CLEANINGS = ["first", "second", "second-deletes"]
WRITTEN_ON = ["segments", "appendtime", "headrace-plain"]
_TROUBLE = re.compile(r"\] (WARN|ERROR|FATAL) |[Rr]ecover|[Cc]orrupt|[Rr]ebuil|[Tt]runcat|[Uu]nclean|[Ss]tray")


@dataclass
class RoundTrip:
    directory: Path
    journals: dict[Partition, Journal]
    served: dict[tuple[Partition, bool], list[SampleRecord]] = field(default_factory=dict)
    """What Kafka's consumer got, by partition and whether it read only what is committed."""
    by_timestamp: dict[Partition, dict[int, FoundOffset]] = field(default_factory=dict)
    producers: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Kafka's account of the producers of the topic ``headrace-txn``."""
    written_on: dict[Partition, list[SampleRecord]] = field(default_factory=dict)
    broker_log: str = ""


class Scribe:
    """Writes to a directory of Kafka's as Headrace."""

    def __init__(self, directory: Path) -> None:
        self.clock = ManualClock(SystemClock().time_ms())
        # Compaction runs only when it is told to; see `clean`.
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
        """In topics of Kafka's, with producer ids far from its own."""
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
        # Behind Kafka's open transaction, which stays open.
        self.transactions(self.journal("txn"), 2)
        for topic in ("compacted", "compacted-deletes"):
            self.journal(topic).write(self.rows(topic))

    def fill(self) -> None:
        """Topics in which Kafka has written nothing."""
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
        """Twice the same: Headrace does the last cleaning of one topic, Kafka that of the other."""
        start_ms = self.clock.time_ms() - 60_000
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
        """Compacts one log, up to its end."""
        log = journal.log
        log.roll()
        log.update_high_watermark(log.log_end_offset)
        keeping = log.config
        self.manager.update_config(log.tp.topic, log_config(HEADRACE_TOPICS[log.tp.topic]))
        assert self.manager.clean_next() == log.tp
        self.manager.update_config(log.tp.topic, keeping)


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
        ask_for_everything(broker, trip, kafka_files)
        await_cleaning(trip)
        write_on_as_kafka(broker, trip)
        trip.broker_log = broker.log_file.read_text()
    finally:
        broker.kill()
    return trip


def ask_for_everything(broker: KafkaBroker, trip: RoundTrip, kafka_files: KafkaFiles) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for partition, journal in trip.journals.items():
        if "-by-" in partition[0]:
            continue  # the cleaner is at them
        for read_committed in (False, True):
            trip.served[partition, read_committed] = read_back(
                broker.bootstrap, *partition, read_committed=read_committed
            )
        timestamps = sorted({record.timestamp for record in journal.records})
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


def test_x(round_trip):
    print(round_trip.producers)
    print(round_trip.broker_log)
    assert 0
