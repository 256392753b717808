"""Reads topics: partitions, offsets and the rates that follow from them. Part of the collector; owner: the loop."""

from array import array
from collections.abc import Iterable

from headrace.aio.admin import Admin
from headrace.client.admin.types import ConfigResource, OffsetSpec, TopicDescription
from headrace.common.clock import Clock
from headrace.common.types import TopicPartition
from headrace.console.snapshot import UNKNOWN, BrokerState, PartitionState, Snapshot, TopicState

_TIMEOUT_MS = 10_000
_CONFIG_BATCH = 500
_SMOOTHING_SECONDS = 10.0
"""Rates are averages over about this time."""


class TopicReader:
    """Reads topics and offsets."""

    def __init__(self, admin: Admin, clock: Clock):
        self._admin = admin
        self._clock = clock
        self._states: dict[PartitionState, PartitionState] = {}
        self._ends_read_at: float | None = None

    # ---- topics

    async def read_topics(self, snapshot: Snapshot) -> None:
        """Reads all topics, and which brokers there are."""
        described = await self._admin.describe_topics(timeout_ms=_TIMEOUT_MS)
        changed = False
        topics: dict[str, TopicState] = {}
        for description in described.values():
            if description.error is not None and not description.partitions:
                continue
            before = snapshot.topics.get(description.name)
            topic = self._topic(description, before)
            changed = changed or topic is not before
            topics[topic.name] = topic
        changed = changed or len(topics) != len(snapshot.topics)
        snapshot.topics = dict(sorted(topics.items()))
        self._update_brokers(snapshot)
        if changed:
            snapshot.generation["topics"] += 1
            self._states = {state: state for topic in topics.values() for state in topic.partitions}

    def _topic(self, description: TopicDescription, before: TopicState | None) -> TopicState:
        ordered = sorted(description.partitions, key=lambda partition: partition.partition)
        partitions = tuple(
            self._shared(
                PartitionState(
                    partition.leader, partition.leader_epoch, partition.replicas, partition.isr, partition.offline
                )
            )
            for partition in ordered
        )
        topic_id = str(description.topic_id)
        if before is not None and before.topic_id == topic_id and len(before.partitions) <= len(partitions):
            if before.partitions == partitions:
                return before
            added = len(partitions) - len(before.partitions)
            return TopicState(
                before.name,
                topic_id,
                before.internal,
                partitions,
                before.starts + array("q", [UNKNOWN] * added),
                before.ends + array("q", [UNKNOWN] * added),
                before.rates + array("d", [UNKNOWN] * added),
                before.sizes + array("q", [UNKNOWN] * added),
                before.size_bytes,
                before.messages_in,
                before.min_isr,
            )
        unknown = array("q", [UNKNOWN] * len(partitions))
        internal = description.is_internal or description.name.startswith("__")
        rates = array("d", [UNKNOWN] * len(partitions))
        return TopicState(description.name, topic_id, internal, partitions, unknown, unknown[:], rates, unknown[:])

    def _shared(self, state: PartitionState) -> PartitionState:
        return self._states.setdefault(state, state)

    @staticmethod
    def _update_brokers(snapshot: Snapshot) -> None:
        leaders: dict[int, int] = {}
        replicas: dict[int, int] = {}
        for topic in snapshot.topics.values():
            for partition in topic.partitions:
                leaders[partition.leader] = leaders.get(partition.leader, 0) + 1
                for replica in partition.replicas:
                    replicas[replica] = replicas.get(replica, 0) + 1
        live = {broker.id: broker for broker in snapshot.cluster.brokers}
        ids = sorted(live.keys() | replicas.keys())
        if ids != list(snapshot.brokers):
            snapshot.brokers = {number: snapshot.brokers.get(number) or BrokerState(number) for number in ids}
            snapshot.generation["brokers"] += 1
        for number, broker in snapshot.brokers.items():
            description = live.get(number)
            broker.host = None if description is None else description.host
            broker.port = None if description is None else description.port
            broker.rack = None if description is None else description.rack
            broker.error = None if description is not None else "not registered in the cluster"
            broker.leaders = leaders.get(number, 0)
            broker.replicas = replicas.get(number, 0)

    # ---- offsets

    async def read_ends(self, snapshot: Snapshot) -> None:
        """Reads the ends of all partitions, and computes rates."""
        ends = await self._offsets(snapshot, OffsetSpec.LATEST)
        now = self._clock.monotonic()
        elapsed = 0.0 if self._ends_read_at is None else now - self._ends_read_at
        self._ends_read_at = now
        weight = min(1.0, elapsed / _SMOOTHING_SECONDS) if elapsed else 0.0
        total: float | None = None
        for topic in snapshot.topics.values():
            rate: float | None = None
            for number in range(len(topic.partitions)):
                end = ends.get(TopicPartition(topic.name, number), UNKNOWN)
                before = topic.ends[number]
                topic.ends[number] = end
                if end < 0 or before < 0 or elapsed <= 0:
                    topic.rates[number] = UNKNOWN
                    continue
                current = max(0, end - before) / elapsed
                last = topic.rates[number]
                smooth = current if last < 0 else last + weight * (current - last)
                topic.rates[number] = smooth if smooth >= 0.001 else 0.0
                rate = (rate or 0.0) + topic.rates[number]
            topic.messages_in = rate
            if rate is not None and not topic.internal:
                total = (total or 0.0) + rate
        snapshot.messages_in = total

    async def read_starts(self, snapshot: Snapshot) -> None:
        starts = await self._offsets(snapshot, OffsetSpec.EARLIEST)
        for topic in snapshot.topics.values():
            for number in range(len(topic.partitions)):
                topic.starts[number] = starts.get(TopicPartition(topic.name, number), UNKNOWN)

    async def _offsets(self, snapshot: Snapshot, spec: int) -> dict[TopicPartition, int]:
        live = snapshot.live
        specs = {tp: spec for tp, partition in snapshot.partitions() if partition.leader in live}
        if not specs:
            return {}
        listed = await self._admin.list_partition_offsets(specs, timeout_ms=_TIMEOUT_MS, raise_errors=False)
        return {tp: found.offset for tp, found in listed.items() if found.error is None}

    # ---- configs

    async def read_min_isr(self, snapshot: Snapshot) -> None:
        """Reads `min.insync.replicas` of all topics."""
        for names in _batches(list(snapshot.topics), _CONFIG_BATCH):
            resources = [ConfigResource("topic", name, ["min.insync.replicas"]) for name in names]
            described = await self._admin.describe_configs(resources, timeout_ms=_TIMEOUT_MS, raise_errors=False)
            for resource, description in described.items():
                entry = description.entries.get("min.insync.replicas")
                topic = snapshot.topics.get(resource.name)
                if topic is not None and entry is not None and (entry.value or "").isdecimal():
                    topic.min_isr = int(entry.value or "")


def _batches(names: list[str], size: int) -> Iterable[list[str]]:
    for start in range(0, len(names), size):
        yield names[start : start + size]
