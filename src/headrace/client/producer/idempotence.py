"""The idempotent producer without transactions: gets a producer ID, bumps the epoch, assigns sequence numbers.

The accumulator and the sender call it for each batch. `TransactionManager` extends it. Belongs to the event loop.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from headrace.client.coordinators import CoordinatorType
from headrace.client.errors import check
from headrace.client.producer._batch import ProducerBatch
from headrace.client.producer.network_client import NetworkClient
from headrace.client.producer.sender_loop import SenderLoop
from headrace.client.producer.sequences import ProducerIdAndEpoch, Sequences
from headrace.common.backoff import Backoff
from headrace.common.errors import (
    CoordinatorNotAvailableError,
    KafkaError,
    NetworkExceptionError,
    NotCoordinatorError,
    RequestTimedOutError,
)
from headrace.common.types import TopicPartition
from headrace.net.errors import KafkaConnectionError
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest

__all__ = ["IdempotenceManager", "retry_until_done"]

_logger = logging.getLogger(__name__)

T = TypeVar("T")
_NO_TIMEOUT_MS = 2**31 - 1


_COORDINATOR_MOVED = (
    NotCoordinatorError,
    CoordinatorNotAvailableError,
    NetworkExceptionError,
    KafkaConnectionError,
    RequestTimedOutError,
)


async def retry_until_done(
    network: NetworkClient,
    backoff: Backoff,
    attempt: Callable[[], Awaitable[T]],
    coordinator: tuple[CoordinatorType, str] | None,
) -> T:
    """Repeats an attempt with backoff until it succeeds or raises an error that is not retriable. Looks up the
    coordinator again if it may have moved."""
    failures = 0
    while True:
        try:
            return await attempt()
        except KafkaError as error:
            if not error.retriable:
                raise
            if coordinator is not None and isinstance(error, _COORDINATOR_MOVED):
                network.forget_coordinator(*coordinator)
            _logger.debug("Retrying after %r", error)
        await network.sleep(backoff.wait_seconds(failures))
        failures += 1


class IdempotenceManager:
    """The producer ID, the epoch and the sequence numbers of a producer."""

    def __init__(
        self,
        network: NetworkClient,
        backoff: Backoff,
        sender_loop: SenderLoop,
        on_fatal_error: Callable[[BaseException], None],
        transactional: bool = False,
    ):
        """`on_fatal_error` is called once, with the error after which the producer cannot continue."""
        self.sequences = Sequences(transactional)
        self.transactional_id: str | None = None
        self._network = network
        self._backoff = backoff
        self._sender_loop = sender_loop
        self._on_fatal_error = on_fatal_error
        self._init_task: asyncio.Task[None] | None = None
        self._has_failed = False

    # ---- the accumulator

    def maybe_add_partition(self, tp: TopicPartition) -> None:
        """Called in the thread that sends, before a batch is opened for a partition."""

    def may_drain(self, batch: ProducerBatch) -> bool:
        """Returns True if the batch at the head of its partition's queue may be sent now."""
        return self.sequences.may_drain(batch)

    def assign_sequence(self, batch: ProducerBatch) -> None:
        """Gives a drained batch its producer ID, epoch and sequence number."""
        self.sequences.assign_sequence(batch)

    # ---- the sender

    def prepare(self) -> None:
        """Called before each poll: requests a producer ID and bumps the epoch if necessary."""
        sequences = self.sequences
        for tp in sequences.resolve():
            _logger.info(
                "Partition %s: a batch failed and may or may not be in the log; bumping the producer epoch", tp
            )
            sequences.request_bump(tp)
        if sequences.must_bump and sequences.identity.is_valid:
            sequences.bump()
        if not sequences.identity.is_valid and self._init_task is None and not self._has_failed:
            self._init_task = self._sender_loop.create_task(self._init_producer_id())

    def produce_versions(self) -> tuple[int | None, int | None]:
        """Returns the lowest and highest version of Produce to use, or None for any."""
        return None, None

    def is_next(self, batch: ProducerBatch) -> bool:
        """Returns True if the batch follows the last acknowledged one."""
        return self.sequences.is_next(batch)

    def is_unresolved(self, tp: TopicPartition) -> bool:
        """Returns True if a batch of the partition failed and may or may not have been written."""
        return self.sequences.is_unresolved(tp)

    def doubtful_parts(self, tp: TopicPartition) -> set[ProducerBatch]:
        """Returns the parts of split batches whose records the leader may have, as parts of the whole batch."""
        return self.sequences.doubtful_parts(tp)

    def handle_completed_batch(self, batch: ProducerBatch) -> None:
        self.sequences.handle_completed_batch(batch)

    def handle_failed_batch(self, batch: ProducerBatch, error: BaseException) -> None:  # noqa: ARG002
        self.sequences.handle_failed_batch(batch)

    def replace_batch(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """Gives the sequence numbers of a split batch to its parts."""
        self.sequences.replace_batch(batch, parts)

    def may_retry(self) -> bool:
        """Returns False if batches can no longer succeed."""
        return True

    def reset_sequence(self, tp: TopicPartition) -> bool:
        """Handles a partition whose sequence is lost. Returns True if it starts again in a new epoch, so that the batch
        may be retried."""
        self.sequences.request_bump(tp)
        return True

    # ---- the producer ID

    async def _init_producer_id(self) -> None:
        async def attempt() -> ProducerIdAndEpoch:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_NO_TIMEOUT_MS)
            response = await self._network.send_to_any(request)
            check(response.error_code)
            return ProducerIdAndEpoch(response.producer_id, response.producer_epoch)

        try:
            identity = await retry_until_done(self._network, self._backoff, attempt, None)
        except KafkaError as error:
            self._has_failed = True
            error.fatal = True
            self._on_fatal_error(error)
        else:
            self.sequences.set_new_producer_id(identity)
        finally:
            self._init_task = None
        self._sender_loop.wake()
