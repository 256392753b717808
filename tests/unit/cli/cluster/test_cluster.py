import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from headrace.admin import ClusterDescription
from headrace.cli.common.connection import Connection
from headrace.cli.main import main
from headrace.client.admin.types import BrokerDescription
from headrace.common.errors import UnsupportedVersionError

Tool = Callable[..., Result]


class Admin:
    def __init__(self) -> None:
        self.brokers = [BrokerDescription(10, "broker-10.example.com", 9092, "a"), BrokerDescription(2, "b", 19092)]
        self.fenced = BrokerDescription(3, "c", 9092, is_fenced=True)
        self.has_kraft = True

    @contextmanager
    def connect(self) -> "Iterator[Admin]":
        yield self

    def describe_cluster(self, *, include_fenced_brokers: bool = False) -> ClusterDescription:
        return ClusterDescription("id-1", 2, (*self.brokers, *([self.fenced] if include_fenced_brokers else [])))

    def unregister_broker(self, broker_id: int) -> None:
        if not self.has_kraft:
            raise UnsupportedVersionError("no")
        self.brokers = [broker for broker in self.brokers if broker.id != broker_id]


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> Admin:
    admin = Admin()
    monkeypatch.setattr(Connection, "admin", lambda _: admin.connect())
    return admin


def tool(*args: str) -> Result:
    return CliRunner().invoke(main, [*args, "--bootstrap-server", "h:1"], prog_name="headrace")


@pytest.mark.usefixtures("admin")
def test_cluster_id_has_two_names() -> None:
    assert tool("cluster", "cluster-id").stdout == tool("cluster-id").stdout == "Cluster ID: id-1\n"


@pytest.mark.usefixtures("admin")
def test_short_flags_of_kafkas_tool(tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text("request.timeout.ms=1000\n")
    ran = CliRunner().invoke(main, ["cluster", "cluster-id", "-b", "h:1", "-c", str(config)], prog_name="headrace")
    assert (ran.exit_code, ran.stdout) == (0, "Cluster ID: id-1\n")
    ran = CliRunner().invoke(main, ["cluster", "list-endpoints", "--config", str(config)], prog_name="headrace")
    assert ran.exit_code == 1
    assert "Missing option '--bootstrap-server'" in ran.stderr


@pytest.mark.usefixtures("admin")
def test_endpoints() -> None:
    assert tool("cluster", "list-endpoints", "--include-fenced-brokers").stdout == (
        "ID         HOST                  PORT       RACK STATE      ENDPOINT_TYPE  \n"
        "2          b                     19092      null unfenced   broker         \n"
        "3          c                     9092       null fenced     broker         \n"
        "10         broker-10.example.com 9092       a unfenced   broker         \n"
    )
    first, _ = json.loads(tool("cluster", "list-endpoints", "--json").stdout)
    assert first == {
        "id": 2,
        "host": "b",
        "port": 19092,
        "rack": None,
        "state": "unfenced",
        "endpoint_type": "broker",
    }


def test_unregister(admin: Admin) -> None:
    assert tool("cluster", "unregister", "--id", "10").stdout == "Broker 10 is no longer registered.\n"
    assert [broker.id for broker in admin.brokers] == [2]
    admin.has_kraft = False
    ran = tool("cluster", "unregister", "--id", "2")
    assert ran.exit_code == 1
    assert "does not support the broker unregistration API. Only clusters with KRaft do" in ran.stderr
