"""Groups and transactions over three brokers: the coordinators and the leaders of partitions fail in turn.

They are killed, or they pause or lose the store for longer than their session lasts. In the last two cases they
continue as zombies: they do not know yet that others have taken over.

A worker copies a topic to another one in transactions, which include the offsets that it has read. Each record must be
copied exactly once.
"""

import logging
import threading
from collections.abc import Callable, Iterator

import pytest
from tests.support.broker.process import eventually

import headrace
from headrace.broker.config.coordinators import GROUP_TOPIC, TRANSACTION_TOPIC
from headrace.coordinator.partitioner import partition_for
from headrace.errors import KafkaError
from headrace.testing import EmbeddedCluster

SOURCE, TARGET, GROUP, NAME = "source", "target", "copiers", "copy"
PARTITIONS, INTERNAL_PARTITIONS = 3, 5
PATIENCE_SECONDS = 240
TIMEOUT_MS = 60_000
PER_STEP = 60


@pytest.fixture
def cluster(caplog: pytest.LogCaptureFixture) -> Iterator[EmbeddedCluster]:
    caplog.set_level(logging.CRITICAL, "headrace.client")
    properties = {
        "group.initial.rebalance.delay.ms": 0,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
    }
    with EmbeddedCluster(3, properties, {SOURCE: PARTITIONS, TARGET: PARTITIONS}) as cluster:
        yield cluster


class Copier:
    """Copies in a thread, until `stop`. After a failed transaction it continues at the committed offsets."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._servers = cluster.bootstrap_servers
        self._stopped = threading.Event()
        self.copied = 0
        self.restarts = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._copy_until_failure()
            except KafkaError:
                self.restarts += 1

    def _copy_until_failure(self) -> None:
        with (
            headrace.Producer(
                bootstrap_servers=self._servers, transactional_id=NAME, transaction_timeout_ms=20_000
            ) as producer,
            headrace.Consumer(
                SOURCE,
                bootstrap_servers=self._servers,
                group_id=GROUP,
                session_timeout_ms=6_000,
                heartbeat_interval_ms=500,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                isolation_level="read_committed",
            ) as consumer,
        ):
            producer.init_transactions()
            while not self._stopped.is_set():
                records = [record for records in consumer.poll(500).values() for record in records]
                if not records:
                    continue
                producer.begin_transaction()
                for record in records:
                    producer.send(TARGET, record.value, partition=record.partition)
                offsets = {headrace.TopicPartition(SOURCE, record.partition): record.offset + 1 for record in records}
                producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
                producer.commit_transaction()
                self.copied += len(records)


def committed(cluster: EmbeddedCluster) -> list[int]:
    """Returns the committed records of the target."""
    found: list[int] = []
    with headrace.Consumer(
        bootstrap_servers=cluster.bootstrap_servers, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        tps = [headrace.TopicPartition(TARGET, index) for index in range(PARTITIONS)]
        consumer.assign(tps)
        ends = consumer.end_offsets(tps)
        while any(consumer.position(tp) < ends[tp] for tp in tps):
            for records in consumer.poll(1_000).values():
                found += [int(record.value or b"") for record in records]
    return found


def leaders(cluster: EmbeddedCluster) -> dict[str, Callable[[], int]]:
    transactions = partition_for(NAME, INTERNAL_PARTITIONS)
    group = partition_for(GROUP, INTERNAL_PARTITIONS)
    return {
        "transaction coordinator": lambda: cluster.leader(TRANSACTION_TOPIC, transactions),
        "group coordinator": lambda: cluster.leader(GROUP_TOPIC, group),
        "leader of a source partition": lambda: cluster.leader(SOURCE, 0),
        "leader of a target partition": lambda: cluster.leader(TARGET, 1),
    }


def fail(cluster: EmbeddedCluster, fault: str, broker_id: int) -> None:
    if fault == "kill":
        cluster.kill(broker_id)
    elif fault == "pause":
        cluster.pause(broker_id)
    else:
        cluster.partition(broker_id, "store")


def recover(cluster: EmbeddedCluster, fault: str, broker_id: int) -> None:
    if fault == "kill":
        cluster.restart(broker_id)
    elif fault == "pause":
        cluster.resume(broker_id)
    else:
        cluster.heal()
    cluster.wait_until_in_sync()


@pytest.mark.parametrize("fault", ["kill", "pause", "no store"])
def test_copies_exactly_once_while_leaders_fail(cluster: EmbeddedCluster, fault: str) -> None:
    written = 0
    with headrace.Producer(
        bootstrap_servers=cluster.bootstrap_servers, acks="all", enable_idempotence=True, delivery_timeout_ms=TIMEOUT_MS
    ) as producer:

        def write() -> None:
            nonlocal written
            futures = [
                producer.send(SOURCE, b"%d" % number, partition=number % PARTITIONS)
                for number in range(written, written + PER_STEP)
            ]
            written += PER_STEP
            for future in futures:
                future.get(timeout_ms=TIMEOUT_MS)

        copier = Copier(cluster)
        try:
            write()
            eventually(lambda: copier.copied > 0, "the first records are copied", PATIENCE_SECONDS)
            # Clients notice a broker that does not respond only after their timeout: only the coordinators pause.
            for role, find in list(leaders(cluster).items())[: None if fault == "kill" else 2]:
                failed = find()
                fail(cluster, fault, failed)
                before = copier.copied
                write()
                eventually(lambda before=before: copier.copied > before, f"copied without the {role}", PATIENCE_SECONDS)
                recover(cluster, fault, failed)
            write()
            eventually(lambda: len(committed(cluster)) >= written, "all records are copied", PATIENCE_SECONDS)
        finally:
            copier.stop()
    assert sorted(committed(cluster)) == list(range(written))
