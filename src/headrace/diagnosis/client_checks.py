"""Checks of what clients do: lagging groups, hanging transactions."""

from collections.abc import Iterable

from headrace.client.admin.types import TransactionDescription
from headrace.diagnosis.snapshot import (
    Finding,
    GroupProgress,
    Limits,
    Severity,
    Snapshot,
    counted,
    duration,
    texts,
)

_OVERDUE_MS = 60_000


def lagging_groups(snapshot: Snapshot, limits: Limits) -> Iterable[Finding]:
    """Groups that have not read records which are older than the allowed lag."""
    for group in sorted(snapshot.groups, key=lambda group: group.group_id):
        late = {tp: found for tp, found in group.partitions.items() if found.committed < found.due}
        if not late:
            continue
        unread = sum(found.end - max(found.committed, found.start) for found in late.values())
        problem = (
            f"Group {group.group_id} lags in {counted(len(late), 'partition')}: {counted(unread, 'record')} unread, "
            f"some for more than {duration(limits.max_lag_ms)}."
        )
        yield _lagging(group, problem, texts(sorted(late)))


def _lagging(group: GroupProgress, problem: str, items: tuple[str, ...]) -> Finding:
    if group.state == "Empty":
        return Finding(
            "lagging-groups",
            Severity.WARNING,
            f"{problem} It has no members.",
            f"Start its consumers. If nobody needs group {group.group_id} any more, delete it "
            f"(consumer-groups --delete --group {group.group_id}).",
            items,
        )
    return Finding(
        "lagging-groups",
        Severity.WARNING,
        problem,
        "Add consumers (up to the number of partitions), or make them faster. If it does not move at all, look for a "
        "record that a consumer cannot process, and for rebalances in the consumers' logs.",
        items,
    )


def lost_offsets(snapshot: Snapshot, _: Limits) -> Iterable[Finding]:
    """Groups whose committed offsets were deleted before they were read."""
    for group in sorted(snapshot.groups, key=lambda group: group.group_id):
        lost = {tp: found for tp, found in group.partitions.items() if found.committed < found.start}
        if lost:
            count = sum(found.start - found.committed for found in lost.values())
            yield Finding(
                "lost-offsets",
                Severity.ERROR,
                f"Group {group.group_id} has not read {counted(count, 'offset')} in {counted(len(lost), 'partition')} "
                "before retention deleted them. Its consumers continue as auto.offset.reset says.",
                "Raise retention.ms or retention.bytes of the topics, or make the consumers faster.",
                texts(sorted(lost)),
            )
        beyond = {tp: found for tp, found in group.partitions.items() if found.committed > found.end}
        if beyond:
            yield Finding(
                "lost-offsets",
                Severity.ERROR,
                f"Group {group.group_id} has committed offsets beyond the end of {counted(len(beyond), 'partition')}: "
                "records that it read were lost, or the topic was created again.",
                f"Reset the group: consumer-groups --reset-offsets --group {group.group_id} --to-latest.",
                texts(sorted(beyond)),
            )


def hanging_transactions(snapshot: Snapshot, _: Limits) -> Iterable[Finding]:
    """Transactions that never end: unknown to their coordinator, or not completed by it in time."""
    for found in snapshot.unknown_transactions:
        topic, partition = found.tp
        yield Finding(
            "hanging-transactions",
            Severity.ERROR,
            f"A transaction of producer {found.producer_id} hangs in {topic}-{partition} since offset "
            f"{found.start_offset}, {duration(snapshot.now_ms - found.last_timestamp_ms)} ago. Consumers with "
            "read_committed cannot read past it, and compaction stops there.",
            f"Abort it: transactions abort --topic {topic} --partition {partition} "
            f"--start-offset {found.start_offset}.",
            texts([found.tp]),
        )
    for transaction in snapshot.transactions:
        yield from _overdue(transaction, snapshot.now_ms)


def _overdue(transaction: TransactionDescription, now_ms: int) -> Iterable[Finding]:
    start = transaction.transaction_start_time_ms
    if start is None:
        return
    age = now_ms - start
    name, items = transaction.transactional_id, texts(sorted(transaction.partitions))
    if age <= transaction.transaction_timeout_ms + _OVERDUE_MS:
        return
    if transaction.state in ("PrepareCommit", "PrepareAbort"):
        yield Finding(
            "hanging-transactions",
            Severity.ERROR,
            f"The transaction of {name} is decided ({transaction.state}), but its markers are not written after "
            f"{duration(age)}.",
            "Bring the leaders of its partitions back: the coordinator sends the markers until all are written.",
            items,
        )
    elif transaction.state == "Ongoing":
        yield Finding(
            "hanging-transactions",
            Severity.ERROR,
            f"The transaction of {name} is open for {duration(age)}, longer than its timeout "
            f"({duration(transaction.transaction_timeout_ms)}).",
            f"Look into the log of its coordinator, broker {transaction.coordinator_id}. To end it now: "
            f"transactions forceTerminateTransaction --transactional-id {name}.",
            items,
        )
