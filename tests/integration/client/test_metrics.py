"""A scrape of real clients, blocking and asyncio."""

import asyncio
import urllib.request

from prometheus_client.parser import text_string_to_metric_families as parse
from tests.support.broker.process import eventually

from headrace import Consumer, Producer, aio
from headrace.metrics import serve_metrics
from headrace.testing import EmbeddedBroker

PATIENCE = 60.0
FETCHES = "kafka_consumer_consumer_fetch_manager_metrics"


def scrape(url: str) -> dict[tuple[str, ...], float]:
    """Returns the values by name and values of the labels, sorted by label."""
    with urllib.request.urlopen(url, timeout=PATIENCE) as response:
        text = response.read().decode()
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in parse(text)
        for sample in family.samples
    }


def test_scrape() -> None:
    settings = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 1}
    with (
        EmbeddedBroker(settings, topics={"a.b": 2}) as broker,
        Producer(bootstrap_servers=broker.bootstrap_servers, client_id="p") as producer,
        Consumer(
            "a.b",
            bootstrap_servers=broker.bootstrap_servers,
            client_id="c",
            group_id="g",
            auto_offset_reset="earliest",
            max_poll_records=1,
        ) as consumer,
        serve_metrics("127.0.0.1:0", producer, consumer) as server,
    ):
        for number in range(10):
            producer.send("a.b", b"value", partition=number % 2)
        producer.flush()
        eventually(lambda: consumer.poll(100), "a record", PATIENCE)
        found = scrape(server.url)
        assert found["kafka_producer_producer_metrics_record_send_total", "p"] == 10
        assert found["kafka_producer_producer_topic_metrics_record_send_total", "p", "a.b"] == 10
        requests = [
            value for key, value in found.items() if key[0] == "kafka_producer_producer_node_metrics_request_total"
        ]
        assert sum(requests) == found["kafka_producer_producer_metrics_request_total", "p"] > 0
        assert found[f"{FETCHES}_records_consumed_total", "c", "a.b"] >= 1
        assert found["kafka_consumer_consumer_coordinator_metrics_assigned_partitions", "c"] == 2
        assert found[f"{FETCHES}_records_lag_max", "c"] > 0
        read = [1]
        eventually(lambda: read.append(sum(map(len, consumer.poll(100).values()))) or sum(read) == 10, "all", PATIENCE)
        found = scrape(server.url)
        assert [found[f"{FETCHES}_records_lag", "c", str(number), "a.b"] for number in (0, 1)] == [0, 0]
        assert found[f"{FETCHES}_records_lead", "c", "0", "a.b"] == 5


def test_scrape_asyncio() -> None:
    async def check(servers: str) -> None:
        async with aio.Producer(bootstrap_servers=servers, client_id="p") as producer:
            await producer.send_and_wait("t", b"value")
            with serve_metrics("127.0.0.1:0", producer) as server:
                found = await asyncio.to_thread(scrape, server.url)
        assert found["kafka_producer_producer_topic_metrics_record_send_total", "p", "t"] == 1
        assert found["headrace_client_up", "p", "producer"] == 1

    with EmbeddedBroker(topics={"t": 1}) as broker:
        asyncio.run(check(broker.bootstrap_servers))
