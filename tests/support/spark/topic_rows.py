"""Writes and reads topics, for tests of pipelines."""

import json
from collections.abc import Iterable
from typing import Any

import headrace


def put(servers: str, topic: str, rows: Iterable[tuple[str | bytes | None, Any]], partition: int | None = None) -> None:
    """Sends keys and values, and waits for the acknowledgements. Values other than bytes are written as JSON."""
    with headrace.Producer(bootstrap_servers=servers) as producer:
        futures = [
            producer.send(
                topic,
                value if isinstance(value, bytes) else json.dumps(value).encode(),
                key=key.encode() if isinstance(key, str) else key,
                partition=partition,
            )
            for key, value in rows
        ]
        producer.flush(timeout_ms=60_000)
        for future in futures:
            future.get(timeout_ms=60_000)


def records(servers: str, topic: str) -> list[Any]:
    """Returns all committed records of a topic, in order within each partition."""
    with headrace.Consumer(
        bootstrap_servers=servers, isolation_level="read_committed", enable_auto_commit=False
    ) as consumer:
        tps = [headrace.TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic) or ()]
        ends = consumer.end_offsets(tps)
        consumer.assign(tps)
        consumer.seek_to_beginning()
        found: list[Any] = []
        while any(consumer.position(tp) < ends[tp] for tp in tps):
            for some in consumer.poll(timeout_ms=200).values():
                found.extend(some)
    return found


def values(servers: str, topic: str) -> list[Any]:
    """Returns the committed JSON values of a topic."""
    return [json.loads(record.value) for record in records(servers, topic)]
