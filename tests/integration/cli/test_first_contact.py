"""Connecting to a cluster: several bootstrap servers, some of them stuck, and precedence of configs."""

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.support.cli.terminal import run

from headrace.cli.common.connection import Connection
from headrace.cli.common.tool import Failure
from headrace.cli.main import main
from headrace.client.admin.admin import Admin
from headrace.client.errors import KafkaTimeoutError
from headrace.testing import EmbeddedBroker


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with EmbeddedBroker({"group.initial.rebalance.delay.ms": 0}, topics={"there": 1}) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def stuck() -> Iterator[list[str]]:
    """Nine servers that accept connections and never respond."""
    with ExitStack() as stack:
        made = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(9)]
        yield [f"127.0.0.1:{each.getsockname()[1]}" for each in made]


class TestServers:
    @pytest.mark.parametrize("place", [0, 1, 9])
    def test_uses_first_server_that_responds(self, servers: str, stuck: list[str], place: int) -> None:
        given = ",".join([*stuck[:place], servers, *stuck[place:]])
        connection = Connection(given)
        with connection.admin() as admin:
            assert "there" in admin.list_topics()
        assert connection.client_config("consumer")["bootstrap.servers"] == servers
        with connection.admin() as admin:  # again, and at once
            assert "there" in admin.list_topics()

    def test_command_uses_responding_server(self, servers: str, stuck: list[str]) -> None:
        given = ",".join(["127.0.0.1:1", *stuck[:2], servers])
        args = ("--topic", "there", "--from-beginning", "--timeout-ms", 200)
        ran = run("console-consumer", "--bootstrap-server", given, *args)
        assert ran.returncode == 0

    def test_no_server_responds(self, stuck: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        contacted = threading.Barrier(len(stuck), timeout=60)

        def wait(*_: object, timeout_ms: int) -> None:
            contacted.wait()  # fails unless the tool waits for all servers at the same time
            raise KafkaTimeoutError("no response")

        monkeypatch.setattr(Admin, "describe_cluster", wait)
        with pytest.raises(Failure) as failure, Connection(",".join(["127.0.0.1:1", *stuck])).admin():
            pass
        assert failure.value.message.count("does not respond") == 9
        assert "127.0.0.1:1: Connection refused" in failure.value.message

    def test_stuck_server_times_out(self, stuck: list[str]) -> None:
        with pytest.raises(Failure, match="does not respond"), Connection(stuck[0]).admin():
            pass

    def test_no_server_accepts_connections(self) -> None:
        with pytest.raises(Failure) as failure, Connection("127.0.0.1:1,127.0.0.1:2").admin():
            pass
        assert failure.value.message == (
            "No broker is reachable (127.0.0.1:1: Connection refused; 127.0.0.1:2: Connection refused)"
        )

    @pytest.mark.parametrize(
        ("properties", "expected_ms"),
        [
            ({}, 5000),
            ({"request.timeout.ms": "5700"}, 5700),
            ({"default.api.timeout.ms": "5500"}, 5500),
            ({"default.api.timeout.ms": "6000", "request.timeout.ms": "7000"}, 7000),
            ({"request.timeout.ms": "100"}, 5000),
        ],
    )
    def test_timeout_of_property_file(
        self, stuck: list[str], properties: dict[str, str], expected_ms: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        timeouts_ms: list[int] = []

        def fail(*_: object, timeout_ms: int) -> None:
            timeouts_ms.append(timeout_ms)
            raise KafkaTimeoutError("no response")

        monkeypatch.setattr(Admin, "describe_cluster", fail)
        with pytest.raises(Failure, match="does not respond"), Connection(stuck[0], properties).admin():
            pass
        assert timeouts_ms == [expected_ms]


class _Caught(Exception):
    pass


class TestGivenFlags:
    """A flag overrides files and properties; the default value of a flag does not."""

    @pytest.fixture
    def made(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
        found: dict[str, Any] = {}

        def catch(settings: dict[str, Any]) -> None:
            found.update(settings)
            raise _Caught

        monkeypatch.setattr("headrace.client.producer.producer.Producer", catch)
        monkeypatch.setattr("headrace.client.consumer.consumer.Consumer", catch)
        monkeypatch.chdir(tmp_path)
        Path("file").write_text(
            "acks=1\ncompression.type=gzip\nbatch.size=1\nmax.partition.fetch.bytes=1\nreceive.buffer.bytes=2\n"
            "auto.offset.reset=none\nisolation.level=read_committed\ngroup.id=of-the-file\n"
        )
        return found

    def call(self, servers: str, tool: str, *args: str) -> None:
        CliRunner().invoke(main, [tool, "--bootstrap-server", servers, "--topic", "there", *args])

    @pytest.mark.parametrize("flag", ["--command-config", "--producer.config"])
    def test_console_producer(self, servers: str, made: dict[str, Any], flag: str) -> None:
        given = ("--request-required-acks", "all", "--compression-codec", "zstd", "--batch-size", "500")
        self.call(servers, "console-producer", flag, "file", "--producer-property", "acks=0", *given)
        assert (made["acks"], made["compression.type"], made["batch.size"]) == ("all", "zstd", "500")
        self.call(servers, "console-producer", flag, "file")
        assert (made["acks"], made["compression.type"], made["batch.size"]) == ("1", "gzip", "1")

    @pytest.mark.parametrize("flag", ["--command-config", "--consumer.config"])
    def test_consumer_perf_test(self, servers: str, made: dict[str, Any], flag: str) -> None:
        names = ("max.partition.fetch.bytes", "receive.buffer.bytes", "auto.offset.reset", "group.id")
        file = ("--num-records", "1", flag, "file")
        given = ("--fetch-size", "500", "--socket-buffer-size", "600", "--from-latest", "--group", "g")
        self.call(servers, "consumer-perf-test", *file, *given)
        assert [made[name] for name in names] == ["500", "600", "latest", "g"]
        self.call(servers, "consumer-perf-test", *file)
        assert [made[name] for name in names] == ["1", "2", "none", "of-the-file"]
        self.call(servers, "consumer-perf-test", "--num-records", "1")
        assert [made[name] for name in names[:3]] == [1 << 20, 2 << 20, "earliest"]

    def test_console_consumer(self, servers: str, made: dict[str, Any]) -> None:
        self.call(servers, "console-consumer", "--command-config", "file")
        assert made["isolation.level"] == "read_committed"
        self.call(servers, "console-consumer", "--command-config", "file", "--isolation-level", "read_uncommitted")
        assert made["isolation.level"] == "read_uncommitted"
