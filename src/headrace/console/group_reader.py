"""Reads groups: states, members, committed offsets, and how far they are behind. Part of the collector; owner: the
loop."""

from headrace.aio.admin import Admin
from headrace.client.admin.types import GroupListing
from headrace.common.clock import Clock
from headrace.common.types import TopicPartition
from headrace.console.lag import EndHistories
from headrace.console.snapshot import GroupPartition, GroupState, Snapshot

_TIMEOUT_MS = 10_000
_SMOOTHING_SECONDS = 30.0
_CONSUMER_TYPES = ("", "classic", "consumer")


class GroupReader:
    """Reads groups and their offsets."""

    def __init__(self, admin: Admin, clock: Clock):
        self._admin = admin
        self._clock = clock
        self._histories = EndHistories()
        self._read_at: float | None = None

    async def read_groups(self, snapshot: Snapshot) -> None:
        """Reads which groups there are, their states and their members."""
        listings = {
            listing.group_id: listing
            for listing in await self._admin.list_groups(timeout_ms=_TIMEOUT_MS)
            if _is_consumer_group(listing)
        }
        described = await self._admin.describe_groups(list(listings), timeout_ms=_TIMEOUT_MS, raise_errors=False)
        groups: dict[str, GroupState] = {}
        changed = listings.keys() != snapshot.groups.keys()
        for name in sorted(listings):
            listing, description = listings[name], described.get(name)
            group = snapshot.groups.get(name) or GroupState(name, listing.state)
            known = description if description is not None and description.error is None else None
            state = known.state if known is not None else listing.state
            changed = changed or state != group.state or known != group.description
            group.state = state
            group.type = listing.type
            group.protocol_type = listing.protocol_type
            group.description = known
            groups[name] = group
        snapshot.groups = groups
        if changed:
            snapshot.generation["groups"] += 1

    async def read_offsets(self, snapshot: Snapshot) -> None:
        """Reads the committed offsets of all groups, and computes their lag."""
        names = list(snapshot.groups)
        if not names:
            snapshot.consuming = {}
            return
        found = await self._admin.list_group_offsets(names, timeout_ms=_TIMEOUT_MS, raise_errors=False)
        now = self._clock.monotonic()
        elapsed = 0.0 if self._read_at is None else now - self._read_at
        self._read_at = now
        consuming: dict[str, set[str]] = {}
        used: set[TopicPartition] = set()
        committed = {
            name: offsets.offsets
            for name, offsets in found.items()
            if offsets.error is None and name in snapshot.groups
        }
        for offsets in committed.values():
            used.update(offsets)
        for tp in used:
            end = _end(snapshot, tp)
            if end is not None:
                self._histories.add(tp, end, now)
        self._histories.keep_only(used)
        for name, group in snapshot.groups.items():
            group.error = None
            if name not in committed:
                failure = found[name].error if name in found else None
                group.error = None if failure is None else str(failure)
                continue
            partitions = {
                tp: self._partition(snapshot, tp, commit.offset, commit.metadata or "", group, now, elapsed)
                for tp, commit in committed[name].items()
            }
            group.partitions = partitions
            _sum_up(group, snapshot)
            for topic in group.topics:
                consuming.setdefault(topic, set()).add(name)
        snapshot.consuming = consuming

    def _partition(
        self,
        snapshot: Snapshot,
        tp: TopicPartition,
        offset: int,
        metadata: str,
        group: GroupState,
        now: float,
        elapsed: float,
    ) -> GroupPartition:
        before = group.partitions.get(tp)
        partition = GroupPartition(offset, metadata=metadata)
        end = _end(snapshot, tp)
        if end is not None:
            partition.lag = max(0, end - offset)
            partition.lag_seconds = 0.0 if partition.lag == 0 else self._histories.lag_seconds(tp, offset, now)
        if before is not None and elapsed > 0:
            current = max(0, offset - before.committed) / elapsed
            weight = min(1.0, elapsed / _SMOOTHING_SECONDS)
            last = before.consumed
            partition.consumed = current if last is None else last + weight * (current - last)
        return partition


def drain_seconds(lag: int | None, consumed: float | None, produced: float | None) -> float | None:
    """Returns when a lag will be gone if the rates stay: 0 without lag, None if it does not shrink."""
    if lag is None:
        return None
    if lag == 0:
        return 0.0
    if consumed is None or produced is None or consumed <= produced:
        return None
    return lag / (consumed - produced)


def produced_rate(snapshot: Snapshot, tp: TopicPartition) -> float | None:
    """Returns how many records per second a partition gets."""
    topic = snapshot.topics.get(tp.topic)
    if topic is None or tp.partition >= len(topic.rates) or topic.rates[tp.partition] < 0:
        return None
    return topic.rates[tp.partition]


def _sum_up(group: GroupState, snapshot: Snapshot) -> None:
    lags = [partition.lag for partition in group.partitions.values() if partition.lag is not None]
    group.lag = sum(lags) if lags else None
    seconds = [partition.lag_seconds for partition in group.partitions.values() if partition.lag_seconds is not None]
    group.lag_seconds = max(seconds) if seconds else None
    consumed = [partition.consumed for partition in group.partitions.values() if partition.consumed is not None]
    group.consumed = sum(consumed) if consumed else None
    waits = [
        drain_seconds(partition.lag, partition.consumed, produced_rate(snapshot, tp))
        for tp, partition in group.partitions.items()
        if partition.lag
    ]
    known = [wait for wait in waits if wait is not None]
    group.drain_seconds = None if group.lag is None or len(known) < len(waits) else max(known, default=0.0)


def _end(snapshot: Snapshot, tp: TopicPartition) -> int | None:
    topic = snapshot.topics.get(tp.topic)
    return None if topic is None else topic.end(tp.partition)


def _is_consumer_group(listing: GroupListing) -> bool:
    return listing.type.lower() in _CONSUMER_TYPES
