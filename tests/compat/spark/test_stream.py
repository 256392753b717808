"""Streams: reads and writes with limits, restarts from a checkpoint, and new partitions and topics."""

import json
from pathlib import Path

import pytest
from tests.support.broker.process import eventually
from tests.support.spark.formats import BASE_MS, BOTH, Formats, Sent, finish

from headrace import Producer, TopicPartition

each_format = pytest.mark.parametrize("name", BOTH)


@each_format
def test_resumes_from_checkpoint(formats: Formats, name: str, tmp_path: Path) -> None:
    topic = formats.new_topic(2)
    formats.send_numbers(topic, range(10), 2)

    def run() -> list[int]:
        frame = formats.load_stream(name, subscribe=topic, startingOffsets="earliest", includeHeaders=True)
        assert "headers" in frame.columns
        return formats.run_stream(frame, tmp_path).numbers

    assert run() == list(range(10))
    formats.send_numbers(topic, range(10, 15), 2)
    assert run() == list(range(10, 15))
    assert run() == []
    formats.add_partitions(topic, 3)  # a new partition is read from its beginning
    formats.send(topic, [Sent(b"15", partition=2), Sent(b"16", partition=0)])
    assert run() == [15, 16]


@each_format
def test_starting_offsets(formats: Formats, name: str, tmp_path: Path) -> None:
    topic = formats.new_topic(2)
    formats.send_numbers(topic, range(10), 2)

    def run(**options: object) -> list[int]:
        directory = tmp_path / str(len(list(tmp_path.iterdir())))
        return formats.run_stream(formats.load_stream(name, subscribe=topic, **options), directory).numbers

    assert run() == []  # latest
    assert run(startingOffsets=json.dumps({topic: {"0": 3, "1": -1}})) == [6, 8]
    assert run(startingOffsets=json.dumps({topic: {"0": -2, "1": 4}})) == [0, 2, 4, 6, 8, 9]
    assert run(startingTimestamp=BASE_MS + 7_000) == [7, 8, 9]
    times = json.dumps({topic: {"0": BASE_MS + 5_000, "1": BASE_MS + 9_000}})
    assert run(startingOffsetsByTimestamp=times) == [6, 8, 9]
    late = {"startingTimestamp": BASE_MS + 99_000}
    assert run(**late, startingOffsetsByTimestampStrategy="latest") == []
    with pytest.raises(Exception, match=topic):
        run(**late)


@each_format
def test_shares_a_limit_by_backlog(formats: Formats, name: str, tmp_path: Path) -> None:
    topic = formats.new_topic(2)
    formats.send(topic, [Sent(b"%d" % number, partition=int(number >= 40)) for number in range(60)])

    frame = formats.load_stream(name, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=30)
    run = formats.run_stream(frame, tmp_path)
    assert run.numbers == list(range(60))
    assert run.sizes == [30, 30]
    first = [int(row.value) for row in run.rows[:30]]
    assert sum(number < 40 for number in first) == 20  # 40 of 60 wait in partition 0


@each_format
def test_number_of_tasks(formats: Formats, name: str, tmp_path: Path) -> None:
    topic = formats.new_topic(2)
    formats.send(topic, [Sent(b"%d" % number, partition=int(number >= 30)) for number in range(40)])

    def tasks(**options: object) -> list[int]:
        directory = tmp_path / str(len(list(tmp_path.iterdir())))
        frame = formats.load_stream(name, subscribe=topic, startingOffsets="earliest", **options)
        run = formats.run_stream(frame.selectExpr("spark_partition_id() as task", "value"), directory)
        assert run.numbers == list(range(40))
        found: dict[int, int] = {}
        for row in run.rows:
            found[row.task] = found.get(row.task, 0) + 1
        return sorted(found.values())

    assert tasks() == [10, 30]
    assert tasks(minPartitions=4) == [10, 10, 10, 10]
    assert tasks(maxRecordsPerPartition=10) == [10, 10, 10, 10]


@each_format
def test_pattern_finds_new_topics(formats: Formats, name: str, tmp_path: Path) -> None:
    prefix = f"later-{name}"
    one = formats.new_topic(prefix=prefix)
    formats.send_numbers(one, range(3))

    def run() -> list[int]:
        frame = formats.load_stream(name, subscribePattern=f"{prefix}-.*", startingOffsets="earliest")
        return formats.run_stream(frame, tmp_path).numbers

    assert run() == [0, 1, 2]
    two = formats.new_topic(prefix=prefix)
    formats.send_numbers(two, range(5, 8))
    formats.send_numbers(one, [3])
    assert run() == [3, 5, 6, 7]


@each_format
def test_records_deleted_while_the_query_was_down(formats: Formats, name: str, tmp_path: Path) -> None:
    topic = formats.new_topic()
    formats.send_numbers(topic, range(5))

    def run(**options: object) -> list[int]:
        frame = formats.load_stream(name, subscribe=topic, startingOffsets="earliest", **options)
        return formats.run_stream(frame, tmp_path).numbers

    assert run() == [0, 1, 2, 3, 4]
    formats.send_numbers(topic, range(5, 10))
    formats.admin.delete_records({TopicPartition(topic, 0): 8})
    with pytest.raises(Exception, match="failOnDataLoss"):
        run()
    assert run(failOnDataLoss=False) == [8, 9]


@each_format
def test_reads_only_committed_records(formats: Formats, name: str, tmp_path: Path) -> None:
    topic = formats.new_topic()

    def run() -> list[int]:
        frame = formats.load_stream(
            name, subscribe=topic, startingOffsets="earliest", kafka__isolation__level="read_committed"
        )
        return formats.run_stream(frame, tmp_path).numbers

    with Producer(bootstrap_servers=formats.bootstrap, transactional_id=topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"1").get(timeout_ms=30_000)
        assert run() == []
        producer.commit_transaction()
        assert run() == [1]
        producer.begin_transaction()
        producer.send(topic, b"2").get(timeout_ms=30_000)
        producer.abort_transaction()
        with producer.transaction():
            producer.send(topic, b"3")
    assert run() == [3]


@each_format
@pytest.mark.parametrize("sink", BOTH)
def test_from_topic_to_topic(formats: Formats, name: str, sink: str, tmp_path: Path) -> None:
    source, target = formats.new_topic(2), formats.new_topic(2)
    for start in (0, 50):
        formats.send_numbers(source, range(start, start + 50), 2)
        frame = formats.load_stream(name, subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger=20)
        finish(formats.copy_stream(frame.select("key", "value"), sink, tmp_path, topic=target))
        assert sorted(map(int, formats.values(target))) == list(range(start + 50))


@each_format
def test_running_query_reads_new_records(formats: Formats, name: str, tmp_path: Path) -> None:
    source, target = formats.new_topic(1), formats.new_topic(1)
    frame = formats.load_stream(name, subscribe=source)
    query = (
        frame.select("key", "value")
        .writeStream.format(name)
        .options(**formats.options({"topic": target}))
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    try:
        eventually(lambda: bool(query.recentProgress) or not query.isActive, "the query runs", 60)
        formats.send_numbers(source, range(3))
        eventually(lambda: len(formats.values(target)) == 3 or not query.isActive, "rows are copied", 60)
        formats.add_partitions(source, 2)
        formats.send(source, [Sent(b"3", partition=1)])
        eventually(lambda: len(formats.values(target)) == 4 or not query.isActive, "a new partition is read", 60)
        assert query.exception() is None
    finally:
        query.stop()
    assert sorted(map(int, formats.values(target))) == [0, 1, 2, 3]
