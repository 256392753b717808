"""The pytest plugin: one broker and one cluster per test run, one topic per test.

pytest loads it wherever Headrace is installed. The broker is imported when a test first uses a fixture, so the plugin
costs nothing otherwise.
"""

import itertools
import re
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from headrace.testing import UnusedFaultWarning

if TYPE_CHECKING:
    from headrace.testing.cluster import EmbeddedCluster
    from headrace.testing.embedded import EmbeddedBroker
    from headrace.testing.faults import Fault

_BROKER: "pytest.StashKey[EmbeddedBroker]" = pytest.StashKey()
_CLUSTER: "pytest.StashKey[EmbeddedCluster]" = pytest.StashKey()
_NUMBERS = itertools.count(1)
_MAX_NAME_LENGTH = 200  # a topic name may have 249 characters


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "headrace_topic(partitions=1, configs=None): partition count and configs of the fixtures headrace_topic and "
        "headrace_cluster_topic",
    )


@pytest.fixture(scope="session")
def headrace_properties() -> dict[str, object]:
    """The broker configs of `headrace_broker`. Override it in a conftest.py."""
    return {}


@pytest.fixture(scope="session")
def headrace_broker(
    headrace_properties: dict[str, object], request: pytest.FixtureRequest
) -> "Iterator[EmbeddedBroker]":
    """A running broker, shared by all tests of a run.

    After each test its faults are cleared, with a warning about faults that no request has hit. A paused broker is
    resumed, and a stopped broker is started again.
    """
    from headrace.testing.embedded import EmbeddedBroker

    with EmbeddedBroker(headrace_properties) as broker:
        request.config.stash[_BROKER] = broker
        try:
            yield broker
        finally:
            del request.config.stash[_BROKER]


@pytest.fixture(scope="session")
def headrace_cluster_properties() -> dict[str, object]:
    """The configs of the brokers of `headrace_cluster`. Override it in a conftest.py."""
    return {}


@pytest.fixture(scope="session")
def headrace_cluster(
    headrace_cluster_properties: dict[str, object], request: pytest.FixtureRequest
) -> "Iterator[EmbeddedCluster]":
    """A running cluster of three brokers, shared by all tests of a run.

    After each test it is restored: partitions are healed, faults are cleared, paused brokers are resumed, and stopped
    brokers are started again and are in sync.
    """
    from headrace.testing.cluster import EmbeddedCluster

    with EmbeddedCluster(3, headrace_cluster_properties) as cluster:
        request.config.stash[_CLUSTER] = cluster
        try:
            yield cluster
        finally:
            del request.config.stash[_CLUSTER]


@pytest.fixture
def headrace_topic(headrace_broker: "EmbeddedBroker", request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a new topic that only this test uses, by default with one partition.

    The mark `@pytest.mark.headrace_topic(partitions=3, configs={"cleanup.policy": "compact"})` changes that.
    """
    name, partitions, configs = _new_topic(request)
    headrace_broker.create_topic(name, partitions, configs)
    yield name
    try:
        _restore(headrace_broker)
    finally:
        headrace_broker.delete_topic(name, missing_ok=True)


@pytest.fixture
def headrace_cluster_topic(headrace_cluster: "EmbeddedCluster", request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a new topic of `headrace_cluster` that only this test uses, with three replicas, in sync.

    The mark `headrace_topic` changes its partition count and configs.
    """
    name, partitions, configs = _new_topic(request)
    headrace_cluster.create_topic(name, partitions, configs)
    yield name
    try:
        _restore_cluster(headrace_cluster)
    finally:
        headrace_cluster.delete_topic(name, missing_ok=True)


def _new_topic(request: pytest.FixtureRequest) -> tuple[str, int, Any]:
    """Returns name, partition count and configs of a test's topic."""
    marker = request.node.get_closest_marker("headrace_topic")
    partitions, configs = _marker_arguments(*marker.args, **marker.kwargs) if marker is not None else (1, None)
    name = f"{re.sub(r'[^A-Za-z0-9-]+', '-', request.node.name)[:_MAX_NAME_LENGTH]}-{next(_NUMBERS)}"
    return name, partitions, configs


def _marker_arguments(partitions: int = 1, configs: Any = None) -> tuple[int, Any]:
    return partitions, configs


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    broker = item.config.stash.get(_BROKER, None)
    if broker is not None:
        _restore(broker)
    cluster = item.config.stash.get(_CLUSTER, None)
    if cluster is not None:
        _restore_cluster(cluster)


def _restore(broker: "EmbeddedBroker") -> None:
    """Restores the broker for the next test. Warns about faults that no request has hit."""
    unused = [fault for fault in broker.faults if not fault.hits]
    broker.faults.clear()
    broker.resume()
    if not broker.is_running:
        broker.start()
    _warn(unused)


def _restore_cluster(cluster: "EmbeddedCluster") -> None:
    unused = [fault for broker in cluster.brokers.values() for fault in broker.faults if not fault.hits]
    cluster.restore()
    _warn(unused)


def _warn(unused: "Sequence[Fault]") -> None:
    if unused:
        fault_list = "; ".join(map(str, unused))
        warnings.warn(UnusedFaultWarning(f"No request met these faults of the test: {fault_list}"), stacklevel=2)
