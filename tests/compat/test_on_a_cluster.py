"""Tests of tests/compat that run again, against three brokers on a real ZooKeeper.

A selection: `make soak` runs all tests of tests/compat/broker and tests/compat/client against a cluster.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SELECTION = (
    "tests/compat/broker/test_coordinator_errors.py",
    "tests/compat/broker/test_idempotence.py",
    "tests/compat/broker/test_records.py",
    "tests/compat/broker/test_transactions.py",
    "tests/compat/client/test_groups.py",
)


@pytest.mark.timeout(1200)
def test_clients_on_a_cluster(tmp_path: Path) -> None:
    if "HEADRACE_COMPAT_BROKER" in os.environ:
        pytest.skip("HEADRACE_COMPAT_BROKER chooses the broker of all tests")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-rs",
        "--basetemp",
        tmp_path / "run",
        *SELECTION,
    ]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**environment, "HEADRACE_COMPAT_BROKER": "cluster"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
