"""A consumer group under test: topics, members of any client, and an admin client that inspects the group."""

import time
from collections.abc import Iterable
from typing import Any

import confluent_kafka as confluent
import confluent_kafka.admin
import pytest
from tests.support.apache_kafka.jvm import KafkaUnavailable
from tests.support.broker.clients import Confluent
from tests.support.broker.process import Broker, eventually
from tests.support.broker.records import Record
from tests.support.broker.under_test import REPLICAS
from tests.support.coordinator.group_members import Member, MemberHosts, MemberOptions, Partition

PATIENCE = 90.0
SESSION_MS = 30_000
"""Longer than any delay of a loaded machine. Tests that wait for a session timeout use shorter ones."""
POLL_INTERVAL_MS = 60_000
COORDINATOR_IS_STARTING = (
    confluent.KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    confluent.KafkaError.COORDINATOR_NOT_AVAILABLE,
    confluent.KafkaError.NOT_COORDINATOR,
)


class Lab:
    def __init__(self, broker: Broker, hosts: MemberHosts, group: str):
        self.broker = broker
        self.group = group
        self.members: list[Member] = []
        self.written: dict[Partition, int] = {}
        """The number of records of each partition."""
        self._hosts = hosts
        self._writer = Confluent(broker.bootstrap)
        self._admin = confluent.admin.AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        # Fetches committed offsets and never joins. Unlike the admin client it may survive a broker.
        self._reader = confluent.Consumer({"bootstrap.servers": broker.bootstrap, "log_level": 0, "group.id": group})

    def close(self) -> None:
        for member in self.members:
            member.start_leaving()
        for member in self.members:
            member.end()
        self._reader.close()

    # ---- topics

    def create(self, topic: str, partitions: int) -> None:
        (future,) = self._admin.create_topics([confluent.admin.NewTopic(topic, partitions, REPLICAS)]).values()
        future.result(PATIENCE)
        self.written |= {(topic, index): 0 for index in range(partitions)}

    def grow(self, topic: str, partitions: int) -> None:
        (future,) = self._admin.create_partitions([confluent.admin.NewPartitions(topic, partitions)]).values()
        future.result(PATIENCE)
        self.written |= {(topic, index): 0 for index in range(partitions) if (topic, index) not in self.written}

    def write(self, each: int) -> None:
        """Writes to each partition, with current timestamps, since retention deletes old records during the test."""
        for topic in {topic for topic, _ in self.written}:
            indexes = [index for name, index in self.written if name == topic]
            records = [Record(index, None, b"%d" % number) for index in indexes for number in range(each)]
            acks = self._writer.write(topic, records)
            assert not [ack for ack in acks if ack.error]
        for tp in self.written:
            self.written[tp] += each

    # ---- members

    def add(
        self,
        client: str,
        topic: str | None = None,
        *,
        strategies: Iterable[str] = ("range",),
        instance: str | None = None,
        commit: str = "hand",
        session_ms: int = SESSION_MS,
        poll_interval_ms: int = POLL_INTERVAL_MS,
        poll_ms: int = 100,
    ) -> Member:
        """Starts a member that subscribes to a topic, by default to the first of the lab."""
        options = MemberOptions(
            self.broker.bootstrap,
            self.group,
            topic or next(iter(self.written))[0],
            list(strategies),
            instance,
            commit,
            session_ms,
            poll_interval_ms,
            poll_ms,
        )
        try:
            member = Member(self._hosts, client, options)
        except KafkaUnavailable as error:
            pytest.skip(f"Apache Kafka is not available: {error}")
        self.members.append(member)
        return member

    def is_shared(self) -> bool:
        """Returns True if each partition has exactly one owner."""
        return sorted(tp for member in self.members for tp in member.assigned) == sorted(self.written)

    def wait_shared(self, *members: Member) -> None:
        """Waits until each partition has a member and each of `members` has a partition."""

        def shared() -> bool:
            return self.is_shared() and all(member.assigned for member in members)

        eventually(shared, f"every partition has one owner, of {self.members}", PATIENCE)

    @property
    def all_records(self) -> set[tuple[str, int, int]]:
        return {(*tp, offset) for tp, count in self.written.items() for offset in range(count)}

    @property
    def received(self) -> list[tuple[str, int, int]]:
        return [record for member in self.members for record in member.received]

    def wait_read(self) -> None:
        eventually(lambda: set(self.received) >= self.all_records, f"everything is read by {self.members}", PATIENCE)

    def wait_committed(self) -> None:
        """Waits until all records are read and the group has no lag."""
        self.wait_read()
        eventually(lambda: self.committed() == self.written, "everything is committed", PATIENCE)

    # ---- the group from outside

    def committed(self) -> dict[Partition, int]:
        """-1001 stands for no offset, as in librdkafka."""
        wanted = [confluent.TopicPartition(*tp) for tp in self.written]
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return _offsets(self._reader.committed(wanted, PATIENCE))
            except confluent.KafkaException as error:
                if error.args[0].code() not in COORDINATOR_IS_STARTING or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def committed_for_admin(self) -> dict[Partition, int]:
        wanted = [confluent.TopicPartition(*tp) for tp in self.written]
        request = confluent.ConsumerGroupTopicPartitions(self.group, wanted)
        (future,) = self._admin.list_consumer_group_offsets([request]).values()
        return _offsets(future.result(PATIENCE).topic_partitions)

    def describe(self) -> Any:
        (future,) = self._admin.describe_consumer_groups([self.group]).values()
        return future.result(PATIENCE)

    @property
    def state(self) -> str:
        return str(self.describe().state.name)


def _offsets(found: Iterable[confluent.TopicPartition]) -> dict[Partition, int]:
    offsets = {}
    for tp in found:
        assert tp.error is None, tp
        offsets[tp.topic, tp.partition] = tp.offset
    return offsets
