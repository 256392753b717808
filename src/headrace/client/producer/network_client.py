"""The producer's requests: Produce for the sender, and requests to coordinators for the transaction manager.

Belongs to the event loop.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from headrace.client.coordinators import COORDINATOR, CoordinatorType
from headrace.client.core import ClientCore
from headrace.client.producer.sender_loop import SenderLoop
from headrace.common.errors import KafkaError
from headrace.protocol import Message
from headrace.protocol.messages.produce import ProduceRequest

__all__ = ["NetworkClient", "OnResponse"]

_logger = logging.getLogger(__name__)

OnResponse = Callable[[Message | None, BaseException | None], None]


class NetworkClient:
    """Sends the producer's requests over the client's connection pool."""

    def __init__(self, client: ClientCore, sender_loop: SenderLoop, acks: int, request_timeout_ms: int):
        self._client = client
        self._sender_loop = sender_loop
        self._acks = acks
        self._request_timeout_ms = request_timeout_ms
        self._connecting: set[int] = set()
        self.connection_errors: dict[int, BaseException] = {}
        """Brokers to which the last connection attempt failed, with the error."""

    # ---- Produce

    def is_ready(self, node_id: int) -> bool:
        """Returns True if the broker is connected."""
        return self._client.pool.is_ready(node_id)

    def reconnect_delay(self, node_id: int) -> float:
        """Returns the seconds until the broker may be connected to again."""
        return self._client.pool.ready_in_ms(node_id) / 1000

    def connect(self, node_id: int) -> None:
        """Starts to connect, and polls the sender when that has succeeded or failed."""
        if node_id not in self._connecting:
            self._connecting.add(node_id)
            self._sender_loop.create_task(self._connect(node_id))

    async def _connect(self, node_id: int) -> None:
        try:
            await self._client.pool.connect(node_id)
            self.connection_errors.pop(node_id, None)
        except KafkaError as error:
            self.connection_errors[node_id] = error
            _logger.debug("Connection to broker %d failed: %s", node_id, error)
            self._client.metadata.request_update()
        finally:
            self._connecting.discard(node_id)
            self._sender_loop.wake()

    def produce(
        self,
        node_id: int,
        request: ProduceRequest,
        min_version: int | None,
        max_version: int | None,
        on_response: OnResponse,
    ) -> None:
        """Sends a Produce request. Raises KafkaError if it cannot be sent. Calls `on_response(response, error)` later,
        never within this call."""
        future = self._client.pool.send_now(
            node_id, request, min_version=min_version, max_version=max_version, expect_response=self._acks != 0
        )

        def done(future: "asyncio.Future[Any]") -> None:
            error = future.exception()
            on_response(None if error is not None else future.result(), error)

        future.add_done_callback(done)

    # ---- other requests: one attempt each

    async def send_to_any(self, request: Message) -> Any:
        """Sends a request to any broker and returns the response."""
        return await self._client.pool.send_to_any(request)

    async def send_to_coordinator(
        self,
        coordinator_type: CoordinatorType,
        key: str,
        request: Message,
        min_version: int | None = None,
        max_version: int | None = None,
    ) -> Any:
        """Finds the coordinator of a group or transactional ID, sends it a request and returns the response."""
        node_id = await self._client.coordinators.find(coordinator_type, key, self._request_timeout_ms)
        return await self._client.pool.send(
            node_id, request, min_version=min_version, max_version=max_version, purpose=COORDINATOR
        )

    def forget_coordinator(self, coordinator_type: CoordinatorType, key: str) -> None:
        """Has the next request look up the coordinator again."""
        self._client.coordinators.forget(coordinator_type, key)

    async def transaction_version(self, transactional_id: str) -> int:
        """Returns the level of the feature `transaction.version` at the transaction coordinator."""
        node_id = await self._client.coordinators.find(
            CoordinatorType.TRANSACTION, transactional_id, self._request_timeout_ms
        )
        await self._client.pool.connect(node_id, COORDINATOR)
        return self._client.pool.features(node_id).get("transaction.version", 1)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
