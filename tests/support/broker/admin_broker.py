"""A broker for unit tests of admin handlers: real store, topics, configs, logs and partitions, without sockets.

In place of the controller, the broker applies the handlers' writes to the image and the logs immediately; with
`controller_sleeps` it does not, like a slow controller.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import GeneratorType, SimpleNamespace
from typing import Any, cast

from headrace.broker import handlers
from headrace.broker.apis import REGISTRY
from headrace.broker.batch_inflater import BatchInflater
from headrace.broker.config.broker import BrokerConfig
from headrace.broker.config.dynamic import DynamicConfig
from headrace.broker.config_resources import ConfigResources
from headrace.broker.quotas.client_quotas import UNLIMITED_MUTATION, ControllerMutation
from headrace.broker.quotas.quotas import Quotas
from headrace.broker.replica_manager import ReplicaManager
from headrace.broker.replication.log_dir_moves import LogDirMoves
from headrace.broker.replication.throttle import UNLIMITED, ReplicationQuota
from headrace.cluster import znodes
from headrace.cluster.commands import (
    EPOCH_DURING_DELETE,
    LEADER_DURING_DELETE,
    BrokerEndpoint,
    BrokerInfo,
    LeaderAndIsr,
    PartitionState,
    ReplicaToStop,
    StopReplica,
    UpdateMetadata,
)
from headrace.cluster.config_store import ConfigEntity, ConfigStore
from headrace.cluster.embedded_store import EmbeddedStore
from headrace.cluster.metadata_image import MetadataImage
from headrace.cluster.registration import prepare_cluster, register_broker
from headrace.cluster.store import tree_deletions
from headrace.cluster.topics import TopicAdmin, TopicSpec
from headrace.cluster.znodes import TopicAssignment
from headrace.common.errors import HeadraceError
from headrace.common.ids import ZERO_UUID, make_random
from headrace.common.principal import ANONYMOUS
from headrace.common.timing_wheel import Timer
from headrace.common.types import TopicPartition
from headrace.protocol import APIS, ApiKey, Message, decode, encode
from headrace.security.authorizer import Authorizer
from headrace.storage.log import Log
from headrace.storage.manager import LogManager
from headrace.testing.clock import ManualClock

NODE_ID = 1
LISTENER = "PLAINTEXT"


class _Topics(TopicAdmin):
    """Also does the controller's work."""

    broker: "AdminBroker"

    async def create_topics(
        self,
        specs: Sequence[TopicSpec],
        *,
        validate_only: bool = False,
        on_planned: Callable[[TopicAssignment], None] = lambda _: None,
        on_created: Callable[[TopicSpec], None] = lambda _: None,
    ) -> list[TopicAssignment | HeadraceError]:
        made = await super().create_topics(
            specs, validate_only=validate_only, on_planned=on_planned, on_created=on_created
        )
        for topic in made:
            if isinstance(topic, TopicAssignment) and not validate_only:
                self.broker.lead(topic)
        return made

    async def create_partitions(
        self,
        topic: str,
        total: int,
        assignments: Sequence[Sequence[int]] | None = None,
        *,
        validate_only: bool = False,
    ) -> TopicAssignment:
        made = await super().create_partitions(topic, total, assignments, validate_only=validate_only)
        if not validate_only:
            self.broker.lead(made)
        return made

    async def delete_topic(self, topic: str) -> None:
        await super().delete_topic(topic)
        if not self.broker.controller_sleeps:
            self.broker.forget(topic)
            store = self.broker.store
            marks = [znodes.topic_path(topic), znodes.delete_topic_path(topic)]
            await store.multi([operation for path in marks for operation in await tree_deletions(store, path)])


def _run_all_turns(work: Iterator[None]) -> Any:
    while True:
        try:
            next(work)
        except StopIteration as stop:
            return stop.value


class AdminBroker:
    """The services that admin handlers use. Close it, or use it in a `with` block."""

    def __init__(self, directory: Path, **properties: object):
        given = {key.replace("_", "."): value for key, value in properties.items()}
        self.config = BrokerConfig.from_properties({"node.id": NODE_ID, "log.dirs": str(directory), **given})
        self.node_id = NODE_ID
        self.clock = ManualClock()
        self.image = MetadataImage()
        self.dynamic_config = DynamicConfig(self.config.properties, NODE_ID)
        self.controller_sleeps = False
        self.mutation_quota: Callable[[bool], ControllerMutation] = lambda _: UNLIMITED_MUTATION
        self.authorizer: Authorizer | None = None
        self._runner = asyncio.Runner()
        self._runner.run(self._start())
        handlers.load()

    async def _start(self) -> None:
        self.store = EmbeddedStore(None, self.clock)
        random = make_random(0)
        self.cluster_id = await prepare_cluster(self.store, random)
        self.info = BrokerInfo(NODE_ID, (BrokerEndpoint(LISTENER, "localhost", 9092),), rack="r1")
        await register_broker(self.store, self.info, self.clock)
        self.config_store = ConfigStore(self.store)
        self.config_resources = ConfigResources(self.dynamic_config, self.config_store, self.image)
        self.topic_admin = _Topics(
            self.store,
            random,
            default_partitions=lambda: self.config.num_partitions,
            default_replication_factor=lambda: 1,
            check_config=lambda _, overrides: cast(None, self.dynamic_config.check_topic(overrides)),
        )
        self.topic_admin.broker = self
        self.log_manager = LogManager(
            self.config.manager,
            config_of=self.dynamic_config.log_config,
            cluster_id=self.cluster_id,
            node_id=NODE_ID,
            clock=self.clock,
        ).start()
        self.dynamic_config.on_topics_changed.append(
            lambda changed: self.log_manager.update_configs({name: config.log for name, config in changed.items()})
        )
        self.quotas = Quotas(self.config.quotas, self.clock, Timer(self.clock))
        self.batch_inflater = BatchInflater(self.clock, asyncio.to_thread)
        self.replicas = ReplicaManager(NODE_ID, self.log_manager, self.dynamic_config.topic, Timer(self.clock))
        self.log_manager.on_directory_failed = lambda _, lost: self.replicas.directory_failed(lost)
        self.log_dir_rate = UNLIMITED
        quota = ReplicationQuota(self.clock, lambda: self.log_dir_rate, lambda _: True)
        self.log_dir_moves = LogDirMoves(self.replicas, self.image, quota, movers=2, max_bytes=1_048_576, backoff_ms=10)
        self.replicas.on_role_assigned = self.log_dir_moves.update
        self.update([])

    def __enter__(self) -> "AdminBroker":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._runner.run(self.log_dir_moves.close())
        self.log_manager.close()
        self._runner.run(self.store.close())
        self._runner.close()

    # ---- controller

    def update(self, partitions: Sequence[PartitionState], brokers: Sequence[BrokerInfo] | None = None) -> None:
        known = [self.info] if brokers is None else brokers
        self.image.apply(UpdateMetadata(NODE_ID, 1, -1, known, partitions))

    def lead(self, topic: TopicAssignment) -> None:
        if self.controller_sleeps:
            return
        states = [
            PartitionState(
                TopicPartition(topic.topic, index),
                topic.topic_id,
                leader=assignment.replicas[0],
                leader_epoch=0,
                isr=tuple(assignment.replicas),
                partition_epoch=0,
                replicas=tuple(assignment.replicas),
            )
            for index, assignment in topic.partitions.items()
        ]
        self.replicas.lead_or_follow(LeaderAndIsr(NODE_ID, 1, -1, states))
        self.update(states)

    def forget(self, topic: str) -> None:
        known = self.image.topic(topic)
        if known is None:
            return
        tps = [TopicPartition(topic, index) for index in known.partitions]
        self.replicas.stop(StopReplica(NODE_ID, 1, -1, [ReplicaToStop(tp, EPOCH_DURING_DELETE, True) for tp in tps]))
        self.update([PartitionState(tp, ZERO_UUID, LEADER_DURING_DELETE, 0, (), 0, ()) for tp in tps])

    async def _wait(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await asyncio.sleep(0.001)

    def in_loop(self, action: Callable[[], Any]) -> Any:
        """Calls a function that starts tasks."""

        async def call() -> Any:
            return action()

        return self._runner.run(call())

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Runs the tasks of the loop until a condition is true."""
        self._runner.run(asyncio.wait_for(self._wait(condition), 60))

    # ---- client

    def call(self, request: Message, version: int | None = None, *, listener: str = LISTENER) -> Any:
        """Returns the response; encodes and decodes both messages. The default is the newest version."""
        api = REGISTRY[type(request).__api_key__]
        version = api.highest if version is None else version
        received = decode(type(request), version, bytearray(encode(request, version)))
        context = SimpleNamespace(
            api_version=version,
            authorizer=self.authorizer,
            principal=ANONYMOUS,
            host="127.0.0.1",
            connection=SimpleNamespace(listener_name=listener),
            turn_is_over=lambda: True,
            give_way=lambda: asyncio.sleep(0),
            controller_mutation=lambda strict_since: self.mutation_quota(version >= strict_since),
        )
        response = api.bind(cast(Any, self)).handler(received, context)
        if api.is_async:
            response = self._runner.run(response)
        elif isinstance(response, GeneratorType):
            response = _run_all_turns(response)
        assert type(response) is APIS[ApiKey(api.key)].response
        return decode(type(response), version, encode(response, version))

    def create(self, name: str, partitions: int = 1, **configs: str) -> TopicAssignment:
        overrides = {key.replace("_", "."): value for key, value in configs.items()}
        made = self._runner.run(self.topic_admin.create_topic(TopicSpec(name, partitions, 1, configs=overrides)))
        self.dynamic_config.set_topic_overrides(name, overrides)
        return made

    def log(self, topic: str, partition: int = 0) -> Log:
        log = self.replicas.leader(topic, partition).log
        assert log is not None
        return log

    def stored(self, entity: ConfigEntity) -> dict[str, str]:
        return self._runner.run(self.config_store.get(entity))

    def limit_mutations(self, rate: int) -> None:
        """Gives all clients a quota of created and deleted partitions per second."""
        self.quotas.config_changed(ConfigEntity.user(None), {"controller_mutation_rate": str(rate)})
        self.mutation_quota = lambda is_strict: self.quotas.controller_mutation("alice", None, is_strict)

    def store_config(self, entity: ConfigEntity, config: dict[str, str]) -> None:
        self._runner.run(self.config_store.set(entity, config))
