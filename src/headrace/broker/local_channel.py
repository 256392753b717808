"""The channel from the controller to the broker in the same process."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from headrace.cluster.commands import BrokerInfo, Command, CommandResult, UpdateMetadata
from headrace.common.errors import NO_ERROR, KafkaError
from headrace.common.types import TopicPartition

_logger = logging.getLogger(__name__)

PARTITIONS_PER_TURN = 4
"""After this many partitions the event loop handles other requests: creating or deleting a log takes milliseconds."""


class LocalChannel:
    """Applies commands on the loop, in order. Other brokers cannot be reached yet."""

    def __init__(self, node_id: int, apply: Callable[[Command], CommandResult]):
        self._node_id = node_id
        self._apply = apply
        self._waiting: deque[tuple[Command, Callable[[CommandResult], None]]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def send(self, broker_id: int, command: Command, done: Callable[[CommandResult], None]) -> None:
        if broker_id != self._node_id:
            _logger.warning("Broker %d: cannot send controller commands to broker %d", self._node_id, broker_id)
            return
        if self._closed:
            return
        self._waiting.append((command, done))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="local-channel")

    def add_broker(self, broker: BrokerInfo) -> None:
        """Does nothing: there is no connection."""

    def remove_broker(self, broker_id: int) -> None:
        """Does nothing: there is no connection."""

    async def wait_idle(self) -> None:
        """Waits until all commands have been applied."""
        while self._task is not None and not self._task.done():
            await asyncio.wait((self._task,))

    async def close(self) -> None:
        """Stops applying commands."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while self._waiting:
            command, done = self._waiting.popleft()
            try:
                result = await self._apply_in_slices(command)
            except Exception:
                _logger.exception(
                    "Broker %d: failed to apply %s from the controller", self._node_id, type(command).__name__
                )
                result = CommandResult(error_code=KafkaError.code)
            done(result)

    async def _apply_in_slices(self, command: Command) -> CommandResult:
        if isinstance(command, UpdateMetadata):
            return self._apply(command)
        errors: dict[TopicPartition, int] = {}
        for first in range(0, len(command.partitions), PARTITIONS_PER_TURN):
            partitions = command.partitions[first : first + PARTITIONS_PER_TURN]
            result = self._apply(replace(command, partitions=partitions))  # type: ignore[arg-type]
            if result.error_code != NO_ERROR:
                return result
            errors |= result.partition_errors
            await asyncio.sleep(0)
        return CommandResult(partition_errors=errors)
