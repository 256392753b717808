"""Transactions: open ones by transactional id, hanging ones by partition, the producers of a topic, and abort.

A transaction hangs if it is open in a partition for longer than producers may take, but no coordinator knows it as
open. Consumers with `read_committed` cannot read past it until it is aborted.
"""

from dataclasses import dataclass
from typing import Annotated, Any

from headrace.aio.admin import Admin
from headrace.client.admin.types import AbortTransactionSpec, TransactionDescription
from headrace.common.errors import KafkaError
from headrace.common.types import TopicPartition
from headrace.console.calls import Call
from headrace.console.errors import ApiError
from headrace.console.paging import PageQuery, page_of, select
from headrace.console.routing import Router
from headrace.console.schema import Length, Range

router = Router("transactions")
_TRANSACTIONS = "/api/clusters/{cluster}/transactions"
_MAX_TIMEOUT_MS = 15 * 60_000
"""The default of transaction.max.timeout.ms. A transaction that has been open for longer is suspicious."""
_MAX_PARTITIONS = 50_000


@dataclass(frozen=True)
class TransactionPartition:
    """A partition of a transaction."""

    topic: str
    partition: int


@dataclass(frozen=True)
class TransactionItem:
    """A transactional id and its transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    coordinator: int
    timeout_ms: int
    start_time_ms: int | None
    age_ms: int | None
    partitions: list[TransactionPartition]
    hanging: bool
    """Open for longer than its own timeout."""


@dataclass(frozen=True, kw_only=True)
class TransactionsQuery(PageQuery):
    """Which transactions."""

    state: Annotated[str, Length(0, 50)] = ""
    """Such as Ongoing or CompleteCommit."""
    sort: str = "transactional_id"


@dataclass(frozen=True)
class TransactionsPage:
    """A part of the transactions."""

    items: list[TransactionItem]
    total: int
    page: int
    per_page: int


@dataclass(frozen=True)
class HangingItem:
    """A hanging transaction in one partition."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp_ms: int
    transactional_id: str | None


@dataclass(frozen=True)
class HangingList:
    """The hanging transactions."""

    items: list[HangingItem]
    time_ms: int
    partitions_total: int
    """How many partitions there are."""
    partitions_checked: int


@dataclass(frozen=True)
class HangingQuery:
    """Since when a transaction has to be open."""

    older_than_ms: Annotated[int, Range(0, 2**53)] = _MAX_TIMEOUT_MS


@dataclass(frozen=True)
class TopicProducerItem:
    """An active producer of a partition."""

    partition: int
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    current_txn_start_offset: int | None
    coordinator_epoch: int


@dataclass(frozen=True)
class TopicProducerList:
    """The active producers of a topic."""

    items: list[TopicProducerItem]


@dataclass(frozen=True)
class AbortRequest:
    """The transaction to abort: by its transactional id, or by topic, partition and start offset."""

    transactional_id: Annotated[str, Length(1, 10_000)] | None = None
    topic: Annotated[str, Length(1, 249)] | None = None
    partition: Annotated[int, Range(0, 2**31 - 1)] | None = None
    start_offset: Annotated[int, Range(0, 2**63 - 1)] | None = None


@dataclass(frozen=True)
class AbortedTransactionResult:
    """The transaction is aborted."""

    aborted: bool


@router.get(_TRANSACTIONS, query=TransactionsQuery, response=TransactionsPage, summary="List transactions")
async def list_transactions(call: Call, query: TransactionsQuery) -> TransactionsPage:
    """The transactional ids that the user may see, with their transactions."""
    admin = await call.admin()
    listed = await admin.list_transactions(state_filters=[query.state] if query.state else None)
    wanted = query.search.lower()
    ids = [item.transactional_id for item in listed if wanted in item.transactional_id.lower()]
    described = await admin.describe_transactions(ids, raise_errors=False) if ids else {}
    now = call.clock.time_ms()
    items = [_item(found, now) for found in described.values() if found.error is None]
    found = select(
        items,
        query,
        lambda item: item.transactional_id,
        {
            "transactional_id": lambda item: item.transactional_id,
            "name": lambda item: item.transactional_id,
            "state": lambda item: item.state,
            "age_ms": lambda item: item.age_ms,
            "producer_id": lambda item: item.producer_id,
        },
    )
    return TransactionsPage(page_of(found, query), len(found), query.page, query.per_page)


def _item(found: TransactionDescription, now: int) -> TransactionItem:
    start = found.transaction_start_time_ms
    age = None if start is None else max(now - start, 0)
    return TransactionItem(
        found.transactional_id,
        found.producer_id,
        found.producer_epoch,
        found.state,
        found.coordinator_id,
        found.transaction_timeout_ms,
        start,
        age,
        [TransactionPartition(tp.topic, tp.partition) for tp in sorted(found.partitions)],
        age is not None and age > found.transaction_timeout_ms,
    )


@router.get(f"{_TRANSACTIONS}/hanging", query=HangingQuery, response=HangingList, summary="Find hanging transactions")
async def find_hanging_transactions(call: Call, query: HangingQuery) -> HangingList:
    """Transactions that have been open in a partition for a long time, and that no coordinator has as open. Looks at
    the topics that the user may see."""
    admin = await call.admin()
    partitions = await _partitions(admin)
    now = call.clock.time_ms()
    checked = partitions[:_MAX_PARTITIONS]
    found = await admin.list_hanging_transactions(checked, now - query.older_than_ms, raise_errors=False)
    items = [
        HangingItem(
            one.tp.topic,
            one.tp.partition,
            one.producer.producer_id,
            one.producer.producer_epoch,
            one.producer.coordinator_epoch,
            one.producer.current_txn_start_offset,
            one.producer.last_timestamp,
            one.transactional_id,
        )
        for one in found
    ]
    return HangingList(items, now, len(partitions), len(checked))


async def _partitions(admin: Admin) -> list[TopicPartition]:
    described = await admin.describe_topics(raise_errors=False)
    return sorted(
        TopicPartition(topic.name, partition.partition)
        for topic in described.values()
        if topic.error is None
        for partition in topic.partitions
        if partition.leader is not None
    )


@router.get("/api/clusters/{cluster}/topics/{topic}/producers", response=TopicProducerList, summary="List producers")
async def list_topic_producers(call: Call) -> TopicProducerList:
    """The active idempotent and transactional producers of a topic, as its leaders know them."""
    admin = await call.admin()
    name = call.path["topic"]
    description = (await admin.describe_topics([name]))[name]
    tps = [TopicPartition(name, partition.partition) for partition in description.partitions]
    states = await admin.describe_producers(tps) if tps else {}
    return TopicProducerList(
        [
            TopicProducerItem(
                tp.partition,
                producer.producer_id,
                producer.producer_epoch,
                producer.last_sequence,
                producer.last_timestamp,
                producer.current_txn_start_offset if producer.current_txn_start_offset >= 0 else None,
                producer.coordinator_epoch,
            )
            for tp, state in sorted(states.items())
            for producer in state.producers
        ]
    )


@router.post(
    f"{_TRANSACTIONS}/abort",
    body=AbortRequest,
    response=AbortedTransactionResult,
    change="abort transaction",
    summary="Abort a transaction",
)
async def abort_transaction(call: Call, body: AbortRequest) -> AbortedTransactionResult:
    """By transactional id: fences its producer, which aborts the open transaction. By partition and start offset:
    writes an abort marker for a hanging transaction."""
    admin = await call.admin()
    place = (body.topic, body.partition, body.start_offset)
    if body.transactional_id is not None and place == (None, None, None):
        call.audit(f"transactional id {body.transactional_id}")
        await admin.fence_producers([body.transactional_id])
        return AbortedTransactionResult(True)
    if body.transactional_id is not None or body.topic is None or body.partition is None or body.start_offset is None:
        message = "Expected either transactional_id, or topic, partition and start_offset"
        raise ApiError(400, "INVALID_REQUEST", message)
    tp = TopicPartition(body.topic, body.partition)
    call.audit(str(tp), start_offset=body.start_offset)
    producer = await _producer_at(admin, tp, body.start_offset)
    spec = AbortTransactionSpec(tp, producer.producer_id, producer.producer_epoch, max(producer.coordinator_epoch, 0))
    await admin.abort_transaction(spec)
    return AbortedTransactionResult(True)


async def _producer_at(admin: Admin, tp: TopicPartition, start_offset: int) -> Any:
    state = (await admin.describe_producers([tp], raise_errors=False))[tp]
    error: KafkaError | None = state.error
    if error is not None:
        raise error
    for producer in state.producers:
        if producer.current_txn_start_offset == start_offset:
            return producer
    raise ApiError(404, "TRANSACTION_NOT_FOUND", f"No transaction is open in {tp} from offset {start_offset} on")
