"""`headrace server` as a process: output, clean stop, and errors at the start."""

import contextlib
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.net.wire_calls import auto_create
from tests.support.net.wire_client import ConnectionEnded, WireClient

from headrace import __version__
from headrace.protocol.messages.api_versions import ApiVersionsRequest
from headrace.protocol.messages.metadata import MetadataRequest

SECONDS = 60.0
READY = re.compile(r"ready ((?:\w+://\S+:\d+(?:, )?)+)\n")


@contextlib.contextmanager
def running(directory: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Runs the server for the block. Its data and its log are in the directory."""
    with (directory / "stderr").open("a") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "headrace", "server", *arguments],
            cwd=directory,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def ready(process: subprocess.Popen[str]) -> list[tuple[str, str, int]]:
    """Waits for the line `ready` and returns name, host and port of each address."""
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], SECONDS)[0], "not ready in time"
    line = process.stdout.readline()
    match = READY.fullmatch(line)
    assert match is not None, line
    found = re.findall(r"(\w+)://(?:\[([^\]]+)\]|([^:,]+)):(\d+)", match[1])
    return [(name, bracketed or host, int(port)) for name, bracketed, host, port in found]


def log_of(directory: Path) -> str:
    return (directory / "stderr").read_text()


def test_logs_its_version(tmp_path: Path) -> None:
    with running(tmp_path, "--override", "listeners=PLAINTEXT://127.0.0.1:0") as process:
        ready(process)
    assert f"Starting Headrace {__version__} on Python " in log_of(tmp_path)


def default_port_is_free() -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", 9092)) != 0


def test_starts_and_stops_cleanly(tmp_path: Path) -> None:
    data = tmp_path / "headrace-data"
    with running(tmp_path, "-o", "listeners=PLAINTEXT://127.0.0.1:0") as process:
        ((name, host, port),) = ready(process)
        assert (name, host) == ("PLAINTEXT", "127.0.0.1")
        with WireClient((host, port)) as client:
            auto_create(client, "t")
        assert not (data / ".kafka_cleanshutdown").exists()
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0
    assert (data / ".kafka_cleanshutdown").exists()
    assert (data / "t-0").is_dir()
    assert "Received SIGTERM" in log_of(tmp_path)
    assert "ERROR" not in log_of(tmp_path)
    with running(tmp_path, "-o", "listeners=PLAINTEXT://127.0.0.1:0") as process:
        ((_, host, port),) = ready(process)
        with WireClient((host, port)) as client:
            topics = client.call(MetadataRequest(topics=None), 8).topics
        assert [topic.name for topic in topics] == ["t"]
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 0


@pytest.mark.skipif(not default_port_is_free(), reason="something listens on port 9092")
def test_listens_on_kafkas_port_without_a_file(tmp_path: Path) -> None:
    with running(tmp_path) as process:
        assert ready(process) == [("PLAINTEXT", "127.0.0.1", 9092)]
        assert (tmp_path / "headrace-data").is_dir()
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0


def test_loads_a_file_with_several_listeners_and_keys_without_effect(tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_text(
        "node.id=7\n"
        "process.roles=broker,controller\n"
        "listeners=INSIDE://127.0.0.1:0,OUTSIDE://localhost:0,CONTROLLER://:9093\n"
        "listener.security.protocol.map=INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
        "advertised.listeners=OUTSIDE://localhost:0\n"
        "controller.listener.names=CONTROLLER\n"
        "inter.broker.listener.name=INSIDE\n"
        "num.io.threads=8\n"
        "log.dirs=one,two\n"
        "num.partitions=1\n"
    )
    with running(tmp_path, "server.properties", "--override", "num.partitions=3") as process:
        (first, second) = ready(process)
        assert [first[:2], second[:2]] == [("INSIDE", "127.0.0.1"), ("OUTSIDE", "localhost")]
        for _, host, port in (first, second):
            with WireClient((host, port)) as client:
                reply, _ = auto_create(client, "t")
                (broker,) = reply.brokers
                assert (broker.node_id, broker.host, broker.port) == (7, host, port), "told the way it came in"
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0
    assert len([*(tmp_path / "one").glob("t-?"), *(tmp_path / "two").glob("t-?")]) == 3
    assert "num.io.threads has no effect: one event loop" in log_of(tmp_path)
    assert "Listener CONTROLLER://:9093 is ignored" in log_of(tmp_path)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_ipv6(tmp_path: Path) -> None:
    with running(tmp_path, "-o", "listeners=PLAINTEXT://[::1]:0") as process:
        ((_, host, port),) = ready(process)
        assert host == "::1"
        with WireClient((host, port)) as client:
            assert client.call(ApiVersionsRequest(), 0).error_code == 0


def refusal(directory: Path, *arguments: str) -> str:
    """Returns the error line of a server that cannot start."""
    ran = subprocess.run(
        [sys.executable, "-m", "headrace", "server", "--log-level", "ERROR", *arguments],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert ran.returncode == 1, ran
    assert ran.stdout == ""
    assert "Traceback" not in ran.stderr
    line = ran.stderr.splitlines()[-1]  # log lines may precede it
    assert line.startswith("headrace: ")
    return line


def test_port_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = refusal(tmp_path, "-o", f"listeners=PLAINTEXT://127.0.0.1:{port}")
    assert line == f"headrace: cannot listen on PLAINTEXT://127.0.0.1:{port}: the port is in use"


def test_directory_in_use(tmp_path: Path) -> None:
    with running(tmp_path, "-o", "listeners=PLAINTEXT://127.0.0.1:0") as process:
        ready(process)
        line = refusal(tmp_path, "-o", "listeners=PLAINTEXT://127.0.0.1:0")
    assert "headrace-data" in line
    assert re.search("lock|use", line)


def test_directory_cannot_be_created(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    line = refusal(tmp_path, "-o", "listeners=PLAINTEXT://127.0.0.1:0", "-o", "log.dirs=file/data")
    assert "file/data" in line


def test_directory_of_another_broker(tmp_path: Path) -> None:
    with running(tmp_path, "-o", "listeners=PLAINTEXT://127.0.0.1:0", "-o", "node.id=3") as process:
        ready(process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0
    line = refusal(tmp_path, "-o", "listeners=PLAINTEXT://127.0.0.1:0", "-o", "node.id=4")
    assert "belongs to node 3" in line
    with running(tmp_path, "-o", "listeners=PLAINTEXT://127.0.0.1:0") as process:
        ((_, host, port),) = ready(process)
        with WireClient((host, port)) as client:
            (broker,) = client.call(MetadataRequest(topics=[]), 8).brokers
        assert broker.node_id == 3, "the directory knows"


def test_second_signal_exits_at_once(tmp_path: Path) -> None:
    """The first stop waits for a response that the client does not read."""
    with running(tmp_path, "-o", "listeners=PLAINTEXT://127.0.0.1:0") as process:
        ((_, host, port),) = ready(process)
        with WireClient((host, port)) as client:
            client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            fill_replies(client)
            process.send_signal(signal.SIGTERM)
            wait_for(lambda: "Received SIGTERM" in log_of(tmp_path))
            assert process.poll() is None
            process.send_signal(signal.SIGTERM)
            assert process.wait(SECONDS) == 128 + signal.SIGTERM
    assert not (tmp_path / "headrace-data" / ".kafka_cleanshutdown").exists()


def fill_replies(client: WireClient) -> None:
    """Sends requests until the broker stops reading, because its responses are not read."""
    client.sock.settimeout(1.0)
    with contextlib.suppress(TimeoutError):
        while True:
            client.send(ApiVersionsRequest(), 0)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_signal_during_the_start(tmp_path: Path) -> None:
    with running(tmp_path, "-o", "listeners=PLAINTEXT://127.0.0.1:0", "--log-level", "DEBUG") as process:
        wait_for(lambda: log_of(tmp_path) != "")  # by then the signal handlers are set, or the start is complete
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) in (0, -signal.SIGTERM)


def test_sends_pending_responses_before_it_stops(tmp_path: Path) -> None:
    with running(tmp_path, "-o", "listeners=PLAINTEXT://127.0.0.1:0") as process:
        ((_, host, port),) = ready(process)
        with WireClient((host, port)) as client:
            sent = client.send(ApiVersionsRequest(), 0)
            os.kill(process.pid, signal.SIGTERM)
            try:
                assert client.receive(sent).error_code == 0
            except ConnectionEnded:
                pytest.fail("a request that was sent before the signal got no reply")
            assert process.wait(SECONDS) == 0


def test_continues_when_its_output_is_not_read(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with (tmp_path / "stderr").open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "headrace", "server", "-o", "listeners=PLAINTEXT://127.0.0.1:0"],
            cwd=tmp_path,
            stdout=writing,
            stderr=errors,
        )
    os.close(writing)
    try:
        deadline = time.monotonic() + SECONDS
        while "Cannot write to standard output: Broken pipe" not in log_of(tmp_path):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0
    finally:
        process.kill()
        process.wait()
    assert (tmp_path / "headrace-data" / ".kafka_cleanshutdown").exists()
    assert f"keeps its data in {tmp_path / 'headrace-data'}" in log_of(tmp_path)
