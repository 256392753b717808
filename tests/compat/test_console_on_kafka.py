"""The console's pages on Apache Kafka."""

import http.client
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from tests.support.apache_kafka.broker import KafkaBroker, KafkaOnZooKeeper, KafkaUnavailable
from tests.support.broker.process import free_port
from tests.support.cluster.zookeeper import ZooKeeper
from tests.support.console.running import ApiClient, console_for, ready_client

import headrace
from headrace.admin import Admin

INTERNAL_TOPICS = {
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.min.isr": 1,
}


@pytest.fixture(scope="module", params=["4", "3.9"])
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root = tmp_path_factory.mktemp("console")
    try:
        with ExitStack() as stack:
            if request.param == "4":
                broker = stack.enter_context(KafkaBroker(root / "data"))
            else:
                zookeeper = stack.enter_context(ZooKeeper(root / "zookeeper"))
                properties = {"zookeeper.connect": zookeeper.connect, "broker.id": 0, **INTERNAL_TOPICS}
                broker = stack.enter_context(KafkaOnZooKeeper(root / "data", free_port(), properties))
            yield broker.bootstrap
    except KafkaUnavailable as reason:
        pytest.skip(f"Apache Kafka is not available: {reason}")


@pytest.fixture(scope="module")
def client(kafka: str) -> Iterator[ApiClient]:
    with console_for(kafka, history_topic="__headrace_console") as server:
        yield ready_client(server)


def test_pages_and_changes(client: ApiClient, kafka: str) -> None:
    assert client.get("overview")["brokers"] == 1
    client.change("POST", "topics", {"name": "orders", "partitions": 2, "configs": {"retention.ms": "60000000"}}, 201)
    assert client.change("POST", "topics/orders/partitions", {"total": 3}) == {"partitions": 3}
    with headrace.Producer(bootstrap_servers=kafka) as producer:
        for _ in range(10):
            producer.send("orders", b"x" * 100, partition=0)
    with Admin(bootstrap_servers=kafka) as admin:
        admin.alter_group_offsets("readers", {("orders", 0): 4})
    group = client.wait_for("groups/readers", lambda group: group["lag"] == 6)
    assert group["state"] == "Empty"
    assert client.change("POST", "groups/readers/offsets", {"to": "shift", "value": 2})["changes"][0]["new"] == 6
    topic = client.wait_for("topics/orders", lambda topic: topic["partition_list"][0]["size_bytes"])
    assert [one["group"] for one in topic["consuming"]] == ["readers"]
    assert topic["operations"]
    configs = {one["name"]: one for one in client.get("topics/orders/configs")["configs"]}
    assert (configs["retention.ms"]["value"], configs["retention.ms"]["source"]) == ("60000000", "topic")
    assert configs["retention.ms"]["default"] in (None, "604800000")
    assert configs["cleanup.policy"]["default"] == "delete"
    assert configs["retention.ms"]["documentation"]
    client.change("PATCH", "topics/orders/configs", {"reset": ["retention.ms"]})
    broker = client.get("brokers")["items"][0]
    assert broker["reachable"]
    assert client.get(f"brokers/{broker['id']}/configs")["configs"]
    assert client.change("POST", "elections", {"type": "preferred"})["errors"] == []
    assert client.get("reassignments") == {"items": []}
    assert client.change("POST", "topics/orders/purge", {"partitions": {"0": 5}}) == {"low_watermarks": {"0": 5}}
    client.change("DELETE", "groups/readers", expected=204)
    client.change("DELETE", "topics/orders", expected=204)
    client.wait_for("topics", lambda page: page["total"] == 0)


@pytest.mark.parametrize("kafka", ["4"], indirect=True)
def test_records_transactions_and_access(client: ApiClient, kafka: str) -> None:
    client.change("POST", "topics", {"name": "events", "partitions": 1}, 201)
    with headrace.Producer(bootstrap_servers=kafka, transactional_id="console") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("events", b"aborted", partition=0)
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send("events", b"committed", partition=0)
        producer.commit_transaction()
    posted = client.wait_for_change(
        "POST", "topics/events/records", {"value": {"encoding": "text", "data": "plain"}}, 201
    )
    assert posted["partition"] == 0
    records = client.wait_for("topics/events/records", lambda page: len(page["records"]) >= 3)["records"]
    states = {
        record["value"]["text"]: record["transaction"] and record["transaction"]["state"]
        for record in records
        if not record["control"]
    }
    assert states == {"plain": None, "committed": "committed", "aborted": "aborted"}
    client.wait_for("transactions", lambda page: [one["transactional_id"] for one in page["items"]] == ["console"])
    client.wait_for("transactions/hanging", lambda page: page["items"] == [])
    assert client.get("topics/events/producers")["items"]
    quota = {"entity": {"user": "carol"}, "set": {"producer_byte_rate": 1024.0}}
    client.change("PUT", "access/quotas", quota)
    client.wait_for("access/quotas", lambda page: len(page["items"]) == 1)
    credential = {"mechanism": "SCRAM-SHA-512", "password": "secret-of-carol"}
    client.wait_for_change("PUT", "access/users/carol", credential, 200)
    client.wait_for("access/users", lambda page: [user["name"] for user in page["items"]] == ["carol"])
    assert client.request("GET", "access/acls").code == "SECURITY_DISABLED"
    assert client.request("GET", "access/tokens").status == 400
    client.change("DELETE", "topics/events", expected=204)


def test_parts_that_are_not_read_would_be_named(client: ApiClient) -> None:
    client.wait_for("overview", lambda overview: overview["history_topic"] == "__headrace_console")
    connection = http.client.HTTPConnection(client.host, client.port, timeout=60)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    assert 'headrace_console_cluster_reachable{cluster="default"} 1.0' in text
    assert "headrace_console_parts_not_read" in text
    assert not [line for line in text.splitlines() if line.startswith("headrace_console_parts_not_read{")]
