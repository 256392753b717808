"""A cluster in memory, with the calls of the admin client that `headrace reassign-partitions` makes."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from headrace.admin import (
    AlteredConfig,
    AlteredLogDir,
    AlteredReassignment,
    ClusterDescription,
    ConfigResource,
    ConfigResourceType,
    LogDirDescription,
    OngoingReassignment,
    PartitionDescription,
    ReplicaInfo,
    ReplicaLogDirs,
    Results,
    TopicDescription,
)
from headrace.client.admin.types import BrokerDescription
from headrace.client.types import TopicPartitionReplica
from headrace.common.errors import (
    HeadraceError,
    InvalidReplicationFactorError,
    KafkaError,
    LogDirNotFoundError,
    ReplicaNotAvailableError,
    UnknownTopicOrPartitionError,
)
from headrace.common.types import TopicPartition


class FakeCluster:
    """Brokers, the replicas of partitions, and dynamic configs. Reassignments stay in progress until `finish`."""

    def __init__(self, brokers: Iterable[int], replicas: Mapping[TopicPartition, tuple[int, ...]]):
        self.brokers = set(brokers)
        self.replicas = dict(replicas)
        self.targets: dict[TopicPartition, tuple[int, ...]] = {}
        self.configs: dict[tuple[str, str], dict[str, str]] = {}
        """The configs by type and name of the resource."""
        self.sizes: dict[tuple[TopicPartition, int], int] = {}
        """The bytes of each replica, by partition and broker."""
        self.log_dirs: dict[TopicPartitionReplica, tuple[str, str | None]] = {}
        """The current and the future log directory of replicas. "/nowhere" does not exist."""
        self.refuses = False
        """Refuse reassignments."""
        self.failures: list[HeadraceError] = []
        """Raised by the next calls that list reassignments or log directories."""

    @contextmanager
    def admin(self, timeout_ms: int | None = None) -> "Iterator[FakeCluster]":
        yield self

    def finish(self, *tps: TopicPartition) -> None:
        """Completes these reassignments, or all."""
        for tp in tps or list(self.targets):
            self.replicas[tp] = self.targets.pop(tp)

    # ---- the admin client

    def describe_cluster(self) -> ClusterDescription:
        return ClusterDescription("fake", 1, tuple(BrokerDescription(one, "h", 1) for one in sorted(self.brokers)))

    def describe_log_dirs(
        self, partitions: Mapping[str, Iterable[int]], brokers: Iterable[int]
    ) -> dict[int, list[LogDirDescription]]:
        self._fail()
        wanted = {TopicPartition(topic, index) for topic, indexes in partitions.items() for index in indexes}
        return {
            broker: [
                LogDirDescription(
                    broker,
                    "/data",
                    {
                        tp: ReplicaInfo(size, 0)
                        for (tp, on), size in self.sizes.items()
                        if on == broker and tp in wanted
                    },
                )
            ]
            for broker in brokers
        }

    def describe_replica_log_dirs(
        self, replicas: Iterable[TopicPartitionReplica]
    ) -> dict[TopicPartitionReplica, ReplicaLogDirs]:
        return {
            replica: ReplicaLogDirs(current, 0, future, -1 if future is None else 5)
            for replica in replicas
            for current, future in [self.log_dirs.get(replica, (None, None))]
        }

    def alter_replica_log_dirs(
        self, targets: Mapping[TopicPartitionReplica, str], *, raise_errors: bool
    ) -> Results[TopicPartitionReplica, AlteredLogDir]:
        assert not raise_errors
        results: Results[TopicPartitionReplica, AlteredLogDir] = Results()
        for replica, path in targets.items():
            error: KafkaError | None = None
            if replica not in self.log_dirs:
                error = ReplicaNotAvailableError("no such replica")
            elif path == "/nowhere":
                error = LogDirNotFoundError("no such directory")
            else:
                current = self.log_dirs[replica][0]
                self.log_dirs[replica] = current, None if path == current else path
            results[replica] = AlteredLogDir(error)
        return results

    def _fail(self) -> None:
        if self.failures:
            raise self.failures.pop(0)

    def describe_topics(
        self, topics: Iterable[str] | None = None, raise_errors: bool = True
    ) -> Results[str, TopicDescription]:
        names = sorted({tp.topic for tp in self.replicas}) if topics is None else list(topics)
        results: Results[str, TopicDescription] = Results()
        for name in names:
            partitions = tuple(
                PartitionDescription(tp.partition, self.replicas[tp][0], replicas=self._all_replicas(tp))
                for tp in sorted(self.replicas)
                if tp.topic == name
            )
            error = None if partitions else UnknownTopicOrPartitionError(f"Topic '{name}' does not exist.")
            results[name] = TopicDescription(name, partitions=partitions, error=error)
        if raise_errors:
            results.raise_errors()
        return results

    def _all_replicas(self, tp: TopicPartition) -> tuple[int, ...]:
        return tuple(dict.fromkeys((*self.targets.get(tp, ()), *self.replicas[tp])))

    def list_partition_reassignments(
        self, tps: Sequence[TopicPartition] | None = None
    ) -> dict[TopicPartition, OngoingReassignment]:
        self._fail()
        return {
            tp: OngoingReassignment(
                self._all_replicas(tp),
                tuple(one for one in target if one not in self.replicas[tp]),
                tuple(one for one in self.replicas[tp] if one not in target),
            )
            for tp, target in self.targets.items()
            if tps is None or tp in tps
        }

    def alter_partition_reassignments(
        self,
        targets: Mapping[TopicPartition, tuple[int, ...] | None],
        *,
        allow_replication_factor_change: bool = True,
        raise_errors: bool = True,
    ) -> Results[TopicPartition, AlteredReassignment]:
        results: Results[TopicPartition, AlteredReassignment] = Results()
        for tp, target in targets.items():
            error: KafkaError | None = InvalidReplicationFactorError("refused") if self.refuses else None
            results[tp] = AlteredReassignment(error)
            if error is None and target is None:
                del self.targets[tp]
            elif error is None and target is not None:
                self.targets[tp] = target
        return results

    def alter_configs(self, resources: Iterable[ConfigResource]) -> Results[ConfigResource, AlteredConfig]:
        for resource in resources:
            assert isinstance(resource.configs, Mapping)
            self._configs_of(resource).update({key: str(value) for key, value in resource.configs.items()})
        return Results()

    def reset_configs(self, resources: Iterable[ConfigResource]) -> Results[ConfigResource, AlteredConfig]:
        for resource in resources:
            configs = self._configs_of(resource)
            for key in resource.configs or ():
                configs.pop(key, None)
        self.configs = {name: configs for name, configs in self.configs.items() if configs}
        return Results()

    def _configs_of(self, resource: ConfigResource) -> dict[str, str]:
        kind = ConfigResourceType(resource.resource_type)
        if kind is ConfigResourceType.BROKER:
            assert int(resource.name) in self.brokers, f"broker {resource.name} is not running"
        else:
            assert any(tp.topic == resource.name for tp in self.replicas), f"no topic {resource.name}"
        return self.configs.setdefault((kind.name.lower(), resource.name), {})


class StepClock:
    """A clock whose `sleep` takes no time, but calls a step of the test: each step once, then the last one."""

    def __init__(self, *steps: Callable[[], object]):
        self._steps = list(steps)
        self._seconds = 0.0

    def time_ms(self) -> int:
        return int(self._seconds * 1000)

    def monotonic(self) -> float:
        return self._seconds

    def sleep(self, seconds: float) -> None:
        self._seconds += seconds
        step = self._steps.pop(0) if len(self._steps) > 1 else self._steps[0]
        step()
