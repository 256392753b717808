"""A pytest plugin that records the functions that each test calls, in all threads of the test process.

    HEADRACE_MUTANT_TRACE=/path/to/output.json

Writes for each test that passed: its seconds, and its functions as `path:qualified name`, below `src/headrace`.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Generator
from pathlib import Path
from types import CodeType, FrameType

import pytest

_ROOT = os.sep.join(("", "src", "headrace", ""))
_codes: set[CodeType] = set()
_tests: dict[str, dict[str, object]] = {}
_failed: set[str] = set()


def _trace(frame: FrameType, event: str, arg: object) -> None:  # noqa: ARG001
    _codes.add(frame.f_code)


def functions_of(codes: set[CodeType]) -> list[str]:
    """Returns the functions of the package, without the lambdas and comprehensions in them."""
    functions = set()
    for code in codes:
        _, found, path = code.co_filename.rpartition(_ROOT)
        if found:
            name = code.co_qualname.split(".<locals>.<", 1)[0]
            functions.add(f"{Path(path).as_posix()}:{name}")
    return sorted(functions)


def pytest_configure() -> None:
    if "HEADRACE_MUTANT_TRACE" in os.environ:
        threading.settrace(_trace)
        sys.settrace(_trace)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    _codes.clear()
    start = time.monotonic()
    result = yield
    if sys.gettrace() is None:
        sys.settrace(_trace)  # the test used its own
    if item.nodeid not in _failed:
        functions = functions_of(set(_codes))
        _tests[item.nodeid] = {"seconds": round(time.monotonic() - start, 2), "functions": functions}
    return result


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if not report.passed:
        _failed.add(report.nodeid)


def pytest_sessionfinish() -> None:
    if "HEADRACE_MUTANT_TRACE" in os.environ:
        sys.settrace(None)
        Path(os.environ["HEADRACE_MUTANT_TRACE"]).write_text(json.dumps(_tests))
