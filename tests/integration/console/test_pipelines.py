"""Pipelines in the console: their statuses, dead letters and replay, without Spark."""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.support.console.api_client import ApiClient, running_console
from tests.support.console.pipeline_records import dead_letter, status

import headrace
from headrace.testing import EmbeddedBroker

_PIPELINES = "/api/clusters/default/pipelines"
_REPLAY = f"{_PIPELINES}/shop/dead-letters/replay"


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"raw": 1, "dead": 1, "again": 1}) as broker:
        broker.create_topic("__headrace_pipelines", configs={"cleanup.policy": "compact"})
        with headrace.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(4):
                producer.send("raw", b"source %d" % number, key=b"k%d" % number, headers=[("h", b"%d" % number)])
            producer.send("dead", dead_letter("not JSON", 1, "other text"))
            producer.send("dead", dead_letter("no id", 2, "source 2"))
            producer.send("dead", dead_letter("not JSON", 99, "only here"))
            producer.send("dead", dead_letter("not JSON", 98, "cut", value_bytes=200_000))
            producer.send("dead", dead_letter("not JSON", 3, "x", topic="other"))
        yield broker


@pytest.fixture(scope="module")
def client(broker: EmbeddedBroker) -> Iterator[ApiClient]:
    with running_console(broker.bootstrap_servers) as client:
        yield client


def _publish(broker: EmbeddedBroker, *statuses: dict[str, Any]) -> None:
    with headrace.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for one in statuses:
            key = f"{one['pipeline']}/{one['flow']}".encode()
            producer.send("__headrace_pipelines", json.dumps(one).encode(), key=key)


def _wait_for(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 120
    while not (found := condition()):
        assert time.monotonic() < deadline, "the condition did not become true"
        time.sleep(0.1)
    return found


def test_a_pipeline_appears_with_its_flows(client: ApiClient, broker: EmbeddedBroker) -> None:
    now = int(time.time() * 1000) + 600_000  # a status that stays current during the test
    other = status(flow="refunds", updated_ms=1, state="running", lag=None, source_topics=["again"], tables=[])
    _publish(broker, status(updated_ms=now, started_ms=5), other)
    (item,) = _wait_for(lambda: [one for one in client.get(_PIPELINES).json["items"] if one["state"] == "stale"])
    assert (item["pipeline"], item["lag"], item["dead_letters"], item["started_ms"]) == ("shop", 7, 6, 5)
    assert item["rows_per_second"] == 50.0
    details = client.get(f"{_PIPELINES}/shop").json
    events, refunds = details["flows"]
    assert (events["state"], refunds["state"]) == ("running", "stale")
    assert events["outputs"][-1] == {"name": "cart_table", "kind": "table", "rows": 200}
    assert (events["batch_id"], events["batch_seconds"]) == (4, 0.5)
    edges = {(edge["from"], edge["to"]): edge["rows_per_second"] for edge in details["graph"]["edges"]}
    assert edges["topic:raw", "flow:events"] == 50.0
    assert edges["flow:events", "topic:carts"] == 20.0
    assert details["batches"][0]["phases_ms"] == {"addBatch": 400}
    assert client.get(f"{_PIPELINES}/none").status == 404


def test_dead_letters_are_shown_and_replayed(client: ApiClient, broker: EmbeddedBroker) -> None:
    _publish(broker, status())
    _wait_for(lambda: client.get(f"{_PIPELINES}/shop").status == 200)
    path = f"{_PIPELINES}/shop/dead-letters"
    page = client.get(path).json
    assert (page["topic"], len(page["records"]), page["cursor"]) == ("dead", 5, None)
    (letter,) = client.get(path, reason="no id").json["records"]
    assert letter["source"] == {"topic": "raw", "partition": 0, "offset": 2, "timestamp_ms": 5}
    first = client.get(path, limit=2).json
    assert [one["offset"] for one in client.get(path, limit=2, cursor=first["cursor"]).json["records"]] == [2, 1]
    # The source record counts, not the text in the dead letter. What is gone from the source comes from the letter.
    answer = client.call("POST", _REPLAY, {"reason": "not JSON"})
    assert answer.json == {"replayed": 2, "lost": 2}
    offsets = [{"partition": 0, "offset": 1}]
    assert client.call("POST", _REPLAY, {"offsets": offsets, "target_topic": "again"}).json["replayed"] == 1
    assert client.call("POST", _REPLAY, {"offsets": [{"partition": 0, "offset": 50}]}).status == 404
    assert client.call("POST", _REPLAY, {}).status == 400
    assert client.call("POST", _REPLAY, {"reason": "no id", "target_topic": "none"}).status == 404
    raw = client.get("/api/clusters/default/topics/raw/records", **{"from": "offset", "offset": 4}).json["records"]
    shown = [(one["key"]["text"], one["value"]["text"], len(one["headers"])) for one in raw]
    assert shown == [("k1", "source 1", 1), ("k", "only here", 0)]
    (again,) = client.get("/api/clusters/default/topics/again/records").json["records"]
    assert again["value"]["text"] == "source 2"
