"""The commands with and without a terminal: colors, prompts, progress, Ctrl-C, and errors in one line."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from itertools import count

import pytest
from tests.support.cli.terminal import PATIENCE, Terminal, run

import headrace
from headrace.cli.main import TOOLS
from headrace.testing import EmbeddedBroker

_numbers = count()


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with EmbeddedBroker({"group.initial.rebalance.delay.ms": 0}) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def topic(servers: str) -> str:
    name = f"shown-{next(_numbers)}"
    with headrace.Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([name])
    with headrace.Producer(bootstrap_servers=servers) as producer:
        for number in range(20):
            producer.send(name, b"value %d" % number, key=b"key %d" % number)
    return name


class TestShown:
    def test_prints_colored_table(self, servers: str, topic: str) -> None:
        with Terminal("topics", "--bootstrap-server", servers, "--describe", "--topic", topic) as terminal:
            assert terminal.end() == 0
        assert "PARTITION  LEADER  REPLICAS  IN SYNC" in terminal.shown
        assert "\x1b[" in terminal.raw

    def test_no_color(self, servers: str, topic: str) -> None:
        args = ("topics", "--bootstrap-server", servers, "--describe", "--topic", topic)
        with Terminal(*args, env={"NO_COLOR": "1"}) as terminal:
            assert terminal.end() == 0
        assert "IN SYNC" in terminal.raw
        assert "\x1b[" not in terminal.raw

    def test_prints_plain_lines_without_terminal(self, servers: str, topic: str) -> None:
        args = ("topics", "--bootstrap-server", servers, "--describe", "--topic", topic)
        piped = run(*args)
        assert piped.stdout.startswith(f"Topic: {topic}\tTopicId: ")
        with Terminal(*args, env={"TERM": "dumb"}) as terminal:
            assert terminal.end() == 0
        assert terminal.shown == piped.stdout

    def test_json(self, servers: str, topic: str) -> None:
        (found,) = json.loads(
            run("topics", "--bootstrap-server", servers, "--describe", "--topic", topic, "--json").stdout
        )
        assert (found["topic"], found["partition_count"]) == (topic, 1)

    def test_perf_draws_charts(self, servers: str) -> None:
        with Terminal("perf", "--bootstrap-server", servers, "--num-records", 2000, "--record-size", 100) as terminal:
            assert terminal.end() == 0
        assert "producer: 2,000 records in " in terminal.shown
        assert "consumer: 2,000 records in " in terminal.shown
        assert "█" in terminal.shown
        assert not [
            name for name in run("topics", "--bootstrap-server", servers, "--list").stdout.split() if "perf" in name
        ]

    def test_progress(self, servers: str, topic: str) -> None:
        args = ("--topic", topic, "--num-records", 600, "--record-size", 10, "--throughput", 500)
        with Terminal("producer-perf-test", "--bootstrap-server", servers, *args) as terminal:
            terminal.wait_for(" of 600 records")
            assert terminal.end() == 0
        assert "% · " in terminal.shown
        assert " left" in terminal.shown
        assert "600 records sent, " in terminal.shown


class TestConsole:
    def test_prompts_for_each_line(self, servers: str, topic: str) -> None:
        with Terminal("console-producer", "--bootstrap-server", servers, "--topic", topic) as terminal:
            terminal.wait_for(">")
            terminal.enter("typed by hand\n")
            terminal.wait_for(">typed by hand\n>")
            terminal.enter("\x04")
            assert terminal.end() == 0
        assert "1 records sent" in terminal.shown
        read = run(
            "console-consumer",
            "--bootstrap-server",
            servers,
            "--topic",
            topic,
            "--from-beginning",
            "--max-messages",
            21,
        )
        assert (read.returncode, read.stdout.splitlines()[-1]) == (0, "typed by hand")
        assert read.stderr == "Processed a total of 21 messages\n"

    def test_ctrl_c_leaves_group_and_prints_total(self, servers: str, topic: str) -> None:
        args = ("--topic", topic, "--group", f"group-{topic}", "--from-beginning")
        with Terminal("console-consumer", "--bootstrap-server", servers, *args) as terminal:
            terminal.wait_for("value 19")
            terminal.interrupt()
            assert terminal.end() == 130
        assert terminal.shown.rstrip().endswith("Processed a total of 20 messages")
        with headrace.Admin(bootstrap_servers=servers) as admin:
            assert admin.describe_groups([f"group-{topic}"])[f"group-{topic}"].state == "Empty"

    def test_exits_when_reader_closes_pipe(self, servers: str, topic: str) -> None:
        command = f"{sys.executable} -m headrace console-consumer --bootstrap-server {servers} --topic {topic}"
        ran = subprocess.run(
            f"{command} --from-beginning --timeout-ms 20000 | head -n 1",
            shell=True,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert ran.stdout == "value 0\n"
        assert "Traceback" not in ran.stderr


class TestInterrupted:
    """Ctrl-C or SIGTERM in the middle of the work prints totals."""

    def test_producer_perf_test(self, servers: str, topic: str) -> None:
        args = ("--topic", topic, "--num-records", 9_000_000, "--record-size", 10, "--throughput", 500)
        with Terminal("producer-perf-test", "--bootstrap-server", servers, *args) as terminal:
            terminal.wait_for(" p99 ")
            terminal.interrupt()
            assert terminal.end() == 130
        assert " records sent, " in terminal.shown
        assert " ms 99.9th." in terminal.shown
        assert "Traceback" not in terminal.shown

    def test_consumer_perf_test(self, servers: str, topic: str) -> None:
        args = ("--topic", topic, "--group", f"perf-{topic}", "--num-records", 9_000_000, "--timeout", 60_000)
        with Terminal("consumer-perf-test", "--bootstrap-server", servers, *args) as terminal:
            with headrace.Producer(bootstrap_servers=servers) as producer:
                while " of 9,000,000 records" not in terminal.shown:
                    producer.send(topic, b"x").get(timeout_ms=PATIENCE * 1000)
                    terminal.look()
            terminal.interrupt()
            assert terminal.end() == 130
        assert len(terminal.shown.strip().splitlines()[-1].split(", ")) == 10
        with headrace.Admin(bootstrap_servers=servers) as admin:
            assert admin.describe_groups([f"perf-{topic}"])[f"perf-{topic}"].state == "Empty"

    def test_perf(self, servers: str) -> None:
        with Terminal(
            "perf", "--bootstrap-server", servers, "--num-records", 9_000_000, "--throughput", 500
        ) as terminal:
            terminal.wait_for(" of 9,000,000 records")
            terminal.interrupt()
            assert terminal.end() == 130
        assert "producer: " in terminal.shown
        assert "consumer: " in terminal.shown
        assert "Traceback" not in terminal.shown
        assert "perf-" not in run("topics", "--bootstrap-server", servers, "--list", "--topic", "headrace-.*").stdout

    def test_end_to_end_latency(self, servers: str, topic: str) -> None:
        args = ("--topic", topic, "--num-records", 9_000_000, "--producer-acks", "all", "--record-size", 10)
        with Terminal("end-to-end-latency", "--bootstrap-server", servers, *args) as terminal:
            terminal.wait_for(" p99 ")
            terminal.interrupt()
            assert terminal.end() == 130
        assert "Percentiles: 50th = " in terminal.shown

    def test_console_producer_without_broker(self) -> None:
        with EmbeddedBroker() as broker:
            args = ("console-producer", "--bootstrap-server", broker.bootstrap_servers, "--topic", "typed")
            with Terminal(*args) as terminal:
                terminal.wait_for(">")
                terminal.enter("one\n")
                terminal.wait_for("one\n>")
                with headrace.Consumer(
                    "typed", bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest"
                ) as consumer:
                    assert consumer.poll(PATIENCE * 1000)
                broker.stop()
                terminal.enter("two\n")
                terminal.wait_for("two\n>")
                terminal.interrupt()
                assert terminal.end() == 130
        assert "1 records sent, 1 not" in terminal.shown

    @pytest.mark.parametrize("unbuffered", ["", "1"])
    def test_sigterm_prints_total(self, servers: str, topic: str, unbuffered: str) -> None:
        """`timeout` sends the signal twice."""
        args = ("--bootstrap-server", servers, "--topic", topic, "--group", f"ended-{topic}", "--from-beginning")
        with Terminal("console-consumer", *args, env={"PYTHONUNBUFFERED": unbuffered}) as terminal:
            terminal.wait_for("value 19")
            terminal.interrupt(signal.SIGTERM)
            terminal.interrupt(signal.SIGTERM)
            assert terminal.end() == 143
        assert terminal.shown.rstrip().endswith("Processed a total of 20 messages")
        with headrace.Admin(bootstrap_servers=servers) as admin:
            assert admin.describe_groups([f"ended-{topic}"])[f"ended-{topic}"].state == "Empty"


class TestWatch:
    def test_watch_survives_broker_restart(self, servers: str, topic: str) -> None:
        group = f"gone-{topic}"
        with headrace.Admin(bootstrap_servers=servers) as admin:
            admin.alter_group_offsets(group, {headrace.TopicPartition(topic, 0): 5})
            with Terminal(
                "consumer-groups", "--bootstrap-server", servers, "--describe", "--group", group, "--watch", "0.2"
            ) as terminal:
                terminal.wait_for("lag 15")
                admin.delete_groups([group])
                terminal.wait_for("; retrying")
                admin.alter_group_offsets(group, {headrace.TopicPartition(topic, 0): 10})
                terminal.wait_for("lag 10")
                terminal.interrupt()
                assert terminal.end() == 130

    def test_watch_shows_lag_and_rates(self, servers: str, topic: str) -> None:
        group = f"group-{topic}"
        with headrace.Consumer(
            topic, bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest"
        ) as consumer:
            while not consumer.poll(1000, max_records=5):
                pass
            consumer.commit()
            with Terminal(
                "consumer-groups", "--bootstrap-server", servers, "--describe", "--group", group, "--watch", "0.2"
            ) as terminal:
                terminal.wait_for("lag 15")
                terminal.wait_for("READ/S")
                consumer.poll(5000)
                consumer.commit()
                terminal.wait_for("lag 0")
                terminal.wait_for("no lag")
                terminal.interrupt()
                assert terminal.end() == 130
        assert "Stable, range, 1 members" in terminal.shown


class TestErrors:
    def test_broker_does_not_listen(self) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))  # and never listens
            ran = run("topics", "--bootstrap-server", f"127.0.0.1:{taken.getsockname()[1]}", "--list")
        assert (ran.returncode, ran.stdout) == (1, "")
        assert ran.stderr.startswith("headrace topics: No broker is reachable (127.0.0.1:")
        assert ran.stderr.count("\n") == 1

    def test_broker_does_not_respond(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            ran = run("cluster-id", "--bootstrap-server", f"127.0.0.1:{silent.getsockname()[1]}")
        assert (ran.returncode, ran.stdout) == (1, "")
        assert "does not respond" in ran.stderr
        assert ran.stderr.count("\n") == 1

    @pytest.mark.parametrize("tool", sorted(TOOLS))
    def test_wrong_flag(self, tool: str) -> None:
        ran = run(tool, "--no-such-flag")
        assert ran.returncode in (1, 2)
        assert "--no-such-flag" in ran.stderr
        assert ran.stderr.count("\n") == 1
        assert "Traceback" not in ran.stderr

    @pytest.mark.parametrize("servers", ["", "localhost", "localhost:", ":9092", "localhost:port", "localhost:99999"])
    def test_invalid_address(self, servers: str) -> None:
        ran = run("topics", "--bootstrap-server", servers, "--list")
        assert ran.returncode == 1
        assert "expected HOST:PORT" in ran.stderr

    def test_missing_file(self, servers: str) -> None:
        ran = run("topics", "--bootstrap-server", servers, "--list", "--command-config", "nowhere.properties")
        assert (ran.returncode, ran.stderr.count("\n")) == (1, 1)
        assert "nowhere.properties" in ran.stderr


def test_tools_import_neither_arrow_nor_spark() -> None:
    program = (
        "import importlib, sys\n"
        "from headrace.cli.main import TOOLS\n"
        "for module, _ in TOOLS.values(): importlib.import_module(module.partition(':')[0])\n"
        "import headrace; headrace.Admin, headrace.Producer, headrace.Consumer\n"
        "print(sorted({'pyarrow', 'pyspark', 'numpy', 'pandas'} & set(sys.modules)))\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert ran.stdout == "[]\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str) -> None:
    ran = run("completion", shell)
    assert ran.returncode == 0
    assert f"_HEADRACE_COMPLETE={shell}_complete" in ran.stdout


def test_completion_in_bash() -> None:
    words = {"COMP_WORDS": "headrace topics --part", "COMP_CWORD": "2", "_HEADRACE_COMPLETE": "bash_complete"}
    assert run(env=words).stdout.split() == ["plain,--partitions", "plain,--partition-size-limit-per-response"]


def test_request_timeout(servers: str, topic: str) -> None:
    ran = run("console-consumer", "--bootstrap-server", servers, "--topic", topic, "--timeout-ms", "200")
    assert ran.returncode == 0
    assert "No record arrived for 200 ms" in ran.stderr
