"""Several brokers in the test's process, for tests of failover: the brokers of `headrace server` on real sockets.

Each broker runs on its own event loop in its own thread. They share a coordination store in memory, which stands for
ZooKeeper (`shared_store`). All methods may be called from the test's thread and block until they are complete.

What `kill`, `pause` and `partition` cause is detected as in a real cluster: the broker's session with the store expires
after `session_timeout_ms`, then the controller elects other leaders. `leader` and `wait_until_in_sync` wait for that.
"""

import asyncio
import tempfile
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, TypeVar

from headrace.broker.server import Broker
from headrace.cluster import znodes
from headrace.cluster.registration import prepare_cluster
from headrace.cluster.store import CoordinationStore, NoNode
from headrace.cluster.topics import TopicSpec
from headrace.cluster.znodes import Leadership, TopicAssignment
from headrace.common.clock import SystemClock
from headrace.common.errors import HeadraceError, TopicAlreadyExistsError
from headrace.common.ids import make_random
from headrace.common.types import TopicPartition
from headrace.testing.cluster_broker import ClusterBroker
from headrace.testing.embedded import check_topics
from headrace.testing.links import STORE, LinkNode
from headrace.testing.security import BrokerSecurity, ClientLibrary, Security, client_config
from headrace.testing.shared_store import SharedStore

T = TypeVar("T")

_TIMEOUT_MS = 60_000
_POLL_SECONDS = 0.005
_MAX_REPLICATION_FACTOR = 3


class EmbeddedCluster:
    """Brokers that run during a `with` or `async with` block. Their ids are 1, 2, 3 and so on.

    - `brokers`: the number of brokers.
    - `properties`: Kafka's broker configs, for all brokers.
    - `broker_properties`: further configs of single brokers, by id, for example `{1: {"broker.rack": "a"}}`.
    - `topics`: partition counts by topic name. The start creates the missing topics, with `replication_factor`.
    - `replication_factor`: of new topics and of the internal topics. The default is 3, or the number of brokers if
      there are fewer. `min.insync.replicas` is one less.
    - `session_timeout_ms`: how long a broker may be unreachable for the store before it counts as dead, like
      `zookeeper.session.timeout.ms`.
    - `data_dir`: kept after the block. By default the brokers use temporary directories, which survive restarts.
    - `security`: users, passwords, rights, TLS, of clients and between the brokers. `client_config` returns what
      clients need.
    """

    def __init__(
        self,
        brokers: int = 3,
        properties: Mapping[str, object] | None = None,
        topics: Mapping[str, int] | None = None,
        *,
        broker_properties: Mapping[int, Mapping[str, object]] | None = None,
        replication_factor: int | None = None,
        session_timeout_ms: int = 2_000,
        data_dir: Path | str | None = None,
        security: Security | None = None,
    ):
        if brokers < 1:
            raise ValueError(f"brokers={brokers!r} is not valid: expected at least 1")
        unknown = set(broker_properties or {}) - set(range(1, brokers + 1))
        if unknown:
            raise ValueError(f"broker_properties has the ids {sorted(unknown)}, expected ids from 1 to {brokers}")
        self._count = brokers
        self._replication_factor = replication_factor or min(brokers, _MAX_REPLICATION_FACTOR)
        self._properties = self._default_properties() | dict(properties or {})
        self._broker_properties = {key: dict(value) for key, value in (broker_properties or {}).items()}
        self._topics = check_topics(topics or {})
        self._session_timeout_ms = session_timeout_ms
        self._data_dir = None if data_dir is None else Path(data_dir)
        self._security = None if security is None else BrokerSecurity(security)
        self._clock = SystemClock()
        self._brokers: dict[int, ClusterBroker] = {}
        self._store: SharedStore | None = None
        self._cleanup = ExitStack()

    def _default_properties(self) -> dict[str, object]:
        replicas = self._replication_factor
        in_sync = max(1, replicas - 1)
        return {
            "default.replication.factor": replicas,
            "min.insync.replicas": in_sync,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": in_sync,
            # Fewer partitions and shorter waits than Kafka's defaults, so that tests are fast.
            "offsets.topic.num.partitions": 5,
            "transaction.state.log.num.partitions": 5,
            "replica.lag.time.max.ms": 5_000,
            "replica.fetch.backoff.ms": 100,
            "controlled.shutdown.retry.backoff.ms": 100,
        }

    # ---- the brokers

    @property
    def brokers(self) -> Mapping[int, ClusterBroker]:
        """The brokers by id, also those that are not running."""
        if not self._brokers:
            raise HeadraceError("The cluster has not been started yet: it has no brokers")
        return MappingProxyType(self._brokers)

    @property
    def bootstrap_servers(self) -> str:
        """The `bootstrap.servers` of clients: the addresses of all brokers. They survive restarts."""
        return ",".join(broker.bootstrap_servers for broker in self.brokers.values())

    def client_config(
        self, user: str | None = None, *, password: str | None = None, library: ClientLibrary = "headrace"
    ) -> dict[str, Any]:
        """Returns the configs of a client, as `EmbeddedBroker.client_config` does."""
        return client_config(self._security, self.bootstrap_servers, user, password, library)

    @property
    def store(self) -> SharedStore:
        """The coordination store. `store.run(store.tree.get("/controller"))` reads a node."""
        if self._store is None:
            raise HeadraceError("The cluster is not running")
        return self._store

    def _broker(self, broker_id: int) -> ClusterBroker:
        try:
            return self.brokers[broker_id]
        except KeyError:
            raise ValueError(f"There is no broker {broker_id!r}: expected an id from 1 to {self._count}") from None

    def _node_at(self, port: int) -> int | None:
        for broker in self._brokers.values():
            if port in broker.ports:
                return broker.id
        return None

    # ---- starting and stopping

    def start(self) -> None:
        """Starts all brokers. Returns when all have joined the cluster and `topics` are in sync."""
        if self._store is not None:
            raise HeadraceError("The cluster is already running")
        with ExitStack() as cleanup:
            if self._data_dir is None:
                directory = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="headrace-cluster-")))
            else:
                directory = self._data_dir
                directory.mkdir(parents=True, exist_ok=True)
            # A temporary cluster has its store in memory: it need not survive the process.
            self._store = SharedStore(None if self._data_dir is None else directory / "coordination.sqlite")
            cleanup.callback(self._close_store)
            if self._security is not None:
                cleanup.callback(self._security.close)
            self._brokers = {broker_id: self._make(broker_id, directory) for broker_id in range(1, self._count + 1)}
            cleanup.callback(self._close_brokers)
            if self._security is not None:
                # Before the brokers, because they log in to each other.
                self._store.run(self._create_users(self._store.tree, self._security))
            self._for_each(self._brokers.values(), ClusterBroker.start)
            self._wait_for("all brokers know each other", self._brokers_know_each_other)
            if self._security is not None:
                self._brokers[1].run(self._security.create_acls)
                for broker in self._brokers.values():
                    broker.wait_until(self._security.is_ready, _TIMEOUT_MS)
            for name, partitions in self._topics.items():
                with suppress(TopicAlreadyExistsError):  # in an existing data_dir
                    self.create_topic(name, partitions)
            self._cleanup = cleanup.pop_all()

    @staticmethod
    async def _create_users(store: CoordinationStore, security: BrokerSecurity) -> None:
        await prepare_cluster(store, make_random())
        await security.create_users(store)

    def _make(self, broker_id: int, directory: Path) -> ClusterBroker:
        properties = {**self._properties, **self._broker_properties.get(broker_id, {})}
        data_dir = directory / f"broker-{broker_id}"
        return ClusterBroker(
            broker_id, self.store, self._session_timeout_ms, self._node_at, properties, data_dir, self._security
        )

    def _for_each(self, brokers: Iterable[ClusterBroker], action: Callable[[ClusterBroker], object]) -> None:
        """Does something with several brokers at the same time. Raises the first error, after all are done."""
        with ThreadPoolExecutor(self._count, thread_name_prefix="headrace-cluster") as threads:
            for outcome in [threads.submit(action, broker) for broker in brokers]:
                outcome.result()

    def close(self) -> None:
        """Stops all brokers and deletes the temporary directories."""
        self._cleanup.close()

    def _close_brokers(self) -> None:
        self.heal()
        # Without a controlled shutdown: there is no other broker to move the leaders to.
        for broker in self._brokers.values():
            broker.faults.clear()
        self._for_each(self._brokers.values(), ClusterBroker.kill)

    def _close_store(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            store.close()

    def __enter__(self) -> "EmbeddedCluster":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> "EmbeddedCluster":
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)

    # ---- failures

    def kill(self, broker_id: int) -> None:
        """Ends a broker like SIGKILL: its connections break, and its session expires after `session_timeout_ms`."""
        self._broker(broker_id).kill()

    def stop(self, broker_id: int) -> None:
        """Stops a broker like SIGTERM: it hands over its leaderships first (controlled shutdown)."""
        self._broker(broker_id).stop()

    def restart(self, broker_id: int, clean: bool = True) -> None:
        """Starts a broker again, with the same port and data. If it is running, stops it before, or kills it."""
        self._broker(broker_id).restart(clean)

    def rolling_restart(self) -> None:
        """Restarts one broker after the other, and each time waits until it is in sync."""
        for broker_id in self.brokers:
            self.restart(broker_id)
            self.wait_until_in_sync()

    def pause(self, broker_id: int) -> None:
        """Stops a broker like SIGSTOP, until `resume`: its connections stay open, but it does not respond.

        If the pause is longer than `session_timeout_ms`, its session expires and other brokers become leaders.
        """
        self._broker(broker_id).pause()

    def resume(self, broker_id: int) -> None:
        """Ends a `pause`."""
        self._broker(broker_id).resume()

    def partition(self, a: LinkNode, b: LinkNode, *, one_way: bool = False) -> None:
        """Separates two brokers, or a broker and the "store", until `heal`. With `one_way`, only from `a` to `b`.

        Bytes are neither delivered nor refused. Clients still reach all brokers. A broker that is separated from the
        store for more than `session_timeout_ms` loses its session, and other brokers become leaders.
        """
        for node in (a, b):
            if node != STORE:
                self._broker(node)  # type: ignore[arg-type]
        self.store.links.block(a, b)
        if not one_way:
            self.store.links.block(b, a)

    def heal(self) -> None:
        """Ends all partitions."""
        if self._store is not None:
            self._store.links.heal()

    def restore(self) -> None:
        """Ends all partitions, pauses and faults, starts all brokers that are down, and waits until all are in sync."""
        self.heal()
        for broker in self.brokers.values():
            broker.faults.clear()
            broker.resume()
        self._for_each([broker for broker in self.brokers.values() if not broker.is_running], ClusterBroker.start)
        self.wait_until_in_sync()

    # ---- topics

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        configs: Mapping[str, object] | None = None,
        *,
        replication_factor: int | None = None,
        assignment: Mapping[int, list[int]] | None = None,
    ) -> None:
        """Creates a topic. Returns when all running brokers know it and its replicas are in sync.

        `assignment` has the replicas of each partition; the first one is the preferred leader. Raises the error that a
        client would get.
        """
        texts = {key: str(value) for key, value in (configs or {}).items()}
        if assignment is None:
            spec = TopicSpec(name, partitions, replication_factor or self._replication_factor, configs=texts)
        else:
            spec = TopicSpec(name, assignment=assignment, configs=texts)
            partitions = len(assignment)

        async def create(broker: Broker) -> None:
            await broker.topic_admin.create_topic(spec)

        self._any_broker().run(create)
        self.wait_until_in_sync(name)
        for broker in self._responsive_brokers():
            broker.wait_until(lambda inside: inside.image.topic_is_ready(name, partitions), _TIMEOUT_MS)

    def delete_topic(self, name: str, missing_ok: bool = False) -> None:
        """Deletes a topic. Returns when its name can be used again. All brokers with replicas must be running."""
        self._any_broker().delete_topic(name, missing_ok)

    def _responsive_brokers(self) -> list[ClusterBroker]:
        return [broker for broker in self.brokers.values() if broker.is_responsive]

    def _any_broker(self) -> ClusterBroker:
        for broker in self._responsive_brokers():
            if not any(broker.id in direction for direction in self.store.links.blocked):
                return broker
        raise HeadraceError("Every broker is stopped, paused or partitioned")

    # ---- observing

    def leader(self, topic: str, partition: int = 0, *, other_than: int | None = None) -> int:
        """Returns the id of a partition's leader. Waits while it has none, while the leader is not running, and while
        it is `other_than`. Raises TimeoutError."""
        tp = TopicPartition(topic, partition)

        def elected() -> int | None:
            state = self._run(_read_state(self.store, tp))
            found = state.leader if state is not None else -1
            broker = self._brokers.get(found)
            return found if broker is not None and broker.is_running and found != other_than else None

        return self._wait_for(f"{topic}-{partition} has a leader", elected)

    def in_sync_replicas(self, topic: str, partition: int = 0) -> frozenset[int]:
        """Returns the ids of a partition's in-sync replicas, according to the store."""
        state = self._run(_read_state(self.store, TopicPartition(topic, partition)))
        return frozenset(state.isr if state is not None else ())

    def controller(self, *, other_than: int | None = None) -> int:
        """Returns the id of the active controller. Waits as `leader` does."""

        def elected() -> int | None:
            found = self._run(_read_controller(self.store))
            broker = self._brokers.get(found)
            return found if broker is not None and broker.is_running and found != other_than else None

        return self._wait_for("a broker is the controller", elected)

    def wait_until_in_sync(self, *topics: str, timeout_ms: float = _TIMEOUT_MS) -> None:
        """Waits until all partitions have a leader and all replicas on running brokers are in sync. Raises TimeoutError
        with the partitions that are not. Without arguments, all topics are checked.

        Brokers that are stopped, paused or cut off from the store are not expected to be in sync."""
        lagging: list[str] = []

        def in_sync() -> bool:
            live = {broker.id for broker in self._responsive_brokers() if not self._is_cut_off(broker.id)}
            lagging[:] = self._run(_unregistered(self.store, live))
            lagging.extend(self._run(_partitions_out_of_sync(self.store, topics, live)))
            return not lagging

        try:
            self._wait_for("in sync", in_sync, timeout_ms)
        except TimeoutError:
            raise TimeoutError(f"Not in sync after {timeout_ms:g} ms: {'; '.join(lagging[:10])}") from None

    def wait_until(self, condition: Callable[[], object], timeout_ms: float = _TIMEOUT_MS) -> None:
        """Waits until a condition holds. Raises TimeoutError."""
        self._wait_for("the condition is true", condition, timeout_ms)

    def _is_cut_off(self, broker_id: int) -> bool:
        links = self.store.links
        return links.is_blocked(broker_id, STORE) or links.is_blocked(STORE, broker_id)

    def _brokers_know_each_other(self) -> bool:
        return all(
            broker.call(lambda inside: len(inside.image.brokers)) == self._count for broker in self._brokers.values()
        )

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.store.run(work)

    def _wait_for(self, wanted: str, condition: Callable[[], T | None], timeout_ms: float = _TIMEOUT_MS) -> T:
        deadline = self._clock.monotonic() + timeout_ms / 1000
        while not (found := condition()):
            if self._clock.monotonic() > deadline:
                raise TimeoutError(f"Waited {timeout_ms:g} ms in vain until {wanted}")
            self._clock.sleep(_POLL_SECONDS)
        return found


# ---- reading the store, on its loop


async def _read_state(store: SharedStore, tp: TopicPartition) -> Leadership | None:
    try:
        data, stat = await store.tree.get(znodes.state_path(tp))
    except NoNode:
        return None
    return znodes.decode_leadership(tp, data, stat.version)


async def _read_controller(store: SharedStore) -> int:
    try:
        data, _ = await store.tree.get(znodes.CONTROLLER)
    except NoNode:
        return -1
    return znodes.decode_controller(data)


async def _read_topics(store: SharedStore, topics: Iterable[str]) -> dict[str, TopicAssignment | None]:
    """Returns the assignments of the named topics; of all topics if none is named. None if there is no such topic."""
    found: dict[str, TopicAssignment | None] = {}
    for name in tuple(topics) or await store.tree.children(znodes.TOPICS):
        try:
            data, _ = await store.tree.get(znodes.topic_path(name))
            found[name] = znodes.decode_topic(name, data)
        except NoNode:
            found[name] = None
    return found


async def _unregistered(store: SharedStore, live: set[int]) -> list[str]:
    """Describes the live brokers that have not registered with their current session."""
    unregistered: list[str] = []
    for broker_id in live:
        stat = await store.tree.exists(znodes.broker_path(broker_id))
        if stat is None or not store.has_session(broker_id, stat.ephemeral_owner):
            unregistered.append(f"broker {broker_id} is not registered")
    return unregistered


async def _partitions_out_of_sync(store: SharedStore, topics: Iterable[str], live: set[int]) -> list[str]:
    """Describes the partitions without a live leader, or with a live replica that is not in sync."""
    out_of_sync: list[str] = []
    for name, assignment in (await _read_topics(store, topics)).items():
        if assignment is None:
            out_of_sync.append(f"topic {name} does not exist")
            continue
        for partition, replicas in assignment.partitions.items():
            tp = TopicPartition(name, partition)
            state = await _read_state(store, tp)
            if state is None or state.leader not in live:
                out_of_sync.append(f"{tp} has no leader")
            elif missing := (set(replicas.replicas) & live) - set(state.isr):
                out_of_sync.append(f"{tp}: in-sync replicas {sorted(state.isr)}, missing {sorted(missing)}")
    return out_of_sync
