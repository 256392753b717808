"""A broker inside the test's own process: the one that `headrace server` runs, on a free port and in a temporary
directory.

The broker has an event loop of its own in a thread of its own. Everything here may be called from the test's thread,
and returns when it is done; what looks into the broker (`call`, `wait_until`) runs on its loop.
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
from typing import Any, TypeVar

from headrace.broker.config.broker import BrokerConfig
from headrace.broker.config.listeners import EVERYWHERE
from headrace.broker.server import Broker
from headrace.cluster.topics import TopicSpec
from headrace.cluster.znodes import TOPICS
from headrace.common.clock import Clock, SystemClock
from headrace.common.errors import HeadraceError, TopicAlreadyExistsError
from headrace.common.ids import make_random
from headrace.net.listeners import join_address
from headrace.testing.faults import Faults

T = TypeVar("T")

HOST = "127.0.0.1"

_PATIENCE_SECONDS = 60.0
_POLL_SECONDS = 0.002
_PORT_TRIES = 50
_LOWEST_PORT = 10_000
_RETENTION_KEYS = ("log.retention.ms", "log.retention.minutes", "log.retention.hours")


class EmbeddedBroker:
    """A broker for the time of a `with` or `async with` block.

    `properties` are Kafka's broker keys. `topics` are created at the start, unless they are there: names and numbers of
    partitions. `data_dir` is kept if it is given; otherwise there is a temporary one, which lives as long as the block,
    also over restarts. Who gives `listeners` of their own finds the first of them as `address`.
    """

    def __init__(
        self,
        properties: Mapping[str, object] | None = None,
        *,
        topics: Mapping[str, int] | None = None,
        data_dir: Path | str | None = None,
        port: int | None = None,
        clock: Clock | None = None,
    ):
        self.faults = Faults(self._faults_changed)
        """What is to go wrong, and when."""
        self._given = dict(properties or {})
        self._topics = dict(topics or {})
        self._data_dir = None if data_dir is None else Path(data_dir)
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._port = port
        self._address: tuple[str, int] | None = None
        self._clock = clock
        self._wait = SystemClock()
        self._life: _Life | None = None
        self._resumed: threading.Event | None = None

    # ---- where it is

    @property
    def address(self) -> tuple[str, int]:
        """Host and port; the same over restarts, unless it was given listeners with port 0."""
        if self._address is None:
            raise HeadraceError("the broker has not been started yet")
        return self._address

    @property
    def port(self) -> int:
        return self.address[1]

    @property
    def bootstrap_servers(self) -> str:
        """What a client takes: `127.0.0.1:12345`."""
        return join_address(*self.address)

    @property
    def data_dir(self) -> Path:
        if self._data_dir is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="headrace-")
            self._data_dir = Path(self._temporary.name)
        return self._data_dir

    @property
    def is_running(self) -> bool:
        return self._life is not None

    # ---- coming and going

    def start(self) -> None:
        """Starts it, on the port that it had before. Returns when clients may come."""
        if self._life is not None:
            raise HeadraceError("the broker is running")
        for attempt in range(_PORT_TRIES):
            port = _free_port() if self._port is None else self._port
            try:
                self._life = _Life(BrokerConfig.load(self._properties(port)), self._clock)
            except HeadraceError as error:
                # Somebody else has taken the port in the meantime.
                taken = isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EADDRINUSE
                if self._port is not None or not taken or attempt + 1 == _PORT_TRIES:
                    raise
            else:
                self._port = port
                break
        assert self._life is not None
        first = self._life.broker.server.endpoints[0]
        self._address = HOST if first.host in EVERYWHERE else first.host, first.port
        self._faults_changed()
        for name, partitions in self._topics.items():
            with suppress(TopicAlreadyExistsError):  # in a directory that was kept
                self.create_topic(name, partitions)
        self._topics.clear()

    def _properties(self, port: int) -> dict[str, object]:
        properties: dict[str, object] = {
            "listeners": f"PLAINTEXT://{HOST}:{port}",
            "log.dirs": str(self.data_dir),
            "group.initial.rebalance.delay.ms": 0,  # a test's group is complete when its members have joined
        }
        if not any(key in self._given for key in _RETENTION_KEYS):
            # Tests write records with fixed timestamps. Retention would delete those that are older than a week when
            # it runs for the first time, 30 seconds after the start: under a test that happens to run then.
            properties["log.retention.ms"] = -1
        return properties | self._given

    def stop(self) -> None:
        """Stops it in order, as SIGTERM does. Does nothing if it is not running."""
        self._end(clean=True)

    def kill(self) -> None:
        """Ends it as a crash would: connections break, nothing more is written, and the next start recovers."""
        self._end(clean=False)

    def restart(self, clean: bool = True) -> None:
        """Stops or kills it, and starts it again on the same port and data."""
        self._end(clean)
        self.start()

    def _end(self, clean: bool) -> None:
        self.resume()
        life, self._life = self._life, None
        if life is not None:
            life.loop.call_soon_threadsafe(self.faults.hang_up)
            life.end(clean)

    def close(self) -> None:
        """Stops it and removes its temporary directory."""
        try:
            self.stop()
        finally:
            self.faults.clear()
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

    # ---- standing still

    def pause(self) -> None:
        """Stops the broker's loop dead, as SIGSTOP would: connections stay, the system still accepts some, nothing is
        answered until `resume`."""
        if self._resumed is not None:
            return
        stands, resumed = threading.Event(), threading.Event()

        def stand_still() -> None:
            stands.set()
            resumed.wait()

        self._running().loop.call_soon_threadsafe(stand_still)
        self._resumed = resumed
        stands.wait(_PATIENCE_SECONDS)

    def resume(self) -> None:
        """Goes on after `pause`."""
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
        """Returns when all partitions have a leader. Raises the error that a client would get."""
        new = TopicSpec(name, partitions, configs={key: str(value) for key, value in (configs or {}).items()})

        async def create(broker: Broker) -> None:
            await broker.topic_admin.create_topic(new)
            if not await broker.image.wait_for(lambda image: image.topic_is_ready(name, partitions), _PATIENCE_SECONDS):
                raise HeadraceError(f"topic {name} got no leaders in {_PATIENCE_SECONDS:.0f} s")

        self._await(create)

    def delete_topic(self, name: str, missing_ok: bool = False) -> None:
        """Returns when the topic is gone and its name free again."""

        async def delete(broker: Broker) -> None:
            if missing_ok and broker.image.topic_id(name) is None:
                return
            await broker.topic_admin.delete_topic(name)
            deadline = self._wait.monotonic() + _PATIENCE_SECONDS
            while broker.image.topic_id(name) is not None or name in await broker.store.children(TOPICS):
                if self._wait.monotonic() > deadline:
                    raise HeadraceError(f"topic {name} was not deleted in {_PATIENCE_SECONDS:.0f} s")
                await asyncio.sleep(_POLL_SECONDS)

        self._await(delete)

    # ---- looking inside

    def call(self, function: Callable[[Broker], T]) -> T:
        """What a function returns that is called with the broker, on its loop."""

        async def run(broker: Broker) -> T:
            return function(broker)

        return self._await(run)

    def wait_until(self, condition: Callable[[Broker], object], timeout_seconds: float = 30.0) -> None:
        """Until a condition holds that is looked at on the broker's loop."""
        deadline = self._wait.monotonic() + timeout_seconds
        while not self.call(condition):
            if self._wait.monotonic() > deadline:
                raise TimeoutError(f"the condition did not come about in {timeout_seconds} s")
            self._wait.sleep(_POLL_SECONDS)

    def _await(self, work: Callable[[Broker], Coroutine[Any, Any, T]]) -> T:
        life = self._running()
        if self._resumed is not None:
            raise HeadraceError("the broker is paused")
        return asyncio.run_coroutine_threadsafe(work(life.broker), life.loop).result(2 * _PATIENCE_SECONDS)

    def _running(self) -> "_Life":
        if self._life is None:
            raise HeadraceError("the broker is not running")
        return self._life

    def _faults_changed(self) -> None:
        """Requests are only looked at while there is a fault."""
        if self._life is not None:
            self._life.broker.dispatcher.intercept = self.faults.intercept if self.faults else None


class _Life:
    """A broker from its start to its end, and the thread that it lives in."""

    loop: asyncio.AbstractEventLoop
    broker: Broker

    def __init__(self, config: BrokerConfig, clock: Clock | None):
        self._config = config
        self._clock = clock
        self._ends: asyncio.Future[bool]
        self._ended: Future[None] = Future()
        started: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, args=(started,), name="headrace-broker", daemon=True)
        self._thread.start()
        try:
            started.result(_PATIENCE_SECONDS)
        except BaseException:
            self._thread.join(_PATIENCE_SECONDS)
            raise

    def _run(self, started: "Future[None]") -> None:
        try:
            asyncio.run(self._live(started))
        except BaseException as error:  # noqa: BLE001 - handed to whoever ends it
            self._ended.set_exception(error)
        else:
            self._ended.set_result(None)

    async def _live(self, started: "Future[None]") -> None:
        self.loop = asyncio.get_running_loop()
        self._ends = self.loop.create_future()
        try:
            self.broker = Broker(self._config, self._clock)
            await self.broker.start()
        except BaseException as error:  # noqa: BLE001 - handed to whoever starts it
            started.set_exception(error)
            return
        started.set_result(None)
        clean = await self._ends
        if clean:
            await self.broker.stop()
        else:
            await self.broker.abandon()

    def end(self, clean: bool) -> None:
        self.loop.call_soon_threadsafe(self._ends.set_result, clean)
        self._ended.result(_PATIENCE_SECONDS)
        self._thread.join()


def _free_port() -> int:
    """A port below those that the system gives to clients. A client that dials a free one of those, again and again
    while the broker is down, may get that very port as its own, be connected with itself, and keep the broker out."""
    ports = range(_LOWEST_PORT, _first_client_port())
    random = make_random()
    for _ in range(_PORT_TRIES):
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
    raise HeadraceError(f"no free port in {_PORT_TRIES} tries")


def _first_client_port() -> int:
    try:
        first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError):
        first = 32_768
    return first if first > _LOWEST_PORT + 1000 else 65_536
