"""Three brokers, one of which loses a log directory or cannot write a log: others take over, no record is lost."""

import errno
from pathlib import Path

import pytest
from tests.integration.broker.test_failing_disks import home_of

import headrace
from headrace.broker.server import Broker
from headrace.common.types import Buffer
from headrace.storage.files import DataFile
from headrace.testing import EmbeddedCluster

ASSIGNMENT = {0: [1, 2, 3], 1: [1, 3, 2], 2: [2, 3, 1]}


def values_of(cluster: EmbeddedCluster, partition: int) -> list[bytes]:
    with headrace.Consumer(
        bootstrap_servers=cluster.bootstrap_servers, group_id=None, auto_offset_reset="earliest"
    ) as consumer:
        tp = headrace.TopicPartition("t", partition)
        consumer.assign([tp])
        end = consumer.end_offsets([tp])[tp]
        values: list[bytes] = []
        while consumer.position(tp) < end:
            values += [record.value for records in consumer.poll(1000).values() for record in records]
        return values


def test_leaders_of_a_failed_directory_move(tmp_path: Path) -> None:
    directories = {
        broker_id: {"log.dirs": f"{tmp_path / f'{broker_id}-a'},{tmp_path / f'{broker_id}-b'}"}
        for broker_id in (1, 2, 3)
    }
    with (
        EmbeddedCluster(broker_properties=directories) as cluster,
        headrace.Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0) as producer,
    ):
        cluster.create_topic("t", assignment=ASSIGNMENT)

        def send(text: bytes) -> None:
            for future in [producer.send("t", text, partition=partition) for partition in ASSIGNMENT]:
                future.get(timeout_ms=60_000)

        def fail(broker: Broker) -> list[int]:
            directory = home_of(broker, "t", 0)
            lost = [partition for partition in ASSIGNMENT if home_of(broker, "t", partition) is directory]
            broker.log_manager.fail_directory(directory, "pulled out")
            return lost

        send(b"before")
        lost = cluster.brokers[1].call(fail)
        assert 0 < len(lost) < len(ASSIGNMENT)
        for partition, replicas in ASSIGNMENT.items():
            if partition in lost:
                assert cluster.leader("t", partition, other_than=1) in (2, 3)
                cluster.wait_until(lambda partition=partition: cluster.in_sync_replicas("t", partition) == {2, 3})
            else:
                assert cluster.leader("t", partition) == replicas[0]
                assert 1 in cluster.in_sync_replicas("t", partition)
        send(b"after")
        cluster.restart(1)  # the disk works again
        cluster.wait_until_in_sync("t")
        assert all(cluster.in_sync_replicas("t", partition) == {1, 2, 3} for partition in ASSIGNMENT)
        assert all(values_of(cluster, partition) == [b"before", b"after"] for partition in ASSIGNMENT)


def test_leader_that_cannot_write_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        EmbeddedCluster() as cluster,
        headrace.Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0) as producer,
    ):
        cluster.create_topic("t", assignment=ASSIGNMENT)
        producer.send("t", b"before", partition=0).get(timeout_ms=60_000)
        broken = cluster.brokers[1].call(lambda broker: str(broker.replicas.find("t", 0).check_leader().directory))
        write_at = DataFile.write_at

        def write(self: DataFile, data: Buffer, position: int) -> None:
            if str(self.path).startswith(broken):
                raise OSError(errno.EIO, "Input/output error")
            write_at(self, data, position)

        monkeypatch.setattr(DataFile, "write_at", write)
        assert producer.send("t", b"after", partition=0).get(timeout_ms=60_000).offset == 1
        assert cluster.leader("t", 0) != 1
        cluster.wait_until(lambda: cluster.in_sync_replicas("t", 0) == {2, 3})
        # The other partitions of the broker are not affected.
        assert producer.send("t", b"other", partition=1).get(timeout_ms=60_000).offset == 0
        assert cluster.leader("t", 1) == 1
        monkeypatch.undo()
        cluster.restart(1)
        cluster.wait_until_in_sync("t")
        assert cluster.in_sync_replicas("t", 0) == {1, 2, 3}
        assert values_of(cluster, 0) == [b"before", b"after"]
