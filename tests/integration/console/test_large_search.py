"""A search through a large topic. HEADRACE_CONSOLE_RECORDS sets its size: 50,000,000 takes some minutes and 7 GB of
disk, and prints the rate of the search (`pytest -s`)."""

import os
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.support.console.api_client import ApiClient, running_console

import headrace
from headrace.testing import EmbeddedBroker

_RECORDS = int(os.environ.get("HEADRACE_CONSOLE_RECORDS", "60000"))
_BLOCK = 100_000
_PARTITIONS = 3
_SEARCH = "/api/clusters/default/topics/events/records/search"


@pytest.fixture(scope="module")
def client() -> Iterator[ApiClient]:
    with EmbeddedBroker(topics={"events": _PARTITIONS}) as broker:
        with headrace.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for first in range(0, _RECORDS, _BLOCK):
                numbers = pa.array(range(first, min(first + _BLOCK, _RECORDS)), pa.int64())
                keys = pc.cast(numbers, pa.string())
                values = pc.binary_join_element_wise(
                    '{"user": {"id": "u-', keys, '"}, "amount": ', keys, ', "text": "' + "x" * 40 + '"}', ""
                )
                partitions = pc.cast(pc.bit_wise_and(numbers, pa.scalar(1, pa.int64())), pa.int32())
                table = pa.record_batch([keys, values, partitions], names=["key", "value", "partition"])
                producer.send_arrow("events", table)
            producer.flush()
        with running_console(broker.bootstrap_servers, write=False) as client:
            yield client


def _search(client: ApiClient, **parameters: Any) -> tuple[list[str], dict[str, Any], int]:
    """Returns the keys that were found, the end, and the number of reports of progress."""
    keys: list[str] = []
    reports = 0
    started = time.monotonic()
    with closing(client.stream(_SEARCH, **parameters)) as stream:
        for name, data in stream:
            assert name != "error", data
            if name == "records":
                keys += [record["key"]["text"] for record in data["records"]]
            elif name == "progress":
                assert 0 < data["scanned_records"] <= data["total_records"]
                reports += 1
            elif name == "done":
                rate = data["scanned_records"] / (time.monotonic() - started)
                print(f"{parameters}: {data['scanned_records']} records, {rate:,.0f} records/s, {data}")
                return keys, data, reports
    raise AssertionError("the stream ended without `done`")


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "parameters",
    [
        {"filter_path": f"$.user.id=u-{_RECORDS - 7}"},
        {"filter_value": f'"u-{_RECORDS - 7}"', "from": "oldest"},
        {"filter_regex": f"u-{_RECORDS - 7}[^0-9]", "from": "oldest"},
    ],
    ids=["path", "value", "regex"],
)
def test_one_record_is_found(client: ApiClient, parameters: dict[str, Any]) -> None:
    keys, done, _ = _search(client, **parameters)
    assert keys == [str(_RECORDS - 7)]
    assert (done["reason"], done["scanned_records"], done["percent"]) == ("end", _RECORDS, 100)


def test_closing_the_stream_ends_the_search(client: ApiClient) -> None:
    for _ in range(6):  # more than may run at a time
        with closing(client.stream(_SEARCH, filter_value="u-", limit=1000)) as stream:
            assert next(stream)[0] in ("records", "progress", "error")
    deadline = time.monotonic() + 120
    while (events := dict(client.stream(_SEARCH, filter_key=str(_RECORDS - 7)))).get("error"):
        # The processes of the closed streams end when the console notices that nobody reads.
        assert events["error"]["code"] == "TOO_MANY_SCANS"
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert events["done"]["reason"] == "end"
