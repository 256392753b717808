"""The pytest plugin: one broker per test run, one topic per test. pytest loads it wherever Headrace is installed.

The broker is imported when a test first uses a fixture, so the plugin costs nothing otherwise.
"""

import itertools
import re
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from headrace.testing import UnusedFaultWarning

if TYPE_CHECKING:
    from headrace.testing.embedded import EmbeddedBroker

_BROKER: "pytest.StashKey[EmbeddedBroker]" = pytest.StashKey()
_NUMBERS = itertools.count(1)
_MAX_NAME_LENGTH = 200  # a topic name may have 249 characters


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "headrace_topic(partitions=1, configs=None): partition count and configs of the fixture headrace_topic",
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


@pytest.fixture
def headrace_topic(headrace_broker: "EmbeddedBroker", request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a new topic that only this test uses, by default with one partition.

    The mark `@pytest.mark.headrace_topic(partitions=3, configs={"cleanup.policy": "compact"})` changes that.
    """
    marker = request.node.get_closest_marker("headrace_topic")
    partitions, configs = _marker_arguments(*marker.args, **marker.kwargs) if marker is not None else (1, None)
    name = f"{re.sub(r'[^A-Za-z0-9-]+', '-', request.node.name)[:_MAX_NAME_LENGTH]}-{next(_NUMBERS)}"
    headrace_broker.create_topic(name, partitions, configs)
    yield name
    try:
        _restore(headrace_broker)
    finally:
        headrace_broker.delete_topic(name, missing_ok=True)


def _marker_arguments(partitions: int = 1, configs: Any = None) -> tuple[int, Any]:
    return partitions, configs


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    broker = item.config.stash.get(_BROKER, None)
    if broker is not None:
        _restore(broker)


def _restore(broker: "EmbeddedBroker") -> None:
    """Restores the broker for the next test. Warns about faults that no request has hit."""
    unused = [fault for fault in broker.faults if not fault.hits]
    broker.faults.clear()
    broker.resume()
    if not broker.is_running:
        broker.start()
    if unused:
        fault_list = "; ".join(map(str, unused))
        warnings.warn(UnusedFaultWarning(f"No request met these faults of the test: {fault_list}"), stacklevel=2)
