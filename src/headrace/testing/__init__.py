"""Test tools for Headrace and for Kafka applications: an embedded broker with fault injection, clocks, file systems."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.testing.embedded import EmbeddedBroker

__all__ = ["EmbeddedBroker", "UnusedFaultWarning"]


class UnusedFaultWarning(UserWarning):
    """No request met a fault of a test, so the test did not test that fault."""


def __getattr__(name: str) -> object:
    """Imports the broker on first use: tests that only use a clock, and the start of pytest, do not need it."""
    if name == "EmbeddedBroker":
        from headrace.testing.embedded import EmbeddedBroker

        return EmbeddedBroker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
