"""One Spark session and one broker for all tests in this directory."""

from collections.abc import Iterator

import pytest
from tests.support.spark.session import spark  # noqa: F401

from headrace.testing import EmbeddedBroker


@pytest.fixture(scope="session")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running
