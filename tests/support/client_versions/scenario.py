"""What an application does with a Kafka client, with a given version of a library.

    python -m tests.support.client_versions.scenario LIBRARY BOOTSTRAP TOPIC INPUT START_MS

Prints a report in JSON; `tests/compat/broker/test_client_versions.py` checks it. `java/ClientScenario.java` does the
same with Kafka's Java client. INPUT is a topic with records that the test has written. Old libraries need old versions
of Python: this package runs on Python 3.8 and imports nothing of Headrace.
"""

from __future__ import annotations

import importlib
import json
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

PARTITIONS = 2
PER_CODEC = 20
KEPT = [f"kept-{number}" for number in range(6)]
DEADLINE_SECONDS = 60.0
MODULES = {"confluent-kafka": "confluent", "kafka-python": "kafka_python", "aiokafka": "aio"}


class Member(threading.Thread):
    """A member of a group that polls in its own thread, and commits after each poll with records."""

    def __init__(self, client: Any, topic: str, group: str) -> None:
        super().__init__(daemon=True)
        self.rows: list[tuple[int, str]] = []
        self.assigned: set[int] = set()
        self.error: BaseException | None = None
        self._client, self._topic, self._group = client, topic, group
        self._over = threading.Event()
        self.start()

    def run(self) -> None:
        try:
            consumer = self._client.open_consumer(self._topic, self._group)
            try:
                while not self._over.is_set():
                    rows = consumer.poll()
                    self.assigned = consumer.assignment()
                    if rows:
                        consumer.commit()
                        self.rows += rows
            finally:
                consumer.close()
        except BaseException as error:
            self.error = error
            raise
        finally:
            self.assigned = set()

    def leave(self) -> None:
        self._over.set()
        self.join(DEADLINE_SECONDS)
        if self.is_alive() or self.error is not None:
            raise RuntimeError(f"the member did not leave: {self.error!r}")

    def values(self, partition: int) -> list[str]:
        return [value for index, value in self.rows if index == partition]


def wait_for(condition: Callable[[], bool], what: str, *members: Member) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        failed = [member.error for member in members if member.error is not None]
        if failed or time.monotonic() > deadline:
            raise RuntimeError(f"waited for: {what}; {failed}; {[member.assigned for member in members]}")
        time.sleep(0.02)


def run(client: Any, topic: str, given: str, start_ms: int) -> dict[str, Any]:
    report: dict[str, Any] = {}
    client.admin.create(topic, PARTITIONS, {"retention.ms": "86400001"})
    wait_for(lambda: client.admin.partition_count(topic) == PARTITIONS, "the topic has two partitions")
    report["produced"] = {
        codec: client.produce(topic, 0, [f"{codec}-{number}" for number in range(PER_CODEC)], codec, start_ms)
        for codec in client.codecs
    }
    write_kept(client, topic, start_ms)
    report.update(consume(client, topic, len(client.codecs) * PER_CODEC + len(KEPT)))
    report["since"] = client.read_since(given, start_ms + 5)
    report["config"] = client.admin.config(topic, "retention.ms")
    report["group listed"] = topic + "-group" in client.admin.groups()
    doomed = topic + "-doomed"
    client.admin.create(doomed, 1, {})
    wait_for(lambda: client.admin.partition_count(doomed) == 1, "the second topic exists")
    client.admin.delete(doomed)
    wait_for(lambda: client.admin.partition_count(doomed) == 0, "the second topic is deleted")
    return report


def write_kept(client: Any, topic: str, start_ms: int) -> None:
    """Writes KEPT to partition 1, in transactions if the library has them, with an aborted one in between."""
    if not client.has_transactions:
        client.produce(topic, 1, KEPT, "none", start_ms)
        return
    producer = client.open_transactional(topic + "-producer")
    producer.write(topic, 1, KEPT[:3], commit=True)
    producer.write(topic, 1, ["dropped"] * 3, commit=False)
    producer.write(topic, 1, KEPT[3:], commit=True)
    producer.close()


def consume(client: Any, topic: str, count: int) -> dict[str, Any]:
    """Reads everything in a group, changes its members, and continues at the committed offsets."""
    group = topic + "-group"
    everything = set(range(PARTITIONS))
    first = Member(client, topic, group)
    wait_for(lambda: len(first.rows) >= count, f"{count} records are read", first)
    second = Member(client, topic, group)
    wait_for(lambda: len(first.assigned) == len(second.assigned) == 1, "both have a partition", first, second)
    shared = first.assigned | second.assigned
    second.leave()
    wait_for(lambda: first.assigned == everything, "the first has all partitions again", first)
    first.leave()
    committed = client.admin.committed(topic, group)
    client.produce(topic, 0, ["last"], "none", int(time.time() * 1000))
    third = Member(client, topic, group)
    wait_for(lambda: len(third.rows) >= 1, "the last record is read", third)
    third.leave()
    return {
        "consumed": [first.values(partition) for partition in range(PARTITIONS)],
        "read again": second.rows,
        "shared": sorted(shared),
        "committed": committed,
        "continued": [value for _, value in third.rows],
    }


def main() -> None:
    library, bootstrap, topic, given, start_ms = sys.argv[1:]
    module = importlib.import_module("tests.support.client_versions." + MODULES[library])
    client = module.Client(bootstrap)
    print(json.dumps({"version": module.VERSION, **run(client, topic, given, int(start_ms))}))


if __name__ == "__main__":
    main()
