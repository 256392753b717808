"""The controller's channel to brokers: a queue for each broker, with one request in flight.

- A broker gets its commands in the order in which they were sent. A command is sent again until the broker responds or
  the controller removes the broker, because its registration is gone or the controller's term has ended.
- A repeated command changes nothing, since it has the same epochs.
- The broker in the same process gets its commands directly.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from headrace.broker.config.inter_broker_protocol import InterBrokerProtocol
from headrace.broker.control import wire
from headrace.broker.control.inbox import CommandInbox
from headrace.broker.inter_broker_client import InterBrokerClient
from headrace.cluster.commands import BrokerInfo, Command, CommandResult, LeaderAndIsr, StopReplica
from headrace.common.clock import Clock
from headrace.common.errors import KafkaError

_logger = logging.getLogger(__name__)

PURPOSE = "controller"
"""Commands have their own connection to each broker."""
_RETRY_SECONDS = 0.1
_LOG_AGAIN_SECONDS = 10.0

_Done = Callable[[CommandResult], None]


class ControllerChannel:
    """Implements `cluster.commands.BrokerChannel`. The client uses the listener for controller requests."""

    def __init__(
        self,
        node_id: int,
        inbox: CommandInbox,
        client: InterBrokerClient,
        protocol: InterBrokerProtocol,
        clock: Clock,
        timeout_ms: float,
        inter_broker_listener: str | None = None,
    ):
        """`inter_broker_listener` is the listener from which followers fetch, by default that of the client."""
        self._node_id = node_id
        self._inbox = inbox
        self._client = client
        self._protocol = protocol
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._inter_broker_listener = inter_broker_listener or client.listener
        self._brokers: dict[int, BrokerInfo] = {}
        self._queues: dict[int, _BrokerQueue] = {}
        self._stopping: set[asyncio.Task[None]] = set()

    # ---- for the controller

    def send(self, broker_id: int, command: Command, done: _Done) -> None:
        if broker_id == self._node_id:
            self._inbox.submit(command, done)
        elif (queue := self._queues.get(broker_id)) is not None:
            queue.add(command, done)
        else:
            _logger.warning(
                "Controller %d: dropped %s for broker %d, which is not registered",
                self._node_id,
                type(command).__name__,
                broker_id,
            )

    def add_broker(self, broker: BrokerInfo) -> None:
        self._brokers[broker.id] = broker
        self._client.set_brokers(self._brokers.values())
        if broker.id != self._node_id and broker.id not in self._queues:
            self._queues[broker.id] = _BrokerQueue(self, broker.id)

    def remove_broker(self, broker_id: int) -> None:
        self._brokers.pop(broker_id, None)
        queue = self._queues.pop(broker_id, None)
        if queue is not None:
            self._stop(queue)
        self._client.set_brokers(self._brokers.values())

    @property
    def pending(self) -> int:
        """The number of commands that other brokers have not answered."""
        return sum(len(queue.commands) for queue in self._queues.values())

    async def wait_delivered(self, timeout_seconds: float) -> bool:
        """Waits until other brokers have responded to all commands. Returns False on timeout."""
        tasks = [queue.task for queue in self._queues.values() if queue.task is not None and not queue.task.done()]
        if not tasks:
            return True
        _, late = await asyncio.wait(tasks, timeout=timeout_seconds)
        return not late

    async def close(self) -> None:
        """Drops all pending commands and closes the connections."""
        for broker_id in list(self._brokers):
            self.remove_broker(broker_id)
        if self._stopping:
            await asyncio.wait(self._stopping)
        await self._client.close()

    def _stop(self, queue: "_BrokerQueue") -> None:
        if queue.task is not None and not queue.task.done():
            self._stopping.add(queue.task)
            queue.task.add_done_callback(self._stopping.discard)
            queue.task.cancel()
        if queue.commands:
            _logger.info(
                "Controller %d: dropped %d pending commands for broker %d",
                self._node_id,
                len(queue.commands),
                queue.broker_id,
            )
        queue.commands.clear()

    # ---- for the queues

    async def deliver(self, broker_id: int, command: Command) -> CommandResult:
        """Sends a command once. Raises KafkaError if there is no response."""
        version = self._version_of(command)
        responses = [
            await self._client.send(
                broker_id,
                request,
                purpose=PURPOSE,
                timeout_ms=self._timeout_ms,
                min_version=version,
                max_version=version,
            )
            for request in wire.encode_command(command, version, self._live_leaders(command))
        ]
        return wire.decode_result(command, responses)

    def _version_of(self, command: Command) -> int:
        if isinstance(command, LeaderAndIsr):
            return self._protocol.leader_and_isr_version
        if isinstance(command, StopReplica):
            return self._protocol.stop_replica_version
        return self._protocol.update_metadata_version

    def _live_leaders(self, command: Command) -> list[tuple[int, str, int]]:
        """Returns the addresses of the leaders that a LeaderAndIsr names. Brokers of Kafka expect them."""
        if not isinstance(command, LeaderAndIsr):
            return []
        leaders = {state.leader for state in command.partitions}
        return [
            (broker.id, endpoint.host, endpoint.port)
            for broker in self._brokers.values()
            if broker.id in leaders and (endpoint := broker.endpoint(self._inter_broker_listener)) is not None
        ]

    def seconds(self) -> float:
        return self._clock.monotonic()

    @property
    def node_id(self) -> int:
        return self._node_id


class _BrokerQueue:
    """The commands for one broker that it has not answered, oldest first."""

    def __init__(self, channel: ControllerChannel, broker_id: int):
        self.broker_id = broker_id
        self.commands: deque[tuple[Command, _Done]] = deque()
        self.task: asyncio.Task[None] | None = None
        self._channel = channel
        self._failing_since: float | None = None
        self._logged_at = 0.0

    def add(self, command: Command, done: _Done) -> None:
        self.commands.append((command, done))
        if self.task is None or self.task.done():
            self.task = asyncio.get_running_loop().create_task(
                self._run(), name=f"controller-{self._channel.node_id}-to-{self.broker_id}"
            )

    async def _run(self) -> None:
        while self.commands:
            command, done = self.commands[0]
            try:
                result = await self._channel.deliver(self.broker_id, command)
            except Exception as error:  # noqa: BLE001 - logged there
                self._log_failure(command, error)
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            self._log_success(command)
            self.commands.popleft()
            try:
                done(result)
            except Exception:
                _logger.exception(
                    "Controller %d: cannot process the response of broker %d", self._channel.node_id, self.broker_id
                )

    def _log_failure(self, command: Command, error: Exception) -> None:
        now = self._channel.seconds()
        level = logging.WARNING
        is_internal = not isinstance(error, KafkaError)
        if self._failing_since is None:
            self._failing_since = now
            if not is_internal:
                level = logging.INFO  # usual when a broker stops: its registration is gone in a moment
        elif now - self._logged_at < _LOG_AGAIN_SECONDS:
            return
        self._logged_at = now
        _logger.log(
            level,
            "Controller %d: cannot send %s to broker %d, retrying while it is registered; %d commands wait: %s",
            self._channel.node_id,
            type(command).__name__,
            self.broker_id,
            len(self.commands),
            error,
            exc_info=error if is_internal else None,
        )

    def _log_success(self, command: Command) -> None:
        if self._failing_since is not None:
            _logger.info(
                "Controller %d: broker %d responded to %s after %.1f s without a response",
                self._channel.node_id,
                self.broker_id,
                type(command).__name__,
                self._channel.seconds() - self._failing_since,
            )
            self._failing_since = None
