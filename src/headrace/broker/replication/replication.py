"""Replication on one broker: connects the replica manager with the controller and with other brokers.

    leader      followers fetch → `Partition` proposes ISR changes → `IsrManager` → controller or store
    follower    the controller assigns a role → `FetcherManager` → fetchers → appends and truncations
    any         a client changes the log directory of a replica → `LogDirMoves`

Owned by the broker's loop. `close` stops all of it, before the logs are closed.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from headrace.broker.config.broker import BrokerConfig
from headrace.broker.config.dynamic import DynamicConfig
from headrace.broker.partition import Partition
from headrace.broker.replica_manager import ReplicaManager
from headrace.broker.replication.fetcher import BrokerClient
from headrace.broker.replication.fetcher_manager import FetcherManager
from headrace.broker.replication.isr import AlterPartitionManager, AlterPartitionSender, IsrManager, StoreIsrManager
from headrace.broker.replication.log_dir_moves import LogDirMoves
from headrace.broker.replication.replica_selector import make_selector
from headrace.broker.replication.throttle import ReplicationQuota, is_listed
from headrace.cluster.metadata_image import ImageChange, MetadataImage
from headrace.cluster.store import CoordinationStore
from headrace.common.timing_wheel import Timer
from headrace.common.types import TopicPartition

_FETCHERS = "num.replica.fetchers"


class Replication:
    """The fetchers, ISR changes, throttles and moves between log directories of one broker."""

    def __init__(
        self,
        config: BrokerConfig,
        dynamic_config: DynamicConfig,
        replicas: ReplicaManager,
        *,
        image: MetadataImage,
        store: CoordinationStore,
        client: BrokerClient,
        controller: AlterPartitionSender,
        timer: Timer,
        broker_epoch: Callable[[], int],
    ):
        self._replicas = replicas
        node_id = replicas.node_id

        def leader_is_listed(tp: TopicPartition) -> bool:
            return is_listed(dynamic_config.topic(tp.topic).leader_throttled_replicas, tp.partition, node_id)

        def follower_is_listed(tp: TopicPartition) -> bool:
            return is_listed(dynamic_config.topic(tp.topic).follower_throttled_replicas, tp.partition, node_id)

        clock = replicas.logs.clock
        window = config.fetchers.throttle_samples, config.fetchers.throttle_sample_seconds
        replicas.leader_quota = ReplicationQuota(
            clock, lambda: int(dynamic_config.broker("leader.replication.throttled.rate")), leader_is_listed, *window
        )
        follower_quota = ReplicationQuota(
            clock,
            lambda: int(dynamic_config.broker("follower.replication.throttled.rate")),
            follower_is_listed,
            *window,
        )
        selector = make_selector(config.replica_selector_class, image)
        replicas.select_replica = selector.select if selector is not None else None
        fetcher_config = replace(config.fetchers, fetchers=dynamic_config.broker(_FETCHERS))
        self.fetchers = FetcherManager(
            node_id, client, replicas, fetcher_config, broker_epoch=broker_epoch, throttle=follower_quota
        )
        self.log_dir_moves = LogDirMoves(
            replicas,
            image,
            ReplicationQuota(
                clock,
                lambda: int(dynamic_config.broker("replica.alter.log.dirs.io.max.bytes.per.second")),
                lambda _: True,
                config.fetchers.log_dir_throttle_samples,
                config.fetchers.log_dir_throttle_sample_seconds,
            ),
            movers=config.fetchers.log_dir_movers or len(config.log_dirs),
            max_bytes=config.fetchers.max_bytes,
            backoff_ms=config.fetchers.backoff_ms,
        )
        replicas.on_role_assigned = self._role_assigned
        dynamic_config.on_broker_changed.append(self._broker_configs_changed)
        self.isr_manager: IsrManager
        if config.control.protocol.uses_alter_partition:
            self.isr_manager = AlterPartitionManager(controller, timer, replicas.isr_change_answered)
        else:
            self.isr_manager = StoreIsrManager(
                store,
                node_id,
                timer,
                replicas.isr_change_answered,
                now_ms=replicas.context.now_ms,
                controller_epoch=lambda: image.controller_epoch,
            )
        replicas.context.submit_isr_change = self.isr_manager.submit
        replicas.context.broker_epoch = broker_epoch
        image.add_listener(self._image_changed)

    def _role_assigned(self, partition: Partition) -> None:
        self.fetchers.update(partition)
        self.log_dir_moves.update(partition)

    def _image_changed(self, change: ImageChange) -> None:
        if change.brokers_changed:
            self._replicas.check_high_watermarks()
            self.fetchers.wake()

    def _broker_configs_changed(self, changed: Mapping[str, Any]) -> None:
        if _FETCHERS in changed:
            self.fetchers.resize(changed[_FETCHERS], self._replicas)

    async def close(self) -> None:
        """Stops fetching and proposing ISR changes."""
        self._replicas.on_role_assigned = lambda _: None
        await self.fetchers.close()
        await self.log_dir_moves.close()
        await self.isr_manager.close()
