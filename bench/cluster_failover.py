"""How long partitions have no leader when a broker of a cluster dies or stops, and when the controller dies.

A partition has a leader when a broker answers a ListOffsets request for it without an error: only the leader does, and
only after it has processed the controller's command. One thread per broker asks for the partitions that the stopped
broker led, and notes the time of each answer.

After a SIGKILL the time counts from the moment when ZooKeeper deletes the dead broker's registration, which the
benchmark watches as the controller does: the session timeout before it is a setting, not a speed. A controlled shutdown
moves leaders one after another while all brokers run; the longest time counts during which a partition had no leader.
"""

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from kazoo.client import KazooClient
from kazoo.protocol.states import WatchedEvent
from tests.support.net.wire_client import ConnectionEnded, WireClient

from bench.broker_wire import await_condition
from bench.cluster_sides import BROKERS, REPLICATION_FACTOR, SECONDS, Assignment, Cluster, settle
from headrace.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

Partition = tuple[str, int]
CHUNK = 200
"""Partitions per request: small requests keep the load low, and the answers are not late."""
PAUSE_SECONDS = 0.002
SETTLE_SECONDS = 3.0


class Election:
    """The partitions that need a new leader, and when one of the probes first found it."""

    def __init__(self, partitions: list[Partition]):
        self.partitions = partitions
        self.found_at: dict[Partition, float] = {}
        self.stopping = threading.Event()

    def await_all(self) -> None:
        await_condition("new leaders", lambda: len(self.found_at) == len(self.partitions), SECONDS)
        self.stopping.set()


class LeaderProbe(threading.Thread):
    """Asks one broker again and again which of the partitions it leads: those without a leader so far, or all."""

    def __init__(self, cluster: Cluster, number: int, election: Election, *, is_old_leader: bool = False):
        super().__init__(daemon=True)
        self.last_led_at: dict[Partition, float] = {}
        self._election = election
        self._is_old_leader = is_old_leader
        self._client = cluster.connect(number)

    def run(self) -> None:
        waiting = deque(self._election.partitions)
        with suppress(OSError, ConnectionEnded), self._client:  # the broker stops
            while waiting and not self._election.stopping.is_set():
                asked = [waiting.popleft() for _ in range(min(CHUNK, len(waiting)))]
                led = _led(self._client, asked)
                now = time.perf_counter()
                if self._is_old_leader:
                    self.last_led_at |= dict.fromkeys(led, now)
                    waiting.extend(asked)
                else:
                    for partition in led:
                        self._election.found_at.setdefault(partition, now)
                    # Those without a leader are asked again after the others.
                    waiting.extend(partition for partition in asked if partition not in self._election.found_at)
                self._election.stopping.wait(PAUSE_SECONDS)


def _led(client: WireClient, partitions: list[Partition]) -> set[Partition]:
    by_topic: dict[str, list[ListOffsetsPartition]] = {}
    for name, number in partitions:
        by_topic.setdefault(name, []).append(ListOffsetsPartition(partition_index=number, timestamp=-1))
    topics = [ListOffsetsTopic(name=name, partitions=asked) for name, asked in by_topic.items()]
    response = client.call(ListOffsetsRequest(replica_id=-1, topics=topics), 2)
    return {
        (topic.name, state.partition_index)
        for topic in response.topics
        for state in topic.partitions
        if not state.error_code
    }


def measure(cluster: Cluster, partitions: int, replication_factor: int = REPLICATION_FACTOR) -> dict[str, float]:
    """Creates the partitions, then stops each broker in a different way. Returns the seconds of each case."""
    controller = cluster.controller()
    order = [number for number in BROKERS if number != controller] + [controller]
    started = time.perf_counter()
    assignment = cluster.create_partitions("failover", partitions, order, replication_factor)
    seconds = {"creation": time.perf_counter() - started}
    settle(SETTLE_SECONDS)
    seconds["leaderless after SIGKILL"] = _after_kill(cluster, order[0], assignment, f"/brokers/ids/{order[0]}")
    cluster.restart(order[0], assignment)
    settle(SETTLE_SECONDS)
    leaderless, total = _during_controlled_shutdown(cluster, order[1], assignment)
    seconds["leaderless during controlled shutdown"] = leaderless
    seconds["duration of controlled shutdown"] = total
    cluster.restart(order[1], assignment)
    settle(SETTLE_SECONDS)
    assert cluster.controller() == controller, "the controller changed although its broker was not stopped"
    seconds["failover of the controller"] = _after_kill(cluster, controller, assignment, "/controller")
    return seconds


def _after_kill(cluster: Cluster, victim: int, assignment: Assignment, registration: str) -> float:
    """Kills a broker. Returns the seconds from its registration's deletion until its partitions have leaders."""
    election = Election(_partitions_of(cluster, victim, assignment))
    with _deletion_time(cluster, registration) as deleted_at:
        cluster.kill(victim)
        _start_probes(cluster, cluster.running, election)
        await_condition(f"ZooKeeper deletes {registration}", lambda: bool(deleted_at), SECONDS, pause=0.01)
        election.await_all()
    return max(election.found_at.values()) - deleted_at[0]


def _during_controlled_shutdown(cluster: Cluster, victim: int, assignment: Assignment) -> tuple[float, float]:
    """Stops a broker with SIGTERM. Returns the longest time without leader of a sample of its partitions, and the
    time until the process ended."""
    led = _partitions_of(cluster, victim, assignment)
    election = Election(led[:: max(1, len(led) // CHUNK)][:CHUNK])
    _start_probes(cluster, cluster.running - {victim}, election)
    old_leader = LeaderProbe(cluster, victim, election, is_old_leader=True)
    old_leader.start()
    await_condition("answers of the leader", lambda: len(old_leader.last_led_at) == len(election.partitions), SECONDS)
    started = time.perf_counter()
    cluster.begin_stop(victim)
    election.await_all()
    old_leader.join()
    cluster.await_stop(victim)
    # The old leader may answer after its successor does, if it gets the controller's command later.
    gaps = [found_at - old_leader.last_led_at[partition] for partition, found_at in election.found_at.items()]
    return max(0.0, *gaps), time.perf_counter() - started


def _partitions_of(cluster: Cluster, leader: int, assignment: Assignment) -> list[Partition]:
    leaders = cluster.leaders(leader)
    found = [partition for partition in assignment if leaders[partition] == leader]
    assert found, f"broker {leader} leads no partition"
    return found


def _start_probes(cluster: Cluster, numbers: set[int], election: Election) -> None:
    for number in numbers:
        LeaderProbe(cluster, number, election).start()


@contextmanager
def _deletion_time(cluster: Cluster, node: str) -> Iterator[list[float]]:
    """Watches a node of ZooKeeper. The list gets the time when it is deleted."""
    deleted_at: list[float] = []

    def on_event(event: WatchedEvent) -> None:
        if event.type == "DELETED":
            deleted_at.append(time.perf_counter())

    client = KazooClient(cluster.zookeeper.connect)
    client.start(SECONDS)
    try:
        assert client.exists(node, watch=on_event) is not None, f"{node} does not exist"
        yield deleted_at
    finally:
        client.stop()
        client.close()
