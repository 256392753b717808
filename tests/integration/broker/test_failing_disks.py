"""A broker whose log directory fails."""

import errno
import logging
import re
from pathlib import Path
from typing import NoReturn

import pytest
from tests.support.net.wire_calls import batch, fetch, fetch_request, produce
from tests.support.net.wire_client import WireClient

from headrace.broker.server import Broker
from headrace.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from headrace.storage import log as log_module
from headrace.storage.directory import LogDirectory
from headrace.storage.files import DataFile
from headrace.testing import EmbeddedBroker

STORAGE_ERROR = 56
UNKNOWN_SERVER_ERROR = -1


def home_of(broker: Broker, topic: str, partition: int) -> LogDirectory:
    directory = broker.log_manager.directory_of(broker.replicas.find(topic, partition).tp)
    assert directory is not None
    return directory


@pytest.fixture
def properties(tmp_path: Path) -> dict[str, object]:
    return {"log.dirs": f"{tmp_path / 'a'},{tmp_path / 'b'}"}


def test_other_directory_stays_online(properties: dict[str, object]) -> None:
    with EmbeddedBroker(properties, topics={"t": 2}) as broker, WireClient(broker.address) as client:
        for partition in (0, 1):
            assert produce(client, batch(b"before"), partition=partition).error_code == 0
        doomed = broker.call(lambda running: str(home_of(running, "t", 1)))
        waiting = client.send(fetch_request(1, partition=1, max_wait_ms=600_000), 12)
        broker.wait_until(lambda running: running.replicas.fetches.delayed == 1)
        broker.call(lambda running: running.log_manager.fail_directory(home_of(running, "t", 1), "pulled out"))

        assert client.receive(waiting).responses[0].partitions[0].error_code in (STORAGE_ERROR, 6)
        assert produce(client, batch(b"after"), partition=0).base_offset == 1
        assert produce(client, batch(b"after"), partition=1).error_code in (STORAGE_ERROR, 6)
        assert fetch(client, 0, partition=1).error_code in (STORAGE_ERROR, 6)
        # The controller was notified, and no other broker can lead the partition.
        broker.wait_until(lambda running: running.image.partition("t", 1).leader == -1)
        assert not broker.call(lambda running: running.failed.is_set())

        broker.restart()  # the disk works again
        assert broker.call(lambda running: str(home_of(running, "t", 1))) == doomed
        with WireClient(broker.address) as again:
            assert fetch(again, 0, partition=1).high_watermark == 1
            assert produce(again, batch(b"back"), partition=1).base_offset == 1


def test_broker_stops_without_an_online_directory(tmp_path: Path) -> None:
    with EmbeddedBroker({"log.dirs": str(tmp_path / "only")}, topics={"t": 1}) as broker:
        broker.call(lambda running: running.log_manager.fail_directory(home_of(running, "t", 0), "pulled out"))
        broker.wait_until(lambda running: running.failed.is_set())


def break_reading(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(*_: object) -> NoReturn:
        raise error

    for name in ("find_slice", "find_timestamp"):
        monkeypatch.setattr(log_module, name, fail)


READ_ERRORS = [(OSError(errno.EIO, "Input/output error"), STORAGE_ERROR), (RuntimeError("bug"), UNKNOWN_SERVER_ERROR)]


@pytest.mark.parametrize(("error", "code"), READ_ERRORS)
def test_failed_read_is_an_error_of_its_partition(error: Exception, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with EmbeddedBroker(topics={"t": 1}) as broker, WireClient(broker.address) as client:
        produce(client, batch())
        break_reading(monkeypatch, error)
        assert fetch(client, 0).error_code == code
        asked = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=1)])
        (answer,) = client.call(ListOffsetsRequest(topics=[asked]), 5).topics[0].partitions
        assert answer.error_code == code
        monkeypatch.undo()
        assert fetch(client, 0).error_code == 0


@pytest.mark.parametrize(("error", "code"), READ_ERRORS)
def test_delayed_fetch_gets_the_error_of_a_failed_read(
    error: Exception, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with EmbeddedBroker(topics={"t": 1}) as broker, WireClient(broker.address) as client:
        waiting = client.send(fetch_request(0, max_wait_ms=600_000), 12)
        broker.wait_until(lambda running: running.replicas.fetches.delayed == 1)
        break_reading(monkeypatch, error)
        with WireClient(broker.address) as other:
            assert produce(other, batch()).error_code == 0
        assert client.receive(waiting).responses[0].partitions[0].error_code == code


def test_logs_a_full_disk_and_its_end_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def full(*_: object) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    caplog.set_level(logging.INFO, "headrace.broker.partition")
    with EmbeddedBroker(topics={"t": 1}) as broker, WireClient(broker.address) as client:
        monkeypatch.setattr(DataFile, "write_at", full)
        assert [produce(client, batch()).error_code for _ in range(3)] == [STORAGE_ERROR] * 3
        monkeypatch.undo()
        assert [produce(client, batch()).error_code for _ in range(2)] == [0, 0]
    told = [record.getMessage() for record in caplog.records if record.name == "headrace.broker.partition"]
    assert len(told) == 2
    assert re.fullmatch(
        r"Partition t-0: appends fail, producers get KAFKA_STORAGE_ERROR: Cannot .*: No space left on device", told[0]
    )
    assert told[1] == "Partition t-0: appends succeed again"
