"""`headrace datagen` on a broker: the topics contain the generated events in order, at the given rate."""

import contextlib
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.net.certificates import make_certificate

import headrace
from headrace.errors import KafkaTimeoutError, MessageSizeTooLargeError
from headrace.shop.datagen import EventStream, StreamSettings, create_topics, generate
from headrace.shop.datagen.visits import DB, LOG
from headrace.testing import EmbeddedBroker
from headrace.testing.clock import ManualClock

START_MS = 1_790_000_000_000
SETTINGS = StreamSettings(events=3000, span_ms=600_000, devices=200, broken=0.05, duplicates=0.05)

Found = dict[str, list[tuple[str, bytes | None]]]


def read(broker: EmbeddedBroker, topics: dict[int, str], expected: int) -> Found:
    """Returns keys and values by topic."""
    found: Found = {topic: [] for topic in topics.values()}
    settings = {"bootstrap_servers": broker.bootstrap_servers, "auto_offset_reset": "earliest"}
    with headrace.Consumer(*topics.values(), **settings) as consumer:
        while sum(map(len, found.values())) < expected:
            for tp, records in consumer.poll(timeout_ms=1000).items():
                found[tp.topic] += [(record.key.decode(), record.value) for record in records]
    return found


def by_key(records: list[tuple[str, bytes | None]]) -> dict[str, list[bytes | None]]:
    values = defaultdict(list)
    for key, value in records:
        values[key].append(value)
    return values


@pytest.mark.parametrize("rate", [None, 100_000])
def test_topics_contain_the_generated_events(broker: EmbeddedBroker, rate: float | None) -> None:
    topics = {LOG: f"log-{rate}", DB: f"db-{rate}"}
    create_topics(broker.bootstrap_servers, 3, topics)
    create_topics(broker.bootstrap_servers, 3, topics)  # existing topics are no error
    reports: list[tuple[int, int]] = []
    generated = generate(
        broker.bootstrap_servers,
        SETTINGS,
        rate=rate,
        start_ms=START_MS,
        topics=topics,
        report=lambda generated, sent_bytes: reports.append((generated.events, sent_bytes)),
    )
    assert generated.events == 3000
    assert reports[0] == (0, 0)
    assert reports[-1][0] == 3000
    assert reports == sorted(reports)
    found = read(broker, topics, 3000)
    assert {name: len(records) for name, records in found.items()} == {
        topics[LOG]: generated.log,
        topics[DB]: generated.db,
    }
    again = EventStream(SETTINGS, START_MS).take(3000)
    for topic, name in topics.items():
        expected = [
            (key, value.encode() if isinstance(value, str) else value)
            for key, value in zip(again.keys[topic], again.values[topic], strict=True)
        ]
        assert by_key(found[name]) == by_key(expected)


def test_generates_at_the_given_rate(broker: EmbeddedBroker) -> None:
    topics = {LOG: "pace-log", DB: "pace-db"}
    create_topics(broker.bootstrap_servers, 1, topics)
    clock = ManualClock(START_MS)
    times = []
    generate(
        broker.bootstrap_servers,
        StreamSettings(events=1000, rate=100, devices=50),
        rate=100,
        topics=topics,
        report=lambda generated, _: times.append((generated.events, clock.time_ms() - START_MS)),
        clock=clock,
    )
    assert times[:3] == [(0, 0), (5, 0), (10, 50)]
    assert times[-1] == (1000, 9950)
    assert clock.time_ms() == START_MS + 10_000


def test_stops_on_request(broker: EmbeddedBroker) -> None:
    topics = {LOG: "stop-log", DB: "stop-db"}
    create_topics(broker.bootstrap_servers, 1, topics)
    asked = iter([False, False, True])
    generated = generate(
        broker.bootstrap_servers, StreamSettings(devices=50), rate=10_000, topics=topics, stopped=lambda: next(asked)
    )
    assert generated.events == 1500
    assert sum(map(len, read(broker, topics, 1500).values())) == 1500


def test_raises_if_an_event_cannot_be_written(broker: EmbeddedBroker) -> None:
    topics = {LOG: "small-log", DB: "small-db"}
    for name in topics.values():
        broker.create_topic(name, 1, {"max.message.bytes": "100"})
    with pytest.raises(MessageSizeTooLargeError):
        generate(broker.bootstrap_servers, StreamSettings(events=500, devices=50), topics=topics)


def test_raises_without_a_broker(unused_port: int) -> None:
    settings = {"max.block.ms": 200}
    with pytest.raises(KafkaTimeoutError):
        generate(f"127.0.0.1:{unused_port}", StreamSettings(events=10, devices=5), producer_settings=settings)


@pytest.fixture
def unused_port() -> int:
    with EmbeddedBroker() as gone:
        return gone.port


def test_command(broker: EmbeddedBroker) -> None:
    command = [sys.executable, "-m", "headrace", "datagen", "--bootstrap-server", broker.bootstrap_servers]
    options = ["--events", "2000", "--span", "10m", "--devices", "50", "--log-topic", "cli-log", "--db-topic", "cli-db"]
    ran = subprocess.run([*command, *options], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("2,000 events: ")
    assert "in cli-log" in ran.stdout
    assert "100%  2,000 of 2,000" in ran.stderr
    assert sum(map(len, read(broker, {LOG: "cli-log", DB: "cli-db"}, 2000).values())) == 2000


def test_command_stops_gracefully_on_interrupt(broker: EmbeddedBroker) -> None:
    command = [sys.executable, "-m", "headrace", "datagen", "--bootstrap-server", broker.bootstrap_servers]
    options = ["--rate", "200", "--devices", "20", "--log-topic", "int-log", "--db-topic", "int-db"]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline()  # the first progress line: sending has begun
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    sent = int(out.partition(" ")[0].replace(",", ""))
    assert sum(map(len, read(broker, {LOG: "int-log", DB: "int-db"}, sent).values())) == sent


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    return make_certificate(tmp_path)


@contextmanager
def broker_behind_tls(certificate: Path) -> Iterator[int]:
    """The port of a TLS listener in front of a broker."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    def copy(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                target.sendall(data)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def serve(client: socket.socket, broker: EmbeddedBroker) -> None:
        with client, socket.create_connection(broker.address) as to_broker:
            back = threading.Thread(target=copy, args=(to_broker, client), daemon=True)
            back.start()
            copy(client, to_broker)
            back.join()

    def accept(broker: EmbeddedBroker) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except ssl.SSLError:
                continue  # a client without TLS
            except OSError:
                return
            threading.Thread(target=serve, args=(client, broker), daemon=True).start()

    with context.wrap_socket(socket.create_server(("127.0.0.1", 0)), server_side=True) as listener:
        port = listener.getsockname()[1]
        addresses = {"listeners": "PLAINTEXT://127.0.0.1:0", "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}
        with EmbeddedBroker(addresses) as broker:
            accepting = threading.Thread(target=accept, args=(broker,), daemon=True)
            accepting.start()
            yield port
            listener.shutdown(socket.SHUT_RDWR)
            accepting.join(10)


def test_command_config_applies_to_all_clients(certificate: Path, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    tls = {"security.protocol": "SSL", "ssl.cafile": str(certificate)}
    for_others = {"isolation.level": "read_committed", "acks": "all"}
    config.write_text("".join(f"{key}={value}\n" for key, value in {**tls, **for_others}.items()))
    with broker_behind_tls(certificate) as port:
        command = [sys.executable, "-m", "headrace", "datagen", "--bootstrap-server", f"127.0.0.1:{port}"]
        options = ["--events", "10", "--devices", "5", "--command-config", str(config)]
        ran = subprocess.run([*command, *options], capture_output=True, text=True, timeout=120)
        assert ran.returncode == 0, ran.stderr
        assert ran.stdout.startswith("10 events")
        with headrace.Admin({"bootstrap.servers": f"127.0.0.1:{port}", **tls}) as admin:
            assert {"ods_log", "ods_db"} <= set(admin.list_topics())


@pytest.mark.parametrize(
    ("options", "code", "named"),
    [
        (["--command-config", "/no/such/file"], 1, "Cannot read /no/such/file"),
        (["--span", "5x"], 2, "expected a number with a unit"),
        (["--span", "-5m"], 2, "more than 0"),
        (["--start", "noon"], 2, "expected a time such as"),
        (["--broken", "2"], 2, "--broken"),
        (["--producer-property", "acks"], 2, "expected KEY=VALUE"),
        (["--producer-property", "dance=1"], 1, "dance"),
        (["--broken", "0.7", "--duplicates", "0.7"], 1, "broken + duplicates"),
    ],
)
def test_rejects_invalid_options(broker: EmbeddedBroker, options: list[str], code: int, named: str) -> None:
    command = [sys.executable, "-m", "headrace", "datagen", "--bootstrap-server", broker.bootstrap_servers]
    ran = subprocess.run([*command, "--events", "10", *options], capture_output=True, text=True, timeout=60)
    assert ran.returncode == code
    assert named in ran.stderr
    assert "Traceback" not in ran.stderr
