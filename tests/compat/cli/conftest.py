"""A broker with topics, records and groups for Kafka's tools and ours."""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.support.broker.java_clients import Java, ToolResult
from tests.support.broker.process import Broker
from tests.support.broker.under_test import make_broker

import headrace
from headrace.admin import NewTopic
from headrace.cli.main import main
from headrace.common.types import TopicPartition

_numbers = count()
Tool = Callable[..., ToolResult]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    settings = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.replication.factor": 1}
    with make_broker(tmp_path_factory.mktemp("tools") / "data", settings) as running:
        yield running


@pytest.fixture(scope="module")
def java(apache_kafka: None, broker: Broker) -> Iterator[Java]:
    with Java(broker.bootstrap) as running:
        yield running


@pytest.fixture(scope="module")
def ours(broker: Broker) -> Tool:
    """Runs one of our tools in this process, with --bootstrap-server after the tool's name."""

    def run(name: str, *args: object, stdin: bytes = b"") -> ToolResult:
        return bare(name, "--bootstrap-server", broker.bootstrap, *args, stdin=stdin)

    return run


def bare(name: str, *args: object, stdin: bytes = b"") -> ToolResult:
    ran = CliRunner().invoke(main, [name, *map(str, args)], input=stdin, prog_name="headrace")
    assert ran.exception is None or isinstance(ran.exception, SystemExit), ran.exception
    return ToolResult(ran.exit_code, ran.stdout, ran.stderr)


@pytest.fixture(scope="module")
def admin(broker: Broker) -> Iterator[headrace.Admin]:
    with headrace.Admin(bootstrap_servers=broker.bootstrap) as client:
        yield client


@pytest.fixture
def topic(admin: headrace.Admin) -> str:
    """A topic with three partitions and 30 records."""
    name = f"tools-{next(_numbers)}"
    # The records are of 2023, and retention must not delete them between two tools.
    admin.create_topics([NewTopic(name, 3, topic_configs={"retention.ms": 1000 * 365 * 24 * 3_600_000})])
    with headrace.Producer(bootstrap_servers=admin_address(admin)) as producer:
        for number in range(30):
            producer.send(
                name,
                b"value %d" % number if number % 7 else None,
                key=b"key %d" % number if number % 5 else None,
                headers=[("one", b"1"), ("none", None)] if number % 3 == 0 else [],
                partition=number % 3,
                timestamp_ms=1_700_000_000_000 + number,
            )
    return name


def admin_address(admin: headrace.Admin) -> str:
    broker = admin.describe_cluster().brokers[0]
    return f"{broker.host}:{broker.port}"


@pytest.fixture
def impatient(tmp_path: Path) -> Path:
    """A configuration with short timeouts. By default Kafka's tools wait a minute for a missing topic."""
    file = tmp_path / "impatient.properties"
    file.write_text("default.api.timeout.ms=5000\nrequest.timeout.ms=5000\n")
    return file


@pytest.fixture
def group(broker: Broker, topic: str) -> str:
    """A group without members that has read some of the topic."""
    name = f"group-{topic}"
    with headrace.Admin(bootstrap_servers=broker.bootstrap) as client:
        client.alter_group_offsets(name, {TopicPartition(topic, number): number * 2 for number in range(3)})
    return name


@pytest.fixture
def log_file(broker: Broker, topic: str) -> Path:
    return broker.data_dir / f"{topic}-0" / f"{0:020d}.log"
