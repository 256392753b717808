"""The clients of a simulated cluster, and what they do. Every value is unique: `<producer>:<number>`.

- producers send with acks=all and idempotence; a producer whose session failed is replaced by a new one
- readers read all partitions by assignment, from the start, again and again; also with read_committed
- group consumers read as members of a group, commit after each poll, and restart
- transactional producers write to several partitions, and commit or abort
- copiers read as members of a group, write copies, and commit their offsets in the same transaction
- an admin deletes a topic and creates it again
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from headrace.admin import NewTopic
from headrace.client.types import OffsetAndMetadata
from headrace.common.errors import HeadraceError, KafkaError
from headrace.common.ids import Random
from headrace.common.types import TopicPartition
from headrace.records import ConsumerRecord
from headrace.testing.simulation.cluster import SimulatedCluster
from headrace.testing.simulation.history import History, Transaction
from headrace.testing.simulation.loop import Node

TOPIC = "events"
TRANSACTIONS = "transactions"
SHORT_LIVED = "short-lived"
COPIES = "copies"
GROUP = "group"
COPY_GROUP = "copy-group"
TOPICS = (TOPIC, TRANSACTIONS, COPIES)

PRODUCER: dict[str, Any] = {
    "acks": "all",
    "enable_idempotence": True,
    "delivery_timeout_ms": 8000,
    "request_timeout_ms": 3000,
    "max_block_ms": 4000,
    "metadata_max_age_ms": 2000,
}
CONSUMER: dict[str, Any] = {
    "auto_offset_reset": "earliest",
    "enable_auto_commit": False,
    "request_timeout_ms": 3000,
    "default_api_timeout_ms": 5000,
    "metadata_max_age_ms": 2000,
    "fetch_max_wait_ms": 500,
}
READ_COMMITTED: dict[str, Any] = {**CONSUMER, "isolation_level": "read_committed"}
GROUP_MEMBER: dict[str, Any] = {
    "session_timeout_ms": 6000,
    "heartbeat_interval_ms": 1000,
}


class Workload:
    """The clients of one run."""

    def __init__(self, cluster: SimulatedCluster, random: Random, history: History, replication_factor: int = 3):
        self._cluster = cluster
        self._random = random
        self._history = history
        self._factor = replication_factor
        self.partitions = 2
        self.client_rack: str | None = None
        """The rack of the readers: they fetch from followers if the brokers allow it."""
        self.stopped = False
        self._tasks: list[asyncio.Task[None]] = []
        self._next_name = 0

    async def create_topics(self) -> None:
        node = self._node("admin")

        async def create() -> None:
            async with self._cluster.admin(node) as admin:
                topics = [NewTopic(name, self.partitions, self._factor) for name in TOPICS]
                await admin.create_topics(topics)
            for group in (GROUP, COPY_GROUP):
                async with self._cluster.consumer(node, group_id=group, **CONSUMER) as consumer:
                    await consumer.commit(dict.fromkeys(self._tps(TOPIC), 0))

        await node.run(create())

    def start(self, *clients: Callable[[Node], Awaitable[None]]) -> None:
        """Starts clients, each on a node of its own."""
        for client in clients:
            node = self._node(client.__name__)
            self._tasks.append(node.run(self._repeat(client, node)))

    async def _repeat(self, client: Callable[[Node], Awaitable[None]], node: Node) -> None:
        """Runs a client again when it has failed, as an application does."""
        while not self.stopped:
            try:
                await client(node)
            except HeadraceError as error:
                self._failed(error)
            await asyncio.sleep(0.2)

    def _failed(self, error: HeadraceError) -> None:
        self._history.note_failure(error)
        self._cluster.note(f"a call failed: {error!r}")

    def check(self) -> None:
        """Raises the exception of a client that has failed in an unexpected way."""
        for task in self._tasks:
            if task.done() and task.exception() is not None:
                task.result()

    async def stop(self) -> None:
        self.stopped = True
        for task in self._tasks:
            await task

    def _node(self, name: str) -> Node:
        self._next_name += 1
        return self._cluster.client_node(f"{name}-{self._next_name}")

    def _name(self, kind: str) -> str:
        self._next_name += 1
        return f"{kind}{self._next_name}"

    # ---- producers

    async def producer(self, node: Node) -> None:
        name = self._name("p")
        async with self._cluster.producer(node, **PRODUCER) as producer:
            number = 0
            while not self.stopped:
                burst = []
                for _ in range(self._random.choice((1, 1, 3, 10))):
                    tp = TopicPartition(TOPIC, self._random.randrange(self.partitions))
                    value = f"{name}:{number}".encode()
                    number += 1
                    self._history.note_sent(tp, value)
                    burst.append((tp, value, await producer.send(*tp[:1], value, partition=tp.partition)))
                failed = None
                for tp, value, future in burst:
                    try:
                        metadata = await future
                    except KafkaError as error:
                        failed = error
                    else:
                        self._history.note_acknowledged(tp, metadata.offset, value)
                if failed is not None:
                    raise failed
                await asyncio.sleep(self._random.random() * 0.3)

    async def transactional_producer(self, node: Node) -> None:
        name = self._name("x")
        async with self._cluster.producer(node, transactional_id=node.name, **PRODUCER) as producer:
            await producer.init_transactions()
            number = 0
            while not self.stopped:
                transaction = Transaction()
                self._history.transactions.append(transaction)
                await producer.begin_transaction()
                try:
                    for partition in range(self.partitions):
                        tp = TopicPartition(TRANSACTIONS, partition)
                        value = f"{name}:{number}".encode()
                        number += 1
                        self._history.note_in_transaction(transaction, tp, value)
                        await producer.send(TRANSACTIONS, value, partition=partition)
                    if self._random.random() < 0.7:
                        await producer.commit_transaction()
                        transaction.committed = True
                    else:
                        await producer.abort_transaction()
                        transaction.committed = False
                except KafkaError as error:
                    if not error.abortable:
                        raise
                    self._failed(error)
                    await producer.abort_transaction()
                    transaction.committed = False
                await asyncio.sleep(self._random.random() * 0.5)

    async def copier(self, node: Node) -> None:
        """Copies a topic. After a failure another copier continues from the committed offsets."""
        async with (
            self._cluster.producer(node, transactional_id=node.name, **PRODUCER) as producer,
            self._cluster.consumer(node, TOPIC, group_id=COPY_GROUP, **{**READ_COMMITTED, **GROUP_MEMBER}) as consumer,
        ):
            await producer.init_transactions()
            transactions = 0
            while not self.stopped and transactions < 10:
                records = await consumer.poll(500)
                if not records:
                    continue
                transactions += 1
                await producer.begin_transaction()
                for tp, found in records.items():
                    copy = TopicPartition(COPIES, tp.partition)
                    for record in found:
                        self._history.note_sent(copy, record.value)
                        await producer.send(COPIES, record.value, partition=tp.partition)
                ends = _ends(records)
                await producer.send_offsets_to_transaction(ends, consumer.group_metadata())
                if self._random.random() < 0.2:
                    await producer.abort_transaction()
                    return
                await producer.commit_transaction()
                for tp, end in ends.items():
                    self._history.note_committed_in_transaction(COPY_GROUP, tp, end.offset)

    # ---- consumers

    def _tps(self, *topics: str) -> list[TopicPartition]:
        return [TopicPartition(topic, partition) for topic in topics for partition in range(self.partitions)]

    async def committed_reader(self, node: Node) -> None:
        async with self._cluster.consumer(node, client_rack=self.client_rack, **READ_COMMITTED) as consumer:
            consumer.assign(self._tps(TRANSACTIONS))
            polls = 0
            while not self.stopped and polls < 30:
                polls += 1
                for tp, records in (await consumer.poll(500)).items():
                    for record in records:
                        self._history.note_read_committed(tp, record.offset, record.value)

    async def reader(self, node: Node) -> None:
        async with self._cluster.consumer(node, client_rack=self.client_rack, **CONSUMER) as consumer:
            consumer.assign(self._tps(TOPIC))
            polls = 0
            while not self.stopped and polls < 30:
                polls += 1
                for tp, records in (await consumer.poll(500)).items():
                    for record in records:
                        self._history.note_read(tp, record.offset, record.value)

    async def group_consumer(self, node: Node) -> None:
        async with self._cluster.consumer(node, TOPIC, group_id=GROUP, **{**CONSUMER, **GROUP_MEMBER}) as consumer:
            polls = 0
            while not self.stopped and polls < 20:
                polls += 1
                records = await consumer.poll(500)
                for tp, found in records.items():
                    for record in found:
                        self._history.note_read(tp, record.offset, record.value)
                if not records:
                    continue
                ends = _ends(records)
                await consumer.commit(ends)
                for tp, end in ends.items():
                    self._history.note_committed_offset(GROUP, tp, end.offset)

    # ---- topics

    async def topic_changer(self, node: Node) -> None:
        """Creates a topic, writes to it, and deletes it."""
        async with self._cluster.admin(node, default_api_timeout_ms=5000) as admin:
            await admin.create_topics([NewTopic(SHORT_LIVED, 1, self._factor)], raise_errors=False)
            async with self._cluster.producer(node, **PRODUCER) as producer:
                await producer.send_and_wait(SHORT_LIVED, b"value")
            await asyncio.sleep(self._random.random() * 3)
            await admin.delete_topics([SHORT_LIVED])
            await asyncio.sleep(self._random.random())

    # ---- the end

    async def check_end(self) -> None:
        """Reads everything and compares it with the history."""
        node = self._node("checker")
        await node.run(self._check_end(node))

    async def _check_end(self, node: Node) -> None:
        history = self._history
        tps = self._tps(TOPIC, TRANSACTIONS)
        uncommitted = await self._read_all(node, tps, CONSUMER)
        committed = await self._read_all(node, [*tps, *self._tps(COPIES)], READ_COMMITTED)
        for tp in tps:
            history.check_end(tp, uncommitted[tp], committed[tp])
        history.check_transactions(committed)
        for group in (GROUP, COPY_GROUP):
            offsets = await self._committed_offsets(node, group)
            for tp, offset in offsets.items():
                history.note_fetched_offset(group, tp, offset)
            if group == COPY_GROUP:
                sources = {tp: committed[tp] for tp in self._tps(TOPIC)}
                history.check_copies(sources, offsets, [committed[tp] for tp in self._tps(COPIES)])

    async def _committed_offsets(self, node: Node, group: str) -> dict[TopicPartition, int | None]:
        async with self._cluster.consumer(node, group_id=group, **READ_COMMITTED) as consumer:
            return {tp: await consumer.committed(tp) for tp in self._tps(TOPIC)}

    async def _read_all(
        self, node: Node, tps: list[TopicPartition], options: dict[str, Any]
    ) -> dict[TopicPartition, dict[int, bytes]]:
        values: dict[TopicPartition, dict[int, bytes]] = {tp: {} for tp in tps}
        async with self._cluster.consumer(node, **options) as consumer:
            consumer.assign(tps)
            ends = await consumer.end_offsets(tps)
            while [tp for tp in tps if await consumer.position(tp) < ends[tp]]:
                for tp, records in (await consumer.poll(500)).items():
                    for record in records:
                        values[tp][record.offset] = record.value
        return values


def _ends(
    records: Mapping[TopicPartition, Sequence[ConsumerRecord[Any, Any]]],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Returns the offsets to commit, with the leader epochs of the last records.

    With the epoch, the next member of the group does not read from a former leader that lacks these records, and would
    answer with OFFSET_OUT_OF_RANGE.
    """
    return {tp: OffsetAndMetadata(found[-1].offset + 1, "", found[-1].leader_epoch) for tp, found in records.items()}
