"""Transactions in the console: open and hanging ones, producers, and aborts."""

import time
from collections.abc import Iterator

import pytest
from tests.support.console.api_client import ApiClient, running_console
from tests.support.net.wire_calls import batch, produce_request
from tests.support.net.wire_client import WireClient

import headrace
from headrace.errors import KafkaError
from headrace.testing import EmbeddedBroker

_CLUSTER = "/api/clusters/default"


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    properties = {"transaction.partition.verification.enable": False, "transaction.state.log.num.partitions": 1}
    with EmbeddedBroker(properties, topics={"t": 1, "u": 1}) as broker:
        yield broker


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[ApiClient]:
    with running_console(broker.bootstrap_servers) as client:
        yield client


def _write_hanging_batch(broker: EmbeddedBroker) -> None:
    """Writes a transactional batch that no coordinator knows."""
    timestamp = int(time.time() * 1000) - 3_600_000
    data = batch(b"hangs", timestamp=timestamp, producer_id=4711, producer_epoch=3, base_sequence=0, transactional=True)
    request = produce_request(data, acks=-1)
    request.transactional_id = "unknown"
    with WireClient(broker.address) as wire:
        ((reply,),) = (topic.partition_responses for topic in wire.call(request, 11).responses)
    assert reply.error_code == 0


def test_a_hanging_transaction_is_found_and_aborted(broker: EmbeddedBroker, client: ApiClient) -> None:
    _write_hanging_batch(broker)
    found = client.get(f"{_CLUSTER}/transactions/hanging").json
    (hanging,) = found["items"]
    assert (hanging["topic"], hanging["partition"], hanging["start_offset"]) == ("t", 0, 0)
    assert (hanging["producer_id"], hanging["transactional_id"]) == (4711, None)
    assert found["partitions_checked"] == found["partitions_total"]
    assert client.get(f"{_CLUSTER}/transactions/hanging", older_than_ms=7_200_000).json["items"] == []
    (producer,) = client.get(f"{_CLUSTER}/topics/t/producers").json["items"]
    assert (producer["producer_id"], producer["current_txn_start_offset"]) == (4711, 0)
    path = f"{_CLUSTER}/transactions/abort"
    place = {"topic": "t", "partition": 0}
    missing = client.call("POST", path, {**place, "start_offset": 5})
    assert (missing.status, missing.json["error"]["code"]) == (404, "TRANSACTION_NOT_FOUND")
    assert client.call("POST", path, place).status == 400
    assert client.call("POST", path, {**place, "start_offset": 0}).json == {"aborted": True}
    assert client.get(f"{_CLUSTER}/transactions/hanging").json["items"] == []
    shown = client.get(f"{_CLUSTER}/topics/t/records", **{"from": "oldest", "control": "true"}).json["records"]
    assert [record["control"] for record in shown] == [None, "abort"]


def test_an_open_transaction_is_listed_and_aborted(broker: EmbeddedBroker, client: ApiClient) -> None:
    with headrace.Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="pay/1") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("u", b"pending").get()
        (item,) = client.get(f"{_CLUSTER}/transactions", search="PAY").json["items"]
        assert (item["transactional_id"], item["state"]) == ("pay/1", "Ongoing")
        assert item["partitions"] == [{"topic": "u", "partition": 0}]
        assert item["age_ms"] >= 0
        assert item["hanging"] is False
        assert client.get(f"{_CLUSTER}/transactions", state="CompleteCommit").json["items"] == []
        answer = client.call("POST", f"{_CLUSTER}/transactions/abort", {"transactional_id": "pay/1"})
        assert answer.json == {"aborted": True}
        with pytest.raises(KafkaError):
            producer.commit_transaction()
    (item,) = client.get(f"{_CLUSTER}/transactions").json["items"]
    assert item["state"] != "Ongoing"
