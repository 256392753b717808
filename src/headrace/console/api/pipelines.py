"""Running pipelines: state, flows from topics to topics and tables, batches, and dead letters with their replay.

A user sees a pipeline if the cluster shows the user the topic of the statuses and all topics that the pipeline names.
Dead letters are read, and replayed, as the user.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from headrace.client.consumer.batch_reader import BatchReader
from headrace.console.calls import Call
from headrace.console.decoders.decoder import to_json_value
from headrace.console.errors import ApiError
from headrace.console.paging import PageQuery, page_of, select
from headrace.console.pipelines.dead_letters import DeadLetter, Replayer, parse_dead_letter
from headrace.console.pipelines.statuses import STATUS_TOPIC, FlowView
from headrace.console.records.browse import Browser, Cursor
from headrace.console.records.rows import rows_of
from headrace.console.routing import Router
from headrace.console.schema import Length, Range
from headrace.console.search.conditions import FilterError
from headrace.console.search.query import RecordQuery

router = Router("pipelines")
_PIPELINES = "/api/clusters/{cluster}/pipelines"
_MAX_REPLAYED = 10_000
_PAGE = 500
_FETCH_BYTES = 1024 * 1024
_State = Literal["running", "stopped", "failed", "stale"]
_ORDER = ("failed", "stale", "running", "stopped")
"""The state of a pipeline is the first of those of its flows."""


@dataclass(frozen=True)
class PipelineItem:
    """A pipeline."""

    pipeline: str
    run_id: str
    state: _State
    started_ms: int
    updated_ms: int
    host: str | None
    rows_per_second: float
    lag: int | None
    dead_letters: int
    error: str | None


@dataclass(frozen=True)
class PipelinesPage:
    """A part of the pipelines."""

    items: list[PipelineItem]
    total: int
    page: int
    per_page: int


@dataclass(frozen=True)
class PipelineOutput:
    """An output of a flow, and the rows that were written to it since the start."""

    name: str
    kind: Literal["topic", "table"]
    rows: int


@dataclass(frozen=True)
class PipelineFlow:
    """A flow of a pipeline."""

    flow: str
    state: _State
    error: str | None
    restarts: int
    sources: list[str]
    outputs: list[PipelineOutput]
    dead_letter_topic: str | None
    batch_id: int | None
    batch_seconds: float | None
    rows_per_second: float
    rows_out_per_second: float
    lag: int | None
    rows: int
    dead_letters: int
    ui_url: str | None
    trigger: str | None
    settings: dict[str, Any]
    figures: dict[str, Any]


@dataclass(frozen=True)
class PipelineGraph:
    """The way of the rows: nodes are topics, flows and tables."""

    nodes: list[dict[str, str]]
    edges: list[dict[str, Any]]


@dataclass(frozen=True)
class PipelineBatch:
    """A completed batch."""

    flow: str
    batch_id: int
    time_ms: int
    rows: int
    seconds: float
    lag: int | None
    phases_ms: dict[str, int]


@dataclass(frozen=True)
class PipelineDetails(PipelineItem):
    """A pipeline with its flows."""

    flows: list[PipelineFlow]
    graph: PipelineGraph
    batches: list[PipelineBatch]


@router.get(_PIPELINES, query=PageQuery, response=PipelinesPage, summary="List pipelines")
async def list_pipelines(call: Call, query: PageQuery) -> PipelinesPage:
    """The pipelines that have published their status during the last days."""
    now = call.clock.time_ms()
    items = [PipelineItem(**_fields(name, flows, now)) for name, flows in (await _visible(call)).items()]
    found = select(
        items,
        query,
        lambda item: item.pipeline,
        {
            "name": lambda item: item.pipeline,
            "state": lambda item: item.state,
            "rows_per_second": lambda item: item.rows_per_second,
            "lag": lambda item: item.lag,
            "dead_letters": lambda item: item.dead_letters,
        },
    )
    return PipelinesPage(page_of(found, query), len(found), query.page, query.per_page)


@router.get(f"{_PIPELINES}/{{pipeline}}", response=PipelineDetails, summary="Show a pipeline")
async def get_pipeline(call: Call) -> PipelineDetails:
    """A pipeline with its flows, the graph of its topics and tables, and its last batches."""
    flows = await _flows(call)
    now = call.clock.time_ms()
    batches = sorted((batch for flow in flows for batch in flow.batches), key=lambda batch: -batch["time_ms"])
    return PipelineDetails(
        **_fields(call.path["pipeline"], flows, now),
        flows=[_flow(flow, now) for flow in flows],
        graph=_graph(flows, now),
        batches=[PipelineBatch(**batch) for batch in batches],
    )


async def _visible(call: Call) -> dict[str, list[FlowView]]:
    visibility = await call.visibility()
    if not visibility.topics(STATUS_TOPIC):
        return {}
    pipelines = call.console.pipelines[call.cluster.name].statuses.pipelines()
    return {
        name: flows
        for name, flows in pipelines.items()
        if all(visibility.topics(topic) for flow in flows for topic in flow.topics)
    }


async def _flows(call: Call) -> list[FlowView]:
    name = call.path["pipeline"]
    flows = (await _visible(call)).get(name)
    if flows is None:
        raise ApiError(404, "NOT_FOUND", f"There is no pipeline {name!r}", "pipeline")
    return flows


def _fields(name: str, flows: list[FlowView], now: int) -> dict[str, Any]:
    latest = max(flows, key=lambda flow: flow.whole("updated_ms"))
    states = {flow.state(now) for flow in flows}
    lags = [flow.whole("lag") for flow in flows if flow.number("lag") is not None]
    return {
        "pipeline": name,
        "run_id": latest.text("run_id") or "",
        "state": next(state for state in _ORDER if state in states),
        "started_ms": min(flow.whole("started_ms") for flow in flows),
        "updated_ms": latest.whole("updated_ms"),
        "host": latest.text("host"),
        "rows_per_second": sum(_rate(flow, "rows_in_per_second", now) for flow in flows),
        "lag": sum(lags) if lags else None,
        "dead_letters": sum(flow.whole("dead_letters") for flow in flows),
        "error": next((error for flow in flows if (error := flow.text("error")) is not None), None),
    }


def _rate(flow: FlowView, name: str, now: int) -> float:
    """A flow that does not run has no rate, whatever it has published last."""
    return (flow.number(name) or 0.0) if flow.state(now) == "running" else 0.0


def _flow(flow: FlowView, now: int) -> PipelineFlow:
    rows = flow.rows_out
    outputs = [PipelineOutput(name, "topic", rows.get(name, 0)) for name in flow.output_topics]
    outputs += [PipelineOutput(name, "table", rows.get(name, 0)) for name in flow.tables]
    last = flow.batches[-1] if flow.batches else None
    settings, figures = (to_json_value(flow.status.get(name)) for name in ("settings", "figures"))
    return PipelineFlow(
        flow.flow,
        flow.state(now),  # type: ignore[arg-type]
        flow.text("error"),
        flow.whole("restarts"),
        flow.sources,
        outputs,
        flow.dead_letter_topic,
        None if last is None else last["batch_id"],
        None if last is None else last["seconds"],
        _rate(flow, "rows_in_per_second", now),
        _rate(flow, "rows_out_per_second", now),
        None if flow.number("lag") is None else flow.whole("lag"),
        flow.whole("rows_in"),
        flow.whole("dead_letters"),
        _web_address(flow.text("ui_url")),
        flow.text("trigger"),
        settings if isinstance(settings, dict) else {},
        figures if isinstance(figures, dict) else {},
    )


def _web_address(url: str | None) -> str | None:
    """A browser must not follow anything else, such as javascript:."""
    return url if url is not None and url.startswith(("http://", "https://")) else None


def _graph(flows: list[FlowView], now: int) -> PipelineGraph:
    nodes: dict[str, dict[str, str]] = {}
    edges: list[dict[str, Any]] = []

    def node(kind: str, name: str) -> str:
        key = f"{kind}:{name}"
        nodes.setdefault(key, {"id": key, "kind": kind, "name": name})
        return key

    for flow in flows:
        middle = node("flow", flow.flow)
        rate = _rate(flow, "rows_in_per_second", now)
        sources = flow.sources
        for topic in sources:
            # The status has one rate for all sources of a flow.
            edges.append(
                {"from": node("topic", topic), "to": middle, "rows_per_second": rate if len(sources) == 1 else None}
            )
        written, total = flow.rows_out, max(sum(flow.rows_out.values()), 1)
        out = _rate(flow, "rows_out_per_second", now)
        dead = [flow.dead_letter_topic] if flow.dead_letter_topic is not None else []
        for kind, names in (("topic", [*flow.output_topics, *dead]), ("table", flow.tables)):
            for name in dict.fromkeys(names):
                part = out * written.get(name, 0) / total
                edges.append({"from": middle, "to": node(kind, name), "rows_per_second": part})
    return PipelineGraph(list(nodes.values()), edges)


# ---- dead letters


@dataclass(frozen=True)
class DeadLettersQuery:
    """Which dead letters."""

    reason: Annotated[str, Length(0, 1000)] = ""
    cursor: Annotated[str, Length(0, 1_000_000)] = ""
    limit: Annotated[int, Range(1, 500)] = 50


@dataclass(frozen=True)
class DeadLetterReason:
    """How many dead letters of the current run have a reason."""

    reason: str
    count: int


@dataclass(frozen=True)
class DeadLetterSource:
    """The record that could not be processed."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None


@dataclass(frozen=True)
class DeadLetterItem:
    """A dead letter. Without a reason it is another record of the topic."""

    partition: int
    offset: int
    reason: str | None
    source: DeadLetterSource | None
    key: str | None
    value: str | None
    key_encoding: str | None
    encoding: str | None
    value_bytes: int | None
    """Set if the value was cut off."""


@dataclass(frozen=True)
class DeadLettersPage:
    """Dead letters, newest first."""

    topic: str | None
    reasons: list[DeadLetterReason]
    records: list[DeadLetterItem]
    cursor: str | None


def _dead_letter_topic(flows: list[FlowView]) -> str | None:
    topics = {flow.dead_letter_topic for flow in flows} - {None}
    return sorted(topic for topic in topics if topic is not None)[0] if topics else None


@router.get(
    f"{_PIPELINES}/{{pipeline}}/dead-letters", query=DeadLettersQuery, response=DeadLettersPage, summary="Dead letters"
)
async def list_dead_letters(call: Call, query: DeadLettersQuery) -> dict[str, Any]:
    """The dead letters of a pipeline, newest first, optionally with one reason."""
    flows = await _flows(call)
    topic = _dead_letter_topic(flows)
    counts: dict[str, int] = {}
    for flow in flows:
        for reason, count in flow.reasons.items():
            counts[reason] = counts.get(reason, 0) + count
    reasons = [{"reason": reason, "count": counts[reason]} for reason in sorted(counts, key=lambda one: -counts[one])]
    if topic is None:
        return {"topic": None, "reasons": reasons, "records": [], "cursor": None}
    try:
        cursor = Cursor.decode(query.cursor) if query.cursor else None
    except FilterError as error:
        raise ApiError(400, "INVALID_REQUEST", str(error), "cursor") from None
    letters, following = await _read(call, topic, query.reason, query.limit, cursor)
    return {
        "topic": topic,
        "reasons": reasons,
        "records": [letter.as_json() for letter in letters],
        "cursor": None if following is None else following.encode(),
    }


async def _read(
    call: Call, topic: str, reason: str, limit: int, cursor: Cursor | None
) -> tuple[list[DeadLetter], Cursor | None]:
    conditions = ({"field": "value", "path": "$.reason", "op": "equals", "operand": reason},) if reason else ()
    query = RecordQuery(topic, read_committed=True, conditions=conditions)
    async with BatchReader(call.client_config("consumer"), topic) as reader:
        page = await Browser(reader, query, call.console.decoders, call.clock).page(limit, cursor)
    return [parse_dead_letter(row) for row in page.rows], page.cursor


@dataclass(frozen=True)
class DeadLetterPosition:
    """A dead letter in its topic."""

    partition: Annotated[int, Range(0, 2**31 - 1)]
    offset: Annotated[int, Range(0, 2**63 - 1)]


@dataclass(frozen=True)
class ReplayRequest:
    """Which dead letters to replay: some, or all with a reason."""

    reason: Annotated[str, Length(1, 1000)] | None = None
    offsets: Annotated[list[DeadLetterPosition], Length(1, 10_000)] | None = None
    target_topic: Annotated[str, Length(1, 249)] | None = None
    """By default each record goes to its source topic."""


@dataclass(frozen=True)
class ReplayResult:
    """How many records were written, and how many are gone from the source and were cut off in their dead letter."""

    replayed: int
    lost: int


@router.post(
    f"{_PIPELINES}/{{pipeline}}/dead-letters/replay",
    body=ReplayRequest,
    response=ReplayResult,
    change="replay dead letters",
    timeout_seconds=1800,
    summary="Replay dead letters",
)
async def replay_dead_letters(call: Call, body: ReplayRequest) -> ReplayResult:
    """Writes the source records of dead letters once more. At most 10,000 at a time, the newest."""
    flows = await _flows(call)
    topic = _dead_letter_topic(flows)
    if topic is None:
        raise ApiError(404, "NOT_FOUND", "This pipeline has no topic of dead letters")
    if (body.reason is None) == (body.offsets is None):
        raise ApiError(400, "INVALID_REQUEST", "Expected either reason or offsets", "reason")
    call.audit(call.path["pipeline"], reason=body.reason, to=body.target_topic)
    if body.offsets is not None:
        letters = await _letters_at(call, topic, body.offsets)
    else:
        letters = await _letters_with(call, topic, body.reason or "")
    sources = {name for flow in flows for name in flow.sources}
    if body.target_topic is not None:
        await (await call.admin()).describe_topics([body.target_topic])
    replayer = Replayer(call.client_config("consumer"), call.client_config("producer"))
    await replayer.replay(letters, sources, body.target_topic)
    call.audit(call.path["pipeline"], replayed=replayer.replayed)
    return ReplayResult(replayer.replayed, replayer.lost)


async def _letters_with(call: Call, topic: str, reason: str) -> list[DeadLetter]:
    letters: list[DeadLetter] = []
    cursor: Cursor | None = None
    while len(letters) < _MAX_REPLAYED:
        page, cursor = await _read(call, topic, reason, min(_PAGE, _MAX_REPLAYED - len(letters)), cursor)
        letters += page
        if cursor is None:
            break
    return letters


async def _letters_at(call: Call, topic: str, positions: list[DeadLetterPosition]) -> list[DeadLetter]:
    wanted = {(position.partition, position.offset) for position in positions}
    letters: dict[tuple[int, int], DeadLetter] = {}
    async with BatchReader(call.client_config("consumer"), topic) as reader:
        for partition, offset in sorted(wanted):
            if (partition, offset) in letters:
                continue
            (fetched,) = await reader.fetch({partition: offset}, max_bytes=_FETCH_BYTES)
            for row in rows_of(fetched, (), read_committed=False, with_control=False):
                if (partition, row.offset) in wanted:
                    letters[partition, row.offset] = parse_dead_letter(row)
    missing = sorted(wanted - letters.keys())
    if missing:
        partition, offset = missing[0]
        raise ApiError(404, "NOT_FOUND", f"Topic {topic!r} has no dead letter at {partition}:{offset}", "offsets")
    return list(letters.values())
