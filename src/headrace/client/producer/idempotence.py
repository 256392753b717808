"""Sequence numbers at work: a producer's identity is asked for, epochs are bumped, lost sequences begin again.

What the sender asks before and after each batch (`sender.Guard`, `accumulator.Order`), for a producer that is
idempotent and has no transactions. Owned by the loop.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeVar

from headrace.client.coordinators import CoordinatorType
from headrace.client.errors import check
from headrace.client.producer._batch import ProducerBatch
from headrace.client.producer.sequences import ProducerIdentity, Sequences
from headrace.common.backoff import Backoff
from headrace.common.errors import (
    CoordinatorNotAvailableError,
    KafkaError,
    NetworkExceptionError,
    NotCoordinatorError,
    OutOfOrderSequenceNumberError,
    RequestTimedOutError,
    UnknownProducerIdError,
)
from headrace.common.types import TopicPartition
from headrace.net.errors import KafkaConnectionError
from headrace.protocol import Message
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest

__all__ = ["Calls", "Idempotence", "persist"]

_logger = logging.getLogger(__name__)

T = TypeVar("T")
_NO_TIMEOUT_MS = 2**31 - 1


class Calls(Protocol):
    """Requests that are no Produce. Each is one attempt and raises what went wrong."""

    async def any_broker(self, request: Message) -> Any: ...

    async def coordinator(
        self, kind: CoordinatorType, key: str, request: Message, min_version: int | None, max_version: int | None
    ) -> Any: ...

    def forget_coordinator(self, kind: CoordinatorType, key: str) -> None: ...

    async def transaction_version(self, key: str) -> int:
        """The level of the feature `transaction.version` at the coordinator of a transactional id."""

    async def sleep(self, seconds: float) -> None: ...


_ASK_ANOTHER = (
    NotCoordinatorError,
    CoordinatorNotAvailableError,
    NetworkExceptionError,
    KafkaConnectionError,
    RequestTimedOutError,
)


async def persist(
    calls: Calls, backoff: Backoff, attempt: Callable[[], Awaitable[T]], coordinator: tuple[CoordinatorType, str] | None
) -> T:
    """Tries until it succeeds, or fails for good."""
    failures = 0
    while True:
        try:
            return await attempt()
        except KafkaError as error:
            if not error.retriable:
                raise
            if coordinator is not None and isinstance(error, _ASK_ANOTHER):
                calls.forget_coordinator(*coordinator)
            _logger.debug("again: %r", error)
        await calls.sleep(backoff.wait_seconds(failures))
        failures += 1


class Idempotence:
    def __init__(
        self,
        calls: Calls,
        backoff: Backoff,
        start: Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"],
        wake: Callable[[], None],
        on_fatal: Callable[[BaseException], None],
        transactional: bool = False,
    ):
        """`start` makes a task; `wake` has the sender look again; `on_fatal` hears of the error that ends it all."""
        self.sequences = Sequences(transactional)
        self._calls = calls
        self._backoff = backoff
        self._start = start
        self._wake = wake
        self._on_fatal = on_fatal
        self._asking: asyncio.Task[None] | None = None
        self._has_failed = False

    # ---- the sender's

    def prepare(self) -> None:
        sequences = self.sequences
        for tp in sequences.resolve():
            _logger.info("records for %s may be missing: the producer's epoch is bumped", tp)
            sequences.request_bump(tp)
        if sequences.must_bump and sequences.identity.is_valid:
            sequences.bump()
        if not sequences.identity.is_valid and self._asking is None and not self._has_failed:
            self._asking = self._start(self._ask_identity())

    def versions(self) -> tuple[int | None, int | None]:
        return None, None

    def may_drain(self, batch: ProducerBatch) -> bool:
        return self.sequences.may_drain(batch)

    def drained(self, batch: ProducerBatch) -> None:
        self.sequences.drained(batch)

    def is_next(self, batch: ProducerBatch) -> bool:
        return self.sequences.is_next(batch)

    def is_unresolved(self, tp: TopicPartition) -> bool:
        return self.sequences.is_unresolved(tp)

    def acked(self, batch: ProducerBatch) -> None:
        self.sequences.acked(batch)

    def failed(self, batch: ProducerBatch, error: BaseException, known_unwritten: bool) -> None:
        self.sequences.failed(batch, known_unwritten)
        if isinstance(error, OutOfOrderSequenceNumberError | UnknownProducerIdError):
            self.sequences.request_bump(batch.tp)

    def replaced(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        self.sequences.replaced(batch, parts)

    def may_retry(self) -> bool:
        return True

    def lost_sequence(self, tp: TopicPartition) -> bool:
        self.sequences.request_bump(tp)
        return True

    # ---- the identity

    async def _ask_identity(self) -> None:
        async def attempt() -> ProducerIdentity:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_NO_TIMEOUT_MS)
            reply = await self._calls.any_broker(request)
            check(reply.error_code)
            return ProducerIdentity(reply.producer_id, reply.producer_epoch)

        try:
            identity = await persist(self._calls, self._backoff, attempt, None)
        except KafkaError as error:
            self._has_failed = True
            error.fatal = True
            self._on_fatal(error)
        else:
            self.sequences.has_new_identity(identity)
        finally:
            self._asking = None
        self._wake()
