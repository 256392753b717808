import json
from pathlib import Path

import click
import pytest

from headrace.cli.reassignment.files import as_json, read_assignment, read_topics
from headrace.client.types import TopicPartitionReplica
from headrace.common.types import TopicPartition


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "file.json"


def test_writes_what_it_reads(file: Path) -> None:
    assignment = {TopicPartition("b", 0): (2,), TopicPartition("a", 10): (1, 2), TopicPartition("a", 9): (3, 1)}
    file.write_text(as_json(assignment))
    assert file.read_text() == (
        '{"version":1,"partitions":['
        '{"topic":"a","partition":9,"replicas":[3,1],"log_dirs":["any","any"]},'
        '{"topic":"a","partition":10,"replicas":[1,2],"log_dirs":["any","any"]},'
        '{"topic":"b","partition":0,"replicas":[2],"log_dirs":["any"]}]}'
    )
    assert read_assignment(str(file)) == (assignment, {})


def test_reads_log_directories(file: Path) -> None:
    entry = {"topic": "t", "partition": 1, "replicas": [2, 3, 4], "log_dirs": ["any", "/disk2", "/disk3"]}
    file.write_text(json.dumps({"version": 1, "partitions": [entry]}))
    assert read_assignment(str(file)).log_dirs == {
        TopicPartitionReplica("t", 1, 3): "/disk2",
        TopicPartitionReplica("t", 1, 4): "/disk3",
    }


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"partitions": [{"topic": "t"}]}, "is not a reassignment: KeyError"),
        ({"partitions": []}, "has no partitions"),
        ([], "is not a reassignment: TypeError"),
        ({"partitions": [{"topic": "t", "partition": 0, "replicas": [1]}] * 2}, "is listed twice"),
        (
            {"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": ["/data"]}]},
            "is different from size of log dirs list",
        ),
    ],
)
def test_refuses_wrong_assignments(file: Path, document: object, message: str) -> None:
    file.write_text(json.dumps(document))
    with pytest.raises(click.UsageError, match=message):
        read_assignment(str(file))


def test_reads_topics(file: Path) -> None:
    file.write_text('{"version": 1, "topics": [{"topic": "b"}, {"topic": "a"}]}')
    assert read_topics(str(file)) == ["b", "a"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"topics": ["t"]}', "expected"),
        ("{", "expected"),
        ('{"topics": []}', "has no topics"),
        ('{"topics": [{"topic": "t"}, {"topic": "u"}, {"topic": "t"}]}', "contains duplicate entries: t$"),
    ],
)
def test_refuses_wrong_topics(file: Path, text: str, message: str) -> None:
    file.write_text(text)
    with pytest.raises(click.UsageError, match=message):
        read_topics(str(file))
