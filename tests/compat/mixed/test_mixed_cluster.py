"""One Headrace broker between two brokers of Apache Kafka 3.9. Headrace is the controller, but not when it restarts.

The tests use one cluster and leave it as they found it: all brokers run, all replicas are in sync. With
`HEADRACE_MIXED_ROUNDS` they run with either kind as controller, and also with one broker of Kafka between two of
Headrace, and more failovers happen under load.
"""

import os
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path

import confluent_kafka as confluent
import pytest
from click.testing import CliRunner
from kazoo.client import KazooClient
from tests.support.broker.clients import Confluent
from tests.support.broker.java_clients import Java
from tests.support.broker.process import eventually
from tests.support.broker.records import Record
from tests.support.broker.transactional_producers import (
    ConfluentTransactional,
    HeadraceTransactional,
    JavaTransactional,
    Transactional,
)
from tests.support.cluster.load import Load
from tests.support.cluster.mixed import HEADRACE, KAFKA, MixedCluster
from tests.support.cluster.processes import PATIENCE_SECONDS

import headrace
from headrace.admin import ConfigResource, ConfigResourceType
from headrace.broker.config.coordinators import GROUP_TOPIC, TRANSACTION_TOPIC
from headrace.cli.main import main
from headrace.coordinator.partitioner import partition_for

ROUNDS = int(os.environ.get("HEADRACE_MIXED_ROUNDS", "0"))
MIXES = [(KAFKA, HEADRACE, KAFKA), *([(HEADRACE, KAFKA, HEADRACE)] if ROUNDS else [])]
CONTROLLERS = [HEADRACE, *([KAFKA] if ROUNDS else [])]
INTERNAL = [[1, 2, 3], [2, 1, 3], [3, 2, 1], [2, 3, 1]]
"""The replicas of the internal topics: each move of a coordinator is one between the two kinds."""
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_numbers = count()


@pytest.fixture(scope="module", params=MIXES, ids="-".join)
def cluster(
    request: pytest.FixtureRequest, apache_kafka_3: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MixedCluster]:
    properties = {
        "zookeeper.session.timeout.ms": 6_000,
        "replica.lag.time.max.ms": 2_000,
        "auto.leader.rebalance.enable": "false",
        "offsets.topic.num.partitions": len(INTERNAL),
        "transaction.state.log.num.partitions": len(INTERNAL),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
    }
    kinds = dict(enumerate(request.param, 1))
    with MixedCluster(tmp_path_factory.mktemp("mixed"), kinds, properties) as running:
        for topic in (GROUP_TOPIC, TRANSACTION_TOPIC):
            running.create_assigned(topic, INTERNAL, {"cleanup.policy": "compact"})
        yield running


@pytest.fixture(scope="module", params=CONTROLLERS)
def controller(request: pytest.FixtureRequest, cluster: MixedCluster) -> str:
    cluster.make_controller(request.param)
    return str(request.param)


@pytest.fixture(scope="module")
def java(apache_kafka: None, cluster: MixedCluster) -> Iterator[Java]:
    with Java(cluster.bootstrap) as running:
        yield running


@pytest.fixture
def topic() -> str:
    return f"topic-{next(_numbers)}"


def coordinated_by(topic: str, cluster: MixedCluster, broker: int) -> str:
    """Returns the name of a new group, or a new transactional id, whose coordinator is a broker."""
    partitions = cluster.partitions(topic)
    names = (f"name-{number}" for number in _numbers)
    return next(name for name in names if partitions[partition_for(name, len(partitions))].leader == broker)


def write(cluster: MixedCluster, topic: str, partitions: int, records: int = 50, paused: int = 0) -> None:
    """Writes this number of records with each codec, with acks=all and idempotence. A new client would wait for a
    paused broker."""
    bootstrap = ",".join(broker.bootstrap for number, broker in cluster.brokers.items() if number != paused)
    for codec in CODECS:
        producer = Confluent(bootstrap).producer(enable_idempotence=True, compression_type=codec)
        producer.list_topics(topic, PATIENCE_SECONDS)
        values = [f"{codec} {number}".encode() * 10 for number in range(records)]
        # A broker that has not learned of a new partition yet makes librdkafka refuse its records: they were not sent.
        eventually(
            lambda producer=producer, values=values: _send(producer, topic, partitions, values), f"write {codec}"
        )


def _send(producer: confluent.Producer, topic: str, partitions: int, values: list[bytes]) -> bool:
    """Sends the values and removes those that were acknowledged. Returns True if none is left."""

    def report(value: bytes, error: confluent.KafkaError | None, _: object) -> None:
        assert error is None or error.code() == confluent.KafkaError._UNKNOWN_PARTITION, error
        if error is None:
            values.remove(value)

    for number, value in enumerate(list(values)):
        deliver = partial(report, value)
        try:
            producer.produce(topic, value, partition=number % partitions, on_delivery=deliver)
        except confluent.KafkaException as error:
            deliver(error.args[0], None)
    assert producer.flush(PATIENCE_SECONDS) == 0
    return not values


def _is_gone(client: KazooClient, node: str) -> bool:
    return client.exists(node) is None


def alter(cluster: MixedCluster, topic: str, key: str, value: str | None) -> None:
    with headrace.Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {key: value})])


def test_replicas_are_equal(cluster: MixedCluster, controller: str, topic: str) -> None:
    cluster.create_assigned(topic, [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    write(cluster, topic, 3)
    with headrace.Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for number in range(90):
            producer.send(topic, b"%d" % number, partition=number % 3)
    cluster.check_equal_replicas(topic, 3)
    assert len(Confluent(cluster.bootstrap).read(topic, range(3))) == 50 * len(CODECS) + 90


def test_topics_with_the_tools_of_either_side(cluster: MixedCluster, controller: str, topic: str, java: Java) -> None:
    def ours(*args: str) -> None:
        ran = CliRunner().invoke(main, ["topics", "--bootstrap-server", cluster.bootstrap, *args], prog_name="headrace")
        assert ran.exit_code == 0, ran.output

    def kafkas(*args: str) -> None:
        ran = java.tool("kafka-topics", *args)
        assert ran.status == 0, ran.out + ran.err

    def directories() -> list[Path]:
        return [path for broker in cluster.brokers.values() for path in broker.data_dir.glob(f"{topic}-?")]

    for first, second in ((ours, kafkas), (kafkas, ours)):
        first("--create", "--topic", topic, "--partitions", "2", "--replication-factor", "3")
        cluster.wait_until_in_sync(topic, 2)
        write(cluster, topic, 2, 10)
        second("--alter", "--topic", topic, "--partitions", "4")
        cluster.wait_until_in_sync(topic, 4)
        write(cluster, topic, 4, 20)
        cluster.check_equal_replicas(topic, 4)
        second("--delete", "--topic", topic)
        eventually(lambda: not directories(), "all brokers have deleted the topic", PATIENCE_SECONDS)
        with cluster.zookeeper_client() as client:
            node = f"/brokers/topics/{topic}"
            eventually(partial(_is_gone, client, node), "the deletion is complete", PATIENCE_SECONDS)


def test_configs(cluster: MixedCluster, controller: str, topic: str) -> None:
    """A config that one kind has changed applies on the leaders of both."""
    cluster.create_assigned(topic, [[1, 2, 3], [2, 3, 1]])
    large = b"x" * 20_000

    def is_accepted(partition: int) -> bool:
        producer = Confluent(cluster.bootstrap).producer()
        found: list[confluent.KafkaError | None] = []
        producer.produce(topic, large, partition=partition, on_delivery=lambda error, _: found.append(error))
        assert producer.flush(PATIENCE_SECONDS) == 0
        (error,) = found
        assert error is None or error.code() == confluent.KafkaError.MSG_SIZE_TOO_LARGE, error
        return error is None

    for limit, accepted in (("10000", False), (None, True)):
        alter(cluster, topic, "max.message.bytes", limit)
        for partition in (0, 1):
            eventually(
                lambda partition=partition, accepted=accepted: is_accepted(partition) == accepted,
                f"partition {partition} has max.message.bytes={limit}",
                PATIENCE_SECONDS,
            )


def test_the_isr_shrinks_and_expands(cluster: MixedCluster, controller: str, topic: str) -> None:
    """A paused follower leaves the ISR of leaders of both kinds, and comes back."""
    cluster.create_assigned(topic, [[1, 3, 2], [2, 3, 1], [1, 2, 3]])
    write(cluster, topic, 3, 9)
    cluster.check_equal_replicas(topic, 3)  # a broker of Kafka that is paused while it creates a log does not recover
    for paused, led_by_others in ((3, (0, 1, 2)), (2, (0, 2))):
        cluster.brokers[paused].pause()
        try:
            for partition in led_by_others:
                cluster.wait_for_isr(topic, partition, set(cluster.brokers) - {paused})
            write(cluster, topic, 3, 9, paused)
        finally:
            cluster.brokers[paused].resume()
        cluster.check_equal_replicas(topic, 3)
        cluster.elect_preferred(topic, GROUP_TOPIC, TRANSACTION_TOPIC)
    cluster.make_controller(controller)


def test_unclean_election(cluster: MixedCluster, controller: str, topic: str) -> None:
    """A follower without the last records becomes leader, if the topic allows it. The old leader truncates its log."""
    for leader, follower in ((1, 2), (2, 1)):
        name = f"{topic}-{leader}"
        cluster.create_assigned(name, [[leader, follower]], {"min.insync.replicas": "1"})
        write(cluster, name, 1, 10)
        cluster.check_equal_replicas(name, 1)
        cluster.brokers[follower].stop()
        cluster.wait_for_isr(name, 0, {leader})
        write(cluster, name, 1, 10)
        cluster.brokers[leader].stop()
        cluster.brokers[follower].start()
        alter(cluster, name, "unclean.leader.election.enable", "true")
        cluster.wait_for_leader(name, 0, follower)
        write(cluster, name, 1, 5)
        cluster.brokers[leader].start()
        cluster.check_equal_replicas(name, 1)
        assert len(Confluent(cluster.bootstrap).read(name, [0])) == 15 * len(CODECS)
    cluster.elect_preferred(GROUP_TOPIC, TRANSACTION_TOPIC)
    cluster.make_controller(controller)


@pytest.mark.parametrize("before", [1, 2])
def test_a_group_keeps_its_offsets_when_its_coordinator_moves(
    cluster: MixedCluster, controller: str, topic: str, before: int
) -> None:
    cluster.create_assigned(topic, [[3, 1, 2], [3, 2, 1]])
    write(cluster, topic, 2, 10)
    group = coordinated_by(GROUP_TOPIC, cluster, before)
    found: set[tuple[int, int]] = set()

    def read(consumer: confluent.Consumer, records: int) -> None:
        wanted = len(found) + records
        while len(found) < wanted:
            for message in consumer.consume(wanted - len(found), 1.0):
                assert message.error() is None, message.error()
                place = message.partition() or 0, message.offset() or 0
                assert place not in found, f"record {place} was read twice"
                found.add(place)
        consumer.commit(asynchronous=False)

    consumer = Confluent(cluster.bootstrap).consumer(
        group_id=group, enable_partition_eof=False, auto_offset_reset="earliest"
    )
    consumer.subscribe([topic])
    read(consumer, 20)
    cluster.brokers[before].stop()
    index = partition_for(group, len(INTERNAL))
    assert cluster.kinds[cluster.leader(GROUP_TOPIC, index)] != cluster.kinds[before]
    read(consumer, 10)
    consumer.close()
    cluster.brokers[before].start()
    cluster.wait_until_in_sync(GROUP_TOPIC, len(INTERNAL))
    cluster.elect_preferred(GROUP_TOPIC, TRANSACTION_TOPIC)
    again = Confluent(cluster.bootstrap).consumer(
        group_id=group, enable_partition_eof=False, auto_offset_reset="earliest"
    )
    again.subscribe([topic])
    read(again, 20)
    again.close()
    cluster.make_controller(controller)


@pytest.mark.parametrize("before", [1, 2])
def test_an_open_transaction_ends_with_the_next_coordinator(
    cluster: MixedCluster, controller: str, topic: str, before: int, java: Java
) -> None:
    cluster.create_assigned(topic, [[1, 2, 3], [2, 1, 3], [3, 2, 1]])
    make: dict[str, Callable[[str], Transactional]] = {
        "librdkafka": lambda name: ConfluentTransactional(cluster.bootstrap, name),
        "java": lambda name: JavaTransactional(java, name),
        "headrace": lambda name: HeadraceTransactional(cluster.bootstrap, name),
    }
    producers = {
        client: factory(coordinated_by(TRANSACTION_TOPIC, cluster, before)) for client, factory in make.items()
    }

    def send(step: str) -> None:
        for client, producer in producers.items():
            producer.begin()
            producer.send(topic, [Record(index, None, f"{client} {step}".encode()) for index in range(3)])
            producer.send_offset(topic, 7, f"group of {client} {step} {topic}")

    send("commits first")
    for producer in producers.values():
        producer.commit()
    send("commits after the move")
    cluster.brokers[before].stop()
    for producer in producers.values():
        producer.commit()
    cluster.brokers[before].start()
    cluster.wait_until_in_sync(topic, 3)
    cluster.elect_preferred(topic, GROUP_TOPIC, TRANSACTION_TOPIC)
    send("aborts")
    for producer in producers.values():
        producer.abort()
    for producer in producers.values():
        producer.close()
    cluster.check_equal_replicas(topic, 3)
    steps = ("commits first", "commits after the move")
    expected = {(index, f"{client} {step}".encode()) for index in range(3) for client in producers for step in steps}
    rows = Confluent(cluster.bootstrap).read(topic, range(3), isolation_level="read_committed")
    assert sorted((row.partition, row.value) for row in rows) == sorted(expected)
    with headrace.Admin(bootstrap_servers=cluster.bootstrap) as admin:
        for client in producers:
            for step, committed in (*((step, [7]) for step in steps), ("aborts", [])):
                name = f"group of {client} {step} {topic}"
                offsets = admin.list_group_offsets(name)[name].offsets.values()
                assert [entry.offset for entry in offsets] == committed, name
    cluster.make_controller(controller)


def test_either_kind_continues_the_directory_of_the_other(cluster: MixedCluster) -> None:
    cluster.create_assigned("continued", [[2, 1], [1, 2]])
    own = cluster.kinds[2]
    for kind in (KAFKA if own == HEADRACE else HEADRACE, own):
        write(cluster, "continued", 2)
        cluster.replace(2, kind)
        cluster.check_equal_replicas("continued", 2)
        cluster.elect_preferred("continued")
        write(cluster, "continued", 2)
        cluster.check_equal_replicas("continued", 2)
    assert len(Confluent(cluster.bootstrap).read("continued", range(2))) == 4 * 50 * len(CODECS)


@pytest.mark.timeout(600 + 600 * ROUNDS)
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.filterwarnings("ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning")
def test_failovers_under_load(cluster: MixedCluster) -> None:
    """The controller is killed: first Headrace, then Apache Kafka. It leads partitions and follows others."""
    cluster.create_assigned("load", [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    load = Load(cluster.bootstrap, "load", 3)
    load.await_progress("the start")
    for kind in (HEADRACE, KAFKA) * max(1, ROUNDS):
        victim = cluster.brokers[cluster.make_controller(kind)]
        victim.kill()
        load.await_progress(f"the controller, a broker of {kind}, was killed")
        victim.start()
        cluster.wait_until_in_sync("load", 3)
        load.await_progress(f"a broker of {kind} is back")
    load.finish_and_check()
    cluster.check_equal_replicas("load", 3)
