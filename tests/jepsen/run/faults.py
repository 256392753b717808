"""The faults: kill, pause, partition, slow, clock, member, disk, zookeeper. Each starts, and returns what ends it.

A supervisor restarts brokers and ZooKeeper when their processes end, as systemd does, except those that a fault keeps
down. Exits without a fault that explains them are counted.
"""

import json
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.jepsen.run.machines import BrokerMachine, Cluster, Machine
from tests.jepsen.run.network import Network

import headrace
from headrace.errors import HeadraceError

Repair = Callable[[], None]
LONGEST_SKEW_SECONDS = 300
_ZK = "zk"


class Supervisor(threading.Thread):
    """Keeps the processes running."""

    def __init__(self, cluster: Cluster):
        super().__init__(name="supervisor", daemon=True)
        self.unexpected_exits: list[str] = []
        self.kept_down: set[str] = set()
        self.may_exit: set[str] = set()
        """Machines that a fault stops, or makes end themselves, until they have been restarted."""
        self._machines: list[Machine] = [cluster.zookeeper, *cluster.brokers.values()]
        self._stop_event = threading.Event()
        self.lock = threading.Lock()

    def run(self) -> None:
        while not self._stop_event.wait(0.25):
            with self.lock:
                for machine in self._machines:
                    if machine.status is not None and machine.name not in self.kept_down:
                        self._restart(machine)

    def _restart(self, machine: Machine) -> None:
        if machine.name not in self.may_exit and machine.status != -signal.SIGKILL:
            self.unexpected_exits.append(f"{machine.name} ended with status {machine.status}:\n{machine.log_tail()}")
        self.may_exit.discard(machine.name)
        machine.launch()

    def stop(self) -> None:
        self._stop_event.set()
        self.join()


class Faults:
    """Injects faults into a cluster. `injected` counts them."""

    def __init__(self, cluster: Cluster, network: Network, kinds: Sequence[str], seed: int, log_file: Path):
        self._cluster = cluster
        self._network = network
        self._random = random.Random(seed)
        self._kinds: dict[str, Callable[[], tuple[str, Repair]]] = {
            "kill": self.kill,
            "pause": self.pause,
            "partition": self.partition,
            "slow": self.slow,
            "clock": self.clock,
            "member": self.member,
            "disk": self.disk,
            "zookeeper": self.zookeeper,
        }
        self._chosen = [kind for kind in self._kinds if kind in kinds]
        self.supervisor = Supervisor(cluster)
        self.injected: Counter[str] = Counter()
        self.log_file = log_file

    @staticmethod
    def names() -> tuple[str, ...]:
        return ("kill", "pause", "partition", "slow", "clock", "member", "disk", "zookeeper")

    def run(self, seconds: float, shortest: float, longest: float) -> None:
        """Injects one fault after the other, each kind once in random order before any repeats. One fault in four lasts
        into the next one."""
        self.supervisor.start()
        started = time.monotonic()
        open_repairs: list[Repair] = []
        order: list[str] = []
        try:
            while (now := time.monotonic() - started) < seconds:
                order = order or self._random.sample(self._chosen, len(self._chosen))
                kind = order.pop()
                what, repair = self._kinds[kind]()
                self.injected[kind] += 1
                self._log(now, f"{kind}: {what}")
                open_repairs.append(repair)
                self._sleep(min(self._random.uniform(shortest, longest), seconds - now))
                if self._random.random() < 0.75:
                    self._end(open_repairs)
                    self._log(time.monotonic() - started, "repaired")
                    self._sleep(self._random.uniform(0.5, 3))
        finally:
            self._end(open_repairs)
            self._network.heal()
        self._log(time.monotonic() - started, "all faults are over")

    def _log(self, seconds: float, what: str) -> None:
        with self.log_file.open("a") as file:
            file.write(f"{time.strftime('%H:%M:%S')} {seconds:8.1f} {what}\n")

    @staticmethod
    def _sleep(seconds: float) -> None:
        time.sleep(max(seconds, 0))

    @staticmethod
    def _end(repairs: list[Repair]) -> None:
        while repairs:
            repairs.pop()()

    # ---- helpers

    def _some(self) -> list[BrokerMachine]:
        """Returns one broker, or sometimes several."""
        brokers = list(self._cluster.brokers.values())
        count = 1 if self._random.random() < 0.6 else self._random.randint(1, len(brokers))
        return self._random.sample(brokers, count)

    def _one(self) -> BrokerMachine:
        return self._random.choice(list(self._cluster.brokers.values()))

    def _keep_down(self, machines: Sequence[Machine]) -> Repair:
        """Lets the supervisor restart these only when the fault is over."""
        names = {machine.name for machine in machines} - self.supervisor.kept_down
        self.supervisor.kept_down |= names

        def release() -> None:
            with self.supervisor.lock:
                self.supervisor.kept_down -= names

        return release

    # ---- processes

    def kill(self) -> tuple[str, Repair]:
        machines = self._some()
        with self.supervisor.lock:
            repair = self._keep_down(machines)
            for machine in machines:
                machine.kill()
        return _names(machines), repair

    def pause(self) -> tuple[str, Repair]:
        machines = self._some()
        for machine in machines:
            machine.pause()

        def resume() -> None:
            for machine in machines:
                machine.resume()

        return _names(machines), resume

    def zookeeper(self) -> tuple[str, Repair]:
        machine = self._cluster.zookeeper
        if self._random.random() < 0.5:
            machine.pause()
            return "pause", machine.resume
        with self.supervisor.lock:
            repair = self._keep_down([machine])
            machine.kill()
        return "kill", repair

    def member(self) -> tuple[str, Repair]:
        """A broker leaves in order and comes back, or the replicas of some partitions move to other brokers."""
        if self._random.random() < 0.5:
            return self._reassign(), lambda: None
        broker = self._one()
        with self.supervisor.lock:
            repair = self._keep_down([broker])
            self.supervisor.may_exit.add(broker.name)
        threading.Thread(target=broker.stop, daemon=True).start()
        return f"{broker.name} leaves", repair

    def _reassign(self) -> str:
        numbers = list(self._cluster.brokers)
        try:
            with headrace.Admin(bootstrap_servers=self._cluster.bootstrap, request_timeout_ms=5000) as admin:
                topics = [name for name in admin.list_topics() if name.startswith("t")]
                targets = {
                    headrace.TopicPartition(topic, partition): self._random.sample(numbers, 3)
                    for topic in topics
                    for partition in range(2)
                    if self._random.random() < 0.5
                }
                admin.alter_partition_reassignments(targets, 10_000)
        except HeadraceError as error:
            return f"reassignment refused: {error!r}"[:200]
        return "reassignment " + json.dumps({f"{tp.topic}-{tp.partition}": list(new) for tp, new in targets.items()})

    # ---- network

    def partition(self) -> tuple[str, Repair]:
        kinds = (self._isolate, self._halves, self._ring, self._pair, self._one_way, self._from_zookeeper)
        return self._random.choice(kinds)(), self._network.heal

    def _isolate(self) -> str:
        alone = self._one()
        for other in (*self._cluster.brokers.values(), self._cluster.zookeeper):
            if other is not alone:
                self._network.cut_both(alone.name, other.name)
        return f"{alone.name} from all others"

    def _halves(self) -> str:
        """A majority and a minority; ZooKeeper is in either."""
        brokers = list(self._cluster.brokers.values())
        self._random.shuffle(brokers)
        small, large = brokers[: (len(brokers) - 1) // 2], brokers[(len(brokers) - 1) // 2 :]
        sides = [[each.name for each in small], [each.name for each in large]]
        self._random.choice(sides).append(_ZK)
        for one in sides[0]:
            for other in sides[1]:
                self._network.cut_both(one, other)
        return f"{sides[0]} from {sides[1]}"

    def _ring(self) -> str:
        """Each broker reaches its two neighbours; with three brokers, one link is missing."""
        brokers = list(self._cluster.brokers.values())
        self._random.shuffle(brokers)
        names = [each.name for each in brokers]
        if len(names) < 4:
            self._network.cut_both(names[0], names[1])
        for position, one in enumerate(names):
            for other in names[position + 2 :]:
                if (position, other) != (0, names[-1]):
                    self._network.cut_both(one, other)
        return f"ring {names}"

    def _two(self) -> tuple[str, str]:
        one, other = self._random.sample([*(each.name for each in self._cluster.brokers.values()), _ZK], 2)
        return one, other

    def _pair(self) -> str:
        one, other = self._two()
        self._network.cut_both(one, other)
        return f"{one} from {other}"

    def _one_way(self) -> str:
        one, other = self._two()
        self._network.cut(one, other)
        return f"{one} to {other}, one way"

    def _from_zookeeper(self) -> str:
        machines = self._some()
        for machine in machines:
            self._network.cut_both(machine.name, _ZK)
        return f"{_names(machines)} from ZooKeeper"

    def slow(self) -> tuple[str, Repair]:
        machines: list[Machine] = list(self._some())
        if self._random.random() < 0.25:
            machines.append(self._cluster.zookeeper)
        for machine in machines:
            self._network.slow_down(machine.name)
        return _names(machines), self._network.heal

    # ---- clocks and disks

    def clock(self) -> tuple[str, Repair]:
        machines = self._some()
        skews = [self._random.randint(-LONGEST_SKEW_SECONDS, LONGEST_SKEW_SECONDS) for _ in machines]
        for machine, skew in zip(machines, skews, strict=True):
            machine.set_clock(skew)

        def reset() -> None:
            for machine in machines:
                machine.set_clock(0)

        return f"{_names(machines)} by {skews} s", reset

    def disk(self) -> tuple[str, Repair]:
        """Fills up the disk of a broker, which may end the broker: it is restarted once there is space again."""
        broker = self._one()
        self.supervisor.may_exit.add(broker.name)
        release = self._keep_down([broker])
        broker.fill_disk()

        def free() -> None:
            broker.free_disk()
            release()

        return broker.name, free


def _names(machines: Sequence[Machine]) -> str:
    return ", ".join(machine.name for machine in machines)
