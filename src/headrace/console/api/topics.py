"""Topics: the list, one topic with its partitions and configs, and their changes."""

from dataclasses import dataclass
from typing import Annotated, Any

from headrace.client.admin.types import ConfigResource, NewTopic, TopicDescription
from headrace.common.types import TopicPartition
from headrace.console.api.configs import ChangeConfigs, ConfigList, change_configs, read_configs
from headrace.console.api.operations import operation_names
from headrace.console.calls import Call
from headrace.console.errors import ApiError
from headrace.console.paging import PageQuery, page_of, select
from headrace.console.routing import Router
from headrace.console.schema import Length, Range
from headrace.console.snapshot import Snapshot, TopicState
from headrace.console.visibility import Visibility

router = Router("topics")
_TOPICS = "/api/clusters/{cluster}/topics"
_TOPIC = "/api/clusters/{cluster}/topics/{topic}"
_TIMEOUT_MS = 20_000
_MAX_PARTITIONS = 100_000


@dataclass(frozen=True, kw_only=True)
class TopicsQuery(PageQuery):
    """Which topics."""

    internal: bool = False
    """Also internal topics."""


@dataclass(frozen=True, kw_only=True)
class TopicItem:
    """A topic in a list. Rates and sizes are null where they are not known."""

    name: str
    internal: bool
    partitions: int
    replication_factor: int
    under_replicated: int
    offline: int
    messages_in_per_second: float | None
    size_bytes: int | None
    """The size of all replicas."""
    records: int
    groups: int
    """The groups that consume it."""


@dataclass(frozen=True)
class TopicPage:
    """A page of topics."""

    items: list[TopicItem]
    total: int
    page: int
    per_page: int


@dataclass(frozen=True)
class Reassigning:
    """The replicas that a reassignment adds and removes."""

    adding: list[int]
    removing: list[int]


@dataclass(frozen=True)
class PartitionItem:
    """A partition."""

    partition: int
    leader: int
    """-1 without a leader."""
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    offline: list[int]
    start_offset: int | None
    end_offset: int | None
    size_bytes: int | None
    """The size of the leader's log."""
    messages_in_per_second: float | None
    reassigning: Reassigning | None


@dataclass(frozen=True)
class ConsumingGroup:
    """A group that consumes a topic."""

    group: str
    state: str
    lag: int | None
    lag_seconds: float | None
    members: int


@dataclass(frozen=True, kw_only=True)
class TopicDetails(TopicItem):
    """A topic with its partitions."""

    topic_id: str
    operations: list[str] | None
    """What the user may do with it."""
    partition_list: list[PartitionItem]
    consuming: list[ConsumingGroup]


@dataclass(frozen=True)
class CreateTopic:
    """A topic to create. Null stands for the broker's default."""

    name: Annotated[str, Length(1, 249)]
    partitions: Annotated[int, Range(1, _MAX_PARTITIONS)] | None = None
    replication_factor: Annotated[int, Range(1, 1000)] | None = None
    configs: dict[str, str] | None = None
    validate_only: bool = False


@dataclass(frozen=True)
class CreatedTopicItem:
    """A topic that was created, or would be."""

    name: str
    partitions: int | None
    replication_factor: int | None


@dataclass(frozen=True)
class AddPartitions:
    """The number of partitions that a topic is to have."""

    total: Annotated[int, Range(1, _MAX_PARTITIONS)]


@dataclass(frozen=True)
class PartitionCount:
    """The number of partitions of a topic."""

    partitions: int


@dataclass(frozen=True)
class Purge:
    """The offsets before which records are deleted, by partition: -1 for all records. Null for all partitions."""

    partitions: dict[str, int] | None = None


@dataclass(frozen=True)
class Purged:
    """The first offset that remains, by partition."""

    low_watermarks: dict[str, int]


@router.get(_TOPICS, query=TopicsQuery, response=TopicPage, summary="List topics")
async def list_topics(call: Call, query: TopicsQuery) -> TopicPage:
    """The topics that the user may describe. Sort by name, partitions, messages_in_per_second, size_bytes, records or
    under_replicated."""
    snapshot, visibility = call.cluster.known(), await call.visibility()
    topics = [
        topic
        for topic in snapshot.topics.values()
        if (query.internal or not topic.internal) and visibility.topics(topic.name)
    ]
    found = select(
        topics,
        query,
        lambda topic: topic.name,
        {
            "name": lambda topic: topic.name,
            "partitions": lambda topic: len(topic.partitions),
            "messages_in_per_second": lambda topic: topic.messages_in,
            "size_bytes": lambda topic: topic.size_bytes if topic.size_bytes >= 0 else None,
            "records": lambda topic: topic.records,
            "under_replicated": lambda topic: topic.under_replicated,
        },
    )
    items = [TopicItem(**_fields(snapshot, topic, visibility)) for topic in page_of(found, query)]
    return TopicPage(items, len(found), query.page, query.per_page)


@router.post(
    _TOPICS, body=CreateTopic, response=CreatedTopicItem, status=201, change="create topic", summary="Create a topic"
)
async def create_topic(call: Call, body: CreateTopic) -> CreatedTopicItem:
    """Creates a topic, or checks whether it could be created."""
    call.audit(
        body.name,
        partitions=body.partitions,
        replication_factor=body.replication_factor,
        configs=body.configs or {},
        validate_only=body.validate_only,
    )
    admin = await call.admin()
    topic = NewTopic(body.name, body.partitions or -1, body.replication_factor or -1, topic_configs=body.configs)
    created = await admin.create_topics(
        [topic], timeout_ms=_TIMEOUT_MS, validate_only=body.validate_only, wait_for_metadata=not body.validate_only
    )
    found = created[body.name]
    return CreatedTopicItem(
        body.name,
        found.num_partitions if found.num_partitions > 0 else body.partitions,
        found.replication_factor if found.replication_factor > 0 else body.replication_factor,
    )


@router.get(_TOPIC, response=TopicDetails, summary="A topic and its partitions")
async def get_topic(call: Call) -> TopicDetails:
    """Leaders and replicas are those of this moment; offsets, sizes and rates those of the last collection."""
    admin, name = await call.admin(), call.path["topic"]
    snapshot, visibility = call.cluster.known(), await call.visibility()
    described = await admin.describe_topics([name], include_authorized_operations=True, timeout_ms=_TIMEOUT_MS)
    description = described[name]
    state = snapshot.topics.get(name)
    partitions = [_partition(snapshot, state, description, number) for number in range(len(description.partitions))]
    fields = _fields(snapshot, state, visibility) if state is not None else _unknown(description)
    consuming = []
    for group_name in sorted(snapshot.consuming.get(name, ())):
        group = snapshot.groups.get(group_name)
        if group is None or not visibility.groups(group_name):
            continue
        progress = [progress for tp, progress in group.partitions.items() if tp.topic == name]
        lags = [one.lag for one in progress if one.lag is not None]
        seconds = [one.lag_seconds for one in progress if one.lag_seconds is not None]
        consuming.append(
            ConsumingGroup(
                group_name,
                group.state,
                sum(lags) if lags else None,
                max(seconds) if seconds else None,
                group.members or 0,
            )
        )
    return TopicDetails(
        **{**fields, "partitions": len(partitions)},
        topic_id=str(description.topic_id),
        operations=operation_names(description.authorized_operations),
        partition_list=partitions,
        consuming=consuming,
    )


@router.delete(_TOPIC, change="delete topic", summary="Delete a topic")
async def delete_topic(call: Call) -> None:
    """Deletes the topic and all of its records."""
    admin = await call.admin()
    await admin.delete_topics([call.path["topic"]], timeout_ms=_TIMEOUT_MS)


@router.post(
    f"{_TOPIC}/partitions",
    body=AddPartitions,
    response=PartitionCount,
    change="add partitions to topic",
    summary="Add partitions",
)
async def add_partitions(call: Call, body: AddPartitions) -> PartitionCount:
    """Adds partitions up to a total. New records with a key may go to other partitions than before."""
    call.audit(call.path["topic"], total=body.total)
    admin = await call.admin()
    await admin.create_partitions({call.path["topic"]: body.total}, timeout_ms=_TIMEOUT_MS)
    return PartitionCount(body.total)


@router.post(f"{_TOPIC}/purge", body=Purge, response=Purged, change="purge topic", summary="Delete records")
async def purge_topic(call: Call, body: Purge) -> Purged:
    """Deletes the records before some offsets, or all records."""
    name = call.path["topic"]
    call.audit(name, partitions=body.partitions if body.partitions is not None else "all")
    admin = await call.admin()
    if body.partitions is None:
        described = await admin.describe_topics([name], timeout_ms=_TIMEOUT_MS)
        offsets = {TopicPartition(name, partition.partition): -1 for partition in described[name].partitions}
    else:
        offsets = {TopicPartition(name, _number(number)): offset for number, offset in body.partitions.items()}
        if any(offset < -1 for offset in offsets.values()):
            raise ApiError(400, "INVALID_REQUEST", "partitions: expected offsets, or -1 for all records", "partitions")
    deleted = await admin.delete_records(offsets, timeout_ms=_TIMEOUT_MS) if offsets else {}
    return Purged({str(tp.partition): result.low_watermark for tp, result in deleted.items()})


@router.get(f"{_TOPIC}/configs", response=ConfigList, summary="The configs of a topic")
async def get_topic_configs(call: Call) -> ConfigList:
    """All configs, with documentation where the cluster has it, and with their defaults."""
    return await read_configs(call, ConfigResource("topic", call.path["topic"]))


@router.patch(
    f"{_TOPIC}/configs",
    body=ChangeConfigs,
    response=ConfigList,
    change="configure topic",
    summary="Change configs of a topic",
)
async def change_topic_configs(call: Call, body: ChangeConfigs) -> ConfigList:
    """Sets some configs and resets others to their defaults. All others stay."""
    return await change_configs(call, ConfigResource("topic", call.path["topic"]), body)


def _fields(snapshot: Snapshot, topic: TopicState, visibility: Visibility) -> dict[str, Any]:
    return {
        "name": topic.name,
        "internal": topic.internal,
        "partitions": len(topic.partitions),
        "replication_factor": topic.replication_factor,
        "under_replicated": topic.under_replicated,
        "offline": sum(snapshot.is_offline(partition) for partition in topic.partitions),
        "messages_in_per_second": topic.messages_in,
        "size_bytes": topic.size_bytes if topic.size_bytes >= 0 else None,
        "records": topic.records,
        "groups": sum(visibility.groups(name) for name in snapshot.consuming.get(topic.name, ())),
    }


def _unknown(description: TopicDescription) -> dict[str, Any]:
    """The fields of a topic that the collector has not seen yet."""
    return {
        "name": description.name,
        "internal": description.is_internal,
        "replication_factor": max((len(partition.replicas) for partition in description.partitions), default=0),
        "under_replicated": 0,
        "offline": 0,
        "messages_in_per_second": None,
        "size_bytes": None,
        "records": 0,
        "groups": 0,
    }


def _partition(
    snapshot: Snapshot, state: TopicState | None, description: TopicDescription, index: int
) -> PartitionItem:
    partition = description.partitions[index]
    number = partition.partition
    is_known = state is not None and number < len(state.partitions)
    moving = snapshot.reassignments.get(TopicPartition(description.name, number))
    rate = state.rates[number] if is_known and state is not None else -1
    size = state.sizes[number] if is_known and state is not None else -1
    return PartitionItem(
        number,
        partition.leader,
        partition.leader_epoch,
        list(partition.replicas),
        list(partition.isr),
        list(partition.offline),
        state.start(number) if state is not None else None,
        state.end(number) if state is not None else None,
        size if size >= 0 else None,
        rate if rate >= 0 else None,
        None if moving is None else Reassigning(list(moving.adding_replicas), list(moving.removing_replicas)),
    )


def _number(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) > 2**31 - 1:
        raise ApiError(400, "INVALID_REQUEST", f"partitions: {text!r} is not the number of a partition", "partitions")
    return int(text)
