"""Tools for tests of Headrace and of programs that use it: an embedded broker with faults, clocks, disks."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.testing.embedded import EmbeddedBroker

__all__ = ["EmbeddedBroker", "UnusedFaultWarning"]


class UnusedFaultWarning(UserWarning):
    """A test has ordered a fault that no request met, so it has not tested what it was written for."""


def __getattr__(name: str) -> object:
    """Imports the broker when it is first asked for: a test that only wants a clock, or pytest's start, need not."""
    if name == "EmbeddedBroker":
        from headrace.testing.embedded import EmbeddedBroker

        return EmbeddedBroker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
