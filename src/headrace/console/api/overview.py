"""The overview: the cluster in numbers, and live updates."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Literal

from headrace.common.errors import HeadraceError
from headrace.console.api.alerts import visible_alerts
from headrace.console.calls import Call
from headrace.console.clusters import Cluster
from headrace.console.events import Event
from headrace.console.routing import Router
from headrace.console.snapshot import Snapshot
from headrace.console.visibility import Visibility

router = Router("overview")
_MAX_ITEMS = 100
_MAX_FINDINGS = 200


@dataclass(frozen=True)
class Attention:
    """Something that needs attention, most urgent first: a finding of `headrace doctor`'s checks."""

    check: str
    severity: Literal["error", "warning", "note"]
    problem: str
    fix: str
    items: list[str]
    items_total: int


@dataclass(frozen=True)
class Overview:
    """A cluster in numbers, of what the user may see."""

    time_ms: int
    cluster_id: str | None
    reachable: bool
    error: str | None
    brokers: int
    brokers_down: list[int]
    controller: int | None
    topics: int
    partitions: int
    under_replicated: int
    under_min_isr: int
    offline: int
    reassignments: int
    groups: int
    groups_lagging: int
    messages_in_per_second: float | None
    bytes_in_per_second: float | None
    bytes_out_per_second: float | None
    size_bytes: int | None
    attention: list[Attention]
    attention_time_ms: int | None
    history_topic: str | None


@router.get("/api/clusters/{cluster}/overview", response=Overview, summary="The cluster in numbers")
async def get_overview(call: Call) -> Overview:
    """Numbers of the topics and groups that the user may see, and what needs attention first."""
    cluster = call.cluster
    visibility = await call.visibility()
    overview = overview_of(cluster, cluster.known(), visibility)
    problems, time_ms = await cluster.problems(call.identity)
    attention = [
        Attention(
            finding.check,
            finding.severity.value,
            finding.problem,
            finding.fix,
            list(finding.items[:_MAX_ITEMS]),
            len(finding.items),
        )
        for finding in problems[:_MAX_FINDINGS]
    ]
    return replace(overview, attention=attention, attention_time_ms=time_ms)


@router.stream("/api/clusters/{cluster}/events", summary="Live updates")
async def stream_events(call: Call) -> AsyncIterator[Event]:
    """Events: `tick` after each collection, `status` when the cluster is reachable or not, `alerts`, `session`."""
    console, cluster, identity = call.console, call.cluster, call.identity
    subscription = cluster.events.subscribe()

    def has_ended() -> bool:
        return identity is not cluster.own and (
            not console.sessions.is_live(call.session) or call.session.identities.get(cluster.name) is not identity
        )

    try:
        while not has_ended():
            for name, data in (await subscription.take()).items():
                if has_ended():
                    break
                try:
                    if name == "tick":
                        if cluster.snapshot is not None:
                            yield Event("tick", await _tick(call, cluster, cluster.snapshot))
                    elif name == "alerts":
                        yield Event("alerts", await _alerts(call))
                    else:
                        yield Event(name, data)
                except HeadraceError:
                    if not has_ended():  # a logout closes the client that asks what is visible
                        raise
                    break
        yield Event("session", {"state": "expired"})
    finally:
        cluster.events.unsubscribe(subscription)


async def _tick(call: Call, cluster: Cluster, snapshot: Snapshot) -> dict[str, object]:
    visibility = await call.visibility()
    overview = overview_of(cluster, snapshot, visibility)
    return {"time_ms": overview.time_ms, "overview": overview, "generation": dict(snapshot.generation)}


async def _alerts(call: Call) -> dict[str, object]:
    alerts = visible_alerts(call.console.alerts[call.cluster.name], await call.visibility())
    return {"firing": sum(alert.state == "firing" for alert in alerts), "alerts": alerts}


def overview_of(cluster: Cluster, snapshot: Snapshot, visibility: Visibility) -> Overview:
    """Counts what a user may see."""
    partitions = under_replicated = under_min_isr = offline = topics = 0
    messages_in: float | None = None
    size: int | None = None
    for topic in snapshot.topics.values():
        if not visibility.topics(topic.name):
            continue
        topics += 1
        partitions += len(topic.partitions)
        for partition in topic.partitions:
            if snapshot.is_offline(partition):
                offline += 1
            elif partition.is_under_replicated:
                under_replicated += 1
                if topic.min_isr is not None and len(partition.isr) < topic.min_isr:
                    under_min_isr += 1
        if topic.messages_in is not None and not topic.internal:
            messages_in = (messages_in or 0.0) + topic.messages_in
        if topic.size_bytes >= 0:
            size = (size or 0) + topic.size_bytes
    groups = [group for group in snapshot.groups.values() if visibility.groups(group.name)]
    whole = visibility.cluster
    return Overview(
        time_ms=snapshot.time_ms,
        cluster_id=snapshot.cluster.cluster_id,
        reachable=cluster.is_reachable,
        error=cluster.error,
        brokers=len(snapshot.cluster.brokers),
        brokers_down=snapshot.missing,
        controller=snapshot.cluster.controller_id if snapshot.cluster.controller_id >= 0 else None,
        topics=topics,
        partitions=partitions,
        under_replicated=under_replicated,
        under_min_isr=under_min_isr,
        offline=offline,
        reassignments=len(snapshot.reassignments) if whole else 0,
        groups=len(groups),
        groups_lagging=sum(1 for group in groups if group.lag),
        messages_in_per_second=messages_in,
        bytes_in_per_second=snapshot.bytes_in if whole else None,
        bytes_out_per_second=snapshot.bytes_out if whole else None,
        size_bytes=size,
        attention=[],
        attention_time_ms=None,
        history_topic=cluster.store.topic if cluster.store.is_open else None,
    )
