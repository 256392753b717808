"""Which records count: printed records when consuming, acknowledged records when producing."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest
from tests.support.cli.terminal import PATIENCE, Terminal, run

import headrace
from headrace.admin import NewTopic
from headrace.testing import EmbeddedBroker

_numbers = count()
FORMATS = """
import signal

def interrupted(record):
    if record.offset == 5:
        signal.raise_signal(signal.SIGINT)  # interrupts this call, unlike os.kill, which another thread may handle
    return record.value + b"\\n"

def fails(record):
    if record.offset == 5:
        raise KeyError("five")
    return record.value + b"\\n"

def text(record):
    return "text" if record.offset == 5 else b"bytes\\n"
"""


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with EmbeddedBroker({"group.initial.rebalance.delay.ms": 0, "message.max.bytes": 100_000}) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def topic(servers: str) -> str:
    name = f"counted-{next(_numbers)}"
    with headrace.Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic(name, 1)])
    with headrace.Producer(bootstrap_servers=servers) as producer:
        for number in range(20):
            producer.send(name, b"value %d" % number)
    return name


@pytest.fixture(autouse=True)
def formats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("formats.py").write_text(FORMATS)


def committed(servers: str, group: str, topic: str) -> int | None:
    with headrace.Admin(bootstrap_servers=servers) as admin:
        found = admin.list_group_offsets([group])[group].offsets.get(headrace.TopicPartition(topic, 0))
    return None if found is None else found.offset


class TestPrinted:
    def read(self, servers: str, topic: str, *args: object) -> subprocess.CompletedProcess[str]:
        given = ("--topic", topic, "--group", f"g-{topic}", "--from-beginning", "--timeout-ms", 10_000)
        return run("console-consumer", "--bootstrap-server", servers, *given, *args)

    def test_interrupt_within_batch(self, servers: str, topic: str) -> None:
        ran = self.read(servers, topic, "--formatter", "formats:interrupted")
        assert ran.returncode == 130
        assert ran.stdout.splitlines() == [f"value {number}" for number in range(5)]
        assert committed(servers, f"g-{topic}", topic) == 5

    def test_formatter_error(self, servers: str, topic: str) -> None:
        """As in Kafka's tool, the failed record counts as consumed; the records after it do not."""
        ran = self.read(servers, topic, "--formatter", "formats:fails")
        assert (ran.returncode, ran.stdout.splitlines()) == (1, [f"value {number}" for number in range(5)])
        assert f"the record of {topic}-0 at 5: KeyError: 'five'" in ran.stderr
        assert committed(servers, f"g-{topic}", topic) == 6

    def test_closed_pipe(self, servers: str, topic: str) -> None:
        with headrace.Producer(bootstrap_servers=servers) as producer:
            for _ in range(400):
                producer.send(topic, b"x" * 1000)
        command = (
            f"set -o pipefail; {sys.executable} -m headrace console-consumer --bootstrap-server {servers} "
            f"--topic {topic} --group g-{topic} --from-beginning --timeout-ms 10000 | head -n 2"
        )
        ran = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert (ran.returncode, ran.stdout) == (141, "value 0\nvalue 1\n")
        # A pipe holds 64 KB, so the other records were never written.
        assert (committed(servers, f"g-{topic}", topic) or 0) < 200

    @pytest.mark.parametrize("name", ["fails", "text"])
    def test_skip_message_on_error(self, servers: str, topic: str, name: str) -> None:
        args = ("--skip-message-on-error", "--max-messages", 20, "--formatter", f"formats:{name}")
        ran = self.read(servers, topic, *args)
        assert (ran.returncode, len(ran.stdout.splitlines())) == (0, 19)
        assert f"Skipped the record of {topic}-0 at 5: " in ran.stderr
        assert ran.stderr.endswith("Processed a total of 20 messages\n")
        assert committed(servers, f"g-{topic}", topic) == 20


class TestPerf:
    def test_ignores_records_of_other_producers(self, servers: str, topic: str) -> None:
        """Null, short, and as large as our records."""
        args = ("--topic", topic, "--num-records", 3000, "--throughput", 1500, "--record-size", 10, "--json")
        process = subprocess.Popen(
            [sys.executable, "-m", "headrace", "perf", "--bootstrap-server", servers, *map(str, args)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with headrace.Producer(bootstrap_servers=servers) as producer:
            while process.poll() is None:
                for value in (None, b"abc", b"0123456789ab"):
                    producer.send(topic, value)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(0.05)
        out, err = process.communicate()
        assert (process.returncode, err) == (0, "")
        found = json.loads(out)
        assert found["producer"]["records"] == found["consumer"]["records"] == 3000
        assert 0 < found["consumer"]["max_ms"] < PATIENCE * 1000

    @pytest.mark.parametrize("whole_group", [True, False])
    def test_sigterm_prints_totals(self, servers: str, whole_group: bool) -> None:
        args = ("--num-records", 9_000_000, "--throughput", 500)
        with Terminal("perf", "--bootstrap-server", servers, *args) as terminal:
            terminal.wait_for(" of 9,000,000 records")
            if whole_group:
                terminal.interrupt(signal.SIGTERM)
            else:
                os.kill(terminal.pid, signal.SIGTERM)
            assert terminal.end() == 143
        assert "producer: " in terminal.shown
        assert "consumer: " in terminal.shown
        assert "Traceback" not in terminal.shown

    def test_rejected_records(self, servers: str) -> None:
        ran = run("perf", "--bootstrap-server", servers, "--num-records", 5, "--record-size", 200_000, "--json")
        assert ran.returncode == 1
        assert json.loads(ran.stdout)["producer"]["records"] == 0
        assert "5 of 5 records were not delivered: " in ran.stderr
        assert ran.stderr.count("\n") == 1


class TestProducerPerfTest:
    def test_rejected_records(self, servers: str, topic: str) -> None:
        args = ("--topic", topic, "--num-records", 5, "--record-size", 200_000, "--throughput", -1)
        ran = run("producer-perf-test", "--bootstrap-server", servers, *args)
        assert ran.returncode == 1
        assert ran.stdout.startswith("0 records sent, ")
        assert "5 records were not delivered: " in ran.stderr

    def test_records_in_flight_at_interrupt(self, servers: str, topic: str) -> None:
        args = ("--topic", topic, "--num-records", 9_000_000, "--record-size", 10, "--throughput", 500)
        lingering = ("--producer-props", "linger.ms=60000")
        with Terminal("producer-perf-test", "--bootstrap-server", servers, *args, *lingering) as terminal:
            terminal.wait_for(" of 9,000,000 records")
            terminal.interrupt()
            assert terminal.end() == 130
        with headrace.Consumer(bootstrap_servers=servers) as consumer:
            (end,) = consumer.end_offsets([headrace.TopicPartition(topic, 0)]).values()
        last = terminal.shown.strip().splitlines()[-1]
        assert int(last.split()[0]) == end - 20 > 0

    def test_payload_file_and_warmup(self, servers: str, topic: str) -> None:
        Path("payloads").write_bytes(b"one;two;three")
        args = ("--topic", topic, "--num-records", 30, "--throughput", -1, "--payload-file", "payloads")
        more = ("--payload-delimiter", ";", "--warmup-records", 10, "--json")
        ran = run("producer-perf-test", "--bootstrap-server", servers, *args, *more)
        found = json.loads(ran.stdout)
        assert (ran.returncode, found["records"], found["steady_state"]["records"]) == (0, 30, 20)
        with headrace.Consumer(topic, bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
            values = [each.value for part in consumer.poll(PATIENCE * 1000).values() for each in part][20:]
        assert sorted(set(values)) == [b"one", b"three", b"two"]


@pytest.mark.parametrize("tool", ["perf", "producer-perf-test", "end-to-end-latency"])
def test_rejects_records_larger_than_max_request_size(tool: str) -> None:
    """Rejected before connecting to a broker."""
    args = ["--bootstrap-server", "127.0.0.1:1", "--num-records", "1", "--record-size", "2000000000"]
    args += [] if tool == "perf" else ["--topic", "t"]
    args += {"producer-perf-test": ["--throughput", "-1"], "end-to-end-latency": ["--producer-acks", "1"]}.get(tool, [])
    ran = run(tool, *args)
    assert (ran.returncode, ran.stderr.count("\n")) == (1, 1)
    assert "--record-size 2000000000: expected at most max.request.size (1048576)" in ran.stderr
