"""Test tools for Kafka applications and for Headrace: embedded brokers and clusters, faults, clocks, file systems."""

from typing import TYPE_CHECKING

from headrace.common.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from headrace.testing.cluster import EmbeddedCluster
    from headrace.testing.embedded import EmbeddedBroker
    from headrace.testing.security import Security, allow, deny

__all__ = ["EmbeddedBroker", "EmbeddedCluster", "Security", "UnusedFaultWarning", "allow", "deny"]


class UnusedFaultWarning(UserWarning):
    """A test injected a fault that no request hit, so the test did not cover that fault."""


# Tests that only use a clock, and the start of pytest, do not import the broker.
__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "EmbeddedBroker": "headrace.testing.embedded",
        "EmbeddedCluster": "headrace.testing.cluster",
        "Security": "headrace.testing.security",
        "allow": "headrace.testing.security",
        "deny": "headrace.testing.security",
    },
)
