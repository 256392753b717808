"""Distributes tests to pytest-xdist's workers (`make test`, or `pytest -n 4`).

Each group of tests runs in one worker, so that expensive resources (Spark, a JVM with Kafka's clients, Apache Kafka, a
broker process) start once per group. A file is a group; `GROUPS` joins files that share session fixtures. Groups start
in the order of `LONGEST_FIRST`, so that no long group is left at the end.
"""

import signal
from fnmatch import fnmatch
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("headrace", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("headrace")  # a busy machine must not fail a test

GROUPS = {
    "Spark": ("tests/integration/spark/*", "tests/compat/spark/test_[!s]*.py", "tests/compat/spark/test_stream.py"),
    "pipelines": ("tests/integration/pipelines/test_[!c]*.py", "tests/integration/shop/test_[!k]*.py"),
    "other clients in groups": ("tests/compat/broker/test_group*.py", "tests/compat/client/test_group*.py"),
    "versions of other clients": ("tests/compat/broker/test_client_versions.py",),
    "other clients on one broker": ("tests/compat/broker/*",),
    "files of Apache Kafka": ("tests/compat/test_apache_kafka_*.py",),
    "Kafka's tools": ("tests/compat/cli/*",),
    "browser": ("tests/integration/browser/*",),
}
"""The name of each group, and the patterns of its files."""

LONGEST_FIRST = (
    "tests/integration/shop/test_kills.py",
    "tests/compat/spark/test_standalone.py",
    "pipelines",
    "Spark",
    "other clients on one broker",
    "other clients in groups",
    "Kafka's tools",
    "tests/compat/mixed/*",
    "versions of other clients",
    "browser",
    "files of Apache Kafka",
    "tests/compat/test_on_a_cluster.py",
    "tests/jepsen/test_short_run.py",
    "tests/integration/*/test_sanitized*",
    "tests/compat/*",
    "tests/integration/*",
    "tests/sim/*",
    "tests/property/*",
)
"""Groups or file patterns in the order in which they start. All others follow."""


def group_of(nodeid: str) -> str:
    path = nodeid.partition("::")[0]
    for name, patterns in GROUPS.items():
        if any(fnmatch(path, pattern) for pattern in patterns):
            return name
    return path


def rank_of(nodeid: str) -> int:
    group = group_of(nodeid)
    for rank, pattern in enumerate(LONGEST_FIRST):
        if fnmatch(group, pattern):
            return rank
    return len(LONGEST_FIRST)


def pytest_configure() -> None:
    """Restores SIGINT, which shells make background jobs ignore: programs under test would inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: rank_of(item.nodeid))


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    config.option.loadscopereorder = False
    return ByGroup(config, log)
