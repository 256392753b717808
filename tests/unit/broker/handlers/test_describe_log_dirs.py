from pathlib import Path
from typing import Any

import pytest
from tests.support.broker.admin_broker import AdminBroker
from tests.support.storage.logs import append

from headrace.common.errors import KafkaStorageError
from headrace.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest


def describe(broker: AdminBroker, topics: dict[str, list[int]] | None = None, version: int | None = None) -> list[Any]:
    asked = None
    if topics is not None:
        asked = [DescribableLogDirTopic(topic=name, partitions=indexes) for name, indexes in topics.items()]
    reply = broker.call(DescribeLogDirsRequest(topics=asked), version)
    assert reply.error_code == 0
    return list(reply.results)


def shape(directory: Any) -> dict[str, list[int]]:
    return {topic.name: [partition.partition_index for partition in topic.partitions] for topic in directory.topics}


@pytest.mark.parametrize("version", range(1, 6))
def test_describes_all_partitions_with_sizes(broker: AdminBroker, tmp_path: Path, version: int) -> None:
    broker.create("b", 2)
    broker.create("a")
    append(broker.log("b", 1), count=3)
    (directory,) = describe(broker, version=version)
    assert (directory.error_code, directory.log_dir) == (0, str(tmp_path / "data"))
    assert shape(directory) == {"a": [0], "b": [0, 1]}
    empty, full = directory.topics[1].partitions
    assert (empty.partition_size, full.partition_size) == (0, broker.log("b", 1).size_in_bytes)
    assert (full.offset_lag, full.is_future_key) == (0, False)
    if version >= 4:
        assert directory.total_bytes >= directory.usable_bytes > 0
    else:
        assert (directory.total_bytes, directory.usable_bytes) == (-1, -1)


def test_describes_requested_partitions_only(broker: AdminBroker) -> None:
    broker.create("a")
    broker.create("b", 3)
    (directory,) = describe(broker, {"b": [2, 0, 0, 99], "nope": [0]})
    assert shape(directory) == {"b": [0, 2]}
    (directory,) = describe(broker, {})
    assert directory.topics == []


def test_lists_each_partition_in_its_directory(tmp_path: Path) -> None:
    with AdminBroker(tmp_path / "one", log_dirs=f"{tmp_path / 'one'},{tmp_path / 'two'}") as broker:
        broker.create("t", 4)
        one, two = describe(broker)
        assert len(shape(one)["t"]) == len(shape(two)["t"]) == 2
        assert sorted(shape(one)["t"] + shape(two)["t"]) == [0, 1, 2, 3]


def test_offline_directory(tmp_path: Path) -> None:
    with AdminBroker(tmp_path / "one", log_dirs=f"{tmp_path / 'one'},{tmp_path / 'two'}") as broker:
        broker.create("t", 4)
        broker.log_manager.fail_directory(broker.log_manager.directories[0], "pulled out")
        one, two = describe(broker)
        assert (one.error_code, one.log_dir, one.topics) == (KafkaStorageError.code, str(tmp_path / "one"), [])
        assert (two.error_code, len(shape(two)["t"])) == (0, 2)


def test_unknown_disk_space(broker: AdminBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path) -> None:
        raise OSError("stale handle")

    monkeypatch.setattr("shutil.disk_usage", fail)
    (directory,) = describe(broker)
    assert (directory.error_code, directory.total_bytes, directory.usable_bytes) == (0, -1, -1)
