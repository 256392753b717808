"""Finds the brokers that coordinate groups and transactions, and remembers them until somebody says they are wrong.

Belongs to the loop. Callers that look for the same coordinator at the same time share one request.
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
"""The purpose of connections to coordinators: their requests wait for others, so they do not share with fetches."""


class CoordinatorType(IntEnum):
    GROUP = 0
    TRANSACTION = 1


_Key = tuple[CoordinatorType, str]


class CoordinatorFinder:
    def __init__(self, pool: BrokerPool, backoff: Backoff, loop: asyncio.AbstractEventLoop | None = None):
        self._pool = pool
        self._backoff = backoff
        self._loop = loop or asyncio.get_running_loop()
        self._found: dict[_Key, int] = {}
        self._asking: dict[_Key, asyncio.Task[int]] = {}

    def known(self, kind: CoordinatorType, key: str) -> int | None:
        """The broker's id, if it has been found and nobody has said that it is wrong."""
        return self._found.get((kind, key))

    async def find(self, kind: CoordinatorType, key: str, timeout_ms: float) -> int:
        """The id of the broker that coordinates a group or a transactional id; tries again until it is known.

        Raises the error of who may not ask, or KafkaTimeoutError.
        """
        attempt = 0
        last: KafkaError | None = None
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while True:
                    found = self._found.get((kind, key))
                    if found is not None and self._pool.node(found) is not None:
                        return found
                    try:
                        return await self._ask_once(kind, key)
                    except KafkaError as error:
                        if not error.retriable or self._pool.closed:
                            raise
                        last = error
                        _logger.debug("no coordinator for %s: %s", key, error)
                    await asyncio.sleep(self._backoff.wait_seconds(attempt))
                    attempt += 1
        except TimeoutError:
            why = f"; the last error: {last}" if last is not None else ""
            raise KafkaTimeoutError(f"no coordinator for {key!r} in {timeout_ms:.0f} ms{why}") from None

    def forget(self, kind: CoordinatorType, key: str, node_id: int | None = None) -> None:
        """The coordinator has moved or is gone. With an id, only if it is still the one that is remembered."""
        if node_id is None or self._found.get((kind, key)) == node_id:
            self._found.pop((kind, key), None)

    async def _ask_once(self, kind: CoordinatorType, key: str) -> int:
        """One request, which everybody shares who asks for the same meanwhile."""
        task = self._asking.get((kind, key))
        if task is None:
            task = self._loop.create_task(self._ask(kind, key))
            self._asking[kind, key] = task
            task.add_done_callback(lambda done: self._asked((kind, key), done))
        return await asyncio.shield(task)

    def _asked(self, key: _Key, task: "asyncio.Task[int]") -> None:
        del self._asking[key]
        if not task.cancelled():
            task.exception()  # nobody may be left to be told

    async def _ask(self, kind: CoordinatorType, key: str) -> int:
        request = FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=[key])
        reply: FindCoordinatorResponse = await self._pool.send_to_any(request, min_version=int(kind))
        # One key, and its answer in the message itself up to version 3; then a list (KIP-699).
        answer: FindCoordinatorResponse | Coordinator = reply.coordinators[0] if reply.coordinators else reply
        error = error_for(answer.error_code, answer.error_message)
        if error is not None:
            raise error
        known = self._pool.node(answer.node_id)
        if known is None or (known.host, known.port) != (answer.host, answer.port):
            self._pool.add_node(Node(answer.node_id, answer.host, answer.port, known.rack if known else None))
        self._found[kind, key] = answer.node_id
        return answer.node_id

    async def close(self) -> None:
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
