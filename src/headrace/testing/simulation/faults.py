"""Injects faults into a running cluster, chosen by the seed.

Each fault is a coroutine that starts the fault, waits, and ends it. `heal` ends everything and brings all brokers back.
A supervisor keeps every broker running, as systemd does: it restarts a broker that stopped or failed to start.
"""

import asyncio
import errno
from collections.abc import Awaitable, Callable

from headrace.common.errors import HeadraceError
from headrace.common.ids import Random
from headrace.testing.simulation.cluster import SimulatedBroker, SimulatedCluster
from headrace.testing.simulation.store import STORE

_RESTART_SECONDS = 0.5
_SLOW_DISK_SECONDS = 0.5


class Faults:
    """The faults of one run. Without `power_loss`, a killed broker keeps everything that it has written."""

    def __init__(
        self, cluster: SimulatedCluster, random: Random, *, power_loss: bool = False, moves_log_dirs: bool = False
    ):
        self._cluster = cluster
        self._random = random
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._busy: dict[int, None] = {}
        """The brokers that a fault keeps down."""
        self._stopping = False
        self.injected: dict[str, int] = {}
        self.kinds: dict[str, Callable[[], Awaitable[None]]] = {
            "kill": self.kill,
            "kill_controller": self.kill_controller,
            "pause": self.pause,
            "partition": self.partition,
            "one_way": self.one_way,
            "isolate": self.isolate,
            "store_partition": self.store_partition,
            "store_write": self.store_write,
            "break_connections": self.break_connections,
            "slow_link": self.slow_link,
            "slow_disk": self.slow_disk,
            "full_disk": self.full_disk,
            "failing_sync": self.failing_sync,
            "clock_jump": self.clock_jump,
            "rolling_restart": self.rolling_restart,
        }
        if power_loss:
            self.kinds["power_loss"] = self.power_loss
        if moves_log_dirs:
            self.kinds["move_replicas"] = self.move_replicas
            del self.kinds["failing_sync"]  # the replicas in that directory would not come back without a restart

    # ---- driving

    async def run(self, seconds: float, kinds: list[str]) -> None:
        """Injects faults of these kinds for some time, up to two at once."""
        loop = self._cluster.loop
        end = loop.time() + seconds
        while loop.time() < end:
            await asyncio.sleep(0.2 + self._random.random() * 3)
            if len(self._tasks) < 2:
                kind = self._random.choice(kinds)
                self.injected[kind] = self.injected.get(kind, 0) + 1
                self._add(self.kinds[kind]())

    def _add(self, fault: Awaitable[None]) -> None:
        task = asyncio.ensure_future(fault)
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    async def heal(self) -> None:
        """Ends all faults. Afterwards all brokers run, or are starting."""
        self._stopping = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result
        self._cluster.network.heal()
        self._cluster.store_server.break_before.clear()
        self._cluster.store_server.break_after.clear()
        self._busy.clear()
        for broker in self._cluster.brokers.values():
            broker.disk.heal()
            if broker.node is not None:
                broker.node.thread_seconds = 0.001
                broker.node.resume()

    async def supervise(self, broker: SimulatedBroker) -> None:
        """Keeps a broker running."""
        while True:
            await asyncio.sleep(_RESTART_SECONDS)
            if broker.id in self._busy:
                continue
            if broker.node is None:
                starting = broker.start()
                # The task of a killed process never ends.
                while not starting.done() and self._has_process(broker):
                    await asyncio.sleep(0.1)
                error = starting.exception() if starting.done() else None
                if error is not None and not isinstance(error, HeadraceError | OSError):
                    raise error
            elif broker.is_running and broker.broker.failed.is_set():
                self._cluster.note(f"{broker.name} has no log directory: it ends")
                broker.kill()
                broker.disk.heal()

    # ---- helpers

    def _has_process(self, broker: SimulatedBroker) -> bool:
        return broker.node is not None

    def _some_broker(self) -> SimulatedBroker | None:
        """Returns a random broker that runs and has no fault."""
        found = [
            broker
            for broker in self._cluster.brokers.values()
            if broker.is_running and broker.id not in self._busy and broker.node is not None and not broker.node.paused
        ]
        return self._random.choice(found) if found else None

    async def _hold(self, shortest: float, longest: float) -> None:
        await asyncio.sleep(shortest + self._random.random() * (longest - shortest))

    def _note(self, text: str) -> None:
        self._cluster.note(f"FAULT {text}")

    # ---- processes

    async def kill(self) -> None:
        broker = self._some_broker()
        if broker is not None:
            await self._kill(broker, None)

    async def kill_controller(self) -> None:
        for broker in self._cluster.brokers.values():
            if broker.is_running and broker.id not in self._busy and broker.broker.controller.is_active:
                await self._kill(broker, None)
                return

    async def power_loss(self) -> None:
        broker = self._some_broker()
        if broker is not None:
            await self._kill(broker, self._random)

    async def _kill(self, broker: SimulatedBroker, power_loss: Random | None) -> None:
        self._note(f"{'power loss of' if power_loss else 'kill'} {broker.name}")
        self._busy[broker.id] = None
        broker.kill(power_loss=power_loss)
        try:
            await self._hold(0, 10)
        finally:
            self._busy.pop(broker.id, None)

    async def pause(self) -> None:
        broker = self._some_broker()
        if broker is None or broker.node is None:
            return
        node = broker.node
        self._note(f"pause {broker.name}")
        node.pause()
        try:
            await self._hold(0.5, 12)
        finally:
            self._note(f"resume {broker.name}")
            node.resume()

    async def rolling_restart(self) -> None:
        self._note("rolling restart")
        for broker in self._cluster.brokers.values():
            if not broker.is_running or broker.id in self._busy or broker.node is None or broker.node.paused:
                continue
            self._busy[broker.id] = None
            node = broker.node
            try:
                node.run(self._stop(broker))  # ends also if this fault is cancelled
                while broker.node is node:
                    await asyncio.sleep(0.1)
            finally:
                self._busy.pop(broker.id, None)
            await self._hold(1, 4)

    async def _stop(self, broker: SimulatedBroker) -> None:
        await broker.broker.stop()
        self._note(f"{broker.name} has stopped")
        broker.ended(silently=False)

    # ---- network

    def _two_nodes(self) -> tuple[str, str]:
        names = [broker.name for broker in self._cluster.brokers.values()]
        first = self._random.choice(names)
        return first, self._random.choice([name for name in (*names, STORE) if name != first])

    async def partition(self) -> None:
        first, second = self._two_nodes()
        self._note(f"partition between {first} and {second}")
        self._cluster.network.partition(first, second)
        try:
            await self._hold(0.5, 12)
        finally:
            self._note(f"end of the partition between {first} and {second}")
            self._cluster.network.heal(first, second)
            self._cluster.network.heal(second, first)

    async def one_way(self) -> None:
        source, target = self._two_nodes()
        if self._random.random() < 0.5:
            source, target = target, source
        self._note(f"{source} cannot reach {target}")
        self._cluster.network.block(source, target)
        try:
            await self._hold(0.5, 12)
        finally:
            self._note(f"{source} reaches {target} again")
            self._cluster.network.heal(source, target)

    async def isolate(self) -> None:
        """Cuts a broker off from everything but the clients."""
        broker = self._random.choice(list(self._cluster.brokers.values()))
        others = [other.name for other in self._cluster.brokers.values() if other is not broker] + [STORE]
        self._note(f"{broker.name} is isolated")
        self._cluster.network.partition(broker.name, *others)
        try:
            await self._hold(1, 12)
        finally:
            self._note(f"{broker.name} is not isolated any more")
            for other in others:
                self._cluster.network.heal(broker.name, other)
                self._cluster.network.heal(other, broker.name)

    async def store_partition(self) -> None:
        broker = self._random.choice(list(self._cluster.brokers.values()))
        self._note(f"{broker.name} cannot reach the store")
        self._cluster.network.partition(broker.name, STORE)
        try:
            await self._hold(0.5, 12)
        finally:
            self._note(f"{broker.name} reaches the store again")
            self._cluster.network.heal(broker.name, STORE)
            self._cluster.network.heal(STORE, broker.name)

    async def store_write(self) -> None:
        server = self._cluster.store_server
        broker = self._random.choice(list(self._cluster.brokers.values()))
        takes_effect = self._random.random() < 0.5
        effect = "with" if takes_effect else "without"
        self._note(f"{broker.name} loses its store connection at its next write, {effect} effect")
        (server.break_after if takes_effect else server.break_before)[broker.name] = None
        await self._hold(0.5, 3)

    async def break_connections(self) -> None:
        first, second = self._two_nodes()
        self._note(f"connections between {first} and {second} break")
        self._cluster.network.break_connections(first, second)

    async def slow_link(self) -> None:
        source, target = self._two_nodes()
        self._note(f"slow link from {source} to {target}")
        self._cluster.network.slow_links[source, target] = 0.05 + self._random.random()
        try:
            await self._hold(1, 8)
        finally:
            self._cluster.network.slow_links.pop((source, target), None)

    # ---- disks and clocks

    async def slow_disk(self) -> None:
        broker = self._some_broker()
        if broker is None or broker.node is None:
            return
        node = broker.node
        self._note(f"slow disk of {broker.name}")
        node.thread_seconds = _SLOW_DISK_SECONDS
        try:
            await self._hold(1, 6)
        finally:
            node.thread_seconds = 0.001

    async def full_disk(self) -> None:
        broker = self._some_broker()
        if broker is None:
            return
        self._note(f"full disk of {broker.name}")
        broker.disk.fill_up(self._random.randrange(3000))
        try:
            await self._hold(1, 6)
        finally:
            self._note(f"{broker.name} has space again")
            broker.disk.heal()

    async def failing_sync(self) -> None:
        broker = self._some_broker()
        if broker is None:
            return
        self._note(f"a sync of {broker.name} fails")
        broker.disk.fail("sync", "*", errno.EIO, times=1)
        await self._hold(0.5, 3)

    async def move_replicas(self) -> None:
        """Moves replicas of a broker to other log directories, or cancels their moves. Not a fault of its own."""
        broker = self._some_broker()
        if broker is None or broker.node is None:
            return
        node, chosen = broker.node, self._random.random()

        async def alter() -> None:
            moves, directories = broker.broker.replication.log_dir_moves, broker.broker.log_manager.directories
            for partition in sorted(broker.broker.replicas, key=lambda partition: partition.tp):
                if self._random.random() < chosen:
                    path = str(self._random.choice(directories))
                    try:
                        moves.alter(partition.tp, path)
                    except HeadraceError as error:
                        self._note(f"{broker.name} does not move {partition.tp} to {path}: {error}")

        self._note(f"replicas of {broker.name} move to other log directories")
        await node.run(alter())
        await self._hold(0, 2)

    async def clock_jump(self) -> None:
        broker = self._some_broker()
        if broker is None or broker.node is None:
            return
        jump = self._random.randint(-3_600_000, 3_600_000)
        self._note(f"the clock of {broker.name} jumps by {jump} ms")
        broker.node.clock_offset_ms += jump
