"""The broker under test, the clients of other projects, and topics with unique names."""

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
from tests.support.broker.admin_clients import AiokafkaAdmin, ConfluentAdmin, JavaAdmin, KafkaPythonAdmin
from tests.support.broker.clients import Aiokafka, Client, Confluent, JavaKafkaClients, KafkaPython, Kcat, install_kcat
from tests.support.broker.headrace_admin import HeadraceAdmin
from tests.support.broker.java_clients import Java
from tests.support.broker.process import Broker, eventually
from tests.support.broker.under_test import make_broker

NewTopic = Callable[..., str]
_numbers = count()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Broker]:
    with make_broker(tmp_path_factory.mktemp("broker") / "data") as running:
        yield running


@pytest.fixture(scope="session")
def java(apache_kafka: None, broker: Broker) -> Iterator[Java]:
    with Java(broker.bootstrap) as running:
        yield running


@pytest.fixture(scope="session")
def kcat(broker: Broker) -> Kcat:
    if reason := install_kcat():
        pytest.skip(reason)
    return Kcat(broker.bootstrap)


@pytest.fixture(scope="session")
def get_client(broker: Broker, request: pytest.FixtureRequest) -> Callable[[str], Client]:
    """Returns a client by name; skips the test if it is not installed."""

    def get(name: str) -> Client:
        if name == Kcat.name:
            return request.getfixturevalue("kcat")
        if name == JavaKafkaClients.name:
            return JavaKafkaClients(request.getfixturevalue("java"))
        return {each.name: each for each in (Confluent, KafkaPython, Aiokafka)}[name](broker.bootstrap)

    return get


@pytest.fixture(scope="session")
def get_admin(broker: Broker, request: pytest.FixtureRequest) -> Iterator[Callable[[str], Any]]:
    admins: dict[str, Any] = {}

    def get(name: str) -> Any:
        if name not in admins:
            if name == JavaAdmin.name:
                admins[name] = JavaAdmin(request.getfixturevalue("java"))
            else:
                kinds = {each.name: each for each in (ConfluentAdmin, KafkaPythonAdmin, AiokafkaAdmin, HeadraceAdmin)}
                admins[name] = kinds[name](broker.bootstrap)
        return admins[name]

    yield get
    for each in admins.values():
        each.close()


@pytest.fixture(scope="session")
def new_topic(broker: Broker) -> Iterator[NewTopic]:
    """Creates a topic with a unique name; configs have underscores for dots."""
    admin = ConfluentAdmin(broker.bootstrap)

    def make(partitions: int = 1, prefix: str = "topic", **configs: object) -> str:
        name = f"{prefix}-{next(_numbers)}"
        admin.create(name, partitions, configs={key.replace("_", "."): str(value) for key, value in configs.items()})
        eventually(lambda: name in admin.topics(), f"{name} is listed")
        return name

    yield make
    admin.close()
