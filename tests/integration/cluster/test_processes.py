"""Three brokers as processes on a real ZooKeeper, whose processes are killed and stopped under load.

Idempotent producers of confluent-kafka, kafka-python and the Java client write with acks=all, and transactional ones
of confluent-kafka and the Java client; a group reads. In turn, the leader of a partition, a follower, the controller
and ZooKeeper get a SIGKILL, or a SIGSTOP that is longer than the session timeout. No acknowledged record may be lost,
duplicated or reordered, no record of an aborted transaction may be visible, and the group reads everything. The
longest pause is printed.
By default there are three producers and three faults. `HEADRACE_CLUSTER_ROUNDS` sets a number of rounds with all of
them, the faults in random order after the first round.
"""

import gc
import logging
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.apache_kafka.jvm import KafkaUnavailable, kafka_classpath
from tests.support.cluster.load import (
    IdempotentConfluent,
    IdempotentJava,
    IdempotentKafkaPython,
    Load,
    TransactionalConfluent,
    TransactionalJava,
)
from tests.support.cluster.processes import SESSION_TIMEOUT_MS, ProcessCluster
from tests.support.seeds import choose_seed

ROUNDS = int(os.environ.get("HEADRACE_CLUSTER_ROUNDS", "0"))
TOPIC = "load"
PARTITIONS = 3
PAUSE_SECONDS = SESSION_TIMEOUT_MS / 1000 + 1


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ProcessCluster]:
    with ProcessCluster(tmp_path) as running:
        running.create_topic(TOPIC, PARTITIONS)
        yield running


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Silences the clients' logs about missing brokers, and kafka-python's unclosed sockets."""
    caplog.set_level(logging.CRITICAL, "kafka")
    yield
    gc.collect()  # here, where its warnings are ignored


SHORT = [IdempotentConfluent, IdempotentKafkaPython, TransactionalJava]
LONG = [*SHORT, IdempotentJava, TransactionalConfluent]


@pytest.fixture(scope="module", autouse=True)
def _java_client() -> None:
    try:
        kafka_classpath()
    except KafkaUnavailable as error:
        pytest.skip(f"the Java client is not available: {error}")


class Faults:
    """The faults. Each method injects one, and returns what repairs it."""

    def __init__(self, cluster: ProcessCluster):
        self._cluster = cluster

    def kill_leader(self) -> Callable[[], None]:
        return self._kill(self._cluster.leader(TOPIC))

    def kill_follower(self) -> Callable[[], None]:
        return self._kill(self._follower())

    def kill_controller(self) -> Callable[[], None]:
        return self._kill(self._cluster.controller())

    def pause_leader(self) -> Callable[[], None]:
        return self._pause(self._cluster.leader(TOPIC))

    def pause_follower(self) -> Callable[[], None]:
        return self._pause(self._follower())

    def pause_controller(self) -> Callable[[], None]:
        return self._pause(self._cluster.controller())

    def kill_zookeeper(self) -> Callable[[], None]:
        (server,) = self._cluster.zookeeper.servers
        server.kill()
        return server.start

    def pause_zookeeper(self) -> Callable[[], None]:
        (server,) = self._cluster.zookeeper.servers
        server.pause()
        return server.resume

    def _follower(self) -> int:
        """Returns a follower of partition 0 that is not the controller, if there is one."""
        leader, controller = self._cluster.leader(TOPIC), self._cluster.controller()
        followers = [number for number in self._cluster.brokers if number != leader]
        return next((number for number in followers if number != controller), followers[0])

    def _kill(self, number: int) -> Callable[[], None]:
        broker = self._cluster.brokers[number]
        broker.kill()
        return broker.start

    def _pause(self, number: int) -> Callable[[], None]:
        broker = self._cluster.brokers[number]
        broker.pause()
        return broker.resume


NAMES = [name for name in vars(Faults) if name.startswith(("kill_", "pause_"))]


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.filterwarnings("ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.timeout(900 + 600 * ROUNDS)
def test_no_acknowledged_record_is_lost(
    cluster: ProcessCluster, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    load = Load(cluster.bootstrap, TOPIC, PARTITIONS, LONG if ROUNDS else SHORT)
    request.addfinalizer(load.stop)
    faults = Faults(cluster)
    names = NAMES if ROUNDS else ["kill_leader", "pause_controller", "kill_zookeeper"]
    choice = random.Random(choose_seed())
    load.await_progress("the start")
    pauses = {"none": load.longest_pauses()}
    for number in range(max(ROUNDS, 1)):
        for name in names if number == 0 else choice.sample(NAMES, len(NAMES)):
            repair = getattr(faults, name)()
            time.sleep(PAUSE_SECONDS)  # the fault is longer than the session timeout
            if not name.endswith("zookeeper"):
                load.await_progress(name)
            repair()
            cluster.wait_until_in_sync(TOPIC, PARTITIONS)
            load.await_progress(f"{name}, repaired")
            before = pauses.get(name, [0.0] * len(load.writers))
            pauses[name] = [max(pair) for pair in zip(load.longest_pauses(), before, strict=True)]
    load.finish_and_check()
    with capsys.disabled():
        for writer in load.writers:
            aborted = f", {len(writer.aborted):,} in aborted transactions" if writer.aborted else ""
            print(f"\n{writer.name:<26}{writer.count():>9,} records acknowledged{aborted}", end="")
        print("\nLongest pause of each writer in seconds, in this order, by fault:")
        for name, seconds in pauses.items():
            print(f"  {name.replace('_', ' '):<20}" + "".join(f"{each:8.2f}" for each in seconds))
