"""Groups: the list, one group with its members and its lag, and changes of offsets."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from headrace.aio.admin import Admin
from headrace.client.admin.types import GroupDescription, OffsetSpec
from headrace.common.errors import GroupIdNotFoundError, NonEmptyGroupError
from headrace.common.types import TopicPartition
from headrace.console.api.operations import operation_names
from headrace.console.calls import Call
from headrace.console.errors import ApiError
from headrace.console.group_reader import drain_seconds, produced_rate
from headrace.console.names import PartitionName
from headrace.console.paging import PageQuery, page_of, select
from headrace.console.routing import Router
from headrace.console.schema import Length
from headrace.console.snapshot import GroupState, Snapshot
from headrace.console.visibility import Visibility

router = Router("groups")
_GROUPS = "/api/clusters/{cluster}/groups"
_GROUP = "/api/clusters/{cluster}/groups/{group}"
_TIMEOUT_MS = 20_000
_MAX_PARTITIONS = 10_000


@dataclass(frozen=True, kw_only=True)
class GroupsQuery(PageQuery):
    """Which groups."""

    state: str | None = None
    """Only groups in this state, such as Stable or Empty."""


@dataclass(frozen=True, kw_only=True)
class GroupItem:
    """A group in a list."""

    group: str
    state: str
    type: str
    members: int | None
    topics: int
    lag: int | None
    """Records that are not consumed yet."""
    lag_seconds: float | None
    """How long ago the partition that is furthest behind ended at the committed offset."""
    consumed_per_second: float | None
    drain_seconds: float | None
    """When the lag will be gone if the rates stay as they are: 0 without lag, null if it does not shrink."""
    coordinator: int | None


@dataclass(frozen=True)
class GroupPage:
    """A page of groups."""

    items: list[GroupItem]
    total: int
    page: int
    per_page: int


@dataclass(frozen=True)
class TopicPartitions:
    """Partitions of a topic."""

    topic: str
    partitions: list[int]


@dataclass(frozen=True)
class MemberItem:
    """A member of a group."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: list[TopicPartitions]


@dataclass(frozen=True)
class GroupPartitionItem:
    """How far a group has read a partition."""

    topic: str
    partition: int
    committed: int | None
    start_offset: int | None
    end_offset: int | None
    lag: int | None
    lag_seconds: float | None
    consumed_per_second: float | None
    drain_seconds: float | None
    member_id: str | None
    """The member that the partition is assigned to."""
    metadata: str | None


@dataclass(frozen=True, kw_only=True)
class GroupDetails(GroupItem):
    """A group with its members and partitions."""

    protocol: str
    assignor: str
    operations: list[str] | None
    """What the user may do with it."""
    member_list: list[MemberItem]
    partitions: list[GroupPartitionItem]


@dataclass(frozen=True)
class ResetOffsets:
    """New offsets for partitions of a group: of some topics, some partitions, or by default of all that it has read."""

    to: Literal["earliest", "latest", "offset", "timestamp", "shift", "duration"]
    value: int | None = None
    """The offset, the timestamp in milliseconds, the number of records to shift by, or how long ago in milliseconds."""
    topics: Annotated[list[str], Length(1, 1000)] | None = None
    partitions: Annotated[list[PartitionName], Length(1, _MAX_PARTITIONS)] | None = None


@dataclass(frozen=True)
class OffsetChange:
    """The old and the new offset of a partition."""

    topic: str
    partition: int
    old: int | None
    new: int
    records: int | None
    """The records that are skipped, or if negative, read again."""


@dataclass(frozen=True)
class OffsetChanges:
    """The changes of a reset."""

    changes: list[OffsetChange]


@router.get(_GROUPS, query=GroupsQuery, response=GroupPage, summary="List groups")
async def list_groups(call: Call, query: GroupsQuery) -> GroupPage:
    """The groups that the user may describe. Sort by name, state, members, lag or lag_seconds."""
    snapshot, visibility = call.cluster.known(), await call.visibility()
    groups = [
        group
        for group in snapshot.groups.values()
        if visibility.groups(group.name) and query.state in (None, group.state)
    ]
    found = select(
        groups,
        query,
        lambda group: group.name,
        {
            "name": lambda group: group.name,
            "group": lambda group: group.name,
            "state": lambda group: group.state,
            "members": lambda group: group.members,
            "lag": lambda group: group.lag,
            "lag_seconds": lambda group: group.lag_seconds,
        },
    )
    items = [GroupItem(**_fields(group, visibility)) for group in page_of(found, query)]
    return GroupPage(items, len(found), query.page, query.per_page)


@router.get(_GROUP, response=GroupDetails, summary="A group, its members and its lag")
async def get_group(call: Call) -> GroupDetails:
    """Members are those of this moment; offsets and lag those of the last collection."""
    snapshot, visibility, name = call.cluster.known(), await call.visibility(), call.path["group"]
    admin = await call.admin()
    description = await _describe(admin, name)
    group = snapshot.groups.get(name) or GroupState(name, description.state)
    owners = {tp: member.member_id for member in description.members for tp in member.assignment}
    tps = [tp for tp in sorted(group.partitions.keys() | owners.keys()) if visibility.topics(tp.topic)]
    fields = _fields(group, visibility)
    node = description.coordinator
    return GroupDetails(
        **{
            **fields,
            "state": description.state,
            "members": len(description.members),
            "coordinator": node.id if node is not None else fields["coordinator"],
        },
        protocol=description.protocol_type,
        assignor=description.protocol,
        operations=operation_names(description.authorized_operations),
        member_list=[_member(description, index, visibility) for index in range(len(description.members))],
        partitions=[_partition(snapshot, group, tp, owners.get(tp)) for tp in tps],
    )


@router.delete(_GROUP, change="delete group", summary="Delete a group")
async def delete_group(call: Call) -> None:
    """Deletes a group without members, and its offsets."""
    admin = await call.admin()
    await admin.delete_groups([call.path["group"]], timeout_ms=_TIMEOUT_MS)


@router.post(
    f"{_GROUP}/offsets/preview",
    body=ResetOffsets,
    response=OffsetChanges,
    summary="What a reset of offsets would change",
)
async def preview_reset(call: Call, body: ResetOffsets) -> OffsetChanges:
    """Computes new offsets without committing them."""
    return OffsetChanges(await _plan(call, body))


@router.post(
    f"{_GROUP}/offsets",
    body=ResetOffsets,
    response=OffsetChanges,
    change="reset offsets of group",
    summary="Reset offsets",
)
async def reset_offsets(call: Call, body: ResetOffsets) -> OffsetChanges:
    """Commits new offsets. The group must not have members."""
    name = call.path["group"]
    admin = await call.admin()
    call.audit(name, to=body.to, value=body.value)
    found = await admin.describe_groups([name], timeout_ms=_TIMEOUT_MS, raise_errors=False)
    description = found[name]
    if description.error is not None and not isinstance(description.error, GroupIdNotFoundError):
        raise description.error
    if description.members:
        count = len(description.members)
        raise NonEmptyGroupError(f"Group {name!r} has {count} members: stop them first, or they would commit again.")
    changes = await _plan(call, body)
    call.audit(name, to=body.to, value=body.value, partitions=len(changes))
    if changes:
        offsets = {TopicPartition(change.topic, change.partition): change.new for change in changes}
        await admin.alter_group_offsets(name, offsets, timeout_ms=_TIMEOUT_MS)
    return OffsetChanges(changes)


# ---- resets


async def _plan(call: Call, body: ResetOffsets) -> list[OffsetChange]:
    """Computes the changes as the principal of the call."""
    name = call.path["group"]
    admin = await call.admin()
    needs_value = body.to not in ("earliest", "latest")
    if needs_value and body.value is None:
        raise ApiError(400, "INVALID_REQUEST", f"value: expected a number, because `to` is {body.to}", "value")
    committed = await admin.list_group_offsets([name], timeout_ms=_TIMEOUT_MS)
    old = {tp: commit.offset for tp, commit in committed[name].offsets.items()}
    tps = await _partitions(admin, body, old)
    if not tps:
        return []
    starts = await _offsets(admin, tps, OffsetSpec.EARLIEST)
    ends = await _offsets(admin, tps, OffsetSpec.LATEST)
    wanted = await _targets(call, admin, body, tps, old)
    changes = []
    for tp in tps:
        start, end = starts[tp], ends[tp]
        target = wanted.get(tp)
        new = {"earliest": start, "latest": end}.get(body.to, end if target is None or target < 0 else target)
        if body.to in ("offset", "shift") and target is not None:
            new = target
        new = min(max(new, start), end)
        before = old.get(tp)
        changes.append(OffsetChange(tp.topic, tp.partition, before, new, None if before is None else new - before))
    return changes


async def _partitions(admin: Admin, body: ResetOffsets, old: dict[TopicPartition, int]) -> list[TopicPartition]:
    if body.partitions is not None:
        tps = {TopicPartition(one.topic, one.partition) for one in body.partitions}
        tps = {tp for tp in tps if body.topics is None or tp.topic in body.topics}
    elif body.topics is not None:
        described = await admin.describe_topics(list(dict.fromkeys(body.topics)), timeout_ms=_TIMEOUT_MS)
        tps = {
            TopicPartition(topic.name, partition.partition)
            for topic in described.values()
            for partition in topic.partitions
        }
    else:
        tps = set(old)
    return sorted(tps)


async def _targets(
    call: Call, admin: Admin, body: ResetOffsets, tps: list[TopicPartition], old: dict[TopicPartition, int]
) -> dict[TopicPartition, int]:
    value = body.value or 0
    if body.to == "offset":
        return dict.fromkeys(tps, value)
    if body.to == "shift":
        missing = [tp for tp in tps if tp not in old]
        if missing:
            message = f"The group has no committed offset for {missing[0]}, so there is nothing to shift."
            raise ApiError(400, "INVALID_REQUEST", message, "to")
        return {tp: max(0, old[tp] + value) for tp in tps}
    if body.to in ("timestamp", "duration"):
        time_ms = value if body.to == "timestamp" else call.clock.time_ms() - value
        if time_ms < 0 or (body.to == "duration" and value < 0):
            raise ApiError(400, "INVALID_REQUEST", "value: expected a time after 1970", "value")
        return await _offsets(admin, tps, time_ms)
    return {}


async def _offsets(admin: Admin, tps: list[TopicPartition], spec: int) -> dict[TopicPartition, int]:
    listed = await admin.list_partition_offsets(dict.fromkeys(tps, spec), timeout_ms=_TIMEOUT_MS)
    return {tp: found.offset for tp, found in listed.items()}


# ---- items


async def _describe(admin: Admin, name: str) -> GroupDescription:
    found = await admin.describe_groups([name], include_authorized_operations=True, timeout_ms=_TIMEOUT_MS)
    description = found[name]
    if description.state == "Dead":
        raise GroupIdNotFoundError(f"There is no group {name!r}")
    return description


def _fields(group: GroupState, visibility: Visibility) -> dict[str, Any]:
    description = group.description
    node = None if description is None else description.coordinator
    fields: dict[str, Any] = {
        "group": group.name,
        "state": group.state,
        "type": group.type or group.protocol_type,
        "members": group.members,
        "topics": sum(visibility.topics(name) for name in group.topics),
        "coordinator": None if node is None else node.id,
    }
    if visibility.topic_names is None or all(visibility.topics(tp.topic) for tp in group.partitions):
        return fields | {
            "lag": group.lag,
            "lag_seconds": group.lag_seconds,
            "consumed_per_second": group.consumed,
            "drain_seconds": group.drain_seconds,
        }
    partitions = [one for tp, one in group.partitions.items() if visibility.topics(tp.topic)]
    lags = [one.lag for one in partitions if one.lag is not None]
    seconds = [one.lag_seconds for one in partitions if one.lag_seconds is not None]
    consumed = [one.consumed for one in partitions if one.consumed is not None]
    return fields | {
        "lag": sum(lags) if lags else None,
        "lag_seconds": max(seconds, default=None),
        "consumed_per_second": sum(consumed) if consumed else None,
        "drain_seconds": None,
    }


def _member(description: GroupDescription, index: int, visibility: Visibility) -> MemberItem:
    member = description.members[index]
    topics: dict[str, list[int]] = {}
    for tp in sorted(member.assignment):
        if visibility.topics(tp.topic):
            topics.setdefault(tp.topic, []).append(tp.partition)
    return MemberItem(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.host,
        [TopicPartitions(topic, partitions) for topic, partitions in topics.items()],
    )


def _partition(snapshot: Snapshot, group: GroupState, tp: TopicPartition, owner: str | None) -> GroupPartitionItem:
    topic = snapshot.topics.get(tp.topic)
    progress = group.partitions.get(tp)
    lag = None if progress is None else progress.lag
    consumed = None if progress is None else progress.consumed
    return GroupPartitionItem(
        tp.topic,
        tp.partition,
        None if progress is None else progress.committed,
        None if topic is None else topic.start(tp.partition),
        None if topic is None else topic.end(tp.partition),
        lag,
        None if progress is None else progress.lag_seconds,
        consumed,
        drain_seconds(lag, consumed, produced_rate(snapshot, tp)),
        owner,
        None if progress is None else progress.metadata or None,
    )
