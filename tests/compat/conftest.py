"""Fixtures with Apache Kafka, directories that it wrote, and consumer groups with members of any client library.

Where Apache Kafka is not available, its tests skip with the reason.
"""

from collections.abc import Callable, Iterator
from itertools import count

import pytest
from tests.support.apache_kafka.broker import KafkaUnavailable, kafka_classpath
from tests.support.apache_kafka.files import KafkaFiles, write_kafka_files
from tests.support.broker.process import Broker
from tests.support.broker.under_test import make_broker
from tests.support.coordinator.group_lab import Lab
from tests.support.coordinator.group_members import MemberHosts

_numbers = count()


@pytest.fixture(scope="session")
def apache_kafka() -> None:
    try:
        kafka_classpath()
    except KafkaUnavailable as error:
        pytest.skip(f"Apache Kafka is not available: {error}")


@pytest.fixture(scope="session")
def kafka_files(apache_kafka: None, tmp_path_factory: pytest.TempPathFactory) -> KafkaFiles:
    return write_kafka_files(tmp_path_factory.mktemp("kafka-files"))


@pytest.fixture
def new_name() -> Callable[[], str]:
    return lambda: f"name-{next(_numbers)}"


@pytest.fixture(scope="session")
def group_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with no initial rebalance delay, which allows short session timeouts."""
    config = {
        "group.initial.rebalance.delay.ms": 0,
        "group.min.session.timeout.ms": 100,
        "offsets.topic.replication.factor": 1,
    }
    with make_broker(tmp_path_factory.mktemp("groups") / "data", config) as running:
        yield running


@pytest.fixture(scope="session")
def member_hosts() -> Iterator[MemberHosts]:
    hosts = MemberHosts()
    yield hosts
    hosts.close()


@pytest.fixture
def make_lab(
    group_broker: Broker, member_hosts: MemberHosts, new_name: Callable[[], str]
) -> Iterator[Callable[..., Lab]]:
    """Creates an empty group and a topic for it."""
    labs: list[Lab] = []

    def make(partitions: int = 4) -> Lab:
        lab = Lab(group_broker, member_hosts, new_name())
        lab.create(new_name(), partitions)
        labs.append(lab)
        return lab

    yield make
    for lab in labs:
        lab.close()
