"""Which tests call which function. Measured once per test file and cached in `build/mutants/tests`.

A cached file is measured again if its content changed. Changes of the code under test and of `tests/support` do not
matter much, because functions are identified by name; `--refresh` measures everything again.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from tools.mutants.mutations import Mutation

__all__ = ["Test", "TestMap", "measure"]

TEST_DIRECTORIES = (
    "tests/unit/aio",
    "tests/unit/broker",
    "tests/unit/client",
    "tests/unit/cluster",
    "tests/unit/coordinator",
    "tests/unit/records",
    "tests/unit/storage",
    "tests/property/client",
    "tests/property/cluster",
    "tests/property/coordinator",
    "tests/property/records",
    "tests/property/storage",
    "tests/sim",
    "tests/integration/broker",
    "tests/integration/client",
    "tests/integration/records",
    "tests/integration/storage",
)
EXCLUDED = ("test_sanitized",)
"""Tests that run everything in another process, under AddressSanitizer."""
_FILE_TIMEOUT_SECONDS = 1200


@dataclass(frozen=True)
class Test:
    """A test and the seconds that it took when it was measured."""

    __test__ = False

    name: str
    seconds: float

    @property
    def file(self) -> str:
        return self.name.partition("::")[0]


class TestMap:
    """The tests of each function."""

    __test__ = False

    def __init__(self) -> None:
        self._by_function: dict[str, list[Test]] = {}
        self._by_file: dict[str, dict[Test, None]] = {}

    def add(self, name: str, seconds: float, functions: Iterable[str]) -> None:
        test = Test(name, seconds)
        for function in functions:
            self._by_function.setdefault(function, []).append(test)
            self._by_file.setdefault(function.partition(":")[0], {})[test] = None

    def tests_of(self, mutation: Mutation) -> list[Test]:
        """Returns the tests that call the mutated function, the best ones first. A change outside of functions concerns
        all tests of the module."""
        if mutation.function:
            tests = self._by_function.get(f"{mutation.path}:{mutation.function}", [])
        else:
            tests = list(self._by_file.get(mutation.path, {}))
        path = Path(mutation.path)
        mirror = f"tests/unit/{path.parent}/test_{path.stem.strip('_')}"
        return sorted(tests, key=lambda test: (_rank(test, mirror), test.seconds, test.name))


def _rank(test: Test, mirror: str) -> int:
    if test.name.startswith(mirror):
        return 0
    return 1 if test.name.startswith("tests/unit/") else 2


def measure(
    tree: Path, cache: Path, workers: int, refresh: bool, progress: Callable[[str], None], environment: dict[str, str]
) -> TestMap:
    """Returns the map, and measures the test files that are not in the cache."""
    cache.mkdir(parents=True, exist_ok=True)
    files = sorted(
        path.relative_to(tree).as_posix()
        for directory in TEST_DIRECTORIES
        for path in (tree / directory).rglob("test_*.py")
        if not path.name.startswith(EXCLUDED)
    )
    results = {file: cache / f"{_digest(tree / file)}.json" for file in files}
    missing = [file for file in files if refresh or not results[file].exists()]
    if missing:
        progress(f"Measuring which functions {len(missing)} test files call (once; cached in {cache})")
    pool = ThreadPoolExecutor(workers)
    try:
        futures = {pool.submit(_measure_file, tree, file, results[file], environment): file for file in missing}
        for number, future in enumerate(as_completed(futures), 1):
            progress(f"  {number}/{len(missing)} {futures[future]}: {future.result()} tests")
    finally:
        pool.shutdown(cancel_futures=True)
    test_map = TestMap()
    for result in results.values():
        if result.exists():
            for name, entry in json.loads(result.read_text()).items():
                test_map.add(name, entry["seconds"], entry["functions"])
    return test_map


def _digest(path: Path) -> str:
    return hashlib.sha256(path.as_posix().rpartition("/tests/")[2].encode() + path.read_bytes()).hexdigest()[:20]


def _measure_file(tree: Path, file: str, result: Path, environment: dict[str, str]) -> int:
    """Runs a test file with tracing. Returns the number of tests that passed."""
    with tempfile.NamedTemporaryFile(dir=result.parent, suffix=".part", delete=False) as output:
        part = Path(output.name)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tools.mutants.tracing", file]
    try:
        subprocess.run(
            command,
            cwd=tree,
            env={**os.environ, **environment, "HEADRACE_MUTANT_TRACE": str(part)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            timeout=_FILE_TIMEOUT_SECONDS,
            check=False,
        )
        tests = json.loads(part.read_text() or "{}")
        result.write_text(json.dumps(tests))
        return len(tests)
    except subprocess.TimeoutExpired:
        result.write_text("{}")
        return 0
    finally:
        part.unlink(missing_ok=True)
