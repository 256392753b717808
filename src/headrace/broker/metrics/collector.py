"""Takes a snapshot of a broker, on its event loop.

A broker may have tens of thousands of partitions, so the snapshot is taken in turns: other requests run in between. Its
parts are therefore a few milliseconds apart.
"""

import importlib.metadata
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import TypeVar

from headrace.broker.dispatch import ApiMetrics
from headrace.broker.metrics.remote_ends import remote_ends
from headrace.broker.partition import Partition
from headrace.broker.server import Broker
from headrace.broker.traffic import FIELDS
from headrace.broker.yielding import Turn
from headrace.cluster.metadata_image import MetadataImage
from headrace.common.metrics import Histogram
from headrace.common.types import TopicPartition
from headrace.coordinator.group.classic_group import ClassicGroup, GroupState
from headrace.coordinator.group.shard import GroupCoordinatorShard
from headrace.monitoring.lag import LagEstimator
from headrace.monitoring.loop_monitor import LoopMonitor
from headrace.monitoring.snapshot import (
    BrokerSnapshot,
    ClientMetric,
    ConnectionStats,
    ControllerStats,
    Distribution,
    GroupOffset,
    GroupStats,
    LogStats,
    PartitionStats,
    ReplicaStats,
    RequestStats,
)
from headrace.net.listeners import join_address
from headrace.protocol.apis import APIS, ApiKey

QUANTILES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
"""Those of the JMX exporter."""
T = TypeVar("T")


class RecentQuantiles:
    """The quantiles of the last one to two periods of histograms that count since the start of the broker."""

    def __init__(self) -> None:
        self._older: dict[Histogram, dict[int, int]] = {}
        self._newer: dict[Histogram, dict[int, int]] = {}

    def rotate(self, histograms: Iterable[Histogram]) -> None:
        """Begins a new period."""
        self._older = self._newer
        self._newer = {histogram: dict(histogram.buckets) for histogram in histograms}

    def of(self, histogram: Histogram) -> Distribution:
        since = self._older.get(histogram, {})
        return Distribution(
            histogram.count,
            histogram.total * 1000,
            {quantile: histogram.percentile(quantile * 100, since) * 1000 for quantile in QUANTILES},
        )


class BrokerCollector:
    """Takes snapshots of one broker. Owned by the broker's loop."""

    def __init__(self, broker: Broker, loop_monitor: LoopMonitor):
        self._broker = broker
        self._loop_monitor = loop_monitor
        self._quantiles = RecentQuantiles()
        self._lags = LagEstimator()

    def rotate(self) -> None:
        """Begins a new period of the quantiles. Called periodically."""
        self._quantiles.rotate(
            histogram
            for metrics in self._used_apis().values()
            for histogram in (metrics.seconds, metrics.worked, metrics.waited)
        )

    async def collect(self) -> BrokerSnapshot:
        broker = self._broker
        logs = [
            LogStats(
                log.tp.topic,
                log.tp.partition,
                log.size_in_bytes,
                len(log.segments),
                log.log_start_offset,
                log.log_end_offset,
            )
            async for log in self._in_turns(broker.log_manager)
        ]
        partitions: list[PartitionStats] = []
        counts: Counter[str] = Counter()
        async for partition in self._in_turns(broker.replicas):
            if (stats := self._partition(partition, counts)) is not None:
                partitions.append(stats)
        groups = await self._groups(partitions)
        context = broker.replicas.context
        traffic = context.traffic
        return BrokerSnapshot(
            node_id=broker.node_id,
            cluster_id=broker.cluster_id,
            version=importlib.metadata.version("headrace"),
            state=int(broker.state),
            is_controller=broker.controller.is_active,
            brokers=_addresses(broker.image, broker.config.inter_broker_listener_name),
            controller=await self._controller(),
            replicas=ReplicaStats(
                partitions=counts["partitions"],
                leaders=counts["leaders"],
                under_replicated=counts["under_replicated"],
                under_min_isr=counts["under_min_isr"],
                at_min_isr=counts["at_min_isr"],
                offline=counts["offline"],
                reassigning=counts["reassigning"],
                isr_shrinks=context.isr_shrinks,
                isr_expands=context.isr_expands,
            ),
            traffic=traffic.totals(),
            traffic_by_topic={
                topic: {field: getattr(counters, field) for field in FIELDS} for topic, counters in traffic
            },
            requests=self._requests(),
            refused_requests=broker.dispatcher.refused.value,
            purgatories={
                "Fetch": broker.replicas.fetches.delayed,
                "Produce": broker.replicas.produces.delayed,
                "DeleteRecords": broker.replicas.deletes.delayed,
            },
            connections=self._connections(),
            logs=tuple(logs),
            partitions=tuple(partitions),
            groups=groups,
            client_metrics=tuple(self._client_metrics()),
            offline_log_directories=sum(not directory.online for directory in broker.log_manager.directories),
            fetch_sessions=len(broker.fetch_sessions),
            loop=self._loop_monitor.stats,
            other={"request_memory_bytes": broker.server.memory.held_bytes},
        )

    async def _in_turns(self, items: Iterable[T]) -> AsyncIterator[T]:
        turns = self._broker.dispatcher.turns
        turn = Turn(self._broker.clock)
        for item in list(items):
            if turn.is_over():
                await turns.wait()
                turn = Turn(self._broker.clock)
            yield item

    # ---- requests and connections

    def _used_apis(self) -> dict[int, ApiMetrics]:
        return {key: metrics for key, metrics in self._broker.dispatcher.api_metrics.items() if metrics.requests.value}

    def _requests(self) -> dict[str, RequestStats]:
        quantiles = self._quantiles
        return {
            APIS[ApiKey(key)].name: RequestStats(
                metrics.requests.value,
                quantiles.of(metrics.seconds),
                quantiles.of(metrics.worked),
                quantiles.of(metrics.waited),
            )
            for key, metrics in self._used_apis().items()
        }

    def _connections(self) -> ConnectionStats:
        broker = self._broker
        servers = [server for server in (broker.server, broker.control_server) if server is not None]
        open_by_listener = dict.fromkeys((bound.name for server in servers for bound in server.endpoints), 0)
        for server in servers:
            for name, count in Counter(connection.listener_name for connection in server.connections).items():
                open_by_listener[name] = count
        return ConnectionStats(
            open_by_listener,
            sum(server.connections_total for server in servers),
            sum(server.rejected for server in servers),
            sum(server.bytes_in for server in servers),
            sum(server.bytes_out for server in servers),
        )

    def _client_metrics(self) -> Iterator[ClientMetric]:
        for instance in self._broker.telemetry.instances():
            client = instance.client
            software = f"{client.client_software_name} {client.client_software_version}"
            for point in instance.points:
                yield ClientMetric(
                    client.client_id,
                    str(client.client_instance_id),
                    software,
                    point.name,
                    point.attributes,
                    point.value,
                )

    # ---- partitions

    def _partition(self, partition: Partition, counts: Counter[str]) -> PartitionStats | None:
        """Counts a partition. Returns its values if this broker leads it."""
        counts["partitions"] += 1
        log = partition.log
        if log is None:
            counts["offline"] += 1
            return None
        if not partition.is_leader:
            return None
        counts["leaders"] += 1
        counts["reassigning"] += bool(partition.adding_replicas)
        isr, required = len(partition.isr), partition.min_isr
        counts["under_replicated"] += isr < len(partition.replicas) - len(partition.adding_replicas)
        counts["under_min_isr"] += isr < required
        counts["at_min_isr"] += isr == required
        return PartitionStats(
            partition.tp.topic,
            partition.tp.partition,
            partition.leader_id,
            tuple(partition.replicas),
            tuple(partition.isr),
            log.log_start_offset,
            log.high_watermark,
            log.last_stable_offset,
            required,
        )

    async def _controller(self) -> ControllerStats | None:
        controller, image = self._broker.controller, self._broker.image
        if not controller.is_active:
            return None
        offline = imbalanced = 0
        async for state in self._in_turns(image.partitions()):
            offline += state.leader < 0
            imbalanced += bool(state.replicas) and state.leader != state.replicas[0]
        return ControllerStats(
            topics=len(image.topics),
            partitions=image.partition_count,
            offline_partitions=offline,
            preferred_replica_imbalance=imbalanced,
            active_brokers=len(image.brokers),
            topics_to_delete=len(controller.context.topics_to_be_deleted) if controller.is_active else 0,
        )

    # ---- groups

    async def _groups(self, partitions: list[PartitionStats]) -> tuple[GroupStats, ...]:
        """Returns the groups of this coordinator with their lags."""
        broker = self._broker
        pairs = [
            (shard, group)
            for shard in broker.coordinators.groups.shards()
            for group in list(shard.groups.values())
            if group.state is not GroupState.DEAD
        ]
        committed = {
            tp
            async for shard, group in self._in_turns(pairs)
            for tp in shard.offsets_of(group.group_id).all_partitions()
        }
        ends = {
            TopicPartition(stats.topic, stats.partition): stats.high_watermark
            for stats in partitions
            if (stats.topic, stats.partition) in committed
        }
        if missing := committed - ends.keys():
            ends |= await remote_ends(broker.inter_broker_client, broker.image, missing)
        now = broker.clock.monotonic()
        for tp, end in ends.items():
            self._lags.add(tp.topic, tp.partition, end, now)
        self._lags.keep_only({(tp.topic, tp.partition) for tp in committed})
        return tuple([self._group(shard, group, ends, now) async for shard, group in self._in_turns(pairs)])

    def _group(
        self, shard: GroupCoordinatorShard, group: ClassicGroup, ends: Mapping[TopicPartition, int], now: float
    ) -> GroupStats:
        offsets = []
        for tp, committed in shard.offsets_of(group.group_id):
            end = ends.get(tp)
            offsets.append(
                GroupOffset(
                    tp.topic,
                    tp.partition,
                    committed.offset,
                    -1 if end is None else max(0, end - committed.offset),
                    None if end is None else self._lags.lag_seconds(tp.topic, tp.partition, committed.offset, now),
                )
            )
        return GroupStats(group.group_id, group.state.value, len(group.members), tuple(offsets))


def _addresses(image: MetadataImage, listener: str) -> dict[int, str]:
    addresses = {}
    for broker_id, broker in image.brokers.items():
        endpoint = broker.endpoint(listener) or (broker.endpoints[0] if broker.endpoints else None)
        addresses[broker_id] = join_address(endpoint.host, endpoint.port) if endpoint is not None else ""
    return addresses
