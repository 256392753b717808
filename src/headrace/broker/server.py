"""The broker: creates all parts, connects them, and starts and stops them in order.

    start   store → cluster id → configs → logs → sockets bound → registration → controller → leaders → accepting
    stop    no new connections → waiting requests completed, responses sent → controller stopped → logs closed

- Each step of the start registers its cleanup on an exit stack. A stop, or a failed start, undoes the steps in reverse
  order.
- A cluster of one broker takes the same steps as any other. The broker registers, is elected controller, and gets its
  leaderships from the controller (itself).
- One event loop owns everything in this module.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from headrace.broker import handlers
from headrace.broker._fast_produce import FastProduce
from headrace.broker.auto_topic_creation import AutoTopicCreation
from headrace.broker.batch_inflater import BatchInflater
from headrace.broker.config.broker import BrokerConfig
from headrace.broker.config.dynamic import DynamicConfig, TopicConfig
from headrace.broker.config_resources import ConfigResources
from headrace.broker.coordinators import Coordinators
from headrace.broker.dispatch import Dispatcher
from headrace.broker.driver import Driver
from headrace.broker.fetch_sessions import FetchSessionCache
from headrace.broker.local_channel import LocalChannel
from headrace.broker.replica_manager import ReplicaManager
from headrace.broker.services import Services
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
from headrace.cluster.store import NoNode
from headrace.cluster.topics import TopicAdmin
from headrace.cluster.znodes import TopicAssignment
from headrace.common.clock import Clock, SystemClock
from headrace.common.errors import HeadraceError, KafkaError, KafkaStorageError, StaleBrokerEpochError, code_of
from headrace.common.ids import make_random
from headrace.common.metrics import Metrics
from headrace.common.types import TopicPartition
from headrace.net.listeners import join_address
from headrace.net.server import SocketServer
from headrace.storage.checkpoints import MetaProperties
from headrace.storage.directory import LogDirectory
from headrace.storage.files import FileSystem, storage_error
from headrace.storage.manager import LogManager

_logger = logging.getLogger(__name__)

STORE_FILE = "coordination.sqlite"
"""The file of the coordination store, in the first log directory."""
_READY_TIMEOUT_SECONDS = 60.0
_DRAIN_TIMEOUT_SECONDS = 5.0
_CREATION_RETRY_MS = 10_000
"""How often the broker tries again to create logs for which there was no space or no file descriptor."""


class Broker:
    """One broker: `await start()`, then `await stop()`, or `await abandon()` to end as in a crash. Start it once."""

    log_manager: LogManager
    store: EmbeddedStore
    topic_admin: TopicAdmin
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
    auto_topic_creation: AutoTopicCreation
    batch_inflater: BatchInflater

    def __init__(self, config: BrokerConfig, clock: Clock | None = None, seed: int | None = None):
        self.config = config
        self.clock = clock or SystemClock()
        self.random = make_random(seed)
        self.metrics = Metrics(self.clock)
        self.node_id = config.node_id
        self.cluster_id = ""
        self.epoch = -1
        self.image = MetadataImage()
        self.dynamic_config = DynamicConfig(config.properties, self.node_id)
        self.failed: asyncio.Event = asyncio.Event()
        """Set when the broker cannot continue because no log directory is online."""
        self._cleanup = AsyncExitStack()
        self._stops_cleanly = False
        self._tasks: set[asyncio.Task[None]] = set()

    # ---- starting

    async def start(self) -> None:
        """Starts the broker. If a step fails, undoes the steps before it and raises."""
        handlers.load()
        async with AsyncExitStack() as cleanup:
            self.driver = Driver(self.clock, self.config.background_threads)
            cleanup.callback(self.driver.close)
            await self._open_store(cleanup)
            await self._start_logs(cleanup)
            self._create_coordinators(cleanup)
            self._create_controller(cleanup)
            await self._bind_sockets(cleanup)
            await self._join_cluster()
            self._start_serving()
            self._cleanup = cleanup.pop_all()
        _logger.info(
            "Broker %d of cluster %s is ready at %s, listens on %s, keeps its data in %s",
            self.node_id,
            self.cluster_id,
            self.addresses,
            ", ".join(join_address(endpoint.host, endpoint.port) for endpoint in self.server.endpoints),
            ", ".join(os.path.abspath(directory) for directory in self.config.log_dirs),
        )

    async def _open_store(self, cleanup: AsyncExitStack) -> None:
        """Opens the coordination store and reads the cluster id and the dynamic configs from it."""
        cluster_id = _check_directories(self.config)
        self.store = EmbeddedStore(_first_directory(self.config) / STORE_FILE, self.clock, cluster_id=cluster_id)
        cleanup.push_async_callback(self.store.close)
        self.cluster_id = await prepare_cluster(self.store, self.random)
        self.config_store = ConfigStore(self.store)
        watcher = ConfigWatcher(self.store, self.clock, self._config_changed)
        cleanup.push_async_callback(watcher.stop)
        await watcher.start()
        kinds = (znodes.BROKER_CONFIGS, znodes.TOPIC_CONFIGS, znodes.GROUP_CONFIGS, znodes.CLIENT_METRICS_CONFIGS)
        for kind in kinds:
            for name, overrides in (await self.config_store.get_all(kind)).items():
                self._config_changed(ConfigEntity(kind, name), overrides)

    async def _start_logs(self, cleanup: AsyncExitStack) -> None:
        self.log_manager = LogManager(
            self.dynamic_config.manager(self.config.manager),
            config_of=self.dynamic_config.log_config,
            cluster_id=self.cluster_id,
            node_id=self.node_id,
            clock=self.clock,
            runner=self.driver.runner,
        )
        cleanup.push_async_exit(self._close_logs)
        await _run_in_thread(self.log_manager.start)
        for directory in self.log_manager.directories:
            if directory.failure is None and not directory.was_clean and directory.partitions:
                _logger.warning(
                    "Broker %d: log directory %s was not shut down cleanly; recovered the logs of its %d partitions",
                    self.node_id,
                    directory,
                    directory.partitions,
                )
        self.replicas = ReplicaManager(self.node_id, self.log_manager, self.dynamic_config.topic, self.driver.timer)
        cleanup.push_async_callback(self._cancel_tasks)
        self.log_manager.on_directory_failed = self._directory_failed

    def _create_coordinators(self, cleanup: AsyncExitStack) -> None:
        config = self.config
        self.topic_admin = TopicAdmin(
            self.store,
            self.random,
            default_partitions=lambda: config.num_partitions,
            default_replication_factor=lambda: config.default_replication_factor,
            check_config=self._check_topic_config,
        )
        self.auto_topic_creation = AutoTopicCreation(
            self.topic_admin,
            self.image,
            config.coordinators.topics,
            self.clock,
            per_second=config.auto_create_topics_per_second,
            max_in_flight=config.auto_create_topics_max_in_flight,
        )
        cleanup.push_async_callback(self.auto_topic_creation.close)
        self.coordinators = Coordinators(
            config.coordinators,
            self.replicas,
            self.image,
            self.auto_topic_creation,
            self.clock,
            self.driver.timer,
            self.random,
        )
        self.producer_ids = ProducerIdManager(self.store, self.node_id)
        cleanup.push_async_callback(self.producer_ids.close)
        self.transactions = Transactions(
            config,
            self.dynamic_config,
            self.coordinators,
            self.replicas,
            self.producer_ids,
            self.store,
            self.clock,
            self.driver.timer,
        )
        cleanup.push_async_callback(self.transactions.close)

    def _create_controller(self, cleanup: AsyncExitStack) -> None:
        self.channel = LocalChannel(self.node_id, self.apply)
        cleanup.push_async_callback(self.channel.close)
        self.controller = Controller(
            self.store,
            self.node_id,
            self.channel,
            self.clock,
            unclean_default=lambda: self.dynamic_config.topic("").unclean_leader_election_enable,
        )
        cleanup.push_async_callback(self.controller.stop)
        self.dynamic_config.on_topics_changed.append(self._topic_configs_changed)
        cleanup.callback(self.dynamic_config.on_topics_changed.remove, self._topic_configs_changed)

    async def _bind_sockets(self, cleanup: AsyncExitStack) -> None:
        """Binds the listeners, which gives them their ports. Connections wait until the broker is ready."""
        config = self.config
        self.fetch_sessions = FetchSessionCache(
            config.max_incremental_fetch_session_cache_slots, self.clock, self.random
        )
        self.batch_inflater = BatchInflater(self.clock)
        cleanup.callback(self.batch_inflater.close)
        self.dispatcher = Dispatcher(
            self._services(), self.clock, self.metrics, config.slow_request_ms, config.request_max_elements
        )
        self.dispatcher.fast_produce = FastProduce(self.replicas, self.image, self.clock)
        limits = self.dynamic_config.limits(config.limits)
        self.server = SocketServer(list(config.listeners), self.dispatcher, limits, self.clock, self.metrics)
        cleanup.push_async_exit(self._stop_serving)
        self.server.pause()
        await self.server.start()
        self.dynamic_config.on_broker_changed.append(self._broker_configs_changed)
        cleanup.callback(self.dynamic_config.on_broker_changed.remove, self._broker_configs_changed)

    def _services(self) -> Services:
        return Services(
            auto_topic_creation=self.auto_topic_creation,
            batch_inflater=self.batch_inflater,
            clock=self.clock,
            cluster_id=self.cluster_id,
            config=self.config,
            config_resources=ConfigResources(self.dynamic_config, self.config_store, self.image),
            coordinators=self.coordinators,
            dynamic_config=self.dynamic_config,
            fetch_sessions=self.fetch_sessions,
            image=self.image,
            log_manager=self.log_manager,
            producer_ids=self.producer_ids,
            replicas=self.replicas,
            store=self.store,
            topic_admin=self.topic_admin,
            transactions=self.transactions,
        )

    async def _join_cluster(self) -> None:
        """Registers, runs for controller, and waits until the controller has assigned this broker's leaderships."""
        registered = await register_broker(self.store, self._describe(), self.clock)
        self.epoch = registered.epoch
        self.image.add_listener(self._image_changed)
        await self.controller.start()
        await self.controller.wait_idle()
        if not await self.image.wait_for(lambda image: image.is_alive(self.node_id), _READY_TIMEOUT_SECONDS):
            raise HeadraceError(
                f"Broker {self.node_id}: no controller has accepted its registration within "
                f"{_READY_TIMEOUT_SECONDS:.0f} seconds"
            )
        await self.channel.wait_idle()
        await self._move_stray_logs()

    async def _move_stray_logs(self) -> None:
        """Moves logs aside whose partitions do not exist according to the store. The image may be incomplete."""
        assignments: dict[str, TopicAssignment | None] = {}
        existing_topics = set(await self.store.children(znodes.TOPICS))
        for topic in {tp.topic for tp in self.replicas.unassigned_logs()} & existing_topics:
            try:
                data, _ = await self.store.get(znodes.topic_path(topic))
                assignments[topic] = znodes.decode_topic(topic, data)
            except NoNode:
                continue
            except znodes.DamagedNode:
                assignments[topic] = None  # the topic exists; its partitions are unknown

        def exists(tp: TopicPartition) -> bool:
            assignment = assignments.get(tp.topic)
            return tp.topic in assignments and (assignment is None or tp.partition in assignment.partitions)

        self.replicas.move_stray_logs(exists)

    def _start_serving(self) -> None:
        self._register_metrics()
        self.driver.keep_ticking(self.log_manager.tick)
        self.driver.every(
            self.config.replica_high_watermark_checkpoint_interval_ms, self.replicas.checkpoint_high_watermarks
        )
        self.driver.every(_CREATION_RETRY_MS, self._retry_failed_creations)
        self.server.resume()

    def _register_metrics(self) -> None:
        gauge = self.metrics.gauge
        gauge("partitions", lambda: len(self.replicas))
        gauge("waiting_fetches", lambda: self.replicas.fetches.delayed)
        gauge("waiting_produces", lambda: self.replicas.produces.delayed)
        gauge("fetch_sessions", lambda: len(self.fetch_sessions))
        gauge("groups", lambda: sum(len(shard.groups) for shard in self.coordinators.groups.shards()))
        gauge("fetch_session_evictions", lambda: self.fetch_sessions.evictions)

    # ---- addresses

    def _describe(self) -> BrokerInfo:
        """Returns this broker as it registers: its advertised addresses, with the ports that were bound."""
        ports = {bound.name: bound.port for bound in self.server.endpoints}
        endpoints = tuple(
            BrokerEndpoint(listener.name, listener.host, listener.port or ports[listener.name])
            for listener in self.config.advertised_listeners
        )
        return BrokerInfo(self.node_id, endpoints, self.config.broker_rack)

    @property
    def endpoints(self) -> tuple[BrokerEndpoint, ...]:
        """The addresses that clients use."""
        return self._describe().endpoints

    @property
    def addresses(self) -> str:
        return ", ".join(
            f"{endpoint.listener}://{join_address(endpoint.host, endpoint.port)}" for endpoint in self.endpoints
        )

    # ---- configs

    def _config_changed(self, entity: ConfigEntity, overrides: Mapping[str, str]) -> None:
        if entity.kind == znodes.TOPIC_CONFIGS:
            self.dynamic_config.set_topic_overrides(entity.name, overrides)
        elif entity.kind == znodes.BROKER_CONFIGS:
            self.dynamic_config.set_broker_overrides(entity.name, overrides)
        elif entity.kind == znodes.GROUP_CONFIGS:
            self.dynamic_config.set_group_overrides(entity.decoded_name, overrides)
        elif entity.kind == znodes.CLIENT_METRICS_CONFIGS:
            self.dynamic_config.set_client_metrics_overrides(entity.decoded_name, overrides)

    def _broker_configs_changed(self, _: object) -> None:
        self.server.limits = self.dynamic_config.limits(self.config.limits)
        self.log_manager.config = self.dynamic_config.manager(self.config.manager)

    def _check_topic_config(self, _: str, overrides: Mapping[str, str]) -> None:
        self.dynamic_config.check_topic(overrides)

    def _topic_configs_changed(self, changed: Mapping[str, TopicConfig]) -> None:
        for name, config in changed.items():
            if config.unclean_leader_election_enable:
                self.controller.unclean_election_enabled(name)
        self.log_manager.update_configs({name: config.log for name, config in changed.items()})

    # ---- controller commands

    def apply(self, command: Command) -> CommandResult:
        """Applies a command of the controller."""
        try:
            if 0 <= command.broker_epoch < self.epoch:
                raise StaleBrokerEpochError(
                    f"The command has broker epoch {command.broker_epoch}, the current epoch is {self.epoch}"
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
            _logger.error("Broker %d: rejected %s from the controller: %s", self.node_id, type(command).__name__, error)
            return CommandResult(error_code=code_of(error))

    def _image_changed(self, change: ImageChange) -> None:
        for name in change.deleted_topics:
            if self.image.has_topic(name):
                # Created again under another id. The overrides may be those of the old topic or of the new one.
                self._run_task(self._reload_topic_config(name))
            else:
                self.dynamic_config.forget_topic(name)

    async def _reload_topic_config(self, name: str) -> None:
        entity = ConfigEntity(znodes.TOPIC_CONFIGS, name)
        try:
            self._config_changed(entity, await self.config_store.get(entity))
        except HeadraceError as error:
            _logger.error("Topic %s: cannot read its configs, keeping those of the deleted topic: %s", name, error)

    # ---- disks

    def _directory_failed(self, _: LogDirectory, lost: list[TopicPartition]) -> None:
        self.replicas.directory_failed(lost)
        if not any(directory.online for directory in self.log_manager.directories):
            _logger.error("Broker %d: no log directory is online, shutting down", self.node_id)
            self.failed.set()
            return
        self._report_log_directories()

    def _retry_failed_creations(self) -> None:
        if self.replicas.has_failed_creations:
            self._report_log_directories()

    def _report_log_directories(self) -> None:
        """Makes the controller send all roles again. This broker's response names the replicas without a log, and the
        controller elects leaders accordingly."""
        self._run_task(self._notify_controller())

    def _run_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs work in the background until the broker stops."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _notify_controller(self) -> None:
        path = f"{znodes.LOG_DIR_EVENTS}/{znodes.LOG_DIR_EVENT_PREFIX}"
        try:
            await self.store.create(path, znodes.encode_log_dir_event(self.node_id), sequential=True)
        except HeadraceError as error:
            _logger.error(
                "Broker %d: cannot report its log directories to the controller, some partitions stay without a "
                "leader: %s",
                self.node_id,
                error,
            )

    async def _cancel_tasks(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ---- stopping

    async def stop(self) -> None:
        """Stops cleanly: all acknowledged records are on disk, and the logs are marked as cleanly closed.

        If a step fails or is cancelled, the rest is abandoned, and the next start recovers the logs.
        """
        self._stops_cleanly = True
        await self._cleanup.aclose()
        _logger.info("Broker %d has stopped", self.node_id)

    async def abandon(self) -> None:
        """Releases everything without another write, as a crash would."""
        self._stops_cleanly = False
        await self._cleanup.aclose()

    async def _stop_serving(self, error_type: type[BaseException] | None, *_: object) -> None:
        """Stops accepting connections, completes waiting requests in a clean stop, and closes all connections."""
        self.server.stop_accepting()
        try:
            if self._stops_cleanly and error_type is None:
                self.coordinators.close()
                self.replicas.fetches.complete_all()
                self.replicas.produces.complete_all()
                await self.server.drain(_DRAIN_TIMEOUT_SECONDS)
        finally:
            await self.server.close()
            await self.dispatcher.cancel_tasks()

    async def _close_logs(self, error_type: type[BaseException] | None, *_: object) -> None:
        self.driver.stop_ticking()
        # The logs belong to another thread while they close, and failed disks are no longer reported.
        self.log_manager.on_directory_failed = lambda *_: None
        if not self._stops_cleanly or error_type is not None:
            self.log_manager.abandon()
            return
        try:
            await _run_in_thread(self.log_manager.close)
        except BaseException:
            self.log_manager.abandon()
            raise


async def _run_in_thread(work: Callable[[], object]) -> None:
    """Runs work in a thread. Waits for its end even if the caller is cancelled, since the work owns its objects."""
    task = asyncio.create_task(asyncio.to_thread(work))
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait((task,))
        raise


def _check_directories(config: BrokerConfig) -> str | None:
    """Returns the cluster of the first log directory; None if it is new. Reads only.

    Raises KafkaStorageError if it belongs to another node, or if there is data of a cluster but no coordination store.
    """
    store = Path(config.log_dirs[0]) / STORE_FILE
    for directory in map(Path, config.log_dirs):
        try:
            meta = MetaProperties.read(directory, FileSystem())
        except (KafkaStorageError, OSError):
            continue  # the log manager takes the directory offline and logs the reason
        if meta is not None and not store.exists():
            raise KafkaStorageError(
                f"Log directory {directory} belongs to cluster {meta.cluster_id}, but the coordination store {store} "
                "does not exist. It contains the topics and configs of the cluster and must be in the first directory "
                "of log.dirs: restore it, or use empty directories to start a new cluster"
            )
        if directory == store.parent and meta is not None:
            meta.check_owner(directory, None, config.node_id)
            return meta.cluster_id
    return None


def _first_directory(config: BrokerConfig) -> Path:
    path = Path(config.log_dirs[0])
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise storage_error("create log directory", path, error) from error
    return path
