from pathlib import Path

import pytest

from headrace.common.errors import KafkaStorageError
from headrace.common.ids import Uuid
from headrace.common.types import TopicPartition
from headrace.storage.checkpoints import (
    MetaProperties,
    OffsetCheckpoint,
    read_partition_metadata,
    write_partition_metadata,
)
from headrace.storage.files import FileSystem

FILES = FileSystem()
ID = Uuid.parse("L4tkSDvtSWyV2FJpQYyZlA")


def checkpoint(tmp_path: Path) -> OffsetCheckpoint:
    return OffsetCheckpoint(tmp_path / "checkpoint", FILES)


@pytest.mark.parametrize(
    ("offsets", "content"),
    [
        ({}, b"0\n0\n"),
        ({TopicPartition("topic", 0): 5}, b"0\n1\ntopic 0 5\n"),
        (
            {TopicPartition("b", 0): 1, TopicPartition("a", 10): 2**40, TopicPartition("a", 9): 3},
            b"0\n3\na 9 3\na 10 1099511627776\nb 0 1\n",
        ),
    ],
)
def test_offset_checkpoint_has_kafka_format(tmp_path: Path, offsets: dict[TopicPartition, int], content: bytes) -> None:
    checkpoint(tmp_path).write(offsets)
    assert (tmp_path / "checkpoint").read_bytes() == content
    assert checkpoint(tmp_path).read() == offsets
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"], "nothing else is left"


def test_write_replaces_checkpoint(tmp_path: Path) -> None:
    checkpoint(tmp_path).write({TopicPartition("topic", 0): 5})
    (tmp_path / "checkpoint.tmp").write_bytes(b"of a crash, and longer than what is to be written")
    checkpoint(tmp_path).write({TopicPartition("topic", 1): 6})
    assert checkpoint(tmp_path).read() == {TopicPartition("topic", 1): 6}


def test_missing_and_empty_checkpoints_have_no_entries(tmp_path: Path) -> None:
    assert checkpoint(tmp_path).read() == {}
    (tmp_path / "checkpoint").touch()
    assert checkpoint(tmp_path).read() == {}


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"0\n1\ntopic 0 5", "is truncated: its last line has no line end"),
        (b"1\n1\ntopic 0 5\n", "has unsupported version '1'; expected 0"),
        (b"0\n", "is not a checkpoint: expected a version and an entry count"),
        (b"0\nmany\n", "is not a checkpoint: expected a version and an entry count"),
        (b"\xff\xfe\n", "is not a checkpoint"),
        (b"0\n2\ntopic 0 5\n", "expected 2 entries, found 1"),
        (b"0\n0\ntopic 0 5\n", "expected 0 entries, found 1"),
        (b"0\n1\ntopic 0\n", "expected a line of topic, partition and offset, found 'topic 0'"),
        (b"0\n1\ntopic 0 5 6\n", "expected a line of topic, partition and offset, found 'topic 0 5 6'"),
        (b"0\n1\ntopic zero 5\n", "expected a line of topic, partition and offset, found 'topic zero 5'"),
        (bytes(30), "is truncated"),
    ],
)
def test_rejects_damaged_checkpoint(tmp_path: Path, content: bytes, named: str) -> None:
    (tmp_path / "checkpoint").write_bytes(content)
    with pytest.raises(KafkaStorageError, match=named) as refused:
        checkpoint(tmp_path).read()
    assert str(tmp_path / "checkpoint") in str(refused.value)


def test_partition_metadata_has_kafka_format(tmp_path: Path) -> None:
    write_partition_metadata(tmp_path, ID, FILES)
    assert (tmp_path / "partition.metadata").read_bytes() == b"version: 0\ntopic_id: L4tkSDvtSWyV2FJpQYyZlA"
    assert read_partition_metadata(tmp_path, FILES) == ID


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"", "expected 'version: 0' and 'topic_id: <id>'"),
        (b"version: 1\ntopic_id: L4tkSDvtSWyV2FJpQYyZlA", "expected 'version: 0'"),
        (b"version: 0\n", "'topic_id: <id>'"),
        (b"version: 0\ntopic_id: orders", "Invalid id 'orders'"),
        (b"\xff" * 20, "can't decode byte 0xff"),
    ],
)
def test_rejects_damaged_partition_metadata(tmp_path: Path, content: bytes, named: str) -> None:
    (tmp_path / "partition.metadata").write_bytes(content)
    with pytest.raises(KafkaStorageError, match=named) as refused:
        read_partition_metadata(tmp_path, FILES)
    assert str(refused.value).startswith(f"{tmp_path / 'partition.metadata'} is damaged")


def test_meta_properties_have_kafka_format(tmp_path: Path) -> None:
    assert MetaProperties.read(tmp_path, FILES) is None
    meta = MetaProperties("cluster", 7, ID)
    meta.write(tmp_path, FILES)
    assert (tmp_path / "meta.properties").read_text() == (
        "cluster.id=cluster\ndirectory.id=L4tkSDvtSWyV2FJpQYyZlA\nnode.id=7\nversion=1\n"
    )
    assert MetaProperties.read(tmp_path, FILES) == meta


def test_meta_properties_of_a_broker_with_zookeeper_have_version_0(tmp_path: Path) -> None:
    meta = MetaProperties("cluster", 7, version=0)
    meta.write(tmp_path, FILES)
    assert (tmp_path / "meta.properties").read_text() == "broker.id=7\ncluster.id=cluster\nversion=0\n"
    assert MetaProperties.read(tmp_path, FILES) == meta


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (
            "#\n#Tue May 01 12:00:00 UTC 2020\nbroker.id=3\nversion=0\ncluster.id=abc\n",
            MetaProperties("abc", 3, version=0),
        ),
        ("version=1\ncluster.id=abc\nnode.id=3\n", MetaProperties("abc", 3)),
        ("version=1\ncluster.id=a\\=b\\:c\nnode.id=3\n", MetaProperties("a=b:c", 3)),
    ],
)
def test_reads_meta_properties_of_other_versions(tmp_path: Path, content: str, found: MetaProperties) -> None:
    (tmp_path / "meta.properties").write_text(content)
    assert MetaProperties.read(tmp_path, FILES) == found


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"", "expected version 0 or 1, a cluster.id and a node.id"),
        (b"version=2\ncluster.id=abc\nnode.id=3\n", "expected version 0 or 1"),
        (b"version=1\ncluster.id=abc\nbroker.id=3\n", "a node.id"),
        (b"version=1\ncluster.id=abc\nnode.id=three\n", "a node.id"),
        ("version=1\ncluster.id=abc\nnode.id=³\n".encode(), "a node.id"),
        (b"version=1\nnode.id=3\n", "a cluster.id"),
        (b"version=1\ncluster.id=abc\nnode.id=3\ndirectory.id=here\n", "Invalid id 'here'"),
        (b"\xff\xff", "can't decode byte 0xff"),
    ],
)
def test_rejects_damaged_meta_properties(tmp_path: Path, content: bytes, named: str) -> None:
    (tmp_path / "meta.properties").write_bytes(content)
    with pytest.raises(KafkaStorageError, match=named) as refused:
        MetaProperties.read(tmp_path, FILES)
    assert str(refused.value).startswith(f"{tmp_path / 'meta.properties'} is damaged")


def test_late_write_does_not_replace_newer_offsets(tmp_path: Path) -> None:
    offsets = checkpoint(tmp_path)
    early, late = (
        offsets.prepare({TopicPartition("orders", 0): 9}),
        offsets.prepare({TopicPartition("orders", 0): 5}),
    )
    late()
    early()
    assert offsets.read() == offsets.offsets == {TopicPartition("orders", 0): 5}


def test_closed_checkpoint_is_not_written(tmp_path: Path) -> None:
    """Another process may own the directory by then."""
    offsets = checkpoint(tmp_path)
    write = offsets.prepare({TopicPartition("orders", 0): 9})
    offsets.close()
    write()
    assert offsets.read() == {}
