"""The pytest plugin, in a separate pytest run."""

import re
import subprocess
import sys
from pathlib import Path

DOCUMENTATION = Path(__file__).parents[3] / "docs"

CONFTEST = """
import pytest

@pytest.fixture(scope="session")
def headrace_properties():
    return {"num.partitions": 5}
"""

TESTS = """
import pytest
from headrace.protocol import ApiKey

seen = []

def partitions(broker, topic):
    return broker.call(lambda inside: len([p for p in inside.replicas if p.tp.topic == topic]))

@pytest.mark.filterwarnings("ignore::headrace.testing.UnusedFaultWarning")
def test_a_topic(headrace_broker, headrace_topic):
    seen.append((headrace_broker, headrace_topic))
    assert partitions(headrace_broker, headrace_topic) == 1
    assert headrace_broker.call(lambda inside: inside.config.num_partitions) == 5
    headrace_broker.faults.error(ApiKey.FETCH, 1)
    headrace_broker.stop()

@pytest.mark.headrace_topic(partitions=3, configs={"cleanup.policy": "compact"})
@pytest.mark.parametrize("odd", ["a b", "ü/" * 200])
def test_another(headrace_broker, headrace_topic, odd):
    broker, topic = seen.pop()
    assert broker is headrace_broker, "one broker for all"
    assert broker.is_running, "the test before had stopped it"
    assert not broker.faults, "the test before had left one"
    assert topic != headrace_topic
    assert partitions(headrace_broker, topic) == 0, "gone with its test"
    assert partitions(headrace_broker, headrace_topic) == 3
    assert headrace_broker.call(lambda inside: inside.dynamic_config.topic(headrace_topic).log.compact)
    seen.append((headrace_broker, headrace_topic))
    headrace_broker.pause()
"""

FAULTS = """
import headrace
from headrace.protocol import ApiKey

def test_never_met(headrace_broker):
    headrace_broker.faults.error(ApiKey.FETCH, 1, times=2)
    headrace_broker.faults.delay(ApiKey.PRODUCE, 5)
    headrace_broker.faults.drop_reply(ApiKey.METADATA).remove()

def test_met(headrace_broker):
    fault = headrace_broker.faults.delay(ApiKey.METADATA, 1)
    with headrace.Admin(bootstrap_servers=headrace_broker.bootstrap_servers) as admin:
        admin.list_topics()
    assert fault.hits
"""

NO_BROKER = """
import sys

def test_nothing_of_the_broker_is_imported():
    loaded = {name for name in sys.modules if name.startswith("headrace.")}
    light = {"headrace.common", "headrace.common.lazy_exports", "headrace.testing", "headrace.testing.plugin"}
    assert loaded == light
"""


CLUSTER_CONFTEST = """
import pytest

@pytest.fixture(scope="session")
def headrace_cluster_properties():
    return {"num.partitions": 5, "default.replication.factor": 1}
"""

CLUSTER_TESTS = """
import pytest
from headrace.protocol import ApiKey

@pytest.mark.filterwarnings("ignore::headrace.testing.UnusedFaultWarning")
def test_that_leaves_a_mess(headrace_cluster):
    assert headrace_cluster.brokers[1].call(lambda inside: inside.config.num_partitions) == 5
    headrace_cluster.stop(1)
    headrace_cluster.pause(2)
    headrace_cluster.partition(1, 3)
    headrace_cluster.brokers[3].faults.error(ApiKey.FETCH, 1)

def test_another(headrace_cluster):
    assert all(broker.is_responsive for broker in headrace_cluster.brokers.values())
    assert not headrace_cluster.brokers[3].faults
    assert not headrace_cluster.store.links.blocked
"""


def run(directory: Path, *, warnings: str = "error", **files: str) -> str:
    for name, content in files.items():
        (directory / f"{name}.py").write_text(content)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", warnings, "--strict-markers", "-p", "no:cacheprovider", "."],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_fixtures(tmp_path: Path) -> None:
    assert "3 passed" in run(tmp_path, conftest=CONFTEST, test_it=TESTS)


def test_cluster_is_restored(tmp_path: Path) -> None:
    assert "2 passed" in run(tmp_path, conftest=CLUSTER_CONFTEST, test_it=CLUSTER_TESTS)


def test_warns_of_faults_that_no_request_met(tmp_path: Path) -> None:
    said = run(tmp_path, warnings="default", test_it=FAULTS)
    assert "2 passed, 1 warning" in said
    assert "test_it.py::test_never_met" in said
    assert "No request met these faults of the test: error 1 of FETCH, times=2; delay by 5 ms of PRODUCE" in said


def test_pytest_starts_without_the_broker(tmp_path: Path) -> None:
    assert "1 passed" in run(tmp_path, test_it=NO_BROKER)


def test_documented_examples(tmp_path: Path) -> None:
    tests, conftest = documented("testing.md")
    assert "2 passed" in run(tmp_path, test_it=tests, conftest=conftest)


def test_documented_examples_of_a_cluster(tmp_path: Path) -> None:
    (tests,) = documented("cluster.md")
    assert "2 passed" in run(tmp_path, test_it=tests)


def documented(page: str) -> list[str]:
    return re.findall(r"^```py\n(.*?)^```", (DOCUMENTATION / page).read_text(), re.DOTALL | re.MULTILINE)
