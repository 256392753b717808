"""How tests are dealt out to pytest-xdist's workers (`make test`, or `pytest -n 4`).

A group of tests runs in one worker, one after the other, so that what is expensive (Spark, a JVM with Kafka's clients,
Apache Kafka, a broker process) starts once per group. A file is a group; `GROUPS` joins files that share session
fixtures. Groups start in the order of `LONGEST_FIRST`, so that no long one is left at the end.
"""

from fnmatch import fnmatch
from typing import Any

import pytest

GROUPS = {
    "spark connector": (
        "tests/compat/spark/test_source*.py",
        "tests/compat/spark/test_sink*.py",
        "tests/compat/spark/test_options.py",
        "tests/compat/spark/test_checkpoints.py",
    ),
    "spark": ("tests/integration/spark/*", "tests/integration/pipelines/*"),
    "broker and other clients": ("tests/compat/broker/*",),
    "files of Apache Kafka": ("tests/compat/test_apache_kafka_*.py",),
}
"""Names of groups, and patterns of the files in them."""

LONGEST_FIRST = (
    "spark",
    "broker and other clients",
    "tests/compat/*",
    "tests/integration/*",
    "tests/sim/*",
    "tests/property/*",
)
"""Groups or patterns of groups, in the order in which they start; the others follow."""


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
