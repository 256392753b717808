"""Idempotent producers of all clients: every record is written once and in order, although responses are lost,
connections cut, and the broker is killed."""

from collections.abc import Callable, Iterator

import pytest
from tests.support.broker.clients import Aiokafka, Client, Confluent, KafkaPython
from tests.support.broker.records import assert_same, numbered, with_offsets
from tests.support.broker.under_test import IS_KAFKA

from headrace.protocol import ApiKey
from headrace.testing import EmbeddedBroker

CLIENTS = ("confluent-kafka", "kafka-python", "aiokafka", "kafka-clients")
IN_PROCESS = (Confluent, KafkaPython, Aiokafka)


def idempotent(name: str) -> dict[str, object]:
    """Returns a client's configs for many small batches in flight, if it supports that."""
    if name == "aiokafka":
        return {"enable_idempotence": True, "max_batch_size": 200, "linger_ms": 0}
    return {
        "enable_idempotence": "true" if name == "kafka-clients" else True,
        "max_in_flight_requests_per_connection": 5,
        "batch_size": 200,
        "linger_ms": 0,
    }


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest, get_client: Callable[[str], Client]) -> Client:
    return get_client(request.param)


def test_idempotent_writes(client: Client, new_topic: Callable[..., str]) -> None:
    topic = new_topic(3)
    rows = [row for partition in range(3) for row in numbered(300, partition)]
    for _ in range(2):  # each producer has its own id
        acks = client.write(topic, rows, **idempotent(client.name))
        assert {ack.error for ack in acks} == {0}
    found = client.read(topic, range(3))
    assert_same(found, with_offsets([row for partition in range(3) for row in rows[300 * partition :][:300] * 2]))


@pytest.fixture(scope="module")
def faulty() -> Iterator[EmbeddedBroker]:
    if IS_KAFKA:
        pytest.skip("faults are made by Headrace's own broker")
    with EmbeddedBroker() as broker:
        yield broker


@pytest.mark.parametrize("kind", IN_PROCESS)
def test_no_duplicates_after_lost_responses(kind: type[Client], faulty: EmbeddedBroker) -> None:
    """Batches that are in the log are resent, and acknowledged with their original offsets."""
    topic = f"lost-answers-{kind.name}"
    faulty.create_topic(topic)
    client = kind(faulty.bootstrap_servers)  # type: ignore[call-arg]
    rows = numbered(400)
    seen = iter(range(1_000_000))
    with faulty.faults.drop_reply(ApiKey.PRODUCE, when=lambda _: next(seen) % 7 == 3, close=True) as fault:
        acks = client.write(topic, rows, **idempotent(kind.name))
    assert fault.hits
    assert [(ack.error, ack.offset) for ack in acks] == [(0, number) for number in range(400)]
    assert_same(client.read(topic, [0]), with_offsets(rows))


@pytest.mark.parametrize("kind", IN_PROCESS)
def test_no_loss_after_lost_requests(kind: type[Client], faulty: EmbeddedBroker) -> None:
    """Batches after a lost one are refused until it arrives."""
    topic = f"lost-requests-{kind.name}"
    faulty.create_topic(topic)
    client = kind(faulty.bootstrap_servers)  # type: ignore[call-arg]
    rows = numbered(400)
    seen = iter(range(1_000_000))
    with faulty.faults.error(ApiKey.PRODUCE, 7, when=lambda _: next(seen) % 7 == 3) as fault:
        acks = client.write(topic, rows, **idempotent(kind.name))
    assert fault.hits
    assert [(ack.error, ack.offset) for ack in acks] == [(0, number) for number in range(400)]
    assert_same(client.read(topic, [0]), with_offsets(rows))
