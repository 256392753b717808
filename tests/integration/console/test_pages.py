"""The pages' API on an embedded broker: what is shown, and every change."""

from collections.abc import Iterator

import pytest
from tests.support.console.running import ApiClient, console_for, ready_client

from headrace import Consumer, Producer
from headrace.testing import EmbeddedBroker


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"orders": 3, "empty": 1}) as broker:
        yield broker


@pytest.fixture(scope="module")
def client(broker: EmbeddedBroker) -> Iterator[ApiClient]:
    with console_for(broker.bootstrap_servers) as server:
        yield ready_client(server)


def produce(broker: EmbeddedBroker, topic: str, count: int) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(count):
            producer.send(topic, b"value %d" % number, partition=0)


def commit(broker: EmbeddedBroker, group: str, topic: str, records: int) -> None:
    with Consumer(
        topic,
        bootstrap_servers=broker.bootstrap_servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=records,
    ) as consumer:
        read = 0
        while read < records:
            read += sum(map(len, consumer.poll(timeout_ms=1000, max_records=records - read).values()))
        consumer.commit()


def test_overview_counts_what_there_is(client: ApiClient) -> None:
    overview = client.wait_for("overview", lambda found: found["topics"] >= 2)
    assert overview["brokers"] == 1
    assert overview["brokers_down"] == []
    assert overview["controller"] is not None
    assert overview["partitions"] >= 4
    assert overview["under_replicated"] == overview["offline"] == 0


def test_topics_are_listed_searched_and_sorted(client: ApiClient, broker: EmbeddedBroker) -> None:
    produce(broker, "orders", 20)
    found = client.wait_for("topics?search=ORD", lambda page: page["items"] and page["items"][0]["records"] >= 20)
    assert [item["name"] for item in found["items"]] == ["orders"]
    assert found["items"][0]["partitions"] == 3
    by_records = client.get("topics?sort=records&order=desc&per_page=1")
    assert by_records["items"][0]["name"] == "orders"
    assert by_records["total"] >= 2
    assert client.request("GET", "topics?sort=colour").code == "INVALID_REQUEST"
    assert client.request("GET", "topics?per_page=0").status == 400
    assert client.request("GET", "topics?unknown=1").status == 400


def test_a_topic_is_created_extended_configured_purged_and_deleted(client: ApiClient, broker: EmbeddedBroker) -> None:
    body = {"name": "new/../topic".replace("/", "-"), "partitions": 1, "configs": {"retention.ms": "60000"}}
    name = body["name"]
    assert client.change("POST", "topics", {**body, "validate_only": True}, 201)["name"] == name
    assert client.request("GET", f"topics/{name}").status == 404
    assert client.change("POST", "topics", body, 201) == {"name": name, "partitions": 1, "replication_factor": 1}
    assert client.request("POST", "topics", body).code == "TOPIC_ALREADY_EXISTS"
    assert client.request("POST", "topics", body).status == 409
    assert client.change("POST", f"topics/{name}/partitions", {"total": 2}) == {"partitions": 2}
    configs = client.change(
        "PATCH", f"topics/{name}/configs", {"set": {"cleanup.policy": "compact"}, "reset": ["retention.ms"]}
    )["configs"]
    by_name = {config["name"]: config for config in configs}
    assert (by_name["cleanup.policy"]["value"], by_name["cleanup.policy"]["is_default"]) == ("compact", False)
    assert by_name["cleanup.policy"]["default"] == "delete"
    assert by_name["cleanup.policy"]["documentation"]
    assert by_name["retention.ms"]["source"] in ("default", "static")
    assert client.request("PATCH", f"topics/{name}/configs", {"set": {"retention.ms": "soon"}}).status == 400
    client.change("PATCH", f"topics/{name}/configs", {"set": {"cleanup.policy": "delete"}})
    produce(broker, name, 10)
    assert client.change("POST", f"topics/{name}/purge", {"partitions": {"0": 4}}) == {"low_watermarks": {"0": 4}}
    assert client.change("POST", f"topics/{name}/purge", {})["low_watermarks"] == {"0": 10, "1": 0}
    client.wait_for("topics", lambda page: any(item["name"] == name for item in page["items"]))
    client.change("DELETE", f"topics/{name}", expected=204)
    client.wait_for("topics", lambda page: all(item["name"] != name for item in page["items"]))
    assert client.request("DELETE", f"topics/{name}").status == 404


def test_a_topic_shows_its_partitions_and_groups(client: ApiClient, broker: EmbeddedBroker) -> None:
    produce(broker, "orders", 10)
    commit(broker, "readers", "orders", 5)
    topic = client.wait_for(
        "topics/orders", lambda topic: topic["consuming"] and topic["partition_list"][0]["size_bytes"]
    )
    assert [partition["partition"] for partition in topic["partition_list"]] == [0, 1, 2]
    assert topic["partition_list"][0]["isr"] == topic["partition_list"][0]["replicas"]
    assert [group["group"] for group in topic["consuming"]] == ["readers"]
    assert "DELETE" in topic["operations"]


def test_a_group_shows_lag_and_its_offsets_can_be_reset(client: ApiClient, broker: EmbeddedBroker) -> None:
    name = "team a/ünits"
    path = "groups/team%20a%2F%C3%BCnits"
    client.change("POST", "topics", {"name": "lagging", "partitions": 1}, 201)
    produce(broker, "lagging", 30)
    commit(broker, name, "lagging", 10)
    group = client.wait_for(path, lambda group: group["lag"] == 20)
    assert group["group"] == name
    partition = group["partitions"][0]
    assert (partition["committed"], partition["end_offset"], partition["lag"]) == (10, 30, 20)
    assert partition["lag_seconds"] >= 0
    listed = client.get("groups?sort=lag&order=desc&search=team")["items"]
    assert (listed[0]["group"], listed[0]["lag"]) == (name, 20)

    preview = client.change("POST", f"{path}/offsets/preview", {"to": "earliest"})
    assert preview["changes"] == [{"topic": "lagging", "partition": 0, "old": 10, "new": 0, "records": -10}]
    assert client.get(path)["partitions"][0]["committed"] == 10
    for to, value, expected in (
        ("earliest", None, 0),
        ("shift", 3, 3),
        ("offset", 1000, 30),
        ("timestamp", 0, 0),
        ("latest", None, 30),
        ("duration", 3_600_000, 0),
    ):
        changed = client.change("POST", f"{path}/offsets", {"to": to, "value": value})
        assert changed["changes"][0]["new"] == expected, to
    assert client.request("POST", f"{path}/offsets", {"to": "offset"}).status == 400
    client.wait_for(path, lambda group: group["partitions"][0]["committed"] == 0)
    client.change("DELETE", path, expected=204)
    client.wait_for("groups", lambda page: all(item["group"] != name for item in page["items"]))


def test_offsets_of_a_group_with_members_are_not_reset(client: ApiClient, broker: EmbeddedBroker) -> None:
    produce(broker, "orders", 1)
    with Consumer(
        "orders", bootstrap_servers=broker.bootstrap_servers, group_id="busy", auto_offset_reset="earliest"
    ) as consumer:
        while not consumer.poll(timeout_ms=1000):
            continue
        answer = client.request("POST", "groups/busy/offsets", {"to": "latest", "topics": ["orders"]})
        assert (answer.status, answer.code) == (409, "NON_EMPTY_GROUP")
        group = client.wait_for("groups/busy", lambda group: group["members"] == 1)
        assert group["member_list"][0]["assignment"] == [{"topic": "orders", "partitions": [0, 1, 2]}]
        assert client.request("DELETE", "groups/busy").status == 409


def test_brokers_show_disks_and_configs(client: ApiClient) -> None:
    brokers = client.wait_for("brokers", lambda page: page["items"][0]["size_bytes"] is not None)
    broker = brokers["items"][0]
    assert broker["is_controller"]
    assert broker["reachable"]
    details = client.get(f"brokers/{broker['id']}")
    assert details["log_dirs"][0]["error"] is None
    assert details["requests"] is None
    configs = client.get(f"brokers/{broker['id']}/configs")["configs"]
    assert {"log.retention.ms", "num.partitions"} <= {config["name"] for config in configs}
    changed = client.change("PATCH", f"brokers/{broker['id']}/configs", {"set": {"log.retention.ms": "1234567"}})[
        "configs"
    ]
    assert next(c for c in changed if c["name"] == "log.retention.ms")["source"] == "broker"
    client.change("PATCH", f"brokers/{broker['id']}/configs", {"reset": ["log.retention.ms"]})
    client.change("PATCH", "brokers/default/configs", {"set": {"log.retention.ms": "7654321"}})
    client.change("PATCH", "brokers/default/configs", {"reset": ["log.retention.ms"]})
    assert client.request("GET", "brokers/99").status == 404
    assert client.request("GET", "brokers/x").status == 404


def test_elections_and_reassignments(client: ApiClient) -> None:
    broker = client.get("brokers")["items"][0]["id"]
    elected = client.change("POST", "elections", {"type": "preferred"})
    assert elected["errors"] == []
    assert client.get("reassignments") == {"items": []}
    one = {"topic": "orders", "partition": 0}
    moved = client.change("POST", "reassignments", {"partitions": [{**one, "replicas": [broker]}]})
    assert moved == {"started": 1, "errors": []}
    cancelled = client.request("POST", "reassignments", {"partitions": [{**one, "replicas": None}]})
    assert (cancelled.status, cancelled.code) == (409, "NO_REASSIGNMENT_IN_PROGRESS")


def test_history_has_the_rate_of_a_topic(client: ApiClient, broker: EmbeddedBroker) -> None:
    produce(broker, "orders", 50)
    found = client.wait_for(
        "history?series=messages_in&series=topic.messages_in:orders&series=topic.messages_in:other&points=20",
        lambda history: any(history["series"][1]["values"]),
    )
    assert [series["unit"] for series in found["series"]] == ["1/s", "1/s", "1/s"]
    assert all(len(series["values"]) == len(found["times_ms"]) for series in found["series"])
    assert set(found["series"][2]["values"]) == {None}
    assert client.request("GET", "history?series=colour").status == 400


def test_live_updates_tick(client: ApiClient) -> None:
    with client.events() as events:
        ticks = [data for name, data in (next(events) for _ in range(6)) if name == "tick"]
    assert ticks[0]["overview"]["brokers"] == 1
    assert ticks[-1]["time_ms"] > ticks[0]["time_ms"]
    assert set(ticks[0]["generation"]) >= {"topics", "groups", "brokers"}


def test_an_unknown_cluster_or_path_is_not_found(client: ApiClient) -> None:
    assert client.request("GET", "/api/clusters/other/overview").code == "NOT_FOUND"
    assert client.request("GET", "/api/unknown").status == 404
    assert client.request("POST", "/api/session", {}).status == 405
    assert client.request("GET", "/any/page").headers["content-type"].startswith("text/html")
