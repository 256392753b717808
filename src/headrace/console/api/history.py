"""Time series: what charts show."""

from dataclasses import dataclass, field
from typing import Annotated

from headrace.console.calls import Call
from headrace.console.errors import ApiError
from headrace.console.history import UNITS
from headrace.console.routing import Router
from headrace.console.schema import Length, Range
from headrace.console.snapshot import Snapshot
from headrace.console.visibility import Visibility

router = Router("history")
_LATEST_MS = 2**53
_HOUR_MS = 3_600_000


@dataclass(frozen=True)
class HistoryQuery:
    """Which series, and when. By default the last hour."""

    series: Annotated[list[Annotated[str, Length(1, 400)]], Length(1, 50)] = field(default_factory=list)
    """`messages_in`, `bytes_in`, `bytes_out`, `under_replicated`, `topic.messages_in:NAME`, `topic.size_bytes:NAME`,
    `group.lag:NAME`, `group.lag_seconds:NAME`, `group.consumed:NAME`, `broker.bytes_in:ID` and so on."""
    from_ms: Annotated[int, Range(0, _LATEST_MS)] | None = None
    to_ms: Annotated[int, Range(0, _LATEST_MS)] | None = None
    points: Annotated[int, Range(2, 2000)] = 300


@dataclass(frozen=True)
class SeriesItem:
    """A series. Values are null where they are not known."""

    name: str
    unit: str
    values: list[float | None]


@dataclass(frozen=True)
class HistoryPoints:
    """Some series with common times."""

    times_ms: list[int]
    series: list[SeriesItem]


@router.get("/api/clusters/{cluster}/history", query=HistoryQuery, response=HistoryPoints, summary="Time series")
async def get_history(call: Call, query: HistoryQuery) -> HistoryPoints:
    """Of series that the user may not see, all values are null."""
    visibility = await call.visibility()
    to_ms = query.to_ms if query.to_ms is not None else call.clock.time_ms()
    from_ms = query.from_ms if query.from_ms is not None else max(0, to_ms - _HOUR_MS)
    if from_ms >= to_ms:
        raise ApiError(400, "INVALID_REQUEST", "from_ms: expected an earlier time than to_ms", "from_ms")
    names = list(dict.fromkeys(query.series))
    for name in names:
        if name.partition(":")[0] not in UNITS:
            raise ApiError(400, "INVALID_REQUEST", f"series: expected one of {', '.join(UNITS)}", "series")
    snapshot = call.cluster.known()
    visible = {name: name if _is_visible(name, snapshot, visibility) else "" for name in names}
    points = call.cluster.history.points(visible.values(), from_ms, to_ms, query.points)
    return HistoryPoints(
        points.times_ms,
        [
            SeriesItem(
                name,
                UNITS[name.partition(":")[0]],
                [value if value == value else None for value in points.values[visible[name]]],
            )
            for name in names
        ],
    )


def _is_visible(name: str, snapshot: Snapshot, visibility: Visibility) -> bool:
    kind, _, subject = name.partition(":")
    if kind.startswith("topic."):
        return visibility.topics(subject)
    if kind.startswith("group."):
        group = snapshot.groups.get(subject)
        topics = {tp.topic for tp in group.partitions} if group is not None else set()
        return visibility.groups(subject) and all(map(visibility.topics, topics))
    return visibility.cluster
