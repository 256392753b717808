"""Checks that the partition of a transactional append belongs to the producer's transaction (KIP-890).

Otherwise a late batch could open a transaction that never ends. The first append of a transaction to a partition asks
the transaction coordinator: older producers have added the partition before (verify), for newer ones the partition
leader adds it. A partition to which the producer has written in this transaction belongs to it.

    coordinator on this broker    called directly; usually the answer is there at once, and the append goes on
    coordinator elsewhere         AddPartitionsToTxn, batched; the append waits, and so do later appends of the same
                                  producer to the same partition, in order; nothing else waits

- A guard is valid from the question until the append. A marker in the partition makes it invalid: the answer may be
  about the transaction that the marker ended. So a marker between answer and append refuses the append.
- If a question fails, the appends that wait behind it fail, too. Their order would be wrong.

Owned by the broker's loop.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import NamedTuple

from headrace.broker.broker_queues import BrokerClient, BrokerQueues
from headrace.broker.config.coordinators import TRANSACTION_TOPIC
from headrace.broker.partition import Partition
from headrace.cluster.metadata_image import MetadataImage
from headrace.common.errors import (
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    KafkaError,
    NetworkExceptionError,
    NotCoordinatorError,
    NotEnoughReplicasError,
    NotLeaderForPartitionError,
    OutOfOrderSequenceNumberError,
    ProducerFencedError,
    RequestTimedOutError,
    TransactionAbortableError,
    UnknownError,
    UnsupportedVersionError,
    for_code,
)
from headrace.common.types import TopicPartition
from headrace.coordinator.result import CoordinatorResponse, ProducerInfo
from headrace.coordinator.runtime import CoordinatorRuntime
from headrace.coordinator.transaction.metadata import EPOCH_PER_TRANSACTION
from headrace.coordinator.transaction.shard import TransactionCoordinatorShard
from headrace.net.errors import KafkaConnectionError
from headrace.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from headrace.storage.log import Log

PURPOSE = "transactions"
FIRST_WITH_BATCHES = 4
"""The first version of AddPartitionsToTxn for brokers."""
_MAX_FAILED = 1_000

Answered = Callable[[KafkaError | None], None]


class Operation(Enum):
    """What the producer's version expects of the coordinator."""

    VERIFY = "verify"
    VERIFY_ABORTABLE = "verify, with TRANSACTION_ABORTABLE"
    ADD = "add"


def produce_operation(version: int) -> Operation:
    """Returns the operation of a Produce version."""
    return Operation.ADD if version >= 12 else Operation.VERIFY_ABORTABLE if version >= 11 else Operation.VERIFY


def is_open(log: Log, producer: ProducerInfo) -> bool:
    """Returns True if the producer has an open transaction with this epoch in a log."""
    entry = log.producers.entries.get(producer.producer_id)
    return entry is not None and entry.transaction_first_offset is not None and entry.epoch == producer.producer_epoch


class Guard:
    """Valid until a marker of the producer is written to the partition, or the partition gets another leader epoch."""

    __slots__ = ("_leader_epoch", "_partition", "has_marker", "producer_id")

    def __init__(self, partition: Partition, producer_id: int):
        self._partition = partition
        self._leader_epoch = partition.leader_epoch
        self.producer_id = producer_id
        self.has_marker = False

    @property
    def tp(self) -> TopicPartition:
        return self._partition.tp

    def check(self) -> None:
        """Raises an error if the coordinator's answer may be out of date."""
        if self.has_marker:
            raise InvalidTxnStateError(
                f"A marker has ended the transaction of producer {self.producer_id} in {self.tp}"
            )
        if self._partition.leader_epoch != self._leader_epoch:
            raise NotLeaderForPartitionError(f"Partition {self.tp} has another leader epoch since the verification")


class _Question(NamedTuple):
    """A question to the coordinator on another broker."""

    transactional_id: str
    producer: ProducerInfo
    verify_only: bool
    tp: TopicPartition
    answered: Answered


class Verifier:
    """Asks transaction coordinators, and keeps the appends that wait for their answers in order."""

    def __init__(
        self,
        node_id: int,
        image: MetadataImage,
        runtime: CoordinatorRuntime[TransactionCoordinatorShard],
        partition_of: Callable[[str], int],
        client: BrokerClient,
        is_enabled: Callable[[], bool],
    ):
        self._node_id = node_id
        self._image = image
        self._runtime = runtime
        self._partition_of = partition_of
        self._client = client
        self._is_enabled = is_enabled
        self._queues: BrokerQueues[_Question] = BrokerQueues(self._send)
        self._guards: dict[tuple[TopicPartition, int], set[Guard]] = {}
        """By partition and producer id."""
        self.last_appends: dict[tuple[TopicPartition, ProducerInfo], asyncio.Future[KafkaError | None]] = {}
        """The end of the last append that waits, by partition and producer."""
        self.failed_sequences: dict[tuple[TopicPartition, ProducerInfo], int] = {}
        """The first sequence number whose verification failed and that the producer has to send again."""

    # ---- guards

    def guard(self, partition: Partition, producer_id: int) -> Guard:
        guard = Guard(partition, producer_id)
        self._guards.setdefault((partition.tp, producer_id), set()).add(guard)
        return guard

    def release(self, guard: Guard) -> None:
        key = guard.tp, guard.producer_id
        guards = self._guards.get(key, set())
        guards.discard(guard)
        if not guards:
            self._guards.pop(key, None)

    def marker_written(self, tp: TopicPartition, producer: ProducerInfo) -> None:
        """Makes the guards of a producer in a partition invalid."""
        for guard in self._guards.pop((tp, producer.producer_id), ()):
            guard.has_marker = True
        self.failed_sequences.pop((tp, producer), None)

    # ---- appends

    def check_append(
        self, partition: Partition, producer: ProducerInfo, sequence: int, transactional_id: str, operation: Operation
    ) -> "UnverifiedAppend | None":
        """Checks an append to a partition that this broker leads. Returns None if it may go on at once.

        Raises KafkaError if the partition does not belong to the transaction, or cannot be verified now.
        """
        append = UnverifiedAppend(self, partition, producer, sequence, transactional_id, operation)
        if (partition.tp, producer) not in self.last_appends and append.start():
            append.finish()
            return None
        append.enqueue()
        return append

    def needs_verification(
        self, log: Log, partition: Partition, producer: ProducerInfo, sequence: int, operation: Operation
    ) -> bool:
        if is_open(log, producer) or (operation is not Operation.ADD and not self._is_enabled()):
            return False
        if producer.producer_id not in log.producers.entries:
            # With ADD, each transaction has its own epoch and begins with sequence 0.
            first = 0 if operation is Operation.ADD else self.failed_sequences.get((partition.tp, producer), sequence)
            if sequence > first:
                raise OutOfOrderSequenceNumberError(
                    f"Producer {producer.producer_id} begins its transaction in {partition.tp} with sequence "
                    f"{sequence}, expected {first}"
                )
        return True

    def note_failure(self, tp: TopicPartition, producer: ProducerInfo, sequence: int) -> None:
        """Notes that a batch could not be verified. The producer sends it again, before later ones."""
        key = tp, producer
        self.failed_sequences[key] = min(self.failed_sequences.get(key, sequence), sequence)
        if len(self.failed_sequences) > _MAX_FAILED:
            del self.failed_sequences[next(iter(self.failed_sequences))]

    async def verify(
        self, partition: Partition, producer: ProducerInfo, transactional_id: str, operation: Operation
    ) -> Guard | None:
        """Verifies a write of a group coordinator. Returns None if the transaction is open in the partition.

        The caller checks the guard in the step that writes, and releases it.
        """
        if is_open(partition.check_leader(), producer) or (operation is not Operation.ADD and not self._is_enabled()):
            return None
        future: asyncio.Future[KafkaError | None] = asyncio.get_running_loop().create_future()
        guard = self.guard(partition, producer.producer_id)
        try:
            self.ask(partition.tp, producer, transactional_id, operation, _resolver(future))
            error = await future
            if error is not None:
                raise error
        except BaseException:
            self.release(guard)
            raise
        return guard

    # ---- asking

    def ask(
        self,
        tp: TopicPartition,
        producer: ProducerInfo,
        transactional_id: str,
        operation: Operation,
        answered: Answered,
    ) -> None:
        """Asks the transaction coordinator. Calls `answered` once, now or later."""

        def translated(error: KafkaError | None) -> None:
            if isinstance(error, ProducerFencedError):
                error = InvalidProducerEpochError(str(error))
            elif isinstance(error, TransactionAbortableError) and operation is Operation.VERIFY:
                error = InvalidTxnStateError(str(error))
            answered(error)

        coordinator_partition = self._partition_of(transactional_id)
        if coordinator_partition in self._runtime:
            self._ask_here(coordinator_partition, tp, producer, transactional_id, operation, translated)
            return
        state = self._image.partition(TRANSACTION_TOPIC, coordinator_partition)
        if state is None or state.leader == self._node_id or not self._image.is_alive(state.leader):
            translated(
                CoordinatorNotAvailableError(f"Transactional id {transactional_id!r} has no coordinator at the moment")
            )
            return
        verify_only = operation is not Operation.ADD
        self._queues.add(state.leader, _Question(transactional_id, producer, verify_only, tp, translated))

    def _ask_here(
        self,
        coordinator_partition: int,
        tp: TopicPartition,
        producer: ProducerInfo,
        transactional_id: str,
        operation: Operation,
        answered: Answered,
    ) -> None:
        if operation is Operation.ADD:
            self._runtime.write(
                coordinator_partition,
                lambda shard: shard.add_partitions(transactional_id, producer, [tp], EPOCH_PER_TRANSACTION),
                lambda response: answered(response.error),
            )
            return

        def verified(response: CoordinatorResponse[bool]) -> None:
            if response.error is None and not response.result():
                answered(
                    TransactionAbortableError(
                        f"Partition {tp} was not added to the transaction of {transactional_id!r}"
                    )
                )
            else:
                answered(response.error)

        self._runtime.read(
            coordinator_partition, lambda shard: shard.verify(transactional_id, producer, [tp])[tp], verified
        )

    async def _send(self, broker_id: int, questions: Sequence[_Question]) -> Iterable[_Question]:
        """Sends a batch of questions. Returns those that have to wait for the next request."""
        batch: dict[str, list[_Question]] = {}
        """By transactional id, the key of the response. So each request has only one producer of an id."""
        waiting: list[_Question] = []
        for question in questions:
            others = batch.setdefault(question.transactional_id, [])
            if others and others[0][:3] != question[:3]:
                waiting.append(question)
            else:
                others.append(question)
        request = AddPartitionsToTxnRequest(transactions=[_encode(asked) for asked in batch.values()])
        failure: KafkaError = UnknownError(f"The response of broker {broker_id} has no result for it")
        codes: dict[tuple[str, TopicPartition], int] = {}
        try:
            response = await self._client.send(broker_id, request, purpose=PURPOSE, min_version=FIRST_WITH_BATCHES)
            codes = _codes(response)
            if response.error_code:
                failure = for_code(response.error_code)(f"Broker {broker_id} refused the request")
        except KafkaError as error:
            failure = error
        for transactional_id, asked in batch.items():
            for question in asked:
                code = codes.get((transactional_id, question.tp))
                if code is None:
                    # An old coordinator cannot verify: as in Kafka, the append goes on.
                    is_old = isinstance(failure, UnsupportedVersionError) and question.verify_only
                    question.answered(None if is_old else failure)
                else:
                    question.answered(_error(code, question) if code else None)
        return waiting

    async def close(self) -> None:
        """Cancels the requests in flight."""
        await self._queues.close()


class UnverifiedAppend:
    """An append that waits for the coordinator, or behind an earlier append of the producer to the partition.

    Call `wait`, then `check` in the step that appends, and `finish` in any case, after the append.
    """

    __slots__ = ("_answer", "_failure", "_finished", "_guard", "_is_verified", "_previous", "_verifier", "arguments")

    def __init__(
        self,
        verifier: Verifier,
        partition: Partition,
        producer: ProducerInfo,
        sequence: int,
        transactional_id: str,
        operation: Operation,
    ):
        self._verifier = verifier
        self.arguments = partition, producer, sequence, transactional_id, operation
        self._guard: Guard | None = None
        self._is_verified = False
        self._failure: KafkaError | None = None
        self._answer: asyncio.Future[KafkaError | None] | None = None
        self._previous: asyncio.Future[KafkaError | None] | None = None
        self._finished: asyncio.Future[KafkaError | None] | None = None

    def start(self) -> bool:
        """Asks the coordinator if necessary. Returns True if the append may go on at once. Raises KafkaError."""
        partition, producer, sequence, transactional_id, operation = self.arguments
        log = partition.check_leader()
        verifier = self._verifier
        if not verifier.needs_verification(log, partition, producer, sequence, operation):
            return True
        answers: list[KafkaError | None] = []
        future: asyncio.Future[KafkaError | None] | None = None

        def answered(error: KafkaError | None) -> None:
            if future is None:
                answers.append(error)
            elif not future.done():
                future.set_result(error)

        self._guard = verifier.guard(partition, producer.producer_id)
        verifier.ask(partition.tp, producer, transactional_id, operation, answered)
        if not answers:
            self._answer = future = asyncio.get_running_loop().create_future()
            return False
        if answers[0] is not None:
            verifier.release(self._guard)
        self._raise(answers[0])
        return True

    def enqueue(self) -> None:
        """Makes later appends of the producer to the partition wait for this one."""
        partition, producer, *_ = self.arguments
        last_appends, key = self._verifier.last_appends, (partition.tp, producer)
        self._previous = last_appends.get(key)
        self._finished = last_appends[key] = asyncio.get_running_loop().create_future()

    async def wait(self) -> None:
        """Waits until it is this append's turn and it is verified. Raises KafkaError if it must not be appended.

        Later calls return at once.
        """
        if self._is_verified:
            return
        self._failure = NotEnoughReplicasError("The broker has stopped to verify the transaction")  # if cancelled
        try:
            if self._previous is not None:
                error = await asyncio.shield(self._previous)
                if error is not None:
                    raise error
                self._previous = None
                self._is_verified = self.start()
            if self._answer is not None:
                self._raise(await self._answer)
        except KafkaError as error:
            self._failure = error
            raise
        self._is_verified = True
        self._failure = None

    def _raise(self, error: KafkaError | None) -> None:
        """Raises an error of the coordinator as the error for the producer."""
        if error is None:
            return
        partition, producer, sequence, _, operation = self.arguments
        if isinstance(error, ConcurrentTransactionsError):
            is_retried = operation is not Operation.ADD
        else:
            is_retried = isinstance(error, _UNAVAILABLE)
        if not is_retried:
            raise error
        # Producers retry NOT_ENOUGH_REPLICAS, and do not look for another leader.
        self._verifier.note_failure(partition.tp, producer, sequence)
        raise NotEnoughReplicasError(f"The transaction cannot be verified at the moment: {error}") from error

    def check(self) -> None:
        """Raises KafkaError if the answer is no longer valid. Call it in the same step as the append."""
        partition, producer, sequence, _, operation = self.arguments
        log = partition.check_leader()
        if is_open(log, producer):
            return
        if self._guard is not None:
            self._guard.check()
        elif self._verifier.needs_verification(log, partition, producer, sequence, operation):
            raise InvalidTxnStateError(
                f"The transaction of producer {producer.producer_id} in {partition.tp} has ended"
            )

    def finish(self) -> None:
        """Ends the wait of later appends. If this one could not be verified, they fail as well. Later calls do
        nothing."""
        partition, producer, *_ = self.arguments
        verifier, key = self._verifier, (partition.tp, producer)
        if self._guard is not None:
            verifier.release(self._guard)
        if self._failure is None:
            verifier.failed_sequences.pop(key, None)
        if self._finished is not None and not self._finished.done():
            if verifier.last_appends.get(key) is self._finished:
                del verifier.last_appends[key]
            self._finished.set_result(self._failure)


_UNAVAILABLE = (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    KafkaConnectionError,
    NetworkExceptionError,
    NotCoordinatorError,
    RequestTimedOutError,
    UnsupportedVersionError,
)
"""The coordinator cannot answer now."""


def _resolver(future: "asyncio.Future[KafkaError | None]") -> Answered:
    def answered(error: KafkaError | None) -> None:
        if not future.done():
            future.set_result(error)

    return answered


def _encode(questions: Sequence[_Question]) -> AddPartitionsToTxnTransaction:
    """Returns the partitions of one transaction."""
    first = questions[0]
    topics: dict[str, dict[int, None]] = {}
    for question in questions:
        topics.setdefault(question.tp.topic, {})[question.tp.partition] = None
    return AddPartitionsToTxnTransaction(
        transactional_id=first.transactional_id,
        producer_id=first.producer.producer_id,
        producer_epoch=first.producer.producer_epoch,
        verify_only=first.verify_only,
        topics=[AddPartitionsToTxnTopic(name=name, partitions=list(indexes)) for name, indexes in topics.items()],
    )


def _codes(response: AddPartitionsToTxnResponse) -> dict[tuple[str, TopicPartition], int]:
    return {
        (result.transactional_id, TopicPartition(topic.name, partition.partition_index)): partition.partition_error_code
        for result in response.results_by_transaction
        for topic in result.topic_results
        for partition in topic.results_by_partition
    }


def _error(code: int, question: _Question) -> KafkaError:
    return for_code(code)(
        f"The coordinator of transactional id {question.transactional_id!r} refused partition {question.tp}"
    )
