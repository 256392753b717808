"""The controller's way to the broker that it runs in."""

import asyncio
import logging
from collections.abc import Callable

from headrace.cluster.commands import BrokerInfo, Command, CommandResult

_logger = logging.getLogger(__name__)


class LocalChannel:
    """Hands commands over on the loop, in order. Brokers other than this one cannot be reached yet."""

    def __init__(self, node_id: int, apply: Callable[[Command], CommandResult]):
        self._node_id = node_id
        self._apply = apply
        self._loop = asyncio.get_running_loop()

    def send(self, broker_id: int, command: Command, done: Callable[[CommandResult], None]) -> None:
        if broker_id != self._node_id:
            _logger.warning("broker %d cannot be reached from broker %d", broker_id, self._node_id)
            return
        self._loop.call_soon(lambda: done(self._apply(command)))

    def add_broker(self, broker: BrokerInfo) -> None:
        """Nothing is to be connected to."""

    def remove_broker(self, broker_id: int) -> None:
        """Nothing is to be disconnected from."""
