"""Applies the controller's commands to this broker, strictly one at a time, in the order of their arrival.

They come from a controller in another broker, through the handlers of LeaderAndIsr, StopReplica and UpdateMetadata, or
from the one in this process.

- A command of an old controller (STALE_CONTROLLER_EPOCH), or for an earlier registration of this broker
  (STALE_BROKER_EPOCH), changes nothing. A command may have a newer broker epoch than this broker knows: after a new
  registration the controller may learn of it before the broker gets the store's response.
- The configs of topics that this broker does not know yet are read first, because Kafka's brokers send no notification
  of them. If that fails, the command is applied nevertheless: the broker reads all configs in its next session.
- A long command is applied in slices, so that the loop can serve clients in between. Other commands wait for its end.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace

from headrace.broker.replica_manager import ReplicaManager
from headrace.cluster.commands import (
    LEADER_DURING_DELETE,
    Command,
    CommandResult,
    LeaderAndIsr,
    StopReplica,
    UpdateMetadata,
)
from headrace.cluster.metadata_image import MetadataImage
from headrace.common.errors import NO_ERROR, HeadraceError, KafkaError, StaleBrokerEpochError, code_of
from headrace.common.types import TopicPartition

_logger = logging.getLogger(__name__)

PARTITIONS_PER_TURN = 4
"""After this many partitions the event loop handles other requests: creating or deleting a log takes milliseconds."""


class CommandInbox:
    """The commands of the controller that wait to be applied. Owned by the broker's loop."""

    def __init__(
        self,
        node_id: int,
        image: MetadataImage,
        replicas: ReplicaManager,
        broker_epoch: Callable[[], int],
        load_configs: Callable[[Iterable[str]], Awaitable[None]] | None = None,
    ):
        """`load_configs` reads the configs of those of the given topics that are new to this broker."""
        self._load_configs = load_configs
        self._node_id = node_id
        self._image = image
        self._replicas = replicas
        self._broker_epoch = broker_epoch
        self._waiting: deque[tuple[Command, Callable[[CommandResult], None]]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._started = False
        self._closed = False
        self.full_metadata = asyncio.Event()
        """Set when the image had all partitions for the first time."""

    def submit(self, command: Command, done: Callable[[CommandResult], None]) -> None:
        """Queues a command. Calls `done` with the result, but not after `close`."""
        if self._closed:
            return
        self._waiting.append((command, done))
        self._start_task()

    def start(self) -> None:
        """Starts to apply commands. They wait until the broker knows its epoch, since it could not tell old ones."""
        self._started = True
        if self._waiting:
            self._start_task()

    def _start_task(self) -> None:
        if self._started and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._run(), name=f"inbox-{self._node_id}")

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
                await self._prepare(command)
                result = await self._apply_in_slices(command)
            except Exception:
                _logger.exception(
                    "Broker %d: failed to apply %s of controller %d",
                    self._node_id,
                    type(command).__name__,
                    command.controller_id,
                )
                result = CommandResult(error_code=KafkaError.code)
            done(result)

    async def _prepare(self, command: Command) -> None:
        if self._load_configs is None or isinstance(command, StopReplica):
            return
        try:
            await self._load_configs(
                {state.tp.topic for state in command.partitions if state.leader != LEADER_DURING_DELETE}
            )
        except HeadraceError as error:
            _logger.error(
                "Broker %d: cannot read the configs of new topics, they have the defaults until the next session with "
                "the coordination store: %s",
                self._node_id,
                error,
            )

    async def _apply_in_slices(self, command: Command) -> CommandResult:
        if isinstance(command, UpdateMetadata) or not command.partitions:
            return self._apply(command)
        errors: dict[TopicPartition, int] = {}
        for first in range(0, len(command.partitions), PARTITIONS_PER_TURN):
            partitions = command.partitions[first : first + PARTITIONS_PER_TURN]
            result = self._apply(replace(command, partitions=partitions))  # type: ignore[arg-type]
            if result.error_code != NO_ERROR:
                return result
            errors |= result.partition_errors
            await asyncio.sleep(0)
        self._log_applied(command, errors)
        return CommandResult(partition_errors=errors)

    def _apply(self, command: Command) -> CommandResult:
        try:
            self._check_epochs(command)
            if isinstance(command, UpdateMetadata):
                self._image.apply(command)
                if command.full:
                    self._replicas.drop_reassigned(self._image)
                    self.full_metadata.set()
                return CommandResult()
            if isinstance(command, LeaderAndIsr):
                return CommandResult(partition_errors=self._replicas.lead_or_follow(command))
            assert isinstance(command, StopReplica)
            return CommandResult(partition_errors=self._replicas.stop(command))
        except KafkaError as error:
            _logger.error(
                "Broker %d: rejected %s of controller %d, epoch %d: %s",
                self._node_id,
                type(command).__name__,
                command.controller_id,
                command.controller_epoch,
                error,
            )
            return CommandResult(error_code=code_of(error))

    def _check_epochs(self, command: Command) -> None:
        current = self._broker_epoch()
        if 0 <= command.broker_epoch < current:
            raise StaleBrokerEpochError(
                f"The command is for broker epoch {command.broker_epoch}, the current epoch is {current}"
            )
        known = self._image.controller_epoch
        self._image.check_controller_epoch(command.controller_id, command.controller_epoch)
        if command.controller_epoch > known:
            _logger.info(
                "Broker %d: the active controller is broker %d, controller epoch %d",
                self._node_id,
                command.controller_id,
                command.controller_epoch,
            )

    def _log_applied(self, command: Command, errors: dict[TopicPartition, int]) -> None:
        failed = sum(1 for error in errors.values() if error)
        if isinstance(command, LeaderAndIsr):
            leaderships = sum(1 for state in command.partitions if state.leader == self._node_id)
            what = (
                f"was made leader of {leaderships} and follower of {len(command.partitions) - leaderships} partitions"
            )
        else:
            assert isinstance(command, StopReplica)
            deleted = sum(1 for replica in command.partitions if replica.delete)
            what = f"was told to stop {len(command.partitions)} replicas and to delete {deleted} of them"
        _logger.info(
            "Broker %d %s by controller %d (epoch %d)%s",
            self._node_id,
            what,
            command.controller_id,
            command.controller_epoch,
            f"; {failed} failed" if failed else "",
        )
