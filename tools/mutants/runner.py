"""Runs tests with a mutated module. The work tree is never modified: tests run in a copy, and an import hook replaces
the module."""

import contextlib
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from tools.mutants.mutations import Mutation
from tools.mutants.test_map import Test, TestMap

__all__ = ["Outcome", "Result", "Runner", "copy_tree"]

_logger = logging.getLogger(__name__)

ROUNDS = ((10.0, 200), (60.0, 1500))
"""Seconds and number of tests of the two rounds. Most mutants are detected in the first one, which is short."""
_STARTUP_SECONDS = 60.0
_SLOWDOWN = 6.0
"""Tests may take this many times their measured seconds, because other mutants run meanwhile."""
_NO_TESTS_COLLECTED = 5


class Outcome(Enum):
    DETECTED = "detected"
    TIMEOUT = "timeout"
    SURVIVED = "survived"
    UNTESTED = "untested"

    @property
    def is_survivor(self) -> bool:
        return self in (Outcome.SURVIVED, Outcome.UNTESTED)


@dataclass(frozen=True)
class Result:
    """The outcome of a mutation: the test that detected it, or the number of tests that did not."""

    mutation: Mutation
    outcome: Outcome
    detected_by: str = ""
    tests_run: int = 0
    tests_left_out: int = 0


class Runner:
    """Runs the tests of mutations in a copy of the work tree."""

    def __init__(
        self, tree: Path, test_map: TestMap, environment: dict[str, str], startup_seconds: float = _STARTUP_SECONDS
    ):
        self._startup_seconds = startup_seconds
        self._unreliable: set[str] = set()
        self._processes: set[subprocess.Popen[str]] = set()
        self._tree = tree
        self._package = tree / "src" / "headrace"
        self._test_map = test_map
        self._environment = environment

    def run(self, mutation: Mutation) -> Result:
        """Runs the tests of a mutation until one fails."""
        tests = self._test_map.tests_of(mutation)
        if not tests:
            return Result(mutation, Outcome.UNTESTED)
        done = 0
        for seconds, count in ROUNDS:
            selected = select(tests[done:], seconds, count)
            if not selected:
                continue
            outcome, detected_by = self._run_reliable_tests(mutation, selected)
            done += len(selected)
            if outcome is not Outcome.SURVIVED:
                return Result(mutation, outcome, detected_by, done)
        return Result(mutation, Outcome.SURVIVED, "", done, len(tests) - done)

    def _run_reliable_tests(self, mutation: Mutation, tests: list[Test]) -> tuple[Outcome, str]:
        """Runs tests until a reliable one fails. A test that is no unit test is reliable if it passes without the
        mutation, in the same order, on a machine that is just as busy."""
        while True:
            selected = [test for test in tests if test.name not in self._unreliable]
            if not selected:
                return Outcome.SURVIVED, ""
            outcome, detected_by = self._run_tests(mutation, selected)
            if outcome is Outcome.SURVIVED or detected_by.startswith("tests/unit/"):
                return outcome, detected_by
            names = [test.name for test in selected]
            if outcome is Outcome.DETECTED and detected_by in names:
                selected = selected[: names.index(detected_by) + 1]
            control, failed = self._run_tests(None, selected)
            if control is Outcome.SURVIVED:
                return outcome, detected_by
            unreliable = {failed} & set(names) or {selected[-1].name}
            _logger.warning("%s also fails without a mutation; left out", ", ".join(unreliable))
            self._unreliable |= unreliable

    def _run_tests(self, mutation: Mutation | None, tests: list[Test]) -> tuple[Outcome, str]:
        """Runs tests, without a mutation as a control."""
        with tempfile.TemporaryDirectory(prefix="headrace-mutant-") as name:
            directory = Path(name)
            (directory / "tests.json").write_text(json.dumps([test.name for test in tests]))
            environment = {
                **os.environ,
                **self._environment,
                "HEADRACE_MUTANT_TESTS": str(directory / "tests.json"),
                "TMPDIR": name,
            }
            if mutation is not None:
                source = (self._package / mutation.path).read_text()
                (directory / "mutant.py").write_text(mutation.apply(source))
                module = "headrace." + mutation.path.removesuffix(".py").replace("/", ".")
                environment["HEADRACE_MUTANT"] = f"{module}:{directory / 'mutant.py'}"
            timeout = self._startup_seconds + _SLOWDOWN * sum(test.seconds for test in tests)
            code, output = self._run_process(_command(tests), environment, timeout)
            if code == 0 and mutation is not None and not (directory / "mutant.py.used").exists():
                raise RuntimeError(f"{tests[0].file} does not import {mutation.path}")
        if code is None:
            return Outcome.TIMEOUT, f"no result after {timeout:.0f} s"
        if code == _NO_TESTS_COLLECTED:
            raise RuntimeError(f"pytest did not find {tests[0].name}: repeat with --refresh")
        if code == 0:
            return Outcome.SURVIVED, ""
        found = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", output, re.MULTILINE)
        return Outcome.DETECTED, found[1] if found else f"pytest ended with code {code}"

    def _run_process(self, command: list[str], environment: dict[str, str], timeout: float) -> tuple[int | None, str]:
        """Runs a process. Returns its exit code and output, or None if it took too long."""
        with subprocess.Popen(
            command,
            cwd=self._tree,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as process:
            self._processes.add(process)
            try:
                output, _ = process.communicate(timeout=timeout)
                return process.returncode, output
            except subprocess.TimeoutExpired:
                return None, ""
            finally:
                self._processes.discard(process)
                _kill(process)

    def stop(self) -> None:
        """Ends all tests, after an interrupt."""
        for process in list(self._processes):
            _kill(process)


def _command(tests: Iterable[Test]) -> list[str]:
    files = dict.fromkeys(test.file for test in tests)
    options = ["-q", "-x", "--no-header", "--tb=no", "-p", "no:cacheprovider", "-p", "tools.mutants.selection"]
    return [sys.executable, "-m", "pytest", *options, *files]


def select(tests: list[Test], seconds: float, count: int) -> list[Test]:
    """Returns the first tests, at least one, that take at most so many seconds together."""
    selected: list[Test] = []
    total = 0.0
    for test in tests[:count]:
        total += test.seconds
        if selected and total > seconds:
            break
        selected.append(test)
    return selected


def _kill(process: "subprocess.Popen[str]") -> None:
    """Ends a process and its children."""
    with contextlib.suppress(ProcessLookupError):  # none is left
        os.killpg(process.pid, signal.SIGKILL)


def copy_tree(root: Path, tree: Path) -> None:
    """Copies the files that git knows or would add, and the compiled modules."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    compiled = (path.relative_to(root).as_posix() for path in (root / "src").rglob("*.so"))
    for name in [*listed.split("\0"), *compiled]:
        if name and (root / name).is_file():
            target = tree / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, target)
