"""Partition assignors. The leader of a group runs the assignor that all members support.

To write your own, subclass `Assignor` (a name and `assign`) and set it in `partition.assignment.strategy`.
"""

from headrace.client.group.assignors.assignor import Assignor, Topics, make_assignors, rebalance_protocol
from headrace.client.group.assignors.range import RangeAssignor
from headrace.client.group.assignors.round_robin import RoundRobinAssignor
from headrace.client.group.assignors.sticky import CooperativeStickyAssignor, StickyAssignor

__all__ = [
    "Assignor",
    "CooperativeStickyAssignor",
    "RangeAssignor",
    "RoundRobinAssignor",
    "StickyAssignor",
    "Topics",
    "make_assignors",
    "rebalance_protocol",
]
