"""The broker: creates all parts, connects them, and starts and stops them in order.

    start   store → cluster id → configs → logs → sockets open, clients wait → registration → controller → leaders →
            clients served
    stop    leaderships moved to other brokers → no new connections → waiting requests completed, responses sent →
            controller stopped → logs closed → registration gone

- Each step of the start registers its cleanup on an exit stack. A stop, or a failed start, undoes the steps in reverse
  order.
- A cluster of one broker takes the same steps as any other. The broker registers, is elected controller, and gets its
  leaderships from the controller (itself).
- The sockets are open before the broker has metadata, because the controller may be another broker, which must reach
  it. Requests of clients wait until the broker knows its partitions (`Dispatcher.hold_clients`).
- One event loop owns everything in this module.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.broker import handlers
from headrace.broker._fast_produce import FastProduce
from headrace.broker.acl_admin import AclAdmin
from headrace.broker.authentication_gate import AuthenticationGate
from headrace.broker.auto_topic_creation import AutoTopicCreation
from headrace.broker.batch_inflater import BatchInflater
from headrace.broker.broker_state import BrokerLifecycle, BrokerState
from headrace.broker.config.broker import BrokerConfig
from headrace.broker.config.dynamic import DynamicConfig, TopicConfig
from headrace.broker.config.listener_security import ListenerSecurity
from headrace.broker.config_resources import ConfigResources
from headrace.broker.control.channel import ControllerChannel
from headrace.broker.control.controlled_shutdown import controlled_shutdown
from headrace.broker.control.controller_client import ControllerClient
from headrace.broker.control.inbox import CommandInbox
from headrace.broker.coordinators import Coordinators
from headrace.broker.credentials import CredentialCache
from headrace.broker.dispatch import Dispatcher
from headrace.broker.driver import Driver
from headrace.broker.environment import BrokerEnvironment
from headrace.broker.fetch_sessions import FetchSessionCache
from headrace.broker.inter_broker_client import InterBrokerClient
from headrace.broker.quotas.quotas import QUOTA_KINDS, Quotas
from headrace.broker.replica_manager import ReplicaManager
from headrace.broker.replication.replication import Replication
from headrace.broker.sasl_listeners import BrokerLogin, NoBrokerLogin, SaslMechanisms, broker_login
from headrace.broker.scram_admin import ScramAdmin
from headrace.broker.services import Services
from headrace.broker.telemetry.client_telemetry import ClientTelemetry
from headrace.broker.tls_listeners import TlsListeners
from headrace.broker.token_admin import TokenAdmin
from headrace.broker.transactions import Transactions
from headrace.cluster import znodes
from headrace.cluster.commands import BrokerEndpoint, BrokerInfo
from headrace.cluster.config_store import ConfigEntity, ConfigStore, ConfigWatcher, TopicConfigLoader
from headrace.cluster.controller import Controller
from headrace.cluster.features import FinalizedFeatures
from headrace.cluster.membership import BrokerMembership
from headrace.cluster.metadata_image import ImageChange, MetadataImage
from headrace.cluster.producer_id_manager import ProducerIdManager
from headrace.cluster.registration import generate_broker_id, prepare_cluster
from headrace.cluster.store import CoordinationStore, NoNode
from headrace.cluster.topics import TopicAdmin
from headrace.cluster.znodes import TopicAssignment
from headrace.common.errors import HeadraceError
from headrace.common.extras import requires_extra
from headrace.common.ids import random_uuid
from headrace.common.metrics import Metrics
from headrace.common.types import TopicPartition
from headrace.net.dialer import Dialer, TlsDialer
from headrace.net.listeners import BoundListener, Listener, join_address
from headrace.net.server import SocketServer
from headrace.security.acl_authorizer import AclAuthorizer
from headrace.security.acl_store import AclStore
from headrace.security.audit import AuditLog
from headrace.security.credentials import SCRAM_MECHANISMS
from headrace.security.token_store import TokenStore
from headrace.storage.directory import LogDirectory
from headrace.storage.manager import LogManager

if TYPE_CHECKING:
    from headrace.broker.metrics.service import MetricsService

_logger = logging.getLogger(__name__)

_READY_TIMEOUT_SECONDS = 60.0
_FULL_METADATA_TIMEOUT_SECONDS = 1.0
"""A controller of Apache Kafka does not tell that it has sent the metadata of all partitions."""
_DELIVERY_TIMEOUT_SECONDS = 5.0
"""How long a controller that stops waits until other brokers have its last commands."""
_DRAIN_TIMEOUT_SECONDS = 5.0
_RESIGN_TIMEOUT_SECONDS = 5.0
_CREATION_RETRY_MS = 10_000
"""How often the broker tries again to create logs for which there was no space or no file descriptor."""
_QUOTA_EXPIRY_MS = 60_000
_CERTIFICATE_CHECK_SECONDS = 2.0
"""How often the broker looks whether files of certificates have changed."""


class Broker:
    """One broker: `await start()`, then `await stop()`, or `await abandon()` to end as in a crash. Start it once."""

    log_manager: LogManager
    store: CoordinationStore
    topic_admin: TopicAdmin
    replicas: ReplicaManager
    replication: Replication
    controller: Controller
    membership: BrokerMembership
    config_watcher: ConfigWatcher
    topic_configs: TopicConfigLoader
    features: FinalizedFeatures
    driver: Driver
    server: SocketServer
    dispatcher: Dispatcher
    fetch_sessions: FetchSessionCache
    inter_broker_client: InterBrokerClient
    inbox: CommandInbox
    channel: ControllerChannel
    controller_client: ControllerClient
    coordinators: Coordinators
    producer_ids: ProducerIdManager
    transactions: Transactions
    authentication_gate: AuthenticationGate
    sasl_mechanisms: SaslMechanisms
    auto_topic_creation: AutoTopicCreation
    batch_inflater: BatchInflater
    telemetry: ClientTelemetry
    token_admin: TokenAdmin
    quotas: Quotas
    tls_listeners: TlsListeners

    def __init__(self, config: BrokerConfig, environment: BrokerEnvironment | None = None):
        self.config = config
        self.environment = environment or BrokerEnvironment()
        self.clock = self.environment.clock
        self.random = self.environment.random
        self.metrics = Metrics(self.clock)
        self.node_id = config.node_id
        self.cluster_id = ""
        self.epoch = -1
        self.lifecycle = BrokerLifecycle(self.node_id)
        self.image = MetadataImage()
        self.credentials = CredentialCache()
        self.dynamic_config = DynamicConfig(config.properties, self.node_id)
        self.failed: asyncio.Event = asyncio.Event()
        """Set when the broker cannot continue because no log directory is online."""
        self.metrics_service: MetricsService | None = None
        """Serves `headrace.metrics.listener`."""
        self.control_server: SocketServer | None = None
        """The server of `control.plane.listener.name`."""
        self.authorizer: AclAuthorizer | None = None
        """None if `authorizer.class.name` is not set."""
        self.acl_store: AclStore | None = None
        self.token_store: TokenStore | None = None
        """None if `delegation.token.secret.key` is not set."""
        self._logins: dict[str, BrokerLogin | NoBrokerLogin] = {}
        self._cleanup = AsyncExitStack()
        self._stops_cleanly = False
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def state(self) -> BrokerState:
        return self.lifecycle.state

    # ---- starting

    async def start(self) -> None:
        """Starts the broker. If a step fails, undoes the steps before it and raises."""
        handlers.load()
        self.lifecycle.enter(BrokerState.STARTING)
        try:
            await self._start()
        except BaseException:
            self.lifecycle.enter(BrokerState.SHUTTING_DOWN)
            self.lifecycle.enter(BrokerState.NOT_RUNNING)
            raise
        self.lifecycle.enter(BrokerState.RUNNING)
        _logger.info(
            "Broker %d of cluster %s is ready at %s, listens on %s, keeps its data in %s",
            self.node_id,
            self.cluster_id,
            self.addresses,
            ", ".join(join_address(endpoint.host, endpoint.port) for endpoint in self._bound_endpoints()),
            ", ".join(os.path.abspath(directory) for directory in self.config.log_dirs),
        )

    async def _start(self) -> None:
        async with AsyncExitStack() as cleanup:
            self.driver = Driver(self.clock, self.config.background_threads, self.environment.make_runner)
            cleanup.callback(self.driver.close)
            self.quotas = Quotas(
                self.config.quotas, self.clock, self.driver.timer, self.metrics, self.config.limits.protected_listener
            )
            self._start_metrics_endpoint(cleanup)
            await self._open_store(cleanup)
            self.lifecycle.enter(BrokerState.RECOVERY)
            await self._start_logs(cleanup)
            await self._load_certificates(cleanup)
            self._create_inter_broker_client(cleanup)
            self._create_coordinators(cleanup)
            self._create_controller(cleanup)
            await self._create_sasl_mechanisms(cleanup)
            await self._bind_sockets(cleanup)
            self.membership = BrokerMembership(
                self.store, self._describe, self.clock, self.config.zookeeper_session_timeout_ms
            )
            cleanup.push_async_callback(self.membership.leave)
            await self._join_cluster()
            self._start_serving()
            self._cleanup = cleanup.pop_all()

    async def _open_store(self, cleanup: AsyncExitStack) -> None:
        """Opens the coordination store and reads the cluster id and the dynamic configs from it."""
        self.store = await self.environment.open_store(self.config, self.clock, self.environment.files)
        cleanup.push_async_callback(self.store.close)
        self.cluster_id = await prepare_cluster(self.store, self.random)
        if not self.config.has_node_id:
            await self._generate_node_id()
        self.features = FinalizedFeatures(self.store, may_have_kafka_brokers=self.config.zookeeper is not None)
        cleanup.push_async_callback(self.features.stop)
        await self.features.start()
        self.dynamic_config.stores_secrets = self.config.zookeeper is None
        self.config_store = ConfigStore(self.store)
        self.topic_configs = TopicConfigLoader(self.config_store, self._config_changed)
        self.config_watcher = ConfigWatcher(self.store, self.clock, self._config_changed)
        cleanup.push_async_callback(self.config_watcher.stop)
        await self.config_watcher.start()
        await self._load_configs()
        if self.config.authorizer.enabled:
            await self._start_authorizer(cleanup)
        await self._start_tokens(cleanup)

    async def _start_authorizer(self, cleanup: AsyncExitStack) -> None:
        """Reads all ACLs. The sockets open later, so no request is decided without them."""
        config = self.config.authorizer
        self.authorizer = AclAuthorizer(
            AuditLog(self.clock),
            config.super_users,
            allow_everyone_if_no_acl_found=config.allow_everyone_if_no_acl_found,
        )
        self.acl_store = AclStore(self.store, self.clock, self.authorizer)
        cleanup.push_async_callback(self.acl_store.stop)
        await self.acl_store.start()

    async def _start_tokens(self, cleanup: AsyncExitStack) -> None:
        """Reads all delegation tokens. The sockets open later, so each of them can be used to log in."""
        config = self.config.delegation_tokens
        if config.enabled:
            enabled = {name for listener in self.config.sasl.listeners.values() for name in listener.mechanisms}
            self.token_store = TokenStore(
                self.store,
                self.clock,
                config.secret_key,
                self.credentials,
                [mechanism for name, mechanism in SCRAM_MECHANISMS.items() if name in enabled],
                self.environment.run_in_thread,
            )
            cleanup.push_async_callback(self.token_store.stop)
            await self.token_store.start()
        self.token_admin = TokenAdmin(config, self.token_store, self.clock, self.random)

    async def _generate_node_id(self) -> None:
        """Gets a new broker id from the store. The log manager writes it to the log directories."""
        self.node_id = await generate_broker_id(self.store, self.config.reserved_broker_max_id)
        self.lifecycle.node_id = self.node_id
        self.config = replace(self.config, node_id=self.node_id)
        self.dynamic_config = DynamicConfig(self.config.properties, self.node_id)

    async def _load_configs(self) -> None:
        kinds = (znodes.BROKER_CONFIGS, znodes.TOPIC_CONFIGS, znodes.GROUP_CONFIGS, znodes.CLIENT_METRICS_CONFIGS)
        for kind in (*kinds, *QUOTA_KINDS):
            found = await self.config_store.get_all(kind)
            for name, overrides in found.items():
                self._config_changed(ConfigEntity(kind, name), overrides)
            if kind == znodes.TOPIC_CONFIGS:
                self.topic_configs.add(found)

    async def _start_logs(self, cleanup: AsyncExitStack) -> None:
        self.log_manager = LogManager(
            self.dynamic_config.manager(self.config.manager),
            config_of=self.dynamic_config.log_config,
            cluster_id=self.cluster_id,
            node_id=self.node_id,
            files=self.environment.files,
            clock=self.clock,
            runner=self.driver.runner,
            seed=self.random.getrandbits(64),
            directory_ids=self.config.zookeeper is None,
        )
        cleanup.push_async_exit(self._close_logs)
        await self.environment.run_in_thread_to_end(self.log_manager.start)
        for directory in self.log_manager.directories:
            if directory.failure is None and not directory.was_clean and directory.partitions:
                _logger.warning(
                    "Broker %d: log directory %s was not shut down cleanly; recovered the logs of its %d partitions",
                    self.node_id,
                    directory,
                    directory.partitions,
                )
        self.replicas = ReplicaManager(
            self.node_id,
            self.log_manager,
            self.dynamic_config.topic,
            self.driver.timer,
            lag_time_max_ms=self.config.replica_lag_time_max_ms,
            is_alive=self.image.is_alive,
        )
        cleanup.push_async_callback(self._cancel_tasks)
        self.log_manager.on_directory_failed = self._directory_failed

    async def _load_certificates(self, cleanup: AsyncExitStack) -> None:
        """Reads the certificates of listeners with TLS."""

        def load() -> None:
            self.tls_listeners = TlsListeners(
                self._listener_security(self.dynamic_config.security_of),
                self._login_listeners,
                f"Broker {self.node_id}",
            )

        await self.environment.run_in_thread_to_end(load)
        if not self.tls_listeners.listeners:
            return
        self.dynamic_config.check_security = self._check_security
        self.dynamic_config.on_broker_changed.append(self._certificates_changed)
        cleanup.callback(self.dynamic_config.on_broker_changed.remove, self._certificates_changed)
        self._certificate_watch = asyncio.create_task(self._watch_certificates())
        cleanup.callback(self._certificate_watch.cancel)

    def _listener_security(self, security_of: Callable[[Listener], ListenerSecurity]) -> dict[str, ListenerSecurity]:
        return {listener.name: security_of(listener) for listener in self.config.listeners}

    def _check_security(self, security_of: Callable[[Listener], ListenerSecurity]) -> None:
        self.tls_listeners.check(self._listener_security(security_of))

    def _certificates_changed(self, _: object) -> None:
        self.tls_listeners.apply(self._listener_security(self.dynamic_config.security_of))

    async def _watch_certificates(self) -> None:
        """Reloads certificates whose files change."""
        while True:
            await asyncio.sleep(_CERTIFICATE_CHECK_SECONDS)
            try:
                changed = await self.environment.run_in_thread(self.tls_listeners.read_file_states)
                self.tls_listeners.reload_changed_files(changed)
            except Exception:
                _logger.exception("Broker %d: cannot look for new certificates, will retry", self.node_id)

    def _create_inter_broker_client(self, cleanup: AsyncExitStack) -> None:
        for listener in self._login_listeners:
            login = broker_login(
                listener,
                self.config.sasl,
                self.clock,
                self.random,
                self.config.control.request_timeout_ms,
                must_exist=self.config.zookeeper is not None,
            )
            if login is not None:
                self._logins[listener] = login
                cleanup.push_async_callback(login.close)
        self.inter_broker_client = self._client_for(self.config.inter_broker_listener_name)
        cleanup.push_async_callback(self.inter_broker_client.close)
        self.image.add_listener(self._brokers_changed)

    def _client_for(self, listener: str) -> InterBrokerClient:
        control = self.config.control
        return InterBrokerClient(
            self.node_id,
            listener,
            dialer=self._dialer_for(listener),
            random=self.random,
            request_timeout_ms=control.request_timeout_ms,
            setup_timeout_ms=control.setup_timeout_ms,
            setup_timeout_max_ms=control.setup_timeout_max_ms,
            authenticate=self._logins.get(listener),
        )

    def _dialer_for(self, listener: str) -> Dialer:
        if listener not in self.tls_listeners.listeners:
            return self.environment.dialer
        dialer = self.environment.dialer
        if not isinstance(dialer, TlsDialer):
            raise HeadraceError(f"Listener {listener} uses TLS, but {dialer!r} cannot connect with TLS")
        return dialer.with_tls(partial(self.tls_listeners.client_context, listener))

    @property
    def _login_listeners(self) -> set[str]:
        """The listeners through which this broker connects to others."""
        inter_broker = self.config.inter_broker_listener_name
        return {inter_broker, self.config.control.control_plane_listener_name or inter_broker}

    def _brokers_changed(self, change: ImageChange) -> None:
        if change.brokers_changed:
            self.inter_broker_client.set_brokers(self.image.brokers.values())

    def _create_coordinators(self, cleanup: AsyncExitStack) -> None:
        config = self.config
        self.topic_admin = TopicAdmin(
            self.store,
            self.random,
            default_partitions=lambda: config.num_partitions,
            default_replication_factor=lambda: config.default_replication_factor,
            check_config=self._check_topic_config,
            has_topic_ids=config.control.protocol.has_topic_ids,
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
            self.image,
            self.inter_broker_client,
            self.clock,
            self.driver.timer,
        )
        cleanup.push_async_callback(self.transactions.close)

    def _create_controller(self, cleanup: AsyncExitStack) -> None:
        control = self.config.control
        # Without ZooKeeper all brokers are Headrace's, which notify each other of the configs of new topics.
        load_configs = self.topic_configs.load if self.config.zookeeper is not None else None
        self.inbox = CommandInbox(self.node_id, self.image, self.replicas, lambda: self.epoch, load_configs)
        cleanup.push_async_callback(self.inbox.close)
        self.channel = ControllerChannel(
            self.node_id,
            self.inbox,
            self._client_for(control.control_plane_listener_name or self.config.inter_broker_listener_name),
            control.protocol,
            self.clock,
            control.controller_socket_timeout_ms,
            self.config.inter_broker_listener_name,
        )
        cleanup.push_async_callback(self.channel.close)
        self.controller = Controller(
            self.store,
            self.node_id,
            self.channel,
            self.clock,
            unclean_default=lambda: self.dynamic_config.topic("").unclean_leader_election_enable,
            balance=self.config.leader_balance,
            new_topic_id=partial(random_uuid, self.random) if control.protocol.has_topic_ids else None,
            leaders_write_isr=not control.protocol.uses_alter_partition,
        )
        cleanup.push_async_callback(self._stop_controller)
        self.controller_client = ControllerClient(
            self.node_id,
            self.controller,
            self.image,
            self.inter_broker_client,
            control.protocol,
            lambda: self.epoch,
            control.controller_socket_timeout_ms,
        )
        self.replication = Replication(
            self.config,
            self.dynamic_config,
            self.replicas,
            image=self.image,
            store=self.store,
            client=self.inter_broker_client,
            controller=self.controller_client,
            timer=self.driver.timer,
            broker_epoch=lambda: self.epoch,
        )
        cleanup.push_async_callback(self.replication.close)
        self.replicas.on_replica_failed = self._report_log_directories
        self.dynamic_config.on_topics_changed.append(self._topic_configs_changed)
        cleanup.callback(self.dynamic_config.on_topics_changed.remove, self._topic_configs_changed)

    async def _create_sasl_mechanisms(self, cleanup: AsyncExitStack) -> None:
        def create() -> None:
            self.sasl_mechanisms = SaslMechanisms(self.config.sasl, self.credentials, self.clock)

        await self.environment.run_in_thread_to_end(create)
        cleanup.callback(self.sasl_mechanisms.close)

    async def _bind_sockets(self, cleanup: AsyncExitStack) -> None:
        """Opens the listeners, which gives them their ports. The requests of clients wait until the broker is ready."""
        config = self.config
        self.fetch_sessions = FetchSessionCache(
            config.max_incremental_fetch_session_cache_slots, self.clock, self.random
        )
        self.batch_inflater = BatchInflater(self.clock, self.environment.run_in_thread)
        self.telemetry = ClientTelemetry(
            lambda: self.dynamic_config.client_metrics,
            config.telemetry_max_bytes,
            self.clock,
            self.random,
            enabled=bool(config.metrics_listener),
        )
        self.authentication_gate = AuthenticationGate(
            self.sasl_mechanisms.listeners, config.sasl.failure_delay_ms, self.clock, self.metrics
        )
        self.dispatcher = Dispatcher(
            self._services(),
            self.clock,
            self.metrics,
            config.slow_request_ms,
            config.request_max_elements,
            self.environment.make_runner,
        )
        self.dispatcher.authorizer = self.authorizer
        self.dispatcher.fast_produce = FastProduce(self.replicas, self.image, self.clock)
        self.dispatcher.gate = self.authentication_gate
        self.quotas.on_changed.append(self._quotas_changed)
        self._quotas_changed()
        self.dispatcher.muted = self.quotas.muted
        limits = self.dynamic_config.limits(config.limits)
        self.dispatcher.hold_clients()
        control_plane = config.control.control_plane_listener_name
        for_clients = [listener for listener in config.listeners if listener.name != control_plane]
        self.server = self.environment.make_server(for_clients, self.dispatcher, limits, self.clock, self.metrics)
        self._set_connection_rates()
        self.server.rates = self.quotas.connections
        self.server.tls = self.tls_listeners.listeners
        cleanup.push_async_exit(self._stop_serving)
        await self.server.start()
        if control_plane is not None:
            # A server of its own: neither the connections nor the memory of clients can delay the controller.
            for_controller = [listener for listener in config.listeners if listener.name == control_plane]
            server = self.environment.make_server(
                for_controller, self.dispatcher, limits, self.clock, Metrics(self.clock)
            )
            cleanup.push_async_callback(server.close)
            server.tls = self.tls_listeners.listeners
            await server.start()
            self.control_server = server
        self.dynamic_config.on_broker_changed.append(self._broker_configs_changed)
        cleanup.callback(self.dynamic_config.on_broker_changed.remove, self._broker_configs_changed)

    def _services(self) -> Services:
        return Services(
            acls=AclAdmin(self.authorizer, self.acl_store),
            authentication_gate=self.authentication_gate,
            auto_topic_creation=self.auto_topic_creation,
            batch_inflater=self.batch_inflater,
            clock=self.clock,
            cluster_id=self.cluster_id,
            config=self.config,
            config_resources=ConfigResources(self.dynamic_config, self.config_store, self.image),
            controller=self.controller,
            coordinators=self.coordinators,
            dynamic_config=self.dynamic_config,
            features=self.features,
            fetch_sessions=self.fetch_sessions,
            image=self.image,
            inbox=self.inbox,
            log_dir_moves=self.replication.log_dir_moves,
            log_manager=self.log_manager,
            producer_ids=self.producer_ids,
            quotas=self.quotas,
            replicas=self.replicas,
            scram_admin=ScramAdmin(self.credentials, self.config_store),
            store=self.store,
            telemetry=self.telemetry,
            token_admin=self.token_admin,
            topic_admin=self.topic_admin,
            transactions=self.transactions,
        )

    async def _join_cluster(self) -> None:
        """Registers, runs for controller, and waits until the controller has assigned this broker's leaderships."""
        self.image.add_listener(self._image_changed)
        self.membership.add_listener(self._registered_again)
        registered = await self.membership.join()
        self.epoch = registered.epoch
        self.inbox.start()
        await self.controller.start()
        await self.controller.wait_idle()
        if not await self.image.wait_for(lambda image: image.is_alive(self.node_id), _READY_TIMEOUT_SECONDS):
            raise HeadraceError(
                f"Broker {self.node_id}: no controller has accepted its registration within "
                f"{_READY_TIMEOUT_SECONDS:.0f} seconds"
            )
        try:
            async with asyncio.timeout(_FULL_METADATA_TIMEOUT_SECONDS):
                await self.inbox.full_metadata.wait()
        except TimeoutError:
            _logger.info(
                "Broker %d: starts to serve with the metadata of %d partitions, the controller may send more",
                self.node_id,
                self.image.partition_count,
            )
        await self.inbox.wait_idle()
        await self._move_stray_logs()

    def _registered_again(self, broker: BrokerInfo) -> None:
        """Continues in a new session with the store: takes the new epoch and reads the configs that may have changed.

        The controller stands for election again by itself.
        """
        self.epoch = broker.epoch
        self.config_watcher.restart_watch()
        self.features.restart_watch()
        if self.acl_store is not None:
            self.acl_store.restart_watch()
        if self.token_store is not None:
            self.token_store.restart_watch()
        self._run_task(self._reload_configs())

    async def _reload_configs(self) -> None:
        try:
            await self._load_configs()
        except HeadraceError as error:
            _logger.error("Broker %d: cannot read the dynamic configs, keeping the old ones: %s", self.node_id, error)

    async def _move_stray_logs(self) -> None:
        """Moves logs aside that have no replica on this broker according to the store. The image may be incomplete."""
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
            if tp.topic not in assignments or assignment is None:
                return tp.topic in assignments
            # A replica may have been reassigned to another broker while this one was down.
            replicas = assignment.partitions.get(tp.partition)
            return replicas is not None and self.node_id in replicas.replicas

        self.replicas.move_stray_logs(exists)

    def _start_serving(self) -> None:
        self._register_metrics()
        self.driver.keep_ticking(self.log_manager.tick)
        self.driver.every(
            self.config.replica_high_watermark_checkpoint_interval_ms, self.replicas.checkpoint_high_watermarks
        )
        self.driver.every(max(1, self.config.replica_lag_time_max_ms // 2), self.replicas.check_isrs)
        self.driver.every(_CREATION_RETRY_MS, self._retry_failed_creations)
        self.driver.every(_QUOTA_EXPIRY_MS, self.quotas.expire_idle)
        self.driver.every(self.config.delegation_tokens.expiry_check_interval_ms, self._delete_expired_tokens)
        self.dispatcher.open()

    def _delete_expired_tokens(self) -> None:
        if self.controller.is_active:
            self._run_task(self.token_admin.delete_expired())

    def _start_metrics_endpoint(self, cleanup: AsyncExitStack) -> None:
        if not self.config.metrics_listener:
            return
        with requires_extra("monitoring"):
            from headrace.broker.metrics.service import MetricsService

        self.metrics_service = MetricsService(self, self.config.metrics_listener)
        cleanup.push_async_callback(self.metrics_service.stop)
        self.metrics_service.start()

    def _register_metrics(self) -> None:
        gauge = self.metrics.gauge
        gauge("broker_state", lambda: int(self.state))
        gauge("active_controller", lambda: int(self.controller.is_active))
        gauge("controller_commands_pending", lambda: self.channel.pending)
        gauge("partitions", lambda: len(self.replicas))
        gauge("under_replicated_partitions", lambda: self.replicas.under_replicated)
        gauge("under_min_isr_partitions", lambda: self.replicas.under_min_isr)
        gauge("replica_fetchers", lambda: len(self.replication.fetchers))
        gauge("replicas_moving_between_log_dirs", lambda: len(self.replication.log_dir_moves))
        gauge("waiting_fetches", lambda: self.replicas.fetches.delayed)
        gauge("waiting_produces", lambda: self.replicas.produces.delayed)
        gauge("fetch_sessions", lambda: len(self.fetch_sessions))
        gauge("groups", lambda: sum(len(shard.groups) for shard in self.coordinators.groups.shards()))
        gauge("fetch_session_evictions", lambda: self.fetch_sessions.evictions)

    # ---- addresses

    def _describe(self) -> BrokerInfo:
        """Returns this broker as it registers: its advertised addresses, with the ports that were bound."""
        ports = {bound.name: bound.port for bound in self._bound_endpoints()}
        endpoints = tuple(
            BrokerEndpoint(
                listener.name, listener.host, listener.port or ports[listener.name], listener.security_protocol
            )
            for listener in self.config.advertised_listeners
        )
        return BrokerInfo(self.node_id, endpoints, self.config.broker_rack)

    def _bound_endpoints(self) -> list[BoundListener]:
        servers = [self.server] if self.control_server is None else [self.server, self.control_server]
        return [bound for server in servers for bound in server.endpoints]

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
        elif entity.kind in QUOTA_KINDS:
            self.quotas.config_changed(entity, overrides)
            if entity.kind == znodes.USER_CONFIGS:
                self._user_changed(entity, overrides)

    def _user_changed(self, entity: ConfigEntity, overrides: Mapping[str, str]) -> None:
        user, client_id = entity.user_and_client
        if not client_id and user != znodes.DEFAULT_ENTITY:
            self.credentials.set_user(entity.decoded_name, overrides)

    def _quotas_changed(self) -> None:
        self.dispatcher.quotas = None if self.quotas.is_empty else self.quotas

    def _set_connection_rates(self) -> None:
        self.quotas.connections.set_limits(*self.dynamic_config.connection_rates())

    def _broker_configs_changed(self, _: object) -> None:
        self.server.limits = self.dynamic_config.limits(self.config.limits)
        self._set_connection_rates()
        self.log_manager.config = self.dynamic_config.manager(self.config.manager)

    def _check_topic_config(self, _: str, overrides: Mapping[str, str]) -> None:
        self.dynamic_config.check_topic(overrides)

    def _topic_configs_changed(self, changed: Mapping[str, TopicConfig]) -> None:
        for name, config in changed.items():
            if config.unclean_leader_election_enable:
                self.controller.unclean_election_enabled(name)
        self.log_manager.update_configs({name: config.log for name, config in changed.items()})

    # ---- metadata

    def _image_changed(self, change: ImageChange) -> None:
        for name in change.deleted_topics:
            self.topic_configs.forget(name)
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

    async def stop(self, hand_over: bool = True) -> None:
        """Stops cleanly: other brokers lead its partitions if they can, all acknowledged records are on disk, and the
        logs are marked as cleanly closed. With `hand_over=False`, does not wait for other brokers to lead.

        If a step fails or is cancelled, the rest is abandoned, and the next start recovers the logs.
        """
        self._stops_cleanly = True
        try:
            is_enabled = hand_over and self.config.control.controlled_shutdown_enable
            if is_enabled and self.state is BrokerState.RUNNING:
                self.lifecycle.enter(BrokerState.PENDING_CONTROLLED_SHUTDOWN)
                await self._move_leaderships()
        finally:
            await self._release()
        _logger.info("Broker %d has stopped", self.node_id)

    async def abandon(self) -> None:
        """Releases everything without another write, as a crash would."""
        self._stops_cleanly = False
        await self._release()

    async def _move_leaderships(self) -> None:
        self.replication.fetchers.begin_shutdown()
        await controlled_shutdown(self.node_id, self.config.control, self.image, self.controller_client)
        # As the controller, this broker has to tell the new leaders before it stops.
        await self.channel.wait_delivered(_DELIVERY_TIMEOUT_SECONDS)
        await self.inbox.wait_idle()

    async def _release(self) -> None:
        """Undoes the steps of the start."""
        if self.state is BrokerState.NOT_RUNNING:
            return
        self.lifecycle.enter(BrokerState.SHUTTING_DOWN)
        try:
            await self._cleanup.aclose()
        finally:
            self.lifecycle.enter(BrokerState.NOT_RUNNING)

    async def _stop_controller(self) -> None:
        # It resigns, but does not wait for a store that cannot be reached.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_RESIGN_TIMEOUT_SECONDS):
                await self.controller.stop()

    async def _stop_serving(self, error_type: type[BaseException] | None, *_: object) -> None:
        """Stops accepting connections, completes waiting requests in a clean stop, and closes all connections."""
        self.server.stop_accepting()
        try:
            if self._stops_cleanly and error_type is None:
                self.coordinators.close()
                self.replicas.fetches.complete_all()
                self.replicas.produces.complete_all()
                self.replicas.deletes.complete_all()
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
            await self.environment.run_in_thread_to_end(self.log_manager.close)
        except BaseException:
            self.log_manager.abandon()
            raise
