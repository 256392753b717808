"""All replica fetchers of this broker: which of them fetches which partition.

A partition belongs to the fetcher of its leader with the number that the hash of its name selects, as in Kafka, so that
the partitions of a leader are spread evenly over `num.replica.fetchers` connections. A fetcher without partitions ends.

Owned by the broker's loop.
"""

import asyncio
from collections.abc import Callable, Iterable

from headrace.broker.config.replication import FetcherConfig
from headrace.broker.partition import Partition
from headrace.broker.replication.fetcher import BrokerClient, FollowerLogs, FollowerThrottle, ReplicaFetcher
from headrace.cluster.commands import NO_LEADER
from headrace.common.types import TopicPartition


def fetcher_of(tp: TopicPartition, fetchers: int) -> int:
    """Returns the number of the fetcher for a partition: Java's hash of topic and partition."""
    value = 0
    for unit in memoryview(tp.topic.encode("utf-16-le")).cast("H"):
        value = (31 * value + unit) & 0xFFFFFFFF
    value = (31 * value + tp.partition) & 0x7FFFFFFF
    return value % fetchers


class FetcherManager:
    """Starts and stops the fetchers as the partitions that this broker follows change."""

    def __init__(
        self,
        node_id: int,
        client: BrokerClient,
        logs: FollowerLogs,
        config: FetcherConfig,
        *,
        broker_epoch: Callable[[], int] = lambda: -1,
        throttle: FollowerThrottle | None = None,
    ):
        self._node_id = node_id
        self._client = client
        self._logs = logs
        self._config = config
        self._broker_epoch = broker_epoch
        self._throttle = throttle
        self._fetchers_per_leader = config.fetchers
        self._fetchers: dict[tuple[int, int], ReplicaFetcher] = {}
        self._keys: dict[TopicPartition, tuple[int, int]] = {}
        """The fetcher of each partition."""
        self._closing: set[asyncio.Task[None]] = set()
        self._is_shutting_down = False
        self._closed = False

    def __len__(self) -> int:
        """Returns the number of running fetchers."""
        return len(self._fetchers)

    def update(self, partition: Partition) -> None:
        """Fetches a partition if this broker follows it, otherwise stops fetching it."""
        tp = partition.tp
        if (
            self._closed
            or self._is_shutting_down
            or partition.is_leader
            or partition.log is None
            or partition.leader_id <= NO_LEADER
        ):
            self.remove(tp)
            return
        key = partition.leader_id, fetcher_of(tp, self._fetchers_per_leader)
        if self._keys.get(tp, key) != key:
            self.remove(tp)
        self._keys[tp] = key
        self._fetcher(key).add(partition)

    def resize(self, fetchers_per_leader: int, partitions: Iterable[Partition]) -> None:
        """Spreads the partitions over another number of fetchers for each leader."""
        self._fetchers_per_leader = fetchers_per_leader
        if not self._is_shutting_down:
            for partition in partitions:
                self.update(partition)

    def begin_shutdown(self) -> None:
        """From now on, does not fetch a partition that gets a new role, as in Kafka.

        The leaderships of this broker are about to move. Their new leaders would propose it for the ISR with each of
        its fetches, which the controller refuses.
        """
        self._is_shutting_down = True

    def _fetcher(self, key: tuple[int, int]) -> ReplicaFetcher:
        fetcher = self._fetchers.get(key)
        if fetcher is None:
            fetcher = self._fetchers[key] = ReplicaFetcher(
                *key,
                node_id=self._node_id,
                client=self._client,
                logs=self._logs,
                config=self._config,
                broker_epoch=self._broker_epoch,
                throttle=self._throttle,
            )
            fetcher.start()
        return fetcher

    def remove(self, tp: TopicPartition) -> None:
        """Stops fetching a partition. Its log is not changed after this call."""
        key = self._keys.pop(tp, None)
        if key is None:
            return
        fetcher = self._fetchers[key]
        fetcher.remove(tp)
        if not len(fetcher):
            del self._fetchers[key]
            task = asyncio.create_task(fetcher.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def wake(self) -> None:
        """Makes all fetchers try again now: a leader may have become reachable."""
        for fetcher in self._fetchers.values():
            fetcher.wake()

    async def close(self) -> None:
        """Stops all fetchers."""
        self._closed = True
        self._keys.clear()
        fetchers, self._fetchers = list(self._fetchers.values()), {}
        await asyncio.gather(*(fetcher.close() for fetcher in fetchers), *self._closing)
