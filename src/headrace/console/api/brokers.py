"""Brokers: the list, one broker with its disks, requests and configs; elections and reassignments."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from headrace.client.admin.types import ConfigResource, ElectionType
from headrace.common.errors import ElectionNotNeededError, NoReassignmentInProgressError
from headrace.common.types import TopicPartition
from headrace.console.api.configs import ChangeConfigs, ConfigList, change_configs, read_configs
from headrace.console.broker_metrics import RequestFigures
from headrace.console.calls import Call
from headrace.console.errors import ApiError
from headrace.console.names import PartitionName
from headrace.console.paging import PageQuery, page_of, select
from headrace.console.routing import Router
from headrace.console.schema import Length, Range
from headrace.console.snapshot import BrokerState, Snapshot
from headrace.console.visibility import Visibility

router = Router("brokers")
_BROKERS = "/api/clusters/{cluster}/brokers"
_BROKER = "/api/clusters/{cluster}/brokers/{broker}"
_TIMEOUT_MS = 20_000
_MAX_PARTITIONS = 10_000
_DEFAULT = "default"


@dataclass(frozen=True, kw_only=True)
class BrokerQuery(PageQuery):
    """Which brokers."""

    sort: str = "id"


@dataclass(frozen=True, kw_only=True)
class BrokerItem:
    """A broker. Sizes and rates are null where they are not known, or not visible to the user."""

    id: int
    host: str | None
    """Null for a broker that is missing, but that has replicas."""
    port: int | None
    rack: str | None
    is_controller: bool
    reachable: bool
    error: str | None
    leaders: int
    replicas: int
    size_bytes: int | None
    total_bytes: int | None
    usable_bytes: int | None
    bytes_in_per_second: float | None
    bytes_out_per_second: float | None
    messages_in_per_second: float | None
    connections: int | None
    version: str | None


@dataclass(frozen=True)
class BrokerPage:
    """A page of brokers."""

    items: list[BrokerItem]
    total: int
    page: int
    per_page: int


@dataclass(frozen=True)
class ReplicaSize:
    """A replica and its size."""

    topic: str
    partition: int
    size_bytes: int


@dataclass(frozen=True)
class LogDirItem:
    """A log directory."""

    path: str
    size_bytes: int
    total_bytes: int | None
    usable_bytes: int | None
    replicas: int
    error: str | None
    cordoned: bool
    largest: list[ReplicaSize]


@dataclass(frozen=True)
class RequestItem:
    """The requests of one API, with the quantiles of their latency."""

    api: str
    per_second: float | None
    errors_per_second: float | None
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None


@dataclass(frozen=True, kw_only=True)
class BrokerDetails(BrokerItem):
    """A broker with its disks and requests."""

    log_dirs: list[LogDirItem]
    requests: list[RequestItem] | None
    """Null without a metrics endpoint."""
    connection_metrics: dict[str, float] | None
    metrics_error: str | None


@dataclass(frozen=True)
class Election:
    """Which leaders to elect: null for all partitions."""

    type: Literal["preferred", "unclean"]
    partitions: Annotated[list[PartitionName], Length(1, _MAX_PARTITIONS)] | None = None


@dataclass(frozen=True)
class PartitionError:
    """Why something failed for a partition."""

    topic: str
    partition: int
    message: str


@dataclass(frozen=True)
class ElectionResult:
    """The outcome of an election."""

    elected: list[PartitionName]
    not_needed: int
    errors: list[PartitionError]


@dataclass(frozen=True)
class ReassignmentItem:
    """A partition that moves to other brokers."""

    topic: str
    partition: int
    replicas: list[int]
    adding: list[int]
    removing: list[int]
    copied_bytes: int | None
    total_bytes: int | None
    progress: float | None
    """From 0 to 1."""
    remaining_seconds: float | None


@dataclass(frozen=True)
class ReassignmentList:
    """All partitions that move."""

    items: list[ReassignmentItem]


@dataclass(frozen=True)
class TargetReplicas:
    """The brokers that a partition is to have as replicas. Null cancels its reassignment."""

    topic: Annotated[str, Length(1, 249)]
    partition: Annotated[int, Range(0, 2**31 - 1)]
    replicas: Annotated[list[Annotated[int, Range(0, 2**31 - 1)]], Length(1, 1000)] | None


@dataclass(frozen=True)
class Reassign:
    """Partitions to move."""

    partitions: Annotated[list[TargetReplicas], Length(1, _MAX_PARTITIONS)]


@dataclass(frozen=True)
class ReassignResult:
    """How many reassignments have started or were cancelled."""

    started: int
    errors: list[PartitionError]


@router.get(_BROKERS, query=BrokerQuery, response=BrokerPage, summary="List brokers")
async def list_brokers(call: Call, query: BrokerQuery) -> BrokerPage:
    """Also brokers that are missing but have replicas. Sort by id, host, leaders, replicas or size_bytes."""
    snapshot, visibility = call.cluster.known(), await call.visibility()
    found = select(
        snapshot.brokers.values(),
        query,
        lambda broker: f"{broker.id} {broker.host or ''}",
        {
            "id": lambda broker: broker.id,
            "name": lambda broker: broker.id,
            "host": lambda broker: broker.host,
            "leaders": lambda broker: broker.leaders,
            "replicas": lambda broker: broker.replicas,
            "size_bytes": lambda broker: broker.size_bytes,
        },
    )
    items = [BrokerItem(**_fields(snapshot, broker, visibility)) for broker in page_of(found, query)]
    return BrokerPage(items, len(found), query.page, query.per_page)


@router.get(_BROKER, response=BrokerDetails, summary="A broker")
async def get_broker(call: Call) -> BrokerDetails:
    """Log directories, and requests by API where the broker's metrics endpoint is known."""
    cluster, snapshot, visibility = call.cluster, call.cluster.known(), await call.visibility()
    broker = snapshot.brokers.get(_id(call.path["broker"]))
    if broker is None:
        raise ApiError(404, "NOT_FOUND", f"There is no broker {call.path['broker']}", "broker")
    log_dirs = broker.log_dirs if visibility.cluster and broker.log_dirs is not None else ()
    figures = cluster.metrics.figures.get(broker.id) if visibility.cluster else None
    return BrokerDetails(
        **_fields(snapshot, broker, visibility),
        log_dirs=[
            LogDirItem(
                log_dir.path,
                log_dir.size_bytes,
                _known(log_dir.total_bytes),
                _known(log_dir.usable_bytes),
                log_dir.replicas,
                log_dir.error,
                log_dir.cordoned,
                [ReplicaSize(*one) for one in log_dir.largest if visibility.topics(one[0])],
            )
            for log_dir in log_dirs
        ],
        requests=None if figures is None else [_request(one) for _, one in sorted(figures.requests.items())],
        connection_metrics=None if figures is None else dict(figures.connection_metrics),
        metrics_error=broker.metrics_error if visibility.cluster else None,
    )


@router.get(f"{_BROKER}/configs", response=ConfigList, summary="The configs of a broker")
async def get_broker_configs(call: Call) -> ConfigList:
    """All configs of a broker, or of `default`: the dynamic defaults of all brokers."""
    return await read_configs(call, _resource(call))


@router.patch(
    f"{_BROKER}/configs",
    body=ChangeConfigs,
    response=ConfigList,
    change="configure broker",
    summary="Change configs of a broker",
)
async def change_broker_configs(call: Call, body: ChangeConfigs) -> ConfigList:
    """Changes dynamic configs of a broker, or of `default`."""
    return await change_configs(call, _resource(call), body)


@router.post(
    "/api/clusters/{cluster}/elections",
    body=Election,
    response=ElectionResult,
    change="elect leaders",
    summary="Elect leaders",
)
async def elect_leaders(call: Call, body: Election) -> ElectionResult:
    """Elects preferred leaders. `unclean` elects any live replica of partitions without leader: records may be lost."""
    tps = None if body.partitions is None else [TopicPartition(one.topic, one.partition) for one in body.partitions]
    call.audit(body.type, partitions="all" if tps is None else len(tps))
    admin = await call.admin()
    results = await admin.elect_leaders(ElectionType[body.type.upper()], tps, _TIMEOUT_MS, raise_errors=False)
    errors = {tp: result.error for tp, result in results.items() if result.error is not None}
    failed = {tp: error for tp, error in errors.items() if not isinstance(error, ElectionNotNeededError)}
    if failed and len(failed) == len(results):
        raise next(iter(failed.values()))
    return ElectionResult(
        [PartitionName(*tp) for tp in results if tp not in errors],
        len(errors) - len(failed),
        [PartitionError(*tp, str(error)) for tp, error in failed.items()],
    )


@router.get(
    "/api/clusters/{cluster}/reassignments", response=ReassignmentList, summary="Partitions that move to other brokers"
)
async def list_reassignments(call: Call) -> ReassignmentList:
    """Progress is that of the added replica that is furthest behind."""
    admin, visibility = await call.admin(), await call.visibility()
    cluster = call.cluster
    ongoing = await admin.list_partition_reassignments(timeout_ms=_TIMEOUT_MS)
    visible = {tp: moving for tp, moving in sorted(ongoing.items()) if visibility.topics(tp.topic)}
    progress = await cluster.moves.progress(visible) if visibility.cluster else {}
    items = []
    for tp, moving in visible.items():
        copied, total, remaining = progress.get(tp, (None, None, None))
        share = min(1.0, copied / total) if copied is not None and total else None
        items.append(
            ReassignmentItem(
                tp.topic,
                tp.partition,
                list(moving.replicas),
                list(moving.adding_replicas),
                list(moving.removing_replicas),
                copied,
                total,
                share,
                remaining,
            )
        )
    return ReassignmentList(items)


@router.post(
    "/api/clusters/{cluster}/reassignments",
    body=Reassign,
    response=ReassignResult,
    change="reassign partitions",
    summary="Move partitions to other brokers",
)
async def reassign(call: Call, body: Reassign) -> ReassignResult:
    """Starts reassignments, or cancels them."""
    targets = {TopicPartition(one.topic, one.partition): one.replicas for one in body.partitions}
    replicas = {f"{tp.topic}-{tp.partition}": ids for tp, ids in targets.items()}
    call.audit(f"{len(targets)} partitions", replicas=replicas)
    admin = await call.admin()
    results = await admin.alter_partition_reassignments(targets, _TIMEOUT_MS, raise_errors=False)
    failed = {tp: result.error for tp, result in results.items() if result.error is not None}
    if failed and len(failed) == len(results):
        error = next(iter(failed.values()))
        if isinstance(error, NoReassignmentInProgressError):
            raise ApiError(409, error.name, str(error))
        raise error
    return ReassignResult(len(results) - len(failed), [PartitionError(*tp, str(error)) for tp, error in failed.items()])


def _resource(call: Call) -> ConfigResource:
    """Returns the broker in the path. Only a live broker answers questions about its configs."""
    name = call.path["broker"]
    if name == _DEFAULT:
        return ConfigResource("broker", "")
    number = _id(name)
    if number not in call.cluster.known().live:
        raise ApiError(404, "NOT_FOUND", f"There is no broker {number}, or it is down", "broker")
    return ConfigResource("broker", str(number))


def _id(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) > 2**31 - 1:
        raise ApiError(404, "NOT_FOUND", f"There is no broker {text!r}: expected a number", "broker")
    return int(text)


def _fields(snapshot: Snapshot, broker: BrokerState, visibility: Visibility) -> dict[str, Any]:
    log_dirs = broker.log_dirs if visibility.cluster else None
    whole = visibility.cluster
    return {
        "id": broker.id,
        "host": broker.host,
        "port": broker.port,
        "rack": broker.rack,
        "is_controller": broker.id == snapshot.cluster.controller_id,
        "reachable": broker.error is None,
        "error": broker.error,
        "leaders": broker.leaders if whole else 0,
        "replicas": broker.replicas if whole else 0,
        "size_bytes": None if log_dirs is None else broker.size_bytes,
        "total_bytes": None if log_dirs is None else _sum(log_dir.total_bytes for log_dir in log_dirs),
        "usable_bytes": None if log_dirs is None else _sum(log_dir.usable_bytes for log_dir in log_dirs),
        "bytes_in_per_second": broker.bytes_in if whole else None,
        "bytes_out_per_second": broker.bytes_out if whole else None,
        "messages_in_per_second": broker.messages_in if whole else None,
        "connections": broker.connections if whole else None,
        "version": broker.version if whole else None,
    }


def _request(figures: RequestFigures) -> RequestItem:
    return RequestItem(
        figures.api,
        figures.per_second,
        figures.errors_per_second,
        figures.p50_ms,
        figures.p95_ms,
        figures.p99_ms,
    )


def _sum(sizes: Iterable[int]) -> int | None:
    known = [size for size in sizes if size >= 0]
    return sum(known) if known else None


def _known(size: int) -> int | None:
    return size if size >= 0 else None
