"""Which Produce requests the compiled path completes, begins, or leaves to the general handler.

`tests/property/broker/test_fast_produce_properties.py` compares the results of both.
"""

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.broker.producing import SLOW_MS, ProducePath, produce_frame, state_of
from tests.support.broker.replicas import FOLLOWER, NODE, TP, TP_1
from tests.support.storage.logs import START_MS, contents, make_batch

from headrace.broker.purgatory import DelayedOperation
from headrace.common.ids import Uuid
from headrace.protocol import decode
from headrace.protocol.messages.produce import ProduceResponse
from headrace.records import Compression

RECORD = (b"key", b"x" * 50)


@pytest.fixture
def path(tmp_path: Path) -> Iterator[ProducePath]:
    with ProducePath(tmp_path) as path:
        path.produce((0, make_batch()), (1, make_batch()))
        # The first batch of a segment is not ordinary.
        assert (path.completed, path.begun) == (0, 0)
        yield path


def decoded(response: bytes, version: int) -> list[tuple[int, int, int]]:
    """Returns index, error code and base offset of each partition."""
    message: Any = decode(ProduceResponse, version, response, 9 if version >= 9 else 8)
    return [(p.index, p.error_code, p.base_offset) for topic in message.responses for p in topic.partition_responses]


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("acks", [-1, 1])
def test_ordinary_batches(path: ProducePath, version: int, acks: int) -> None:
    response = path.produce((0, make_batch(2)), (1, make_batch(3)), (0, make_batch()), acks=acks, version=version)
    assert decoded(response, version) == [(0, 0, 1), (1, 0, 1), (0, 0, 3)]
    assert path.completed == 1
    first, second = path.replicas.find(*TP), path.replicas.find(*TP_1)
    assert first.log is not None
    assert second.log is not None
    assert contents(first.log) == [(offset, *RECORD) for offset in range(4)]
    assert (first.log.high_watermark, second.log.high_watermark) == (4, 4)


def test_acks_0_has_no_response(path: ProducePath) -> None:
    assert path.produce((0, make_batch()), acks=0) == b""
    assert path.completed == 1
    assert not path.connection.closed
    assert path.metrics.counter("requests_total", api="PRODUCE").value == 2


def test_the_general_handler_appends_what_follows(path: ProducePath) -> None:
    compressed = make_batch(codec=Compression.GZIP)
    response = path.produce((0, make_batch()), (1, compressed), (0, make_batch()), (9, make_batch()))
    assert decoded(response, 13) == [(0, 0, 1), (1, 0, 1), (0, 0, 2), (9, 3, -1)]
    assert (path.completed, path.begun) == (0, 1)


def test_acks_0_with_a_rejected_batch_closes_the_connection(path: ProducePath) -> None:
    assert path.produce((0, make_batch()), (9, make_batch()), acks=0) == b""
    assert path.begun == 1
    assert path.connection.closed


@pytest.mark.parametrize(
    "request_fields",
    [
        {"acks": 2},
        {"version": 12, "topic": "__consumer_offsets"},
        {"version": 12, "topic": "unknown"},
        {"version": 12, "topic": "ö"},
        {"topic_id": Uuid(int=99)},
        {"transactional_id": "t"},
        {"client_id": "ö"},
    ],
)
def test_other_requests_are_left_alone(path: ProducePath, request_fields: dict[str, Any]) -> None:
    before = state_of(path)
    path.receive(produce_frame([(0, make_batch(codec=Compression.GZIP))], **request_fields))
    assert (path.completed, path.begun) == (0, 0)
    if "client_id" not in request_fields and "transactional_id" not in request_fields:
        assert state_of(path) == before


def test_a_truncated_request_appends_nothing(path: ProducePath) -> None:
    frame = produce_frame([(0, make_batch()), (1, make_batch())])
    before = state_of(path)
    for size in range(1, len(frame)):
        path.receive(frame[:size])
        assert path.connection.closed
        path.connection.closed = False
    assert state_of(path) == before
    path.receive(frame)
    assert path.completed == 1


def test_many_partitions_are_handled_in_turns(path: ProducePath) -> None:
    path.produce(*[(0, make_batch())] * 16)
    assert path.completed == 1
    path.produce(*[(0, make_batch())] * 17)
    assert (path.completed, path.begun) == (1, 0)


@pytest.mark.parametrize("changes", [{"isr": (NODE, FOLLOWER)}, {"replicas": (NODE, FOLLOWER)}, {"leader": FOLLOWER}])
def test_replicated_partitions_are_left_alone(path: ProducePath, changes: dict[str, Any]) -> None:
    path.lead(TP, **changes)
    path.produce((0, make_batch()))
    assert (path.completed, path.begun) == (0, 0)


class _Wait(DelayedOperation):
    def try_complete(self) -> bool:
        return self.force_complete()

    def on_complete(self) -> None:
        pass


def test_waiting_fetches_complete(path: ProducePath) -> None:
    partition = path.replicas.find(*TP)
    fetch = _Wait(1000)
    path.replicas.fetches._watchers[partition] = {fetch: None}
    path.produce((0, make_batch()))
    assert path.completed == 1
    assert fetch.completed


def test_faults_are_injected(path: ProducePath) -> None:
    path.dispatcher.intercept = lambda _: None
    path.produce((0, make_batch()))
    assert (path.completed, path.begun) == (0, 0)


def test_durations_are_logged(
    path: ProducePath, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def slow_write(*_: Any) -> None:
        path.replicas.clock.advance(2 * SLOW_MS)

    monkeypatch.setattr(path.replicas, "appended", slow_write)
    path.replicas.fetches._watchers[path.replicas.find(*TP)] = {}
    with caplog.at_level(logging.DEBUG):
        path.produce((0, make_batch()))
    assert path.completed == 1
    assert "PRODUCE v13 (correlation id 5, client 'client', from 127.0.0.1:1) took 2000 ms of work" in caplog.text


def test_a_failed_write_is_tried_again_by_the_general_handler(path: ProducePath, tmp_path: Path) -> None:
    log = path.replicas.find(*TP).log
    assert log is not None
    segment = log.segments.active
    fd, _ = segment.file.fileno(), os.fsync(segment.file.fileno())
    read_only = os.open(segment.path(), os.O_RDONLY)
    kept = os.dup(fd)
    os.dup2(read_only, fd)
    response = path.produce((0, make_batch(at=START_MS)))
    assert decoded(response, 13) == [(0, 56, -1)]  # KAFKA_STORAGE_ERROR
    assert path.completed == 0
    os.dup2(kept, fd)
    os.close(kept)
    os.close(read_only)
    assert decoded(path.produce((0, make_batch())), 13) == [(0, 0, 1)]
    assert contents(log) == [(0, *RECORD), (1, *RECORD)]
    assert decoded(path.produce((0, make_batch())), 13) == [(0, 0, 2)]
    assert path.completed == 1


def test_an_idempotent_producer(path: ProducePath) -> None:
    def send(sequence: int, epoch: int = 0) -> tuple[int, int]:
        batch = make_batch(2, producer_id=5, producer_epoch=epoch, base_sequence=sequence)
        [(_, error, offset)] = decoded(path.produce((0, batch)), 13)
        return error, offset

    out_of_order, stale_epoch = 45, 47
    assert send(0) == (0, 1)
    assert path.completed == 0  # a new producer
    assert send(2) == (0, 3)
    assert send(4) == (0, 5)
    assert path.completed == 2
    assert send(4) == (0, 5)  # a duplicate
    assert send(8) == (out_of_order, -1)
    assert send(0, epoch=1) == (0, 7)
    assert send(6) == (stale_epoch, -1)
    assert path.completed == 2
    assert send(2, epoch=1) == (0, 9)
    assert path.completed == 3


def test_sequence_numbers_wrap_around(path: ProducePath) -> None:
    last = 2**31 - 1
    for sequence, offset in ((last - 1, 1), (0, 3), (2, 5)):
        batch = make_batch(2, producer_id=5, producer_epoch=0, base_sequence=sequence)
        assert decoded(path.produce((0, batch)), 13) == [(0, 0, offset)]
    assert path.completed == 2
