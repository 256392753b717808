"""Wrong input: an error in one line, the right exit code, and no traceback."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.support.cli.terminal import PATIENCE, run

import headrace
from headrace.cli.main import TOOLS, main
from headrace.errors import GroupAuthorizationFailedError
from headrace.testing import EmbeddedBroker

HUGE = "99999999999999999999"


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with EmbeddedBroker({"group.initial.rebalance.delay.ms": 0}) as broker:
        with headrace.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topics(["there"])
        yield broker.bootstrap_servers


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("noise").write_bytes(bytes(range(255, -1, -1)) * 10)
    Path("huge.json").write_text(f'{{"partitions": [{{"topic": "there", "partition": 0, "offset": {HUGE}}}]}}')
    Path("leader-epoch-checkpoint").write_text("0\n1\nneither epoch nor offset\n")
    Path("others.csv").write_text("other,there,0,0\n")
    Path("bad_format.py").write_text("def fails(record):\n    raise KeyError(record.offset)\n")
    return tmp_path


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("console-consumer --include [", "is not a regular expression"),
        ("consumer-perf-test --num-records 1 --include [", "is not a regular expression"),
        (f"console-consumer --topic there --partition 0 --offset {HUGE}", "--offset"),
        ("console-consumer --topic there --partition 7", "has no partition 7"),
        (f"get-offsets --topic there --time {HUGE}", "--time"),
        (f"topics --create --topic more --partitions {HUGE}", "--partitions"),
        (f"topics --create --topic more --replica-assignment {HUGE}", "--replica-assignment"),
        ("delete-records --offset-json-file huge.json", "is out of range"),
        ("delete-records --offset-json-file noise", "is not valid UTF-8"),
        ("delete-records --offset-json-file nowhere", "Cannot read nowhere"),
        ("configs --describe --broker 77", "Broker 77 does not exist; the cluster has 0"),
        ("configs --alter --broker-logger 77 --add-config a=b", "Broker 77 does not exist"),
        ("consumer-groups --list --type strange", "--type 'strange'"),
        ("consumer-groups --list --state strange", "--state 'strange'"),
        ("consumer-groups --describe --group nobody", "Group nobody not found"),
        ("consumer-groups --reset-offsets --group g --topic there --by-duration P9999999999D", "--by-duration"),
        ("consumer-groups --reset-offsets --group g --from-file noise", "noise, line 1"),
        ("consumer-groups --reset-offsets --group g --from-file others.csv", "others.csv has no row for group 'g'"),
        ("consumer-groups --reset-offsets --group g --from-file .", "Cannot read .: Is a directory"),
        ("topics --list --command-config .", "Cannot read .: Is a directory"),
        ("topics --list --command-config nowhere", "Cannot read nowhere: No such file or directory"),
        ("producer-perf-test --topic there --num-records 1 --throughput 1 --payload-file .", "Is a directory"),
        ("get-offsets --topic nope", "Could not match any topic 'nope'"),
        ("get-offsets --topic there --partitions 7", "Could not match any partition 7 of topic 'there'"),
        ("get-offsets --topic-partitions nope:3", "Could not match any topic partition with 'nope:3'"),
        ("end-to-end-latency 127.0.0.1:1 there \u00b2 1 10", "must be greater than 0"),
        (f"transactions list --duration-filter {HUGE}", "--duration-filter"),
        ("transactions find-hanging --broker-id 77", "Broker 77 does not exist; the cluster has 0"),
        ("console-consumer --topic there --from-beginning --max-messages 1 --formatter bad_format:fails", "KeyError"),
    ],
)
def test_error_is_one_line(servers: str, here: Path, line: str, said: str) -> None:
    with headrace.Producer(bootstrap_servers=servers) as producer:
        producer.send("there", b"x")
    tool, *args = line.split()
    ran = CliRunner().invoke(main, [tool, "--bootstrap-server", servers, *args], prog_name="headrace")
    assert isinstance(ran.exception, SystemExit), ran.exception
    assert ran.exit_code == 1
    complaints = [text for text in ran.stderr.splitlines() if not text.startswith(("Processed", "Dry run"))]
    assert len(complaints) == 1
    assert said in complaints[0]


def test_empty_payload_delimiter(here: Path) -> None:
    args = ["--topic", "t", "--num-records", "1", "--throughput", "1", "--payload-file", "noise"]
    ran = CliRunner().invoke(main, ["producer-perf-test", *args, "--payload-delimiter", ""], prog_name="headrace")
    assert (ran.exit_code, ran.stderr.count("\n")) == (1, 1)
    assert "--payload-delimiter is empty" in ran.stderr


def test_name_is_not_utf8(servers: str) -> None:
    """Bytes that are not UTF-8, and characters that the locale cannot encode."""
    for name, env in (("\udcff", {}), ("é", {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"})):
        ran = run("console-consumer", "--bootstrap-server", servers, "--topic", name, env=env)
        assert (ran.returncode, ran.stderr.count("\n")) == (1, 1)
        assert "is not valid UTF-8" in ran.stderr


def test_reads_config_from_pipe(servers: str) -> None:
    command = (
        f"{sys.executable} -m headrace topics --bootstrap-server {servers} --list --exclude-internal "
        "--command-config <(echo client.id=piped)"
    )
    ran = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "there\n", "")


def test_reset_of_group_without_rows(servers: str, here: Path) -> None:
    """The other groups are reset, and the exit code is 1."""
    args = ["--reset-offsets", "--group", "other", "--group", "g", "--from-file", "others.csv", "--execute"]
    ran = CliRunner().invoke(main, ["consumer-groups", "--bootstrap-server", servers, *args], prog_name="headrace")
    assert (ran.exit_code, ran.stderr) == (1, "others.csv has no row for group 'g'; its offsets are unchanged\n")
    assert ran.stdout.splitlines()[-1].split() == ["other", "there", "0", "0"]


def test_reports_completed_resets_before_error(servers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = headrace.Admin.alter_group_offsets

    def alter(self: headrace.Admin, group: str, *args: Any) -> Any:
        if group == "second":
            raise GroupAuthorizationFailedError("not you")
        return changed(self, group, *args)

    monkeypatch.setattr(headrace.Admin, "alter_group_offsets", alter)
    args = ["--reset-offsets", "--group", "first", "--group", "second", "--topic", "there", "--to-offset", "0"]
    args += ["--execute", "--export"]
    ran = CliRunner().invoke(main, ["consumer-groups", "--bootstrap-server", servers, *args], prog_name="headrace")
    assert (ran.exit_code, ran.stdout) == (1, "first,there,0,0\n")
    assert "not you" in ran.stderr


@pytest.mark.parametrize("way", [["--to-offset", "0"], ["--shift-by", "0"]])
def test_empty_number(servers: str, way: list[str]) -> None:
    with headrace.Admin(bootstrap_servers=servers) as admin:
        admin.alter_group_offsets("zero", {headrace.TopicPartition("there", 0): 0})
    args = ["--reset-offsets", "--group", "zero", "--topic", "there", *way, "--dry-run", "--export"]
    ran = CliRunner().invoke(main, ["consumer-groups", "--bootstrap-server", servers, *args], prog_name="headrace")
    assert (ran.exit_code, ran.stdout) == (0, "there,0,0\n")


def test_damaged_files(here: Path) -> None:
    ran = CliRunner().invoke(main, ["dump-log", "--files", "leader-epoch-checkpoint"], prog_name="headrace")
    assert (ran.exit_code, ran.stderr.count("\n")) == (1, 1)
    assert "leader-epoch-checkpoint, line 3" in ran.stderr


@pytest.mark.parametrize("text", ["P999999D", "P9D"])
def test_datetime_before_1970(servers: str, text: str) -> None:
    args = ["--reset-offsets", "--group", "g", "--topic", "there:0", "--by-duration", text, "--dry-run", "--export"]
    ran = CliRunner().invoke(main, ["consumer-groups", "--bootstrap-server", servers, *args], prog_name="headrace")
    assert (ran.exit_code, ran.stdout) == (0, "there,0,0\n")


@pytest.mark.parametrize("tool", sorted(set(TOOLS) - {"datagen", "pipeline", "server", "zookeeper-server"}))
def test_version(tool: str) -> None:
    ran = CliRunner().invoke(main, [tool, "--version"], prog_name="headrace")
    assert (ran.exit_code, ran.stdout) == (0, headrace.__version__ + "\n")


def test_property_file_of_java_client(servers: str, here: Path) -> None:
    Path("client.properties").write_text(
        "security.protocol=PLAINTEXT\nsasl.jaas.config=x\nssl.truststore.location=y\nfoo.bar=1\nacks=all\n"
    )
    ran = run(
        "topics", "--bootstrap-server", servers, "--list", "--exclude-internal", "--command-config", "client.properties"
    )
    assert (ran.returncode, ran.stdout) == (0, "there\n")
    assert ran.stderr == "WARNING: Ignoring unknown client configs: foo.bar\n"


def test_first_of_several_brokers_is_down(servers: str) -> None:
    ran = run("topics", "--bootstrap-server", f"127.0.0.1:1,{servers}", "--list", "--exclude-internal")
    assert (ran.returncode, ran.stdout) == (0, "there\n")


def test_client_logs_are_one_line() -> None:
    program = (
        "import logging\n"
        "from headrace.cli.common import tool\n"
        "tool._log_in_lines()\n"
        "try: 1 / 0\n"
        "except ZeroDivisionError: logging.getLogger('headrace.client').exception('it failed')\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert ran.stderr == "ERROR: it failed: division by zero\n"


@pytest.fixture
def log_file(tmp_path: Path) -> Path:
    with (
        EmbeddedBroker(data_dir=tmp_path / "data") as broker,
        headrace.Producer(bootstrap_servers=broker.bootstrap_servers) as producer,
    ):
        for _ in range(2000):
            producer.send("filled", b"x" * 100)
    return tmp_path / "data" / "filled-0" / f"{0:020d}.log"


def test_dump_log_to_closed_pipe(log_file: Path) -> None:
    command = f"set -o pipefail; {sys.executable} -m headrace dump-log --files {log_file} --print-data-log | head -n 1"
    ran = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (141, f"Dumping {log_file}\n", "")
