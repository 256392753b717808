"""Reading a task's range with a client without sockets: lost records, and where reading continues."""

import os
import socket
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition
from tests.support.spark.fake_ranges import FakeRanges

from headrace.client.consumer.errors import OffsetsLostError
from headrace.client.consumer.range_client import RangeColumns
from headrace.client.errors import KafkaTimeoutError
from headrace.common.errors import UnknownTopicOrPartitionError
from headrace.common.types import TopicPartition
from headrace.spark import fetch, metadata
from headrace.spark.fetch import RangePartition, read_range
from headrace.spark.metadata import DataLossError
from headrace.spark.options import SourceOptions
from headrace.spark.schema import source_schema

TP = TopicPartition("t", 0)
HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])


class Log(FakeRanges):
    """A client for one partition. It raises `trouble` at its offset."""

    def __init__(self, begin: int, end: int, trouble: dict[int, Exception] | None = None):
        super().__init__()
        self.logs = {TP: (begin, end)}
        self.trouble = trouble or {}

    def read(self, tp: TopicPartition, start: int, end: int, **limits: Any) -> Iterator[RangeColumns]:
        begin, last = self.logs[tp]
        for offset in range(start, end):
            if offset in self.trouble:
                raise self.trouble.pop(offset)
            if not begin <= offset <= last:
                raise OffsetsLostError(tp, offset)
            if offset == last:
                raise KafkaTimeoutError("nothing came")
            yield RangeColumns(
                pa.array([None], pa.binary()),
                pa.array([b"x"], pa.binary()),
                pa.array([[]], pa.list_(HEADER)),
                pa.array([offset], pa.int64()),
                pa.array([0], pa.timestamp("us", tz="UTC")),
                pa.array([0], pa.int32()),
            )


def read(monkeypatch: pytest.MonkeyPatch, log: Log, start: int, end: int, fail: bool = True) -> list[int]:
    monkeypatch.setattr(metadata, "range_client", lambda settings: log)
    options = SourceOptions.parse(
        {"kafka.bootstrap.servers": "x:1", "subscribe": "t", "failOnDataLoss": str(fail).lower()}
    )
    batches = read_range(options, source_schema(False), RangePartition("t", 0, start, end))
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def test_reads_the_whole_range(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(monkeypatch, Log(0, 10), 2, 6) == [2, 3, 4, 5]


def test_empty_plan_has_no_records() -> None:
    options = SourceOptions.parse({"kafka.bootstrap.servers": "x:1", "subscribe": "t"})
    assert list(read_range(options, source_schema(False), InputPartition(None))) == []


def test_records_deleted_before_the_range(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataLossError, match=r"t-0 now begins at offset 5; expected offsets from 2 on.*failOnDataLoss"):
        read(monkeypatch, Log(5, 10), 2, 8)
    assert read(monkeypatch, Log(5, 10), 2, 8, fail=False) == [5, 6, 7]
    assert read(monkeypatch, Log(9, 10), 2, 8, fail=False) == []


def test_records_deleted_within_the_range(monkeypatch: pytest.MonkeyPatch) -> None:
    class Overtaken(Log):
        def read(self, tp: TopicPartition, start: int, end: int, **limits: Any) -> Iterator[RangeColumns]:
            for columns in super().read(tp, start, end):
                yield columns
                self.logs[TP] = (6, 10)
                break
            else:
                return
            raise OffsetsLostError(tp, start + 1)

    found = read(monkeypatch, Overtaken(0, 10), 2, 8, fail=False)
    assert found[:2] == [2, 6]


def test_log_that_ends_before_the_range(monkeypatch: pytest.MonkeyPatch) -> None:
    for start in (2, 7):
        with pytest.raises(DataLossError, match="t-0 ends at offset 4"):
            read(monkeypatch, Log(0, 4), start, 9)
    assert read(monkeypatch, Log(0, 4), 2, 9, fail=False) == [2, 3]
    assert read(monkeypatch, Log(0, 4), 7, 9, fail=False) == []


def test_unavailable_broker_is_not_data_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KafkaTimeoutError, match="nothing came"):
        read(monkeypatch, Log(0, 10, {3: KafkaTimeoutError("nothing came")}), 2, 6, fail=False)


def test_deleted_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = {3: UnknownTopicOrPartitionError("the brokers know no topic t")}
    with pytest.raises(DataLossError, match="t-0 no longer exists"):
        read(monkeypatch, Log(0, 10, dict(gone)), 2, 6)
    assert read(monkeypatch, Log(0, 10, dict(gone)), 2, 6, fail=False) == [2]


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="only Linux has TCP_QUICKACK")
def test_quick_ack_applies_to_all_connections() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as one,
        socket.create_connection(server.getsockname()) as two,
        socket.socket(socket.AF_UNIX),  # has no such option
    ):
        for connection in (one, two):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
        assert [quick_acks(one), quick_acks(two)] == [False, False]
        before = os.listdir("/proc/self/fd")
        fetch.quick_ack()
        assert [quick_acks(one), quick_acks(two)] == [True, True]
        assert os.listdir("/proc/self/fd") == before, "a file descriptor leaked"


def quick_acks(connection: socket.socket) -> bool:
    return bool(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK))
