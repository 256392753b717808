"""Sends requests to a group's coordinator.

Runs on the event loop. `ConsumerCoordinator` and `CommitRequestManager` send all their requests through here, on a
separate connection, so that they do not queue behind fetches. When an error suggests that the coordinator failed or
moved, the next request looks it up again.
"""

import logging
from typing import Any, Protocol

from headrace.client.coordinators import COORDINATOR, CoordinatorType
from headrace.client.core import ClientCore
from headrace.client.errors import KafkaConnectionError, error_for
from headrace.common.errors import (
    CoordinatorNotAvailableError,
    KafkaError,
    NotCoordinatorError,
    RequestTimedOutError,
)
from headrace.protocol import Message

__all__ = ["CoordinatorClient", "CoordinatorSender", "Sender"]

_logger = logging.getLogger(__name__)

_COORDINATOR_MOVED = (CoordinatorNotAvailableError, NotCoordinatorError)


class Sender(Protocol):
    """Sends requests to the coordinator of the group. Tests replace it with a simulated coordinator."""

    async def send(self, request: Message, *, timeout_ms: float | None = None, max_version: int | None = None) -> Any:
        """Returns the response. Raises KafkaConnectionError, RequestTimedOutError, UnsupportedVersionError, or the
        error of FindCoordinator."""

    def forget(self, reason: str) -> None:
        """Looks up the coordinator again before the next request."""

    def interrupt(self) -> None:
        """Closes the connection, so that the next request does not queue behind an abandoned JoinGroup. A broker
        responds in order, and to JoinGroup only when all members have joined."""


class CoordinatorSender:
    """Sends requests to the broker that FindCoordinator returns."""

    def __init__(self, core: ClientCore, group_id: str):
        self._core = core
        self._group_id = group_id

    @property
    def node_id(self) -> int | None:
        """The node id of the coordinator, or None if unknown."""
        return self._core.coordinators.known(CoordinatorType.GROUP, self._group_id)

    async def send(self, request: Message, *, timeout_ms: float | None = None, max_version: int | None = None) -> Any:
        node_id = await self._core.coordinators.find(
            CoordinatorType.GROUP, self._group_id, self._core.config.request_timeout_ms
        )
        return await self._core.pool.send(
            node_id, request, timeout_ms=timeout_ms, max_version=max_version, purpose=COORDINATOR
        )

    def forget(self, reason: str) -> None:
        _logger.info("Group %s: coordinator is unavailable, looking it up again: %s", self._group_id, reason)
        self._core.coordinators.forget(CoordinatorType.GROUP, self._group_id)

    def interrupt(self) -> None:
        if (node_id := self.node_id) is not None:
            self._core.pool.disconnect(node_id, COORDINATOR, "a rebalance was cancelled")


class CoordinatorClient:
    """Sends requests through a `Sender`, and looks up the coordinator again after errors that suggest it moved."""

    def __init__(self, sender: Sender):
        self._sender = sender

    async def send(self, request: Message, *, timeout_ms: float | None = None, max_version: int | None = None) -> Any:
        try:
            return await self._sender.send(request, timeout_ms=timeout_ms, max_version=max_version)
        except (KafkaConnectionError, RequestTimedOutError) as error:
            self.forget(str(error))
            raise

    def forget(self, reason: str) -> None:
        self._sender.forget(reason)

    def interrupt(self) -> None:
        self._sender.interrupt()

    def error(self, code: int) -> KafkaError | None:
        """Returns the error of a response, or None for code 0."""
        error = error_for(code)
        if isinstance(error, _COORDINATOR_MOVED):
            self.forget(str(error))
        return error
