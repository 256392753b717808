"""`headrace pipeline`, without starting Spark."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from headrace.cli.main import main
from headrace.cli.pipelines.pipeline import processes_rows

MINE = '''
from headrace.pipelines import Flow, Pipeline, Table, Topic

mine = Pipeline.of(
    "mine",
    [Flow("f", {"logs": Topic(pattern="log.*"), "orders": Topic("orders")}, split=lambda frame, batch: {})],
    {"out": [Topic("out", partitions=4), Table("out", time="ts")], "any": Topic(None)},
    description="""
    Sorts things out.

    And more.
    """,
    settings={"least": 10, "strict": True},
)
'''
DESCRIBED = """\
mine
  Sorts things out.

  And more.

flow f
  logs    topics matching log.*
  orders  topic orders

outputs
  out           topic out, created with 4 partitions
  out           table out, by day and hour of ts
  any           topics that the rows name
  dead_letters  topic mine_dead_letters

settings (--set)
  least=10     int
  strict=true  bool
"""


def invoke(*arguments: str) -> tuple[int, str]:
    ran = CliRunner().invoke(main, ["pipeline", *arguments], prog_name="headrace")
    assert ran.exception is None or isinstance(ran.exception, SystemExit)
    return ran.exit_code, ran.output


@pytest.fixture
def mine(tmp_path: Path) -> str:
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    return str(path)


def test_list() -> None:
    code, output = invoke("list")
    assert code == 0
    assert [line.split()[0] for line in output.splitlines()] == ["ods-dwd", "dws-traffic"]


def test_describe(mine: str) -> None:
    assert invoke("describe", mine) == (0, DESCRIBED)


def test_help_lists_all_commands() -> None:
    code, output = invoke("--help")
    assert code == 0
    assert [line.split()[0] for line in output.partition("Commands:\n")[2].splitlines()] == [
        "audit",
        "describe",
        "list",
        "run",
    ]


@pytest.mark.parametrize("command", ["describe", "run"])
def test_rejects_unknown_pipeline(command: str) -> None:
    more = ["--bootstrap-server", "localhost:1", "--checkpoint", "x"] if command == "run" else []
    code, output = invoke(command, "theirs", *more)
    assert code == 1
    assert output == (
        "headrace: unknown pipeline 'theirs': expected ods-dwd, dws-traffic, or a Python file (mine.py)\n"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "headrace: pipeline mine writes tables (out): a warehouse directory is required (--warehouse)\n"),
        (
            ["--warehouse", "w", "--set", "most=1"],
            "headrace: pipeline mine has no setting 'most'; its settings: least, strict\n",
        ),
        (["--warehouse", "w", "--set", "least=x"], "headrace: setting least=x: expected a whole number\n"),
        (
            ["--warehouse", "w", "--trigger", "soon"],
            "headrace: invalid trigger 'soon': expected a number and a unit",
        ),
        (
            ["--warehouse", "w", "--metrics", "/no/such/file"],
            "headrace: Cannot write metrics to /no/such/file: No such f",
        ),
        (["--warehouse", "w", "--command-config", "/no/such"], "/no/such"),
    ],
)
def test_prints_errors_in_one_line(mine: str, arguments: list[str], said: str) -> None:
    code, output = invoke("run", mine, "--bootstrap-server", "localhost:1", "--checkpoint", "x", *arguments)
    assert code == 1
    assert said in output
    assert output.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "mine.py"], "--bootstrap-server"),
        (["run", "mine.py", "--bootstrap-server", "x"], "--checkpoint"),
        (["run", "mine.py", "--bootstrap-server", "x", "--checkpoint", "y", "--set", "least"], "expected KEY=VALUE"),
        (["run", "mine.py", "--bootstrap-server", "x", "--checkpoint", "y", "--max-rows", "0"], "--max-rows"),
        (["dance"], "No such command 'dance'"),
    ],
)
def test_rejects_wrong_command_line(arguments: list[str], said: str) -> None:
    code, output = invoke(*arguments)
    assert code == 2
    assert said in output


def test_reports_unreachable_broker(mine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.pipelines.topics.prepare_topics", None)
    monkeypatch.setattr("headrace.pipelines.sessions.quiet_session", None)
    arguments = ["--checkpoint", str(tmp_path), "--warehouse", str(tmp_path)]
    code, output = invoke("run", mine, "--bootstrap-server", "127.0.0.1:1", *arguments)
    assert code == 1
    assert output == "headrace: No broker is reachable (127.0.0.1:1: Connection refused)\n"
    code, output = invoke("audit", "--bootstrap-server", "127.0.0.1:1")
    assert (code, output) == (1, "headrace: No broker is reachable (127.0.0.1:1: Connection refused)\n")
    assert output.count("\n") == 1


def test_a_jvm_processes_rows_unless_all_flows_run_in_python() -> None:
    in_python, in_jvm = SimpleNamespace(transform=lambda *_: {}), SimpleNamespace(split=lambda *_: {})
    assert not processes_rows(SimpleNamespace(flows=(in_python,)))
    assert processes_rows(SimpleNamespace(flows=(in_python, in_jvm)))
