"""Fetch over a socket: long polling, limits, sessions, epochs, deletion under a waiting reader."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.net.wire_calls import NAMED, batch, end_offset, fetch, fetch_request, produce, topic_id
from tests.support.net.wire_client import WireClient

from headrace.broker.server import Broker
from headrace.cluster.commands import LeaderAndIsr, PartitionState
from headrace.common.ids import Uuid
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from headrace.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from headrace.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from headrace.records import decode_rows, split_batches
from headrace.testing import EmbeddedBroker

FOREVER = 600_000
FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH = 74, 75


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[WireClient]:
    with WireClient(broker.address) as client:
        yield client


@pytest.fixture
def topic(broker: EmbeddedBroker, request: pytest.FixtureRequest) -> str:
    name = request.node.name.replace("[", "-").replace("]", "")[:100]
    broker.create_topic(name, 3)
    return name


def values(found: Any) -> list[bytes | None]:
    return [
        record.value
        for stored in split_batches(bytes(found.records), allow_partial=True)
        for record in decode_rows(stored.records())
    ]


def asked(partition: int, offset: int, max_bytes: int = 1 << 20) -> FetchPartition:
    return FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)


def by_partition(reply: Any) -> dict[int, Any]:
    return {one.partition_index: one for found in reply.responses for one in found.partitions}


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version(client: WireClient, topic: str, version: int) -> None:
    produce(client, batch(b"a", b"b"), topic=topic)
    request = fetch_request(0, topic)
    request.topics[0].topic_id = topic_id(client, topic)
    reply = client.call(request, version)
    assert reply.error_code == 0
    (found,) = by_partition(reply).values()
    assert (found.error_code, found.high_watermark, found.last_stable_offset) == (0, 2, 2)
    assert values(found) == [b"a", b"b"]


def test_returns_the_batch_that_contains_the_offset(client: WireClient, topic: str) -> None:
    produce(client, batch(b"a", b"b"), topic=topic)
    produce(client, batch(b"c"), topic=topic)
    assert values(fetch(client, 1, topic)) == [b"a", b"b", b"c"]
    assert values(fetch(client, 2, topic)) == [b"c"]
    assert values(fetch(client, 3, topic)) == []


@pytest.mark.parametrize("offset", [-1, 4, 2**60])
def test_offset_out_of_range(client: WireClient, topic: str, offset: int) -> None:
    produce(client, batch(b"a", b"b", b"c"), topic=topic)
    found = fetch(client, offset, topic, max_wait_ms=FOREVER)  # completes at once
    assert (found.error_code, found.high_watermark, bytes(found.records)) == (1, -1, b"")


def test_errors_for_missing_partitions(client: WireClient, topic: str) -> None:
    assert fetch(client, 0, topic, 99).error_code == 3
    assert fetch(client, 0, "no-such-topic").error_code == 3
    request = fetch_request(0)
    request.topics[0].topic_id = Uuid(int=12345)
    assert by_partition(client.call(request, 13))[0].error_code == 100


def test_leader_epochs(broker: EmbeddedBroker, client: WireClient, topic: str) -> None:
    produce(client, batch(b"a"), topic=topic)
    first, current = broker.call(lambda running: start_leader_epoch(running, topic))
    assert 0 <= first < current
    produce(client, batch(b"b"), topic=topic)
    found = fetch(client, 0, topic)
    assert [stored.leader_epoch for stored in split_batches(bytes(found.records))] == [first, current]
    assert fetch(client, 0, topic, epoch=current).error_code == 0
    for epoch, code in ((current + 1, UNKNOWN_LEADER_EPOCH), (first, FENCED_LEADER_EPOCH)):
        found = fetch(client, 0, topic, epoch=epoch, max_wait_ms=FOREVER)  # completes at once
        assert (found.error_code, found.high_watermark, bytes(found.records)) == (code, -1, b"")


def start_leader_epoch(broker: Broker, topic: str) -> tuple[int, int]:
    """Makes the broker the leader again, as the controller does after an election. Returns both epochs."""
    partition = broker.replicas.find(topic, 0)
    first = partition.leader_epoch
    assert partition.topic_id is not None
    state = PartitionState(
        partition.tp,
        partition.topic_id,
        leader=partition.node_id,
        leader_epoch=first + 1,
        isr=tuple(partition.isr),
        partition_epoch=partition.partition_epoch + 1,
        replicas=tuple(partition.replicas),
    )
    broker.replicas.lead_or_follow(LeaderAndIsr(partition.node_id, 1, -1, [state]))
    return first, partition.leader_epoch


def test_waits_for_data(broker: EmbeddedBroker, client: WireClient, topic: str) -> None:
    sent = client.send(fetch_request(0, topic, max_wait_ms=FOREVER), NAMED)
    broker.wait_until(lambda running: running.replicas.fetches.delayed >= 1)
    with WireClient(broker.address) as other:
        produce(other, batch(b"at last"), topic=topic)
    assert values(by_partition(client.receive(sent))[0]) == [b"at last"]


def test_waits_for_enough_data(broker: EmbeddedBroker, client: WireClient, topic: str) -> None:
    sent = client.send(fetch_request(0, topic, max_wait_ms=FOREVER, min_bytes=250), NAMED)
    broker.wait_until(lambda running: running.replicas.fetches.delayed >= 1)
    with WireClient(broker.address) as other:
        for _ in range(3):
            produce(other, batch(bytes(50)), topic=topic)
    assert len(values(by_partition(client.receive(sent))[0])) == 3


def test_returns_available_data_after_max_wait(client: WireClient, topic: str) -> None:
    produce(client, batch(b"little"), topic=topic)
    reply = client.call(fetch_request(0, topic, max_wait_ms=20, min_bytes=100_000), NAMED)
    assert values(by_partition(reply)[0]) == [b"little"]
    assert values(fetch(client, 1, topic, max_wait_ms=20)) == []


def test_deleting_the_topic_completes_a_delayed_fetch(broker: EmbeddedBroker, client: WireClient, topic: str) -> None:
    sent = client.send(fetch_request(0, topic, max_wait_ms=FOREVER), NAMED)
    broker.wait_until(lambda running: running.replicas.fetches.delayed >= 1)
    broker.delete_topic(topic)
    assert by_partition(client.receive(sent))[0].error_code in (3, 6)


def test_lost_connection_cancels_its_fetch(broker: EmbeddedBroker, topic: str) -> None:
    client = WireClient(broker.address)
    client.send(fetch_request(0, topic, max_wait_ms=FOREVER), NAMED)
    broker.wait_until(lambda running: running.replicas.fetches.delayed == 1)
    client.close()
    broker.wait_until(lambda running: running.replicas.fetches.delayed == 0)


def test_responses_stay_in_order_behind_a_delayed_one(broker: EmbeddedBroker, client: WireClient, topic: str) -> None:
    waiting = client.send(fetch_request(0, topic, max_wait_ms=FOREVER), NAMED)
    behind = client.send(fetch_request(0, topic, 1), NAMED)
    broker.wait_until(lambda running: running.replicas.fetches.delayed >= 1)
    with WireClient(broker.address) as other:
        produce(other, batch(b"x"), topic=topic)
    assert by_partition(client.receive(waiting))[0].high_watermark == 1
    assert by_partition(client.receive(behind))[1].high_watermark == 0


def test_max_bytes_applies_to_all_partitions(client: WireClient, topic: str) -> None:
    for partition in range(3):
        produce(client, batch(bytes(1000)), topic=topic, partition=partition)
        produce(client, batch(bytes(1000)), topic=topic, partition=partition)
    size = len(batch(bytes(1000)))
    topics = [FetchTopic(topic=topic, partitions=[asked(partition, 0) for partition in range(3)])]
    sizes = [
        [len(one.records) for one in by_partition(client.call(request, NAMED)).values()]
        for request in (
            FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=3 * size, topics=topics),
            FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1, topics=topics),
        )
    ]
    assert sizes == [[2 * size, size, 0], [size, 0, 0]]


def test_partition_max_bytes(client: WireClient, topic: str) -> None:
    for _ in range(3):
        produce(client, batch(bytes(1000)), topic=topic)
    size = len(batch(bytes(1000)))
    assert len(fetch(client, 0, topic, max_bytes=2 * size).records) == 2 * size
    assert len(fetch(client, 0, topic, max_bytes=0).records) == size  # the first batch is returned whole


def test_returns_a_large_batch_whole(client: WireClient, topic: str) -> None:
    large = batch(bytes(900_000))
    produce(client, large, topic=topic)
    assert len(fetch(client, 0, topic, max_bytes=10).records) == len(large)


# ---- sessions


def start_session(client: WireClient, topic: str, partitions: range = range(3)) -> Any:
    topics = [FetchTopic(topic=topic, partitions=[asked(partition, 0) for partition in partitions])]
    return client.call(FetchRequest(max_wait_ms=0, min_bytes=0, session_epoch=0, topics=topics), NAMED)


def next_fetch(client: WireClient, session_id: int, epoch: int, **changes: Any) -> Any:
    request = FetchRequest(max_wait_ms=0, min_bytes=0, session_id=session_id, session_epoch=epoch, **changes)
    return client.call(request, NAMED)


def test_session_returns_only_changes(client: WireClient, topic: str) -> None:
    first = start_session(client, topic)
    assert first.session_id > 0
    assert sorted(by_partition(first)) == [0, 1, 2]
    assert by_partition(next_fetch(client, first.session_id, 1)) == {}
    produce(client, batch(b"news"), topic=topic, partition=1)
    assert [(index, values(one)) for index, one in by_partition(next_fetch(client, first.session_id, 2)).items()] == [
        (1, [b"news"])
    ]
    moved = [FetchTopic(topic=topic, partitions=[asked(1, 1)])]
    assert by_partition(next_fetch(client, first.session_id, 3, topics=moved)) == {}
    forgotten = [ForgottenTopic(topic=topic, partitions=[0, 1])]
    produce(client, batch(b"unheard"), topic=topic, partition=0)
    assert by_partition(next_fetch(client, first.session_id, 4, forgotten_topics_data=forgotten)) == {}


def test_session_waits_for_data(broker: EmbeddedBroker, client: WireClient, topic: str) -> None:
    session_id = start_session(client, topic).session_id
    request = FetchRequest(max_wait_ms=FOREVER, min_bytes=1, session_id=session_id, session_epoch=1)
    sent = client.send(request, NAMED)
    broker.wait_until(lambda running: running.replicas.fetches.delayed >= 1)
    with WireClient(broker.address) as other:
        produce(other, batch(b"x"), topic=topic, partition=2)
    assert {index: values(one) for index, one in by_partition(client.receive(sent)).items()} == {2: [b"x"]}


def test_session_rotates_partitions(client: WireClient, topic: str) -> None:
    for partition in range(3):
        for _ in range(3):
            produce(client, batch(bytes(1000)), topic=topic, partition=partition)
    session_id = start_session(client, topic).session_id
    served = []
    for epoch in range(1, 7):
        reply = next_fetch(client, session_id, epoch, max_bytes=1)
        served += [index for index, one in by_partition(reply).items() if len(one.records)]
    assert served == [0, 1, 2, 0, 1, 2]


def test_session_ends_with_its_last_partition(broker: EmbeddedBroker, client: WireClient, topic: str) -> None:
    session_id = start_session(client, topic).session_id
    before = broker.call(lambda running: len(running.fetch_sessions))
    forgotten = [ForgottenTopic(topic=topic, partitions=[0, 1, 2])]
    reply = next_fetch(client, session_id, 1, forgotten_topics_data=forgotten)
    assert (reply.error_code, reply.session_id, reply.responses) == (0, 0, [])
    assert broker.call(lambda running: len(running.fetch_sessions)) == before - 1
    assert next_fetch(client, session_id, 2).error_code == 70


def test_session_errors(client: WireClient, topic: str) -> None:
    session_id = start_session(client, topic).session_id
    assert next_fetch(client, session_id, 5).error_code == 71
    assert next_fetch(client, 2**30 + 5 if session_id != 2**30 + 5 else 7, 1).error_code == 70
    assert next_fetch(client, session_id, 1).error_code == 0  # an error does not end the session
    assert client.call(FetchRequest(session_id=session_id, session_epoch=2), 13).error_code == 106
    assert next_fetch(client, session_id, -1).session_id == 0  # ends the session
    assert next_fetch(client, session_id, 2).error_code == 70


def test_session_repeats_errors_of_a_partition(client: WireClient, topic: str) -> None:
    reply = start_session(client, topic, range(2, 5))
    session_id = reply.session_id
    assert [(index, one.error_code) for index, one in by_partition(reply).items()] == [(2, 0), (3, 3), (4, 3)]
    assert sorted(by_partition(next_fetch(client, session_id, 1))) == [3, 4]


def test_refuses_an_invalid_isolation_level(client: WireClient, topic: str) -> None:
    assert client.call(fetch_request(0, topic, isolation_level=7), NAMED).error_code == 42


# ---- offsets


def list_offset(client: WireClient, topic: str, timestamp: int, version: int = 7, partition: int = 0) -> Any:
    one = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[one])])
    return client.call(request, version).topics[0].partitions[0]


def test_list_offsets_by_timestamp(client: WireClient, topic: str) -> None:
    for at in (1000, 3000, 2000):
        produce(client, batch(b"x", timestamp=at), topic=topic)
    found = {at: list_offset(client, topic, at) for at in (-1, -2, -3, 0, 1000, 1001, 2500, 3000, 3001)}
    assert {at: one.offset for at, one in found.items()} == {
        -1: 3, -2: 0, -3: 1, 0: 0, 1000: 0, 1001: 1, 2500: 1, 3000: 1, 3001: -1
    }  # fmt: skip
    assert {at: one.timestamp for at, one in found.items() if at > -3 and at < 2000} == {
        -1: -1, -2: -1, 0: 1000, 1000: 1000, 1001: 3000
    }  # fmt: skip


@pytest.mark.parametrize("version", range(1, 12))
def test_every_version_of_list_offsets(client: WireClient, topic: str, version: int) -> None:
    produce(client, batch(b"x", b"y"), topic=topic)
    assert list_offset(client, topic, -1, version).offset == 2
    assert list_offset(client, topic, -2, version).offset == 0


def test_refuses_timestamps_unknown_to_a_version(client: WireClient, topic: str) -> None:
    produce(client, batch(b"x"), topic=topic)
    assert list_offset(client, topic, -3, 6).error_code == 35
    assert list_offset(client, topic, -4, 7).error_code == 35
    assert list_offset(client, topic, -4, 8).offset == 0
    assert list_offset(client, topic, -5, 9).offset == -1
    assert list_offset(client, topic, -9, 11).error_code == 35
    assert list_offset(client, topic, -1, partition=44).error_code == 3


@pytest.mark.parametrize("version", [2, 3, 4])
def test_end_offset_of_a_leader_epoch(client: WireClient, topic: str, version: int) -> None:
    produce(client, batch(b"a", b"b"), topic=topic)
    current = split_batches(bytes(fetch(client, 0, topic).records))[0].leader_epoch

    def ask(epoch: int, own: int = -1, partition: int = 0) -> Any:
        one = OffsetForLeaderPartition(partition=partition, leader_epoch=epoch, current_leader_epoch=own)
        request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=[one])])
        return client.call(request, version).topics[0].partitions[0]

    assert (ask(current).leader_epoch, ask(current).end_offset) == (current, 2)
    assert ask(current + 5).end_offset == -1
    assert ask(current, own=current + 1).error_code == 75
    assert ask(current, partition=50).error_code == 3


# ---- many at once


def test_append_completes_all_delayed_fetches(broker: EmbeddedBroker, topic: str) -> None:
    clients = [WireClient(broker.address) for _ in range(50)]
    try:
        sent = [one.send(fetch_request(0, topic, max_wait_ms=FOREVER), NAMED) for one in clients]
        broker.wait_until(lambda running: running.replicas.fetches.delayed >= 50)
        with WireClient(broker.address) as other:
            produce(other, batch(b"all"), topic=topic)
        for one, what in zip(clients, sent, strict=True):
            assert values(by_partition(one.receive(what))[0]) == [b"all"]
    finally:
        for one in clients:
            one.close()


def test_concurrent_readers_and_writers(broker: EmbeddedBroker, topic: str) -> None:
    count, writers = 200, 4

    def write(number: int) -> None:
        with WireClient(broker.address) as one:
            for sequence in range(count):
                produce(one, batch(b"%d:%d" % (number, sequence)), topic=topic, acks=-1)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(writers)]
    for thread in threads:
        thread.start()
    seen: list[bytes] = []
    with WireClient(broker.address) as reader:
        while len(seen) < count * writers:
            seen += [value or b"" for value in values(fetch(reader, len(seen), topic, max_wait_ms=500))]
        assert end_offset(reader, topic) == count * writers
    for thread in threads:
        thread.join()
    for number in range(writers):
        mine = [value for value in seen if value.startswith(b"%d:" % number)]
        assert mine == [b"%d:%d" % (number, sequence) for sequence in range(count)]


def test_last_entry_of_a_duplicate_partition_counts(client: WireClient, topic: str) -> None:
    asked_for = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in (0, 1, 0)]
    reply = client.call(ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=asked_for)]), 5)
    codes = [(one.partition_index, one.error_code) for one in reply.topics[0].partitions]
    assert codes == [(0, 42), (1, 0), (0, 42)]
