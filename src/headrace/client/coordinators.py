"""Finds the group and transaction coordinators, and caches them until they are invalidated.

Owner: the loop. Callers that look up the same coordinator at the same time share one request.
"""

import asyncio
import logging
from enum import IntEnum

from headrace.client.errors import KafkaTimeoutError, error_for
from headrace.common.backoff import Backoff
from headrace.common.errors import KafkaError
from headrace.net.broker_pool import BrokerPool, Node
from headrace.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

__all__ = ["COORDINATOR", "CoordinatorFinder", "CoordinatorType"]

_logger = logging.getLogger(__name__)

COORDINATOR = "coordinator"
"""The purpose of connections to coordinators. Coordinators hold JoinGroup requests back, so these connections are not
shared with fetches."""


class CoordinatorType(IntEnum):
    """The key types of FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1


_Key = tuple[CoordinatorType, str]


class CoordinatorFinder:
    """Looks up coordinators, and caches their node ids."""

    def __init__(self, pool: BrokerPool, backoff: Backoff, loop: asyncio.AbstractEventLoop | None = None):
        self._pool = pool
        self._backoff = backoff
        self._loop = loop or asyncio.get_running_loop()
        self._cache: dict[_Key, int] = {}
        self._in_flight: dict[_Key, asyncio.Task[int]] = {}

    def known(self, kind: CoordinatorType, key: str) -> int | None:
        """Returns the cached coordinator's node id, or None."""
        return self._cache.get((kind, key))

    async def find(self, kind: CoordinatorType, key: str, timeout_ms: float) -> int:
        """Returns the node id of the coordinator of a group or a transactional id. Retries until it is known.

        Raises an authorization error or KafkaTimeoutError.
        """
        attempt = 0
        last: KafkaError | None = None
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while True:
                    node_id = self._cache.get((kind, key))
                    if node_id is not None and self._pool.node(node_id) is not None:
                        return node_id
                    try:
                        return await self._request_once(kind, key)
                    except KafkaError as error:
                        if not error.retriable or self._pool.closed:
                            raise
                        last = error
                        _logger.debug("Looking up the coordinator of %r failed: %s", key, error)
                    await asyncio.sleep(self._backoff.wait_seconds(attempt))
                    attempt += 1
        except TimeoutError:
            reason = f"; the last error: {last}" if last is not None else ""
            raise KafkaTimeoutError(f"No coordinator found for {key!r} within {timeout_ms:.0f} ms{reason}") from None

    def forget(self, kind: CoordinatorType, key: str, node_id: int | None = None) -> None:
        """Drops a cached coordinator that has moved or is unreachable. With a node id, only if that node is cached."""
        if node_id is None or self._cache.get((kind, key)) == node_id:
            self._cache.pop((kind, key), None)

    async def _request_once(self, kind: CoordinatorType, key: str) -> int:
        """Joins the request in flight for this coordinator, or sends one."""
        task = self._in_flight.get((kind, key))
        if task is None:
            task = self._loop.create_task(self._request(kind, key))
            self._in_flight[kind, key] = task
            task.add_done_callback(lambda done: self._finished((kind, key), done))
        return await asyncio.shield(task)

    def _finished(self, key: _Key, task: "asyncio.Task[int]") -> None:
        del self._in_flight[key]
        if not task.cancelled():
            task.exception()  # retrieved, in case no caller is waiting

    async def _request(self, kind: CoordinatorType, key: str) -> int:
        request = FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=[key])
        response: FindCoordinatorResponse = await self._pool.send_to_any(request, min_version=int(kind))
        # Up to version 3 the response itself describes the coordinator; then it has a list (KIP-699).
        coordinator: FindCoordinatorResponse | Coordinator = (
            response.coordinators[0] if response.coordinators else response
        )
        error = error_for(coordinator.error_code, coordinator.error_message)
        if error is not None:
            raise error
        known_node = self._pool.node(coordinator.node_id)
        if known_node is None or (known_node.host, known_node.port) != (coordinator.host, coordinator.port):
            self._pool.add_node(
                Node(coordinator.node_id, coordinator.host, coordinator.port, known_node.rack if known_node else None)
            )
        self._cache[kind, key] = coordinator.node_id
        return coordinator.node_id

    async def close(self) -> None:
        tasks = list(self._in_flight.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
