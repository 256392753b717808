"""Format headrace on Apache Kafka: reads, writes, exactly-once streams, transactions, timestamps; checked with Spark's
connector.

All other tests here can run on Apache Kafka too: `HEADRACE_COMPAT_BROKER=kafka`.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.apache_kafka.broker import KafkaBroker, KafkaUnavailable, kafka_classpath
from tests.support.spark.formats import BASE_MS, HEADRACE, KAFKA, Formats, Sent, finish

from headrace import Producer


@pytest.fixture(scope="module")
def on_kafka(spark: Any, kafka_connector: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Formats]:
    try:
        kafka_classpath()
    except KafkaUnavailable as error:
        pytest.skip(f"Apache Kafka is not available: {error}")
    with KafkaBroker(tmp_path_factory.mktemp("spark-kafka") / "data") as broker:
        both = Formats(spark, broker.bootstrap)
        yield both
        both.close()


def test_writes_and_reads_rows(on_kafka: Formats) -> None:
    topic = on_kafka.new_topic(3)
    frame = on_kafka.spark.range(200).selectExpr(
        "string(id % 10) key",
        "string(id) value",
        "array(struct('id' as key, binary(string(id)) as value)) headers",
    )
    on_kafka.write(HEADRACE, frame, topic=topic)
    theirs, ours = (on_kafka.rows(name, subscribe=topic, includeHeaders=True) for name in (KAFKA, HEADRACE))
    assert ours == theirs
    assert sorted(int(row[1]) for row in ours) == list(range(200))


def test_starting_and_ending_offsets(on_kafka: Formats) -> None:
    topic = on_kafka.new_topic(2)
    on_kafka.send_numbers(topic, range(20), 2)
    for options in (
        {"startingTimestamp": BASE_MS + 5_000, "endingTimestamp": BASE_MS + 15_500},
        {"minPartitions": 5, "kafka.max.partition.fetch.bytes": 100},
        {"assign": f'{{"{topic}": [1]}}', "subscribe": None},
    ):
        chosen = {"subscribe": topic, **options}
        theirs, ours = (on_kafka.rows(name, **chosen) for name in (KAFKA, HEADRACE))
        assert ours == theirs
        assert ours


def test_reads_only_committed_records(on_kafka: Formats) -> None:
    topic = on_kafka.new_topic()
    with Producer(bootstrap_servers=on_kafka.bootstrap, transactional_id=topic) as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send(topic, b"1")
        producer.begin_transaction()
        producer.send(topic, b"2").get(timeout_ms=30_000)
        producer.abort_transaction()
        with producer.transaction():
            producer.send(topic, b"3")
        producer.begin_transaction()
        producer.send(topic, b"4").get(timeout_ms=30_000)
        committed = {"subscribe": topic, "kafka.isolation.level": "read_committed"}
        assert on_kafka.numbers(HEADRACE, **committed) == on_kafka.numbers(KAFKA, **committed) == [1, 3]
        assert on_kafka.numbers(HEADRACE, subscribe=topic) == on_kafka.numbers(KAFKA, subscribe=topic) == [1, 2, 3, 4]
        producer.abort_transaction()


def test_replayed_batch_is_written_once(on_kafka: Formats, tmp_path: Path) -> None:
    source, target = on_kafka.new_topic(2), on_kafka.new_topic(2)
    on_kafka.send(source, [Sent(b"%d" % number, b"k%d" % number, number % 2) for number in range(60)])

    def run() -> None:
        frame = on_kafka.load_stream(HEADRACE, subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger=20)
        finish(on_kafka.copy_stream(frame.select("key", "value"), HEADRACE, tmp_path, topic=target))

    run()
    commits = sorted((tmp_path / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    assert len(commits) == 3
    forget(commits[-1])
    run()
    shutil.rmtree(tmp_path / "commits")  # Spark now replays the last batch again
    run()
    assert sorted(map(int, on_kafka.values(target))) == list(range(60))
    assert sorted(on_kafka.numbers(KAFKA, subscribe=target, kafka__isolation__level="read_committed")) == list(
        range(60)
    )


def forget(commit: Path) -> None:
    """Removes the last commit, as if Spark had been killed before it."""
    commit.unlink()
    checksum = commit.with_name(f".{commit.name}.crc")
    if checksum.exists():
        checksum.unlink()
