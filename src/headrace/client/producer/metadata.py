"""The producer's view of cluster metadata: keeps the accumulator's partition leaders up to date.

Belongs to the event loop.
"""

from collections.abc import Callable
from collections.abc import Set as AbstractSet

from headrace.client.errors import KafkaTimeoutError
from headrace.client.metadata import Metadata
from headrace.client.metadata_cache import ClusterView, TopicInfo
from headrace.client.producer.accumulator import Accumulator
from headrace.common.clock import Clock
from headrace.common.ids import Uuid
from headrace.common.types import TopicPartition
from headrace.net.nodes import Node

__all__ = ["ProducerMetadata"]

_USE_SECONDS = 1.0
"""How often sending to a topic is noted, so that metadata of unused topics can expire."""
_REQUEST_AGAIN_MS = 200.0


class ProducerMetadata:
    """Metadata of the topics that the producer sends to."""

    def __init__(self, metadata: Metadata, accumulator: Accumulator, clock: Clock, wake: Callable[[], None]):
        """`wake` polls the sender after a leader change."""
        self._metadata = metadata
        self._accumulator = accumulator
        self._clock = clock
        self._wake = wake
        self._next_use: dict[str, float] = {}
        metadata.on_change(self._changed)

    async def wait_for_partition(self, topic: str, partition: int, timeout_ms: float) -> None:
        """Waits until the metadata has the topic and the partition. Partition -1 stands for any partition."""
        deadline = self._clock.monotonic() + timeout_ms / 1000
        info = await self._metadata.topic(topic, timeout_ms)
        self._set_leaders(self._metadata.view, info)
        while partition >= len(info.partitions):
            self._metadata.request_update([topic])
            left_ms = (deadline - self._clock.monotonic()) * 1000
            try:
                view = await self._metadata.wait_for(
                    lambda view: (view.partition_count(topic) or 0) > partition,
                    max(0.0, min(left_ms, _REQUEST_AGAIN_MS)),
                )
            except KafkaTimeoutError:
                if left_ms <= 0:
                    raise KafkaTimeoutError(
                        f"Partition {partition} of topic {topic!r} with partition count {len(info.partitions)} is not "
                        f"present in metadata after {timeout_ms:.0f} ms"
                    ) from None
            else:
                info = view.topics[topic]
                self._set_leaders(view, info)

    def _changed(self, old: ClusterView, new: ClusterView) -> None:
        leaders_changed = False
        for topic in tuple(self._accumulator.topics):
            info = new.topic(topic)
            if info is None:
                self._accumulator.forget_topic(topic)
            elif info is not old.topic(topic) or old.nodes is not new.nodes:
                self._set_leaders(new, info)
                leaders_changed = True
        if leaders_changed:
            self._wake()

    def _set_leaders(self, view: ClusterView, info: TopicInfo) -> None:
        if info.partitions:
            leaders = [partition.leader if partition.leader in view.nodes else -1 for partition in info.partitions]
            self._accumulator.set_leaders(info.name, leaders)

    # ---- the sender

    def request_update(self, topics: AbstractSet[str]) -> None:
        """Requests metadata of the topics soon."""
        self._metadata.request_update(topics)

    def topic_id(self, topic: str) -> Uuid:
        """Returns the topic's ID, or the zero UUID if the brokers do not return it. Notes that the topic is in use."""
        now = self._clock.monotonic()
        if self._next_use.get(topic, 0.0) < now:
            self._next_use[topic] = now + _USE_SECONDS
            self._metadata.use(topic)
        return self._metadata.view.topic_id(topic)

    def note_leader(self, tp: TopicPartition, leader: int, leader_epoch: int, node: Node | None) -> None:
        """Takes over a leader that a Produce response named (KIP-951)."""
        self._metadata.note_leader(tp, leader, leader_epoch, node)
