"""Transactions with a real broker: visibility of committed records, fencing, and errors."""

import dataclasses
import itertools
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from tests.support.broker.process import eventually
from tests.support.client.producer_logs import read_values
from tests.support.net.wire_client import WireClient

from headrace.client.errors import IllegalStateError, KafkaTimeoutError, TransactionAbortedError
from headrace.client.producer.network_client import NetworkClient
from headrace.client.producer.producer import Producer
from headrace.client.types import ConsumerGroupMetadata, OffsetAndMetadata
from headrace.common.errors import (
    ConcurrentTransactionsError,
    CoordinatorNotAvailableError,
    InvalidProducerEpochError,
    KafkaError,
    NotCoordinatorError,
    NotLeaderForPartitionError,
    ProducerFencedError,
    TopicAuthorizationFailedError,
)
from headrace.common.types import TopicPartition
from headrace.protocol import ApiKey
from headrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from headrace.testing import EmbeddedBroker

PATIENCE = 120
PATIENCE_MS = 60_000
_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker({"transaction.state.log.num.partitions": 2, "offsets.topic.num.partitions": 2}) as running:
        yield running


@pytest.fixture(params=[1, 2], ids=["version 1", "version 2"], autouse=True)
def version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The transaction version (KIP-890) of the producer. The broker supports both."""

    async def answer(network: NetworkClient, transactional_id: str) -> int:
        return int(request.param)

    monkeypatch.setattr(NetworkClient, "transaction_version", answer)
    return int(request.param)


@pytest.fixture(autouse=True)
def calm(broker: EmbeddedBroker) -> Iterator[None]:
    yield
    broker.faults.clear()
    broker.resume()


@pytest.fixture
def topic(broker: EmbeddedBroker) -> str:
    name = f"transactions-{next(_numbers)}"
    broker.create_topic(name, 2)
    return name


def make(broker: EmbeddedBroker, name: str, **settings: Any) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "transactional.id": name,
            "retry.backoff.ms": 5,
            "reconnect.backoff.ms": 5,
            **settings,
        }
    )
    producer.init_transactions()
    return producer


def committed(broker: EmbeddedBroker, topic: str) -> list[bytes | None]:
    return [value for partition in range(2) for value in read_values(broker, topic, partition, committed=True)]


def test_read_committed_sees_committed_records_only(broker: EmbeddedBroker, topic: str) -> None:
    with make(broker, topic) as producer:
        for number, outcome in enumerate(["commit", "abort", "commit", "empty", "abort", "commit"]):
            producer.begin_transaction()
            if outcome != "empty":
                futures = [producer.send(topic, b"%d" % number, partition=partition) for partition in (0, 1)]
            if outcome == "abort":
                assert all(future.get(timeout_ms=PATIENCE_MS).offset >= 0 for future in futures)
                producer.abort_transaction()
            else:
                producer.commit_transaction()
                assert all(future.succeeded() for future in futures)
    assert sorted(value or b"" for value in committed(broker, topic)) == [b"0", b"0", b"2", b"2", b"5", b"5"]


def test_transaction_includes_arrow_tables(broker: EmbeddedBroker, topic: str) -> None:
    pa = pytest.importorskip("pyarrow")
    data = pa.table({"value": pa.array([b"%d" % n for n in range(1000)], pa.binary())})
    with make(broker, topic) as producer:
        producer.begin_transaction()
        producer.send_arrow(topic, data, partition=0)
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send_arrow(topic, data, partition=1)
        producer.commit_transaction()
    assert committed(broker, topic) == [b"%d" % n for n in range(1000)]


def test_abort_fails_unsent_records(broker: EmbeddedBroker, topic: str) -> None:
    with make(broker, topic, linger_ms=60_000, delivery_timeout_ms=200_000) as producer:
        producer.begin_transaction()
        future = producer.send(topic, b"v")
        producer.abort_transaction()
        assert isinstance(future.exception, TransactionAbortedError)
    assert committed(broker, topic) == []


def fetch_offset(broker: EmbeddedBroker, group: str, topic: str) -> int:
    with WireClient(broker.address) as client:
        asked = OffsetFetchRequestGroup(
            group_id=group, topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
        )
        reply = client.call(OffsetFetchRequest(groups=[asked], require_stable=True), 8)
        return int(reply.groups[0].topics[0].partitions[0].committed_offset)


def test_commits_offsets_with_transaction(broker: EmbeddedBroker, topic: str) -> None:
    group = f"group-{topic}"
    with make(broker, topic) as producer:
        producer.begin_transaction()
        producer.send_offsets_to_transaction({TopicPartition(topic, 0): OffsetAndMetadata(5)}, group)
        producer.abort_transaction()
        assert fetch_offset(broker, group, topic) == -1
        producer.begin_transaction()
        producer.send(topic, b"v")
        producer.send_offsets_to_transaction({TopicPartition(topic, 0): 7}, ConsumerGroupMetadata(group))
        producer.commit_transaction()
    for _ in range(1000):
        try:
            assert fetch_offset(broker, group, topic) == 7
        except AssertionError:
            continue
        break
    assert fetch_offset(broker, group, topic) == 7


def test_newer_producer_fences_older_one(broker: EmbeddedBroker, topic: str) -> None:
    with make(broker, topic) as old:
        old.begin_transaction()
        old.send(topic, b"old", partition=0).get(timeout_ms=PATIENCE_MS)
        with make(broker, topic) as new:
            with pytest.raises(KafkaError) as caught:
                old.send(topic, b"late", partition=0).get(timeout_ms=PATIENCE_MS)
            assert isinstance(caught.value, ProducerFencedError | InvalidProducerEpochError)
            with pytest.raises(KafkaError) as caught:
                old.commit_transaction()
            if not caught.value.fatal:
                with pytest.raises(ProducerFencedError) as fenced:
                    old.abort_transaction()
                assert fenced.value.fatal
            with pytest.raises(ProducerFencedError):
                old.send(topic, b"later")
            new.begin_transaction()
            new.send(topic, b"new", partition=0)
            new.commit_transaction()
        assert committed(broker, topic) == [b"new"]


def test_producer_changes_transactional_ids(broker: EmbeddedBroker, topic: str) -> None:
    with make(broker, topic) as one, make(broker, f"{topic}-2") as other:
        other.begin_transaction()
        other.send(topic, b"other", partition=0).get(timeout_ms=PATIENCE_MS)
        for name in (f"{topic}-1", f"{topic}-2", topic):
            one.init_transactions(name)
            with one.transaction():
                one.send(topic, name.encode(), partition=0)
        with pytest.raises(ProducerFencedError):
            other.commit_transaction()
    assert committed(broker, topic) == [f"{topic}-1".encode(), f"{topic}-2".encode(), topic.encode()]


def test_next_transaction_succeeds_after_abort(broker: EmbeddedBroker, topic: str) -> None:
    with make(broker, topic) as producer:
        producer.begin_transaction()
        producer.send(topic, b"a", partition=0).get(timeout_ms=PATIENCE_MS)
        broker.faults.error(ApiKey.PRODUCE, TopicAuthorizationFailedError, times=1)
        with pytest.raises(TopicAuthorizationFailedError):
            producer.send(topic, b"b", partition=0).get(timeout_ms=PATIENCE_MS)
        with pytest.raises(TopicAuthorizationFailedError) as caught:
            producer.send(topic, b"c", partition=0)
        assert caught.value.abortable
        with pytest.raises(TopicAuthorizationFailedError):
            producer.commit_transaction()
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send(topic, b"d", partition=0)
        producer.commit_transaction()
    assert committed(broker, topic) == [b"d"]


def test_rejected_retry_hides_no_record_of_the_next_transaction(broker: EmbeddedBroker, topic: str) -> None:
    """A batch is written, its response is lost and the retry is rejected. The next transaction does not reuse its
    sequence numbers."""
    with make(broker, topic) as producer:
        producer.begin_transaction()
        producer.send(topic, b"a", partition=0).get(timeout_ms=PATIENCE_MS)
        broker.faults.drop_reply(ApiKey.PRODUCE, times=1, close=True)
        broker.faults.error(ApiKey.PRODUCE, TopicAuthorizationFailedError, times=1)
        with pytest.raises(TopicAuthorizationFailedError):
            producer.send(topic, b"b", partition=0).get(timeout_ms=PATIENCE_MS)
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send(topic, b"c", partition=0)
        producer.commit_transaction()
    assert committed(broker, topic) == [b"c"]
    assert read_values(broker, topic) == [b"a", b"b", b"c"]


def test_error_fails_commit_and_queued_batches(broker: EmbeddedBroker, topic: str) -> None:
    """The commit neither sends nor awaits the batches behind the failed one."""
    with make(broker, topic, batch_size=200, linger_ms=60_000, delivery_timeout_ms=200_000) as producer:
        producer.begin_transaction()
        producer.send(topic, b"first", partition=0)
        producer.flush(timeout_ms=PATIENCE_MS)
        broker.faults.error(ApiKey.PRODUCE, TopicAuthorizationFailedError, times=1)
        futures = []
        with suppress(TopicAuthorizationFailedError):  # `send` may raise it already
            for number in range(60):
                futures.append(producer.send(topic, b"v" * 100, partition=number % 2))
        with pytest.raises(TopicAuthorizationFailedError) as caught:
            producer.commit_transaction()
        assert caught.value.abortable
        # If the error came before the commit, batches in flight complete a moment later.
        eventually(lambda: all(future.is_done for future in futures), "every record is done", PATIENCE)
        assert any(future.failed() for future in futures)
        producer.abort_transaction()
    assert committed(broker, topic) == []


def test_abort_does_not_wait_for_retries(broker: EmbeddedBroker, topic: str) -> None:
    with make(broker, topic, batch_size=200) as producer:
        producer.begin_transaction()
        producer.send(topic, b"first", partition=0).get(timeout_ms=PATIENCE_MS)
        with broker.faults.error(ApiKey.PRODUCE, NotLeaderForPartitionError) as fault:
            futures = [producer.send(topic, b"v" * 100, partition=0) for _ in range(10)]
            fault.wait_for_hits(2)
            producer.abort_transaction()
            assert all(future.failed() for future in futures)
        producer.begin_transaction()
        producer.send(topic, b"next", partition=0)
        producer.commit_transaction()
    assert committed(broker, topic) == [b"next"]


@pytest.mark.parametrize(
    ("api", "error"),
    [
        (ApiKey.FIND_COORDINATOR, CoordinatorNotAvailableError),
        (ApiKey.INIT_PRODUCER_ID, ConcurrentTransactionsError),
        (ApiKey.ADD_PARTITIONS_TO_TXN, NotCoordinatorError),
        (ApiKey.ADD_PARTITIONS_TO_TXN, ConcurrentTransactionsError),
        (ApiKey.ADD_OFFSETS_TO_TXN, NotCoordinatorError),
        (ApiKey.TXN_OFFSET_COMMIT, NotCoordinatorError),
        (ApiKey.END_TXN, NotCoordinatorError),
        (ApiKey.PRODUCE, NotLeaderForPartitionError),
    ],
)
def test_survives_moved_coordinators_and_leaders(
    broker: EmbeddedBroker, topic: str, api: ApiKey, error: type[KafkaError], version: int
) -> None:
    fault = broker.faults.error(api, error, times=2)
    with make(broker, topic) as producer:
        for number in range(3):
            producer.begin_transaction()
            producer.send(topic, b"%d" % number, partition=0)
            producer.send_offsets_to_transaction({TopicPartition(topic, 0): number}, topic)
            producer.commit_transaction()
    is_asked = version == 1 or api not in (ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN)
    assert fault.hits == (2 if is_asked else 0)
    assert committed(broker, topic) == [b"0", b"1", b"2"]


@pytest.mark.parametrize(
    "api", [ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.PRODUCE, ApiKey.TXN_OFFSET_COMMIT, ApiKey.END_TXN]
)
@pytest.mark.parametrize("kind", ["before", "after"])
def test_survives_cut_connections(broker: EmbeddedBroker, topic: str, api: ApiKey, kind: str) -> None:
    with make(broker, topic) as producer:
        for number in range(3):
            if kind == "before":
                broker.faults.drop_connection(api, times=1)
            else:
                broker.faults.drop_reply(api, times=1, close=True)
            producer.begin_transaction()
            producer.send(topic, b"%d" % number, partition=0)
            producer.send_offsets_to_transaction({TopicPartition(topic, 0): number}, topic)
            producer.commit_transaction()
    assert committed(broker, topic) == [b"0", b"1", b"2"]


def test_repeated_commit_waits_for_same_commit(broker: EmbeddedBroker, topic: str) -> None:
    with make(broker, topic) as producer:
        producer.config = producer._core.config = dataclasses.replace(producer.config, max_block_ms=300)
        producer.begin_transaction()
        producer.send(topic, b"v", partition=0).get(timeout_ms=PATIENCE_MS)
        broker.pause()
        with pytest.raises(KafkaTimeoutError, match="commit_transaction"):
            producer.commit_transaction()
        with pytest.raises(IllegalStateError):
            producer.abort_transaction()
        broker.resume()
        producer.config = producer._core.config = dataclasses.replace(producer.config, max_block_ms=60_000)
        producer.commit_transaction()
    assert committed(broker, topic) == [b"v"]


def test_abort_after_send_offsets_timeout(broker: EmbeddedBroker, topic: str) -> None:
    tp = TopicPartition(topic, 0)
    with make(broker, topic) as producer:
        producer.begin_transaction()
        producer.send_offsets_to_transaction({tp: 1}, topic)
        producer.config = producer._core.config = dataclasses.replace(producer.config, max_block_ms=300)
        with broker.faults.delay(ApiKey.TXN_OFFSET_COMMIT, 600, times=1) as fault:
            with pytest.raises(KafkaTimeoutError, match="send_offsets"):
                producer.send_offsets_to_transaction({tp: 2}, topic)
            producer.config = producer._core.config = dataclasses.replace(producer.config, max_block_ms=60_000)
            producer.abort_transaction()
        assert fault.hits == 1
        with producer.transaction():
            producer.send_offsets_to_transaction({tp: 3}, topic)
    eventually(lambda: fetch_offset(broker, topic, topic) == 3, "the offset is committed", PATIENCE)


def test_close_aborts_open_transaction(broker: EmbeddedBroker, topic: str) -> None:
    producer = make(broker, topic)
    producer.begin_transaction()
    producer.send(topic, b"v", partition=0).get(timeout_ms=PATIENCE_MS)
    producer.close()
    with make(broker, f"{topic}-other") as other:
        other.begin_transaction()
        other.send(topic, b"w", partition=0)
        other.commit_transaction()
    assert committed(broker, topic) == [b"w"]


def test_close_completes_commit_that_timed_out(broker: EmbeddedBroker, topic: str) -> None:
    producer = make(broker, topic)
    producer.begin_transaction()
    producer.send(topic, b"v", partition=0).get(timeout_ms=PATIENCE_MS)
    producer.config = producer._core.config = dataclasses.replace(producer.config, max_block_ms=100)
    fault = broker.faults.error(ApiKey.END_TXN, CoordinatorNotAvailableError, times=7)  # about 600 ms of backoff
    with pytest.raises(KafkaTimeoutError, match="commit_transaction"):
        producer.commit_transaction()
    producer.close()
    assert fault.hits == 7
    eventually(lambda: committed(broker, topic) == [b"v"], "the transaction is committed", PATIENCE)


def test_transaction_calls_need_transactional_id(broker: EmbeddedBroker) -> None:
    with (
        Producer(bootstrap_servers=broker.bootstrap_servers) as producer,
        pytest.raises(IllegalStateError, match=r"transactional\.id"),
    ):
        producer.init_transactions()


def test_transaction_block_commits_or_aborts(broker: EmbeddedBroker, topic: str) -> None:
    with make(broker, topic, linger_ms=60_000, delivery_timeout_ms=200_000) as producer:
        with producer.transaction():
            producer.send(topic, b"kept", partition=0)
        with pytest.raises(KafkaTimeoutError), producer.transaction():
            producer.send(topic, b"lost", partition=0).get(timeout_ms=0)
        broker.faults.error(ApiKey.PRODUCE, TopicAuthorizationFailedError, times=1)
        with pytest.raises(TopicAuthorizationFailedError), producer.transaction():
            producer.send(topic, b"refused when it is committed", partition=0)
        with producer.transaction():
            producer.send(topic, b"kept too", partition=0)
    assert committed(broker, topic) == [b"kept", b"kept too"]
