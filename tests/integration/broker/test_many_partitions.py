"""A broker with many more partitions than file descriptors."""

import re
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.broker.process import eventually, free_port
from tests.support.net.wire_calls import batch, fetch, produce
from tests.support.net.wire_client import WireClient

from headrace.broker.server import Broker
from headrace.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from headrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest
from headrace.protocol.messages.metadata import MetadataRequest
from headrace.testing import EmbeddedBroker

SECONDS = 120
MAX_FILES = 128
TOPICS, PARTITIONS = 4, 100
STORAGE_ERROR = 56


@contextmanager
def broker_with_few_files(directory: Path) -> Iterator[tuple[WireClient, "subprocess.Popen[str]", Path]]:
    """Runs a broker with a hard limit of open files. Stops it cleanly at the end."""
    port, log = free_port(), directory / "broker.log"
    command = [sys.executable, "-m", "headrace", "server", "-o", f"listeners=PLAINTEXT://127.0.0.1:{port}"]
    with log.open("a") as output:
        process = subprocess.Popen(
            [*command, "-o", f"log.dirs={directory / 'data'}"],
            stdout=subprocess.PIPE,
            stderr=output,
            text=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (MAX_FILES, MAX_FILES)),
        )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready")
        with WireClient(("127.0.0.1", port), timeout=SECONDS) as client:
            yield client, process, log
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def creation(*names: str, partitions: int = PARTITIONS) -> CreateTopicsRequest:
    topics = [CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in names]
    return CreateTopicsRequest(topics=topics, timeout_ms=SECONDS * 1000)


def leads(broker: Broker, index: int) -> bool:
    partition = broker.replicas.get("t", index)
    return partition is not None and partition.is_leader


def test_more_partitions_than_files(tmp_path: Path) -> None:
    names = [f"t{number}" for number in range(TOPICS)]
    with broker_with_few_files(tmp_path) as (client, process, _):
        assert [topic.error_code for topic in client.call(creation(*names)).topics] == [0] * TOPICS
        for name in names:
            for partition in range(PARTITIONS):
                assert produce(client, batch(b"first"), topic=name, partition=partition).error_code == 0
        for name in names:
            for partition in range(PARTITIONS):
                found = fetch(client, 0, name, partition)
                assert (found.error_code, found.high_watermark) == (0, 1)
        assert len(list(Path(f"/proc/{process.pid}/fd").iterdir())) < MAX_FILES
    with broker_with_few_files(tmp_path) as (client, process, log):
        assert re.search(
            rf"has {TOPICS * PARTITIONS} partitions, but the limit of open files .* is 128", log.read_text()
        )
        topics = client.call(MetadataRequest(topics=None), 8).topics
        assert sum(len(topic.partitions) for topic in topics) == TOPICS * PARTITIONS
        assert all(partition.leader_id == 0 for topic in topics for partition in topic.partitions)
        for name in names:
            for partition in range(PARTITIONS):
                assert produce(client, batch(b"second"), topic=name, partition=partition).base_offset == 1
        process.kill()  # an unclean stop: recovery opens all of them
        process.wait(SECONDS)
        process.returncode = 0
    with broker_with_few_files(tmp_path) as (client, _, _):
        for name in names:
            for partition in range(PARTITIONS):
                assert fetch(client, 0, name, partition).high_watermark == 2


def test_creation_fails_at_once_if_files_run_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with EmbeddedBroker() as broker, WireClient(broker.address, timeout=SECONDS) as client:
        monkeypatch.setattr("headrace.storage.manager._uses_reserved_files", lambda _: True)
        (topic,) = client.call(creation("t")).topics
        assert topic.error_code == STORAGE_ERROR
        assert "too many open files; raise the limit of open files" in topic.error_message
        assert not broker.call(lambda running: running.image.has_topic("t")), "nothing is left behind"
        monkeypatch.undo()
        (topic,) = client.call(creation("t")).topics
        assert topic.error_code == 0


def test_topic_that_could_not_be_created_can_be_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.broker.server._CREATION_RETRY_MS", 100)
    answers = iter([False, False])  # the check of the request, and one partition
    with EmbeddedBroker() as broker, WireClient(broker.address, timeout=SECONDS) as client:
        monkeypatch.setattr("headrace.storage.manager._uses_reserved_files", lambda _: next(answers, True))
        (topic,) = client.call(creation("t", partitions=3)).topics
        assert topic.error_code == STORAGE_ERROR
        client.call(DeleteTopicsRequest(topic_names=["t"], timeout_ms=0), 5)
        broker.wait_until(lambda running: not running.image.has_topic("t"))
        monkeypatch.setattr("headrace.storage.manager._uses_reserved_files", lambda _: False)
        broker.wait_until(lambda running: not running.replicas.has_failed_creations)
        eventually(lambda: client.call(creation("t", partitions=3)).topics[0].error_code == 0, "the name is free again")


def test_partitions_that_could_not_be_created_get_leaders_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.broker.server._CREATION_RETRY_MS", 100)
    answers = iter([False, False, False])  # the check of the request, and two partitions
    with EmbeddedBroker() as broker, WireClient(broker.address, timeout=SECONDS) as client:
        monkeypatch.setattr("headrace.storage.manager._uses_reserved_files", lambda _: next(answers, True))
        (topic,) = client.call(creation("t", partitions=5)).topics
        assert topic.error_code == STORAGE_ERROR
        assert "keeps trying to create their logs: Cannot create a log in" in topic.error_message
        assert produce(client, batch(b"served"), topic="t", partition=0).error_code == 0
        monkeypatch.setattr("headrace.storage.manager._uses_reserved_files", lambda _: False)
        broker.wait_until(lambda running: running.image.topic_is_ready("t", 5))
        for partition in range(5):
            broker.wait_until(lambda running, index=partition: leads(running, index))
            assert produce(client, batch(b"served"), topic="t", partition=partition).error_code == 0


def test_new_partitions_do_not_wait_for_earlier_ones_that_could_not_be_created(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([False, False])  # the check of the request, and one partition
    with EmbeddedBroker() as broker, WireClient(broker.address, timeout=SECONDS) as client:
        monkeypatch.setattr("headrace.storage.manager._uses_reserved_files", lambda _: next(answers, True))
        assert client.call(creation("t", partitions=2)).topics[0].error_code == STORAGE_ERROR
        monkeypatch.setattr("headrace.storage.manager._uses_reserved_files", lambda _: False)
        added = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name="t", count=3, assignments=None)], timeout_ms=20_000
        )
        assert client.call(added, 3).results[0].error_code == 0
        assert produce(client, batch(b"served"), topic="t", partition=2).error_code == 0
