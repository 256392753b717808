"""Records in the console: pages, live tail, search, export, produce and copy, through the API and with a real
broker."""

import io
import json
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.support.console.api_client import ApiClient, running_console

import headrace
from headrace.testing import EmbeddedBroker

_TOPICS = "/api/clusters/default/topics"


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker({"transaction.state.log.num.partitions": 1}, topics={"orders": 2, "copy": 1}) as broker:
        with headrace.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(100):
                producer.send(
                    "orders",
                    json.dumps({"id": number, "user": {"name": f"u-{number % 7}"}}).encode(),
                    key=f"k{number}".encode(),
                    partition=number % 2,
                    timestamp_ms=1_000_000 + number,
                    headers=[("trace", f"t{number}".encode())] if number % 10 == 0 else None,
                )
            producer.send("orders", None, key=b"gone", partition=0, timestamp_ms=2_000_000)
            producer.flush()
        yield broker


@pytest.fixture(scope="module")
def client(broker: EmbeddedBroker) -> Iterator[ApiClient]:
    with running_console(broker.bootstrap_servers) as client:
        yield client


def _records(client: ApiClient, topic: str = "orders", **parameters: Any) -> Any:
    answer = client.get(f"{_TOPICS}/{topic}/records", **parameters)
    assert answer.status == 200, answer.body
    return answer.json


def test_the_newest_records_come_first_and_a_cursor_goes_back(client: ApiClient) -> None:
    page = _records(client, limit=30)
    seen = page["records"]
    assert seen[0]["key"]["text"] == "gone"
    assert seen[0]["value"] is None
    assert page["end_offsets"] == {"0": 51, "1": 50}
    assert page["next"] is not None
    while page["cursor"] is not None:
        page = _records(client, limit=30, cursor=page["cursor"])
        seen += page["records"]
    assert [record["timestamp_ms"] for record in seen] == [2_000_000, *range(1_000_099, 999_999, -1)]


def test_pages_go_forward_from_an_offset_or_a_time(client: ApiClient) -> None:
    page = _records(client, **{"from": "offset", "offset": 40, "limit": 15})
    numbers = [json.loads(record["value"]["text"])["id"] for record in page["records"]]
    assert numbers == list(range(80, 95))
    rest = _records(client, limit=50, cursor=page["cursor"])
    assert [record["timestamp_ms"] for record in rest["records"]] == [*range(1_000_095, 1_000_100), 2_000_000]
    assert rest["cursor"] is None
    timed = _records(client, **{"from": "time", "time_ms": 1_000_090, "to_time_ms": 1_000_093, "partition": [0, 1]})
    assert [record["timestamp_ms"] for record in timed["records"]] == [1_000_090, 1_000_091, 1_000_092]


def test_a_page_can_be_filtered(client: ApiClient) -> None:
    assert len(_records(client, filter_path="$.user.name=u-3", limit=500)["records"]) == 14
    assert len(_records(client, filter_header="trace=t5", limit=500)["records"]) == 1
    assert [record["key"]["text"] for record in _records(client, filter_key="k99")["records"]] == ["k99"]
    answer = client.get(f"{_TOPICS}/orders/records", filter_regex="(")
    assert answer.status == 400
    assert "regular expression" in answer.json["error"]["message"]


def test_a_key_can_be_decoded_in_another_way(client: ApiClient) -> None:
    place = {"from": "offset", "offset": 3, "partition": 1, "limit": 1}
    (record,) = _records(client, **place, key_decoder="hex", value_decoder="int32")["records"]
    assert record["key"]["text"] == "6b 37"
    assert record["value"]["decoder"] == "json"
    assert "expected 4 bytes" in record["value"]["error"]
    assert client.get(f"{_TOPICS}/orders/records", key_decoder="none").status == 400


def test_unknown_topics_and_partitions_are_named(client: ApiClient) -> None:
    assert client.get(f"{_TOPICS}/missing/records").status == 404
    assert client.get(f"{_TOPICS}/orders/records", partition=9).status == 400
    with closing(client.stream(f"{_TOPICS}/missing/records/search")) as stream:
        (event,) = stream
    assert event[0] == "error"
    assert event[1]["code"] == "UNKNOWN_TOPIC_OR_PARTITION"


@pytest.mark.parametrize(
    ("parameters", "found"),
    [
        ({"from": "oldest", "filter_path": "$.user.name=u-3", "limit": 3}, [3, 17, 31]),
        ({"filter_path": "$.id>=98"}, [98, 99]),
        ({"filter_regex": '"id": 4[23],'}, [42, 43]),
        ({"filter_header": "trace", "filter_value": "u-0"}, [0, 70]),
    ],
)
def test_a_search_finds_records(client: ApiClient, parameters: dict[str, Any], found: list[int]) -> None:
    events = list(client.stream(f"{_TOPICS}/orders/records/search", **parameters))
    records = [record for name, data in events if name == "records" for record in data["records"]]
    numbers = [json.loads(record["value"]["text"])["id"] for record in records]
    name, done = events[-1]
    assert name == "done"
    if "limit" in parameters:
        assert len(numbers) == 3
        assert all(number % 7 == 3 for number in numbers)
        assert done["reason"] == "limit"
    else:
        assert sorted(numbers) == found
        assert done["reason"] == "end"
        assert done["total_records"] == done["scanned_records"] == 101
        assert done["percent"] == 100


def test_an_export_has_all_records(client: ApiClient) -> None:
    path = f"{_TOPICS}/orders/records/export"
    lines = client.get(path, format="jsonl")
    assert lines.headers["content-disposition"] == "attachment; filename*=UTF-8''orders.jsonl"
    rows = [json.loads(line) for line in lines.body.splitlines()]
    assert len(rows) == 101
    assert rows[0] == {
        "partition": 0,
        "offset": 0,
        "timestamp_ms": 1_000_000,
        "key": "k0",
        "value": '{"id": 0, "user": {"name": "u-0"}}',
        "headers": [{"name": "trace", "value": "t0"}],
    }
    assert [row["value"] for row in rows if row["key"] == "gone"] == [None]
    text = client.get(path, format="csv", partition=0, max_records=2, value_decoder="json").body.decode()
    head, first, second, end = text.split("\r\n")
    assert head == "partition,offset,timestamp,key,value,headers"
    value, headers = '"{""id"":0,""user"":{""name"":""u-0""}}"', '"[{""name"": ""trace"", ""value"": ""t0""}]"'
    assert first == f'0,0,1970-01-01T00:16:40.000Z,"k0",{value},{headers}'
    assert second == '0,1,1970-01-01T00:16:40.002Z,"k2","{""id"":2,""user"":{""name"":""u-2""}}",'
    assert end == ""
    table = pq.read_table(io.BytesIO(client.get(path, format="parquet", filter_path="$.id<10").body))
    assert sorted(table.column("key").to_pylist()) == [f"k{number}".encode() for number in range(10)]
    assert client.get(f"{_TOPICS}/missing/records/export").status == 404


def test_the_live_tail_shows_produced_records(client: ApiClient, broker: EmbeddedBroker) -> None:
    broker.create_topic("live")
    shown: list[Any] = []

    def watch() -> None:
        with closing(client.stream(f"{_TOPICS}/live/records/tail")) as stream:
            for name, data in stream:
                shown.append((name, data))
                if data["records"]:
                    return

    watcher = threading.Thread(target=watch)
    watcher.start()
    record = {
        "partition": 0,
        "key": {"encoding": "int32", "data": "258"},
        "value": {"encoding": "json", "data": '{"live": true}'},
        "headers": [{"name": "a", "value": {"encoding": "hex", "data": "00ff"}}],
    }
    # The tail begins at the end that the topic has when the console reads it: produce until it shows something.
    deadline = time.monotonic() + 120
    while watcher.is_alive() and time.monotonic() < deadline:
        answer = client.call("POST", f"{_TOPICS}/live/records", record)
        assert answer.status == 201, answer.body
        watcher.join(0.2)
    name, data = shown[-1]
    assert name == "records"
    first = data["records"][0]
    assert first["key"]["text"] == "00 00 01 02"
    assert first["value"]["json"] == {"live": True}
    header = {"decoder": "hex", "text": "00 ff", "size_bytes": 2, "truncated": False, "error": None}
    assert first["headers"] == [{"name": "a", "value": header}]


def test_a_selection_is_copied(client: ApiClient) -> None:
    path = f"{_TOPICS}/orders/records/copy"
    selection = {"query": {"filter_path": "$.id<5"}}
    answer = client.call("POST", path, {"target_topic": "copy", "selection": selection})
    assert answer.status == 200, answer.body
    assert answer.json == {"copied": 5}
    picked = {"offsets": [{"partition": 0, "offset": 0}, {"partition": 1, "offset": 3}]}
    assert client.call("POST", path, {"target_topic": "copy", "selection": picked}).json == {"copied": 2}
    copied = _records(client, "copy", limit=500)["records"]
    assert sorted(record["key"]["text"] for record in copied) == ["k0", "k0", "k1", "k2", "k3", "k4", "k7"]
    assert [record["headers"][0]["name"] for record in copied if record["key"]["text"] == "k0"] == ["trace", "trace"]
    assert {record["timestamp_ms"] for record in copied} == {*range(1_000_000, 1_000_005), 1_000_007}
    assert client.call("POST", path, {"target_topic": "none", "selection": selection}).status == 404
    assert client.call("POST", path, {"target_topic": "copy", "selection": {}}).status == 400


def test_transactions_and_their_markers_are_visible(client: ApiClient, broker: EmbeddedBroker) -> None:
    broker.create_topic("payments")
    with headrace.Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="pay") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send("payments", b"kept")
        producer.begin_transaction()
        producer.send("payments", b"dropped").get()
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send("payments", b"pending").get()
        page = _records(client, "payments", **{"from": "oldest", "control": "true"})
        shown = [
            (record["value"]["text"] if record["control"] is None else record["control"], record["transaction"])
            for record in page["records"]
        ]
        states = [(text, None if transaction is None else transaction["state"]) for text, transaction in shown]
        assert states == [
            ("kept", "committed"),
            ("commit", None),
            ("dropped", "aborted"),
            ("abort", None),
            ("pending", "open"),
        ]
        assert page["records"][0]["producer_id"] >= 0
        committed = _records(client, "payments", isolation="read_committed")["records"]
        assert [record["value"]["text"] for record in committed] == ["kept"]
        producer.abort_transaction()


def test_without_write_nothing_is_written(broker: EmbeddedBroker) -> None:
    with running_console(broker.bootstrap_servers, write=False) as client:
        body = {"value": {"encoding": "text", "data": "x"}}
        assert client.call("POST", f"{_TOPICS}/orders/records", body).json["error"]["code"] == "READ_ONLY"
        copy = {"target_topic": "copy", "selection": {"query": {}}}
        assert client.call("POST", f"{_TOPICS}/orders/records/copy", copy).json["error"]["code"] == "READ_ONLY"
