"""The pytest plugin: a broker for the whole run, a topic for each test. pytest loads it wherever Headrace is installed.

Nothing of the broker is imported before a test asks for it, so a run that does not costs nothing.
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
_MOST_OF_A_NAME = 200  # of the 249 characters that a topic's name may have


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "headrace_topic(partitions=1, configs=None): what the topic of the fixture headrace_topic is made with",
    )


@pytest.fixture(scope="session")
def headrace_properties() -> dict[str, object]:
    """Kafka's broker keys for the broker of the run. Override it in a conftest.py to set some."""
    return {}


@pytest.fixture(scope="session")
def headrace_broker(
    headrace_properties: dict[str, object], request: pytest.FixtureRequest
) -> "Iterator[EmbeddedBroker]":
    """A running broker, the same for all tests of a run. After each test its faults are cleared, with a warning about
    those that no request has met; if the test has paused or stopped it, it goes on."""
    from headrace.testing.embedded import EmbeddedBroker

    with EmbeddedBroker(headrace_properties) as broker:
        request.config.stash[_BROKER] = broker
        try:
            yield broker
        finally:
            del request.config.stash[_BROKER]


@pytest.fixture
def headrace_topic(headrace_broker: "EmbeddedBroker", request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a topic that only this test has. With one partition, unless the test is marked
    `@pytest.mark.headrace_topic(partitions=3, configs={"cleanup.policy": "compact"})`."""
    marker = request.node.get_closest_marker("headrace_topic")
    partitions, configs = _what_is_marked(*marker.args, **marker.kwargs) if marker is not None else (1, None)
    name = f"{re.sub(r'[^A-Za-z0-9-]+', '-', request.node.name)[:_MOST_OF_A_NAME]}-{next(_NUMBERS)}"
    headrace_broker.create_topic(name, partitions, configs)
    yield name
    try:
        _put_right(headrace_broker)
    finally:
        headrace_broker.delete_topic(name, missing_ok=True)


def _what_is_marked(partitions: int = 1, configs: Any = None) -> tuple[int, Any]:
    return partitions, configs


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    broker = item.config.stash.get(_BROKER, None)
    if broker is not None:
        _put_right(broker)


def _put_right(broker: "EmbeddedBroker") -> None:
    """Restores the broker for the next test, and warns of faults that no request has met."""
    unused = [fault for fault in broker.faults if not fault.hits]
    broker.faults.clear()
    broker.resume()
    if not broker.is_running:
        broker.start()
    if unused:
        listed = "; ".join(map(str, unused))
        warnings.warn(UnusedFaultWarning(f"No request met these faults of the test: {listed}"), stacklevel=2)
