"""A broker in the test's process: the broker of `headrace server`, on a free port and with a temporary directory.

The broker runs on its own event loop in its own thread. All methods may be called from the test's thread and block
until they are complete. Functions that inspect the broker (`call`, `wait_until`) run on its event loop.
"""

import asyncio
import errno
import socket
import tempfile
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.broker.config.broker import BrokerConfig
from headrace.broker.config.listeners import ALL_ADDRESSES
from headrace.broker.environment import BrokerEnvironment
from headrace.broker.server import Broker
from headrace.cluster.topics import TopicSpec
from headrace.cluster.znodes import TOPICS
from headrace.common.clock import Clock, SystemClock
from headrace.common.errors import HeadraceError, TopicAlreadyExistsError
from headrace.common.ids import make_random
from headrace.net.listeners import join_address
from headrace.testing.faults import Faults
from headrace.testing.security import BrokerSecurity, ClientLibrary, Security, client_config

if TYPE_CHECKING:
    from headrace.testing.certificates import CertificateAuthority

T = TypeVar("T")

HOST = "127.0.0.1"

_TIMEOUT_SECONDS = 60.0
_POLL_SECONDS = 0.002
_PORT_ATTEMPTS = 50
_MIN_PORT = 10_000
_RETENTION_KEYS = ("log.retention.ms", "log.retention.minutes", "log.retention.hours")


class EmbeddedBroker:
    """A broker that runs during a `with` or `async with` block.

    - `properties`: Kafka's broker configs. If they have `listeners`, the first listener is the broker's `address`.
    - `topics`: partition counts by topic name. The start creates the missing topics.
    - `data_dir`: kept after the block. By default the broker uses a temporary directory, which survives restarts and is
      deleted at the end of the block.
    - `port`: by default a free port.
    - `security`: users, passwords, rights, TLS. `client_config` returns what their clients need.
    """

    def __init__(
        self,
        properties: Mapping[str, object] | None = None,
        *,
        topics: Mapping[str, int] | None = None,
        data_dir: Path | str | None = None,
        port: int | None = None,
        clock: Clock | None = None,
        security: Security | None = None,
    ):
        self.faults = Faults(self._faults_changed)
        """The faults to inject into requests."""
        self._custom_properties = dict(properties or {})
        self._topics = check_topics(topics or {})
        self._data_dir = None if data_dir is None else Path(data_dir)
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._port = port
        self._address: tuple[str, int] | None = None
        self._clock = clock
        self._security = None if security is None else BrokerSecurity(security)
        self._owns_security = self._must_create_users = security is not None
        self._wait = SystemClock()
        self._thread: _BrokerThread | None = None
        self._resumed: threading.Event | None = None

    # ---- address and data

    @property
    def address(self) -> tuple[str, int]:
        """Host and port. They survive restarts, except with custom listeners on port 0."""
        if self._address is None:
            raise HeadraceError("The broker has not been started yet: it has no address")
        return self._address

    @property
    def port(self) -> int:
        return self.address[1]

    @property
    def bootstrap_servers(self) -> str:
        """The `bootstrap.servers` of clients, such as `127.0.0.1:12345`."""
        return join_address(*self.address)

    def client_config(
        self, user: str | None = None, *, password: str | None = None, library: ClientLibrary = "headrace"
    ) -> dict[str, Any]:
        """Returns the configs of a client: its broker, and with `security` the user and what else it needs.

        - `user`: one of the users; None is the broker's own user, who may do everything.
        - `password`: a wrong one, for example.
        - `library`: whose names the configs have. `headrace` (also as keyword arguments with `_`) and `confluent` have
          the names of librdkafka, `kafka-python` and `aiokafka` their keyword arguments, `java` those of Kafka.
        """
        return client_config(self._security, self.bootstrap_servers, user, password, library)

    @property
    def certificate_authority(self) -> "CertificateAuthority":
        """The authority of the broker's certificate, if `security` has TLS: for certificates that the test makes."""
        if self._security is None:
            raise HeadraceError("The broker has no certificates: create it with security=Security(tls=True)")
        return self._security.authority

    @property
    def data_dir(self) -> Path:
        if self._data_dir is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="headrace-")
            self._data_dir = Path(self._temporary.name)
        return self._data_dir

    @property
    def is_running(self) -> bool:
        return self._thread is not None

    # ---- starting and stopping

    def start(self) -> None:
        """Starts the broker, on its previous port after a restart. Returns when clients can connect."""
        if self._thread is not None:
            raise HeadraceError("The broker is already running")
        for attempt in range(_PORT_ATTEMPTS):
            port = _free_port() if self._port is None else self._port
            try:
                self._thread = _BrokerThread(
                    BrokerConfig.load(self._properties(port)), self._open_environment, self._close_environment
                )
            except HeadraceError as error:
                # Another process may have taken the port meanwhile.
                port_in_use = isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EADDRINUSE
                if self._port is not None or not port_in_use or attempt + 1 == _PORT_ATTEMPTS:
                    raise
            else:
                self._port = port
                break
        assert self._thread is not None
        listener = self._thread.broker.server.endpoints[0]
        self._address = HOST if listener.host in ALL_ADDRESSES else listener.host, listener.port
        self._faults_changed()
        if self._security is not None:
            self._create_users(self._security)
        for name, partitions in self._topics.items():
            with suppress(TopicAlreadyExistsError):  # in an existing data_dir
                self.create_topic(name, partitions)
        self._topics.clear()

    def _create_users(self, security: BrokerSecurity) -> None:
        """Creates users and ACLs at the first start. Returns when the broker knows them."""
        if self._must_create_users:
            self.run(lambda broker: security.create_users(broker.store))
            self.run(security.create_acls)
            self._must_create_users = False
        self.wait_until(security.is_ready)

    def _properties(self, port: int) -> dict[str, object]:
        properties: dict[str, object] = {
            "listeners": f"{'PLAINTEXT' if self._security is None else self._security.protocol}://{HOST}:{port}",
            "log.dirs": str(self.data_dir),
            "group.initial.rebalance.delay.ms": 0,  # tests should not wait for more members
        }
        if not any(key in self._custom_properties for key in _RETENTION_KEYS):
            # Tests write records with fixed timestamps. The first retention check, 30 s after the start, would delete
            # records that are older than a week while some test is running.
            properties["log.retention.ms"] = -1
        if self._security is not None:
            properties |= self._security.properties()
        return properties | self._custom_properties

    def _open_environment(self) -> BrokerEnvironment:
        """Returns the environment of a broker that starts. Called on its event loop."""
        return BrokerEnvironment(clock=self._clock or SystemClock())

    def _close_environment(self) -> None:
        """Called on the event loop after the broker's end."""

    def stop(self) -> None:
        """Stops the broker cleanly, like SIGTERM. Does nothing if it is not running."""
        self._end(clean=True)

    def kill(self) -> None:
        """Stops the broker like a crash: connections break, nothing more is written, the next start recovers."""
        self._end(clean=False)

    def restart(self, clean: bool = True) -> None:
        """Stops or kills the broker, then starts it again with the same port and data."""
        self._end(clean)
        self.start()

    def _end(self, clean: bool) -> None:
        self.resume()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.loop.call_soon_threadsafe(self.faults.close_silenced_connections)
            thread.end(clean)

    def close(self) -> None:
        """Stops the broker and deletes its temporary directory."""
        try:
            self.stop()
        finally:
            self.faults.clear()
            if self._security is not None and self._owns_security:
                self._security.close()
            if self._temporary is not None:
                self._temporary.cleanup()
                self._temporary = self._data_dir = None

    def __enter__(self) -> "EmbeddedBroker":
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> "EmbeddedBroker":
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)

    # ---- pausing

    def pause(self) -> None:
        """Blocks the broker's event loop, like SIGSTOP, until `resume`.

        Connections stay open and the system still accepts new ones, but the broker does not respond.
        """
        if self._resumed is not None:
            return
        paused, resumed = threading.Event(), threading.Event()

        def block() -> None:
            paused.set()
            resumed.wait()

        self._running().loop.call_soon_threadsafe(block)
        self._resumed = resumed
        paused.wait(_TIMEOUT_SECONDS)

    def resume(self) -> None:
        """Ends a `pause`."""
        if self._resumed is not None:
            self._resumed.set()
            self._resumed = None

    # ---- topics

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        configs: Mapping[str, object] | None = None,
    ) -> None:
        """Creates a topic. Returns when all partitions have a leader. Raises the error that a client would get."""
        spec = TopicSpec(name, partitions, configs={key: str(value) for key, value in (configs or {}).items()})

        async def create(broker: Broker) -> None:
            await broker.topic_admin.create_topic(spec)
            if not await broker.image.wait_for(lambda image: image.topic_is_ready(name, partitions), _TIMEOUT_SECONDS):
                raise HeadraceError(f"Topic {name} has partitions without a leader after {_TIMEOUT_SECONDS:.0f} s")

        self.run(create)

    def delete_topic(self, name: str, missing_ok: bool = False) -> None:
        """Deletes a topic. Returns when its name can be used again."""

        async def delete(broker: Broker) -> None:
            if missing_ok and broker.image.topic_id(name) is None:
                return
            await broker.topic_admin.delete_topic(name)
            deadline = self._wait.monotonic() + _TIMEOUT_SECONDS
            while broker.image.topic_id(name) is not None or name in await broker.store.children(TOPICS):
                if self._wait.monotonic() > deadline:
                    raise HeadraceError(f"Topic {name} was not deleted within {_TIMEOUT_SECONDS:.0f} s")
                await asyncio.sleep(_POLL_SECONDS)

        self.run(delete)

    # ---- inspecting the broker

    def call(self, function: Callable[[Broker], T]) -> T:
        """Calls a function with the broker on its event loop, and returns the result."""

        async def run(broker: Broker) -> T:
            return function(broker)

        return self.run(run)

    def run(self, work: Callable[[Broker], Coroutine[Any, Any, T]]) -> T:
        """Runs a coroutine function with the broker on its event loop, and returns the result."""
        thread = self._running()
        if self._resumed is not None:
            raise HeadraceError("The broker is paused; call resume() first")
        return asyncio.run_coroutine_threadsafe(work(thread.broker), thread.loop).result(2 * _TIMEOUT_SECONDS)

    def wait_until(self, condition: Callable[[Broker], object], timeout_ms: float = 30_000) -> None:
        """Waits until a condition holds. Evaluates it on the broker's event loop. Raises TimeoutError."""
        deadline = self._wait.monotonic() + timeout_ms / 1000
        while not self.call(condition):
            if self._wait.monotonic() > deadline:
                raise TimeoutError(f"The condition did not become true within {timeout_ms:g} ms")
            self._wait.sleep(_POLL_SECONDS)

    def _running(self) -> "_BrokerThread":
        if self._thread is None:
            raise HeadraceError("The broker is not running")
        return self._thread

    def _faults_changed(self) -> None:
        """Sets the dispatcher's `intercept` only while there are faults: it costs time for each request."""
        if self._thread is not None:
            self._thread.broker.dispatcher.intercept = self.faults.intercept if self.faults else None


class _BrokerThread:
    """The thread that runs one broker, from its start to its stop."""

    loop: asyncio.AbstractEventLoop
    broker: Broker

    def __init__(
        self,
        config: BrokerConfig,
        open_environment: Callable[[], BrokerEnvironment],
        close_environment: Callable[[], None],
    ):
        self._config = config
        self._open_environment = open_environment
        self._close_environment = close_environment
        self._stop_request: asyncio.Future[bool]
        self._result: Future[None] = Future()
        started: Future[None] = Future()
        self._thread = threading.Thread(
            target=self._run, args=(started,), name=f"headrace-broker-{config.node_id}", daemon=True
        )
        self._thread.start()
        try:
            started.result(_TIMEOUT_SECONDS)
        except BaseException:
            self._thread.join(_TIMEOUT_SECONDS)
            raise

    def _run(self, started: "Future[None]") -> None:
        try:
            asyncio.run(self._run_broker(started))
        except BaseException as error:  # noqa: BLE001 - raised by `end`
            self._result.set_exception(error)
        else:
            self._result.set_result(None)

    async def _run_broker(self, started: "Future[None]") -> None:
        self.loop = asyncio.get_running_loop()
        self._stop_request = self.loop.create_future()
        try:
            self.broker = Broker(self._config, self._open_environment())
            await self.broker.start()
        except BaseException as error:  # noqa: BLE001 - raised by the constructor
            self._close_environment()
            started.set_exception(error)
            return
        started.set_result(None)
        clean = await self._stop_request
        try:
            if clean:
                await self.broker.stop()
            else:
                await self.broker.abandon()
        finally:
            self._close_environment()

    def end(self, clean: bool) -> None:
        self.loop.call_soon_threadsafe(self._stop_request.set_result, clean)
        self._result.result(_TIMEOUT_SECONDS)
        self._thread.join()


def _free_port() -> int:
    """Returns a free port below the ephemeral ports.

    While the broker is down, a client may keep connecting to its port. If the port were ephemeral, the system could
    assign it to the client as source port. The client would connect to itself and occupy the broker's port.
    """
    ports = range(_MIN_PORT, _first_ephemeral_port())
    random = make_random()
    for _ in range(_PORT_ATTEMPTS):
        port = random.choice(ports)
        with socket.socket() as probe:
            if probe.connect_ex((HOST, port)) == 0:
                continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port
    raise HeadraceError(f"Found no free port in {_PORT_ATTEMPTS} attempts")


def _first_ephemeral_port() -> int:
    try:
        first_port = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError):
        first_port = 32_768
    return first_port if first_port > _MIN_PORT + 1000 else 65_536


def check_topics(topics: Mapping[str, int]) -> dict[str, int]:
    if not isinstance(topics, Mapping) or not all(
        isinstance(name, str) and isinstance(partitions, int) for name, partitions in topics.items()
    ):
        raise TypeError(f"topics must be partition counts by name, for example {{'orders': 3}}, not {topics!r}")
    return dict(topics)
