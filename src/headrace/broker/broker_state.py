"""The state of a broker's life, as Kafka's BrokerState.

    NOT_RUNNING -> STARTING -> RECOVERY -> RUNNING -> PENDING_CONTROLLED_SHUTDOWN -> SHUTTING_DOWN -> NOT_RUNNING
                      |           |           `-------------------------------------------^
                      `-----------'-------------------------------------------------------'

- STARTING: opens the store and reads the dynamic configs.
- RECOVERY: loads and recovers the logs, registers, and waits for its partitions from the controller.
- PENDING_CONTROLLED_SHUTDOWN: still serves clients, while the controller moves its leaderships to other brokers.

Every change is logged. The metric `broker_state` has the number of the state, which is Kafka's.
"""

import logging
from enum import IntEnum

from headrace.common.errors import HeadraceError

_logger = logging.getLogger(__name__)


class BrokerState(IntEnum):
    """The numbers are those of Kafka's BrokerState metric."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7

    @property
    def predecessors(self) -> "frozenset[BrokerState]":
        return _PREDECESSORS[self]


_PREDECESSORS = {
    BrokerState.NOT_RUNNING: frozenset((BrokerState.SHUTTING_DOWN,)),
    BrokerState.STARTING: frozenset((BrokerState.NOT_RUNNING,)),
    BrokerState.RECOVERY: frozenset((BrokerState.STARTING,)),
    BrokerState.RUNNING: frozenset((BrokerState.RECOVERY,)),
    BrokerState.PENDING_CONTROLLED_SHUTDOWN: frozenset((BrokerState.RUNNING,)),
    BrokerState.SHUTTING_DOWN: frozenset(
        (
            BrokerState.STARTING,
            BrokerState.RECOVERY,
            BrokerState.RUNNING,
            BrokerState.PENDING_CONTROLLED_SHUTDOWN,
        )
    ),
}


class BrokerLifecycle:
    """The current state of one broker."""

    def __init__(self, node_id: int):
        self.node_id = node_id
        self.state = BrokerState.NOT_RUNNING

    def enter(self, state: BrokerState) -> None:
        """Changes the state. Raises HeadraceError if the current state does not allow it."""
        if self.state not in state.predecessors:
            raise HeadraceError(f"Broker {self.node_id} cannot change from {self.state.name} to {state.name}")
        _logger.info("Broker %d changes its state from %s to %s", self.node_id, self.state.name, state.name)
        self.state = state
