"""The broker: everything wired together, started and stopped in order.

    start   store → cluster id → configuration → logs → sockets bound → registration → controller → leaders → accepting
    stop    no new connections → waits answered, replies drained → controller and registration gone → logs closed

A cluster of one goes through the same steps as a broker of many: it registers, is elected controller, and is told by
the controller (itself) what it leads. One event loop owns everything here.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from headrace.broker import handlers
from headrace.broker.config.broker import BrokerConfig
from headrace.broker.config.dynamic import Configs, TopicConfig
from headrace.broker.coordinators import Coordinators
from headrace.broker.dispatch import Dispatcher
from headrace.broker.driver import Driver
from headrace.broker.fetch_sessions import FetchSessionCache
from headrace.broker.local_channel import LocalChannel
from headrace.broker.replica_manager import ReplicaManager
from headrace.broker.transactions import Transactions
from headrace.cluster import znodes
from headrace.cluster.commands import (
    BrokerEndpoint,
    BrokerInfo,
    Command,
    CommandResult,
    LeaderAndIsr,
    StopReplica,
    UpdateMetadata,
)
from headrace.cluster.config_store import ConfigEntity, ConfigStore, ConfigWatcher
from headrace.cluster.controller import Controller
from headrace.cluster.embedded_store import EmbeddedStore
from headrace.cluster.metadata_image import ImageChange, MetadataImage
from headrace.cluster.producer_id_manager import ProducerIdManager
from headrace.cluster.registration import prepare_cluster, register_broker
from headrace.cluster.topics import TopicAdmin, TopicSpec
from headrace.common.clock import Clock, SystemClock
from headrace.common.errors import (
    HeadraceError,
    KafkaError,
    LeaderNotAvailableError,
    StaleBrokerEpochError,
    TopicAlreadyExistsError,
    code_of,
)
from headrace.common.ids import make_random
from headrace.common.metrics import Metrics
from headrace.common.types import TopicPartition
from headrace.net.listeners import join_address
from headrace.net.server import SocketServer
from headrace.storage.directory import LogDirectory
from headrace.storage.files import storage_error
from headrace.storage.manager import LogManager

_logger = logging.getLogger(__name__)

STORE_FILE = "coordination.sqlite"
"""In the first log directory."""
_READY_SECONDS = 60.0
_CREATION_WAIT_SECONDS = 2.0
_DRAIN_SECONDS = 5.0


class Broker:
    """`await start()`, then `await stop()` or, as a crash would end it, `await abandon()`. Made for one life."""

    config: BrokerConfig
    logs: LogManager
    store: EmbeddedStore
    topics: TopicAdmin
    replicas: ReplicaManager
    controller: Controller
    driver: Driver
    server: SocketServer
    dispatcher: Dispatcher
    fetch_sessions: FetchSessionCache
    channel: LocalChannel
    coordinators: Coordinators
    producer_ids: ProducerIdManager
    transactions: Transactions

    def __init__(self, config: BrokerConfig, clock: Clock | None = None, seed: int | None = None):
        self.config = config
        self.clock = clock or SystemClock()
        self.random = make_random(seed)
        self.metrics = Metrics(self.clock)
        self.node_id = config.node_id
        self.cluster_id = ""
        self.epoch = -1
        self.image = MetadataImage()
        self.configs = Configs(config.properties, self.node_id)
        self.failed: asyncio.Event = asyncio.Event()
        """Set when the broker cannot go on: no log directory is left."""
        self._creations: dict[str, asyncio.Task[None]] = {}
        self._notices: set[asyncio.Task[None]] = set()
        self._watcher: ConfigWatcher | None = None

    # ---- coming

    async def start(self) -> None:
        """Raises HeadraceError, with nothing left open, if it cannot be."""
        handlers.load()
        self.driver = Driver(self.clock, self.config.background_threads)
        try:
            await self._start()
        except BaseException:
            await self.abandon()
            raise

    async def _start(self) -> None:
        config = self.config
        self.store = EmbeddedStore(_first_directory(config) / STORE_FILE, self.clock)
        self.cluster_id = await prepare_cluster(self.store, self.random)
        await self._load_configs()
        self.logs = LogManager(
            self.configs.manager(config.manager),
            config_of=self.configs.log_config,
            cluster_id=self.cluster_id,
            node_id=self.node_id,
            clock=self.clock,
            runner=self.driver.runner,
        )
        await _run_in_thread(self.logs.start)
        self.replicas = ReplicaManager(self.node_id, self.logs, self.configs.topic, self.driver.timer)
        self.logs.on_directory_failed = self._directory_failed
        self.fetch_sessions = FetchSessionCache(
            config.max_incremental_fetch_session_cache_slots, self.clock, self.random
        )
        self.topics = TopicAdmin(
            self.store,
            self.random,
            default_partitions=lambda: config.num_partitions,
            default_replication_factor=lambda: config.default_replication_factor,
            check_config=self._check_topic_config,
        )
        self.coordinators = Coordinators(self)
        self.producer_ids = ProducerIdManager(self.store, self.node_id)
        self.transactions = Transactions(self)
        limits = self.configs.limits(config.limits)
        self.dispatcher = Dispatcher(self, self.clock, self.metrics, config.slow_request_ms)
        self.server = SocketServer(list(config.listeners), self.dispatcher, limits, self.clock, self.metrics)
        self.server.pause()
        await self.server.start()
        self.configs.on_broker_changed.append(self._broker_configs_changed)
        await self._join()
        self._show_metrics()
        self.driver.keep_ticking(self.logs.tick)
        self.driver.every(
            config.replica_high_watermark_checkpoint_interval_ms, self.replicas.checkpoint_high_watermarks
        )
        self.server.resume()
        _logger.info(
            "broker %d of cluster %s is ready at %s, listens on %s, keeps its data in %s",
            self.node_id,
            self.cluster_id,
            self.addresses,
            ", ".join(join_address(end.host, end.port) for end in self.server.endpoints),
            ", ".join(os.path.abspath(directory) for directory in config.manager.log_dirs),
        )

    async def _load_configs(self) -> None:
        self.config_store = ConfigStore(self.store)
        self._watcher = ConfigWatcher(self.store, self.clock, self._config_changed)
        await self._watcher.start()
        for kind in (znodes.BROKER_CONFIGS, znodes.TOPIC_CONFIGS):
            for name, overrides in (await self.config_store.get_all(kind)).items():
                self._config_changed(ConfigEntity(kind, name), overrides)
        self.configs.on_topics_changed.append(self._topic_configs_changed)

    def _config_changed(self, entity: ConfigEntity, overrides: Mapping[str, str]) -> None:
        if entity.kind == znodes.TOPIC_CONFIGS:
            self.configs.set_topic_overrides(entity.name, overrides)
        elif entity.kind == znodes.BROKER_CONFIGS:
            self.configs.set_broker_overrides(entity.name, overrides)

    def _broker_configs_changed(self, _: object) -> None:
        self.server.limits = self.configs.limits(self.config.limits)
        self.logs.config = self.configs.manager(self.config.manager)

    def _check_topic_config(self, _: str, overrides: Mapping[str, str]) -> None:
        self.configs.check_topic(overrides)

    def _topic_configs_changed(self, changed: Mapping[str, TopicConfig]) -> None:
        for name, config in changed.items():
            if config.unclean_leader_election_enable and hasattr(self, "controller"):
                self.controller.unclean_election_enabled(name)
        self.logs.update_configs({name: config.log for name, config in changed.items()})

    async def _join(self) -> None:
        """Registers, stands for controller, and waits until the controller has said what this broker leads."""
        registered = await register_broker(self.store, self._describe(), self.clock)
        self.epoch = registered.epoch
        self.image.add_listener(self._image_changed)
        self.channel = LocalChannel(self.node_id, self.apply)
        self.controller = Controller(
            self.store,
            self.node_id,
            self.channel,
            self.clock,
            unclean_default=lambda: self.configs.topic("").unclean_leader_election_enable,
        )
        await self.controller.start()
        await self.controller.wait_idle()
        if not await self.image.wait_for(lambda image: image.is_alive(self.node_id), _READY_SECONDS):
            raise HeadraceError(f"no controller has taken note of broker {self.node_id} in {_READY_SECONDS:.0f} s")
        await self.channel.wait_idle()
        # One that is in the store and not in the image is being deleted, or cannot be read.
        topics = {*self.image.topics, *await self.store.children(znodes.TOPICS)}
        self.replicas.move_stray_logs(lambda tp: self._is_known(tp, topics))

    def _is_known(self, tp: TopicPartition, topics: set[str]) -> bool:
        if self.image.has_topic(tp.topic):
            return self.image.partition(tp.topic, tp.partition) is not None
        return tp.topic in topics

    def _describe(self) -> BrokerInfo:
        """This broker as others are to know it: the addresses it advertises, with the ports that it really has."""
        ports = {endpoint.listener: endpoint.port for endpoint in self.server.endpoints}
        endpoints = tuple(
            BrokerEndpoint(listener.name, listener.host, listener.port or ports[listener.name])
            for listener in self.config.advertised_listeners
        )
        return BrokerInfo(self.node_id, endpoints, self.config.broker_rack)

    @property
    def endpoints(self) -> tuple[BrokerEndpoint, ...]:
        """Where clients find this broker."""
        return self._describe().endpoints

    @property
    def addresses(self) -> str:
        return ", ".join(f"{end.listener}://{join_address(end.host, end.port)}" for end in self.endpoints)

    def _show_metrics(self) -> None:
        gauge = self.metrics.gauge
        gauge("partitions", lambda: len(self.replicas))
        gauge("waiting_fetches", lambda: self.replicas.fetches.delayed)
        gauge("waiting_produces", lambda: self.replicas.produces.delayed)
        gauge("fetch_sessions", lambda: len(self.fetch_sessions))
        gauge("groups", lambda: sum(len(shard.groups) for shard in self.coordinators.groups.shards()))
        gauge("fetch_session_evictions", lambda: self.fetch_sessions.evictions)

    # ---- what the controller says

    def apply(self, command: Command) -> CommandResult:
        try:
            if 0 <= command.broker_epoch < self.epoch:
                raise StaleBrokerEpochError(
                    f"a command for broker epoch {command.broker_epoch}, this is epoch {self.epoch}"
                )
            self.image.check_controller_epoch(command.controller_id, command.controller_epoch)
            if isinstance(command, UpdateMetadata):
                self.image.apply(command)
                return CommandResult()
            if isinstance(command, LeaderAndIsr):
                return CommandResult(partition_errors=self.replicas.lead_or_follow(command))
            assert isinstance(command, StopReplica)
            return CommandResult(partition_errors=self.replicas.stop(command))
        except KafkaError as error:
            _logger.error("the controller's %s was refused: %s", type(command).__name__, error)
            return CommandResult(error_code=code_of(error))

    def _image_changed(self, change: ImageChange) -> None:
        for name in change.deleted_topics:
            self.configs.forget_topic(name)

    # ---- disks

    def _directory_failed(self, _: LogDirectory, lost: list[TopicPartition]) -> None:
        self.replicas.directory_failed(lost)
        if not any(directory.online for directory in self.logs.directories):
            _logger.error("no log directory is left")
            self.failed.set()
            return
        notice = asyncio.create_task(self._tell_of_failed_directory())
        self._notices.add(notice)
        notice.add_done_callback(self._notices.discard)

    async def _tell_of_failed_directory(self) -> None:
        """The controller asks then what is still here, and finds other leaders."""
        path = f"{znodes.LOG_DIR_EVENTS}/{znodes.LOG_DIR_EVENT_PREFIX}"
        try:
            await self.store.create(path, znodes.encode_log_dir_event(self.node_id), sequential=True)
        except HeadraceError as error:
            _logger.error("the controller cannot be told of a log directory that failed: %s", error)

    # ---- topics on demand

    async def auto_create_topic(self, name: str) -> None:
        """Makes a topic that a client asked for, and waits a moment for its leaders. Many may ask at once."""
        task = self._creations.get(name)
        if task is None:
            task = self._creations[name] = asyncio.create_task(self._create_topic(name))
            task.add_done_callback(lambda _: self._creations.pop(name, None))
        await asyncio.shield(task)

    async def _create_topic(self, name: str) -> None:
        internal = self.config.coordinators.topics.get(name)
        topic = internal.new_topic(len(self.image.brokers)) if internal is not None else TopicSpec(name)
        with suppress(TopicAlreadyExistsError):  # made by another, just now
            await self.topics.create_topic(topic)
        count = internal.partitions if internal is not None else 1
        if not await self.image.wait_for(lambda image: image.topic_is_ready(name, count), _CREATION_WAIT_SECONDS):
            raise LeaderNotAvailableError(f"{name} has no leader yet")

    # ---- going

    async def stop(self) -> None:
        """Stops in order: what was acknowledged is on disk, and the logs are marked as cleanly closed.

        If that fails, or is cancelled, everything is let go of all the same, and the next start recovers.
        """
        try:
            await self._stop()
        except BaseException:
            await self.abandon()
            raise
        _logger.info("broker %d has stopped", self.node_id)

    async def _stop(self) -> None:
        self.server.stop_accepting()
        self.coordinators.close()
        self.replicas.fetches.complete_all()
        self.replicas.produces.complete_all()
        await self.server.drain(_DRAIN_SECONDS)
        await self.server.close()
        await self.dispatcher.cancel_tasks()
        await self._leave()
        self.driver.stop_ticking()
        # From here on the logs are the other thread's, and nobody is left who would want to know of a bad disk.
        self.logs.on_directory_failed = lambda *_: None
        await _run_in_thread(self.logs.close)
        await self._close_store()
        self.driver.close()

    async def _leave(self) -> None:
        tasks = [*self._creations.values(), *self._notices]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if hasattr(self, "producer_ids"):
            await self.producer_ids.close()
        if hasattr(self, "transactions"):
            await self.transactions.close()
        if hasattr(self, "controller"):
            await self.controller.stop()
            await self.channel.close()
        if self._watcher is not None:
            await self._watcher.stop()

    async def _close_store(self) -> None:
        if hasattr(self, "store"):
            await self.store.close()

    async def abandon(self) -> None:
        """Lets go of everything without another write, as a crash would; also of a start or a stop that failed."""
        if hasattr(self, "server"):
            self.server.stop_accepting()
            await self.server.close()
        if hasattr(self, "dispatcher"):
            await self.dispatcher.cancel_tasks()
        await self._leave()
        if hasattr(self, "logs"):
            self.logs.abandon()
        await self._close_store()
        self.driver.close()


async def _run_in_thread(work: Callable[[], object]) -> None:
    """Returns when the work is done, even if the caller is cancelled: nobody else may touch what it is about before."""
    running = asyncio.create_task(asyncio.to_thread(work))
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait((running,))
        raise


def _first_directory(config: BrokerConfig) -> Path:
    path = Path(config.manager.log_dirs[0])
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise storage_error("make log directory", path, error) from error
    return path
