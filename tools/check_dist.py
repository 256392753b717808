"""Checks the built packages as a user would install them: `python tools/check_dist.py dist`.

Installs the wheel into an empty virtual environment, with no compiler on PATH and no source tree in sight, and runs a
broker, the clients, the shell tools and the pytest plugin from it. Then installs the extra `arrow` and moves a table.
"""

import argparse
import os
import socket
import subprocess
import sys
import tarfile
import tempfile
import textwrap
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
TIMEOUT_SECONDS = 300

CLIENTS = """
    import sys, headrace
    from headrace.admin import NewTopic
    from headrace.common.extras import MissingExtraError

    servers = sys.argv[1]
    with headrace.Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic("orders", 3)])
    with headrace.Producer(bootstrap_servers=servers) as producer:
        for number in range(100):
            producer.send("orders", b"%d" % number, key=b"k%d" % (number % 7))
        producer.flush()
        try:
            producer.send_arrow("orders", None)
        except MissingExtraError as error:
            assert "headrace[arrow]" in str(error), error
        else:
            raise SystemExit("send_arrow worked without pyarrow")
    with headrace.Consumer(
        "orders", bootstrap_servers=servers, auto_offset_reset="earliest", consumer_timeout_ms=3000
    ) as consumer:
        values = sorted(int(record.value) for record in consumer)
    assert values == list(range(100)), values
"""

ARROW = """
    import sys, headrace
    import pyarrow as pa

    servers = sys.argv[1]
    with headrace.Producer(bootstrap_servers=servers) as producer:
        producer.send_arrow("tables", pa.table({"value": pa.array([b"a", b"b", b"c"])})).get(timeout_ms=30_000)
    with headrace.Consumer("tables", bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        rows = 0
        while rows < 3:
            rows += consumer.poll_arrow(timeout_ms=30_000).num_rows
    assert rows == 3, rows
"""

PLUGIN = """
    import headrace


    def test_broker_and_topic(headrace_broker, headrace_topic):
        with headrace.Producer(bootstrap_servers=headrace_broker.bootstrap_servers) as producer:
            assert producer.send(headrace_topic, b"x").get(timeout_ms=30_000).offset == 0
"""


class Environment:
    """An empty virtual environment, whose programs have only its own `bin` on PATH."""

    def __init__(self, home: Path):
        self.home = home
        self.bin = home / "env" / "bin"
        venv.create(home / "env", with_pip=True)
        self._variables = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))
        }
        self._variables |= {"PATH": str(self.bin), "CC": "no-compiler"}

    def run(self, program: str, *arguments: str, stdin: str = "", expect: int = 0) -> str:
        """Runs a program of the environment and returns its output."""
        done = subprocess.run(
            [str(self.bin / program), *arguments],
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.home,
            env=self._variables,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        if done.returncode != expect:
            sys.exit(f"{program} {' '.join(arguments)}: exit code {done.returncode}, expected {expect}\n{done.stdout}")
        return done.stdout

    def install(self, *packages: str) -> None:
        self.run(
            "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:",
            "--constraint", str(ROOT / "constraints.txt"), *packages,
        )  # fmt: skip

    def script(self, source: str, *arguments: str) -> None:
        self.run("python", "-c", textwrap.dedent(source), *arguments)

    @contextmanager
    def broker(self) -> Iterator[str]:
        """Runs `headrace server` and yields its address."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{probe.getsockname()[1]}"
        options = ["-o", f"listeners=PLAINTEXT://{address}", "-o", f"log.dirs={self.home / 'data'}"]
        server = subprocess.Popen(
            [str(self.bin / "headrace"), "server", *options],
            stdout=subprocess.PIPE,
            text=True,
            cwd=self.home,
            env=self._variables,
        )
        assert server.stdout is not None
        try:
            line = server.stdout.readline()
            if line != f"ready PLAINTEXT://{address}\n":
                sys.exit(f"headrace server did not start: {line!r}")
            yield address
        finally:
            server.terminate()
            code = server.wait(TIMEOUT_SECONDS)
        if code != 0:
            sys.exit(f"headrace server exited with code {code}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Check the built sdist and wheel.")
    parser.add_argument("dist", type=Path)
    dist: Path = parser.parse_args().dist
    [wheel] = dist.glob("headrace-*.whl")
    [sdist] = dist.glob("headrace-*.tar.gz")
    _check_sdist(sdist)
    with tempfile.TemporaryDirectory(prefix="headrace-dist-") as directory:
        env = Environment(Path(directory))
        _say(f"installing {wheel.name} into an empty environment")
        env.install(str(wheel.resolve()))
        _say(f"installed size of all packages: {_megabytes(env.home / 'env' / 'lib'):.0f} MB")
        _check_light(env)
        with env.broker() as servers:
            _say("running the clients")
            env.script(CLIENTS, servers)
            _say("running the shell tools")
            _check_tools(env, servers)
            _say("running the pytest plugin")
            env.install("pytest")
            (env.home / "test_plugin.py").write_text(textwrap.dedent(PLUGIN))
            env.run("python", "-m", "pytest", "-q", "test_plugin.py")
            _say("installing the extra 'arrow'")
            env.install(f"{wheel.resolve()}[arrow]")
            env.script(ARROW, servers)
    _say("all checks passed")


def _check_sdist(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    pages = ("src/headrace/console/static/index.html", "src/headrace/console/static/vendor/preact.LICENSE")
    for name in (*pages, "src/headrace/records/_batch.pyx", "packaging/headrace.service", "CHANGELOG.md", "LICENSE"):
        if name not in names:
            sys.exit(f"{sdist.name} does not contain {name}")
    if compiled := [name for name in names if name.endswith((".c", ".so"))]:
        sys.exit(f"{sdist.name} contains build products: {compiled[:3]}")


def _check_light(env: Environment) -> None:
    packages = env.run("python", "-m", "pip", "list", "--format=freeze")
    for heavy in ("pyarrow", "pyspark", "kazoo", "uvicorn"):
        if heavy in packages:
            sys.exit(f"an install without extras pulled in {heavy}:\n{packages}")
    if not (env.home / "env/share/headrace/headrace.service").is_file():
        sys.exit("the wheel does not contain share/headrace/headrace.service")
    if not list((env.home / "env/lib").glob("python3*/site-packages/headrace/console/static/vendor/uPlot.iife.min.js")):
        sys.exit("the wheel does not contain the pages of the console")
    nowhere = ("--bootstrap-server", "127.0.0.1:1")
    shown = env.run("headrace", "pipeline", "run", "ods-dwd", *nowhere, "--checkpoint", "checkpoint", expect=1)
    if "headrace[spark]" not in shown:
        sys.exit(f"headrace pipeline run does not name the missing extra: {shown}")
    shown = env.run("headrace", "datagen", *nowhere, expect=1)
    if "headrace[arrow]" not in shown:
        sys.exit(f"headrace datagen does not name the missing extra: {shown}")


def _check_tools(env: Environment, servers: str) -> None:
    to = ("--bootstrap-server", servers)
    if "orders" not in env.run("headrace", "topics", *to, "--list"):
        sys.exit("headrace topics --list does not show the topic")
    env.run("headrace", "console-producer", *to, "--topic", "lines", stdin="one\ntwo\n")
    lines = env.run(
        "headrace", "console-consumer", *to, "--topic", "lines", "--from-beginning", "--max-messages", "2"
    )  # fmt: skip
    if not {"one", "two"} <= set(lines.splitlines()):
        sys.exit(f"headrace console-consumer printed {lines!r}")
    if "log.dirs" not in env.run("headrace", "server", "--print-config"):
        sys.exit("headrace server --print-config does not print log.dirs")


def _megabytes(directory: Path) -> float:
    return sum(file.stat().st_size for file in directory.rglob("*") if file.is_file()) / 1e6


def _say(line: str) -> None:
    print(f"==> {line}", flush=True)


if __name__ == "__main__":
    main()
