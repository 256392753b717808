"""Routing, retries and per-item results of admin requests. Owner: the loop."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar

from headrace.client.admin.types import Results
from headrace.client.config.types import AdminConfig
from headrace.client.coordinators import COORDINATOR, CoordinatorType
from headrace.client.core import ClientCore
from headrace.client.errors import IllegalStateError, KafkaTimeoutError, is_stale_metadata
from headrace.common.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    FencedLeaderEpochError,
    KafkaError,
    KafkaStorageError,
    LeaderNotAvailableError,
    NotControllerError,
    NotCoordinatorError,
    NotLeaderForPartitionError,
    OffsetNotAvailableError,
    ReplicaNotAvailableError,
    UnknownLeaderEpochError,
    UnknownTopicOrPartitionError,
)
from headrace.common.types import TopicPartition
from headrace.net.nodes import Node
from headrace.protocol import Message

_logger = logging.getLogger(__name__)

K = TypeVar("K")
V = TypeVar("V")

MOVED_LEADER = (
    NotLeaderForPartitionError,
    LeaderNotAvailableError,
    FencedLeaderEpochError,
    UnknownLeaderEpochError,
    ReplicaNotAvailableError,
    KafkaStorageError,
    OffsetNotAvailableError,
)
MOVED_COORDINATOR = (NotCoordinatorError, CoordinatorNotAvailableError, CoordinatorLoadInProgressError)
_NO_OPERATIONS = -(2**31)
_LEAST_MS = 1.0

Attempt = Callable[[list[K]], Awaitable[Mapping[K, V]]]


class AdminBase:
    """The base class of the admin client's parts."""

    core: ClientCore[AdminConfig]

    def _timeout_ms(self, timeout_ms: float | None) -> float:
        if self.core.closed:
            raise IllegalStateError("This admin client is closed")
        return float(self.core.config.default_api_timeout_ms) if timeout_ms is None else timeout_ms

    async def _call_with_retries(
        self, attempt: Callable[[], Awaitable[V]], timeout_ms: float | None, operation: str
    ) -> V:
        """Runs a call about one item. Retries it after retriable errors."""
        return await self.core.retry(attempt, self._timeout_ms(timeout_ms), operation)

    async def _call_for_items(
        self,
        items: Iterable[K],
        attempt: Attempt[K, V],
        timeout_ms: float | None,
        operation: str,
        raise_errors: bool,
        retry_on: tuple[type[KafkaError], ...] = (),
    ) -> Results[K, V]:
        """Runs a call about several items and returns a result per item.

        Items that have no result, or one of the errors in `retry_on`, are retried until the timeout expires. Then their
        last error is their result.
        """
        total_ms = self._timeout_ms(timeout_ms)
        loop = self.core.loop
        deadline = loop.time() + total_ms / 1000
        results: Results[K, V] = Results()
        remaining = list(dict.fromkeys(items))
        order = list(remaining)
        last: KafkaError | None = None
        failures = 0
        while remaining:
            responses: Mapping[K, V] = {}
            try:
                async with asyncio.timeout_at(deadline):
                    responses = await attempt(remaining)
            except KafkaError as error:
                if not error.retriable or isinstance(error, KafkaTimeoutError):
                    raise
                last = error
            except TimeoutError:
                break
            results.update(responses)
            to_retry = []
            for item in remaining:
                failure = getattr(responses[item], "error", None) if item in responses else last
                if item not in responses or isinstance(failure, retry_on):
                    to_retry.append(item)
                    last = failure
            remaining = to_retry
            if not remaining:
                break
            if last is not None and is_stale_metadata(last):
                self.core.metadata.request_update()
            wait = self.core.backoff.wait_seconds(failures)
            failures += 1
            if loop.time() + wait >= deadline:
                break
            await asyncio.sleep(wait)
        missing = [item for item in order if item not in results]
        if missing:
            reason = f"; the last error: {last}" if last is not None else ""
            raise KafkaTimeoutError(f"{operation} took longer than {total_ms:.0f} ms{reason}") from last
        ordered: Results[K, V] = Results((item, results[item]) for item in order)
        if raise_errors:
            ordered.raise_errors()
        return ordered

    # ---- routing

    async def _to_any(self, request: Message, **bounds: int | None) -> Any:
        return await self.core.pool.send_to_any(request, **bounds)  # type: ignore[arg-type]

    async def _to_controller(self, request: Message, **bounds: int | None) -> Any:
        """Sends a request to the controller. If the metadata names none, any broker gets the request and forwards
        it."""
        controller = await self._controller_id()
        if controller < 0:
            return await self._to_any(request, **bounds)
        return await self.core.pool.send(controller, request, **bounds)  # type: ignore[arg-type]

    async def _controller_id(self) -> int:
        view = self.core.metadata.view
        if view.controller is None:
            view = await self.core.metadata.update_brokers(self._timeout_ms(None))
        return -1 if view.controller is None else view.controller_id

    async def _refresh_controller(self, errors: Iterable[KafkaError | None]) -> None:
        """Refreshes metadata if the controller has changed."""
        if any(isinstance(error, NotControllerError) for error in errors):
            await self.core.metadata.update_brokers(self._timeout_ms(None))

    async def _broker_ids(self, broker_ids: Iterable[int] | None) -> list[int]:
        if broker_ids is not None:
            return list(broker_ids)
        await self.core.metadata.update_brokers(self._timeout_ms(None))
        return sorted(self.core.pool.nodes)

    async def _to_coordinator(
        self, kind: CoordinatorType, key: str, request: Message, timeout_ms: float, **bounds: int | None
    ) -> Any:
        coordinator = await self.core.coordinators.find(kind, key, max(timeout_ms, _LEAST_MS))
        try:
            return await self.core.pool.send(coordinator, request, purpose=COORDINATOR, **bounds)  # type: ignore[arg-type]
        except KafkaError:
            self.core.coordinators.forget(kind, key, coordinator)
            raise

    def _coordinator_moved(self, kind: CoordinatorType, key: str, error: KafkaError | None) -> None:
        if isinstance(error, MOVED_COORDINATOR):
            self.core.coordinators.forget(kind, key)

    async def _by_leader(
        self, tps: Iterable[TopicPartition], timeout_ms: float
    ) -> tuple[dict[Node, list[TopicPartition]], dict[TopicPartition, KafkaError]]:
        """Returns the partitions by leader, and the errors of partitions that have no leader or do not exist."""
        leaders: dict[Node, list[TopicPartition]] = {}
        errors: dict[TopicPartition, KafkaError] = {}
        partitions = list(tps)
        view = await self.core.metadata.update({tp.topic for tp in partitions}, max(timeout_ms, _LEAST_MS))
        for tp in partitions:
            topic = view.topic(tp.topic)
            leader = view.leader(tp)
            if leader is not None:
                leaders.setdefault(leader, []).append(tp)
            elif topic is not None and topic.error is not None:
                errors[tp] = topic.error(f"Topic {tp.topic!r}: {(topic.error.__doc__ or '').splitlines()[0]}")
            elif topic is None or topic.partition(tp.partition) is None:
                errors[tp] = UnknownTopicOrPartitionError(f"Partition {tp} does not exist")
            else:
                errors[tp] = LeaderNotAvailableError(f"Partition {tp} has no leader")
        return leaders, errors

    async def _request_leaders(
        self,
        tps: list[TopicPartition],
        send: Callable[[Node, list[TopicPartition]], Awaitable[Mapping[TopicPartition, V]]],
        fail: Callable[[KafkaError], V],
        timeout_ms: float | None,
    ) -> dict[TopicPartition, V]:
        """Sends requests to all leaders concurrently.

        The partitions of an unreachable leader are left out, so that they are retried. If no leader is reachable, the
        error is raised.
        """
        leaders, errors = await self._by_leader(tps, self._timeout_ms(timeout_ms))
        results = {tp: fail(error) for tp, error in errors.items()}
        outcomes = await asyncio.gather(
            *[send(leader, partitions) for leader, partitions in leaders.items()], return_exceptions=True
        )
        failed: list[KafkaError] = []
        for outcome in outcomes:
            if isinstance(outcome, KafkaError) and outcome.retriable:
                failed.append(outcome)
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                results.update(outcome)
        if failed and not results:
            raise failed[0]
        return results


async def gather(
    items: Iterable[K], send: Callable[[K], Awaitable[V]], fail: Callable[[K, KafkaError], V]
) -> dict[K, V]:
    """Sends a request per item concurrently.

    Items with a retriable error are left out, so that they are retried. If no item has a result, the first error is
    raised.
    """
    keys = list(items)
    outcomes = await asyncio.gather(*[send(key) for key in keys], return_exceptions=True)
    results: dict[K, V] = {}
    retriable: list[KafkaError] = []
    for item, outcome in zip(keys, outcomes, strict=True):
        if isinstance(outcome, KafkaError):
            if outcome.retriable:
                retriable.append(outcome)
            else:
                results[item] = fail(item, outcome)
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            results[item] = outcome
    if retriable and not results:
        raise retriable[0]
    return results


def operations(bits: int) -> frozenset[int] | None:
    """Returns the numbers of the ACL operations in a bit field, or None if they were not requested."""
    if bits == _NO_OPERATIONS:
        return None
    return frozenset(number for number in range(32) if bits >> number & 1)


def by_topic(tps: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Returns partition numbers by topic."""
    partitions: dict[str, list[int]] = {}
    for tp in tps:
        partitions.setdefault(tp.topic, []).append(tp.partition)
    return partitions
