"""The records of a topic: browse, live tail, search, export, produce, copy.

Reads act as the logged-in principal, so the cluster decides what they return.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal
from urllib.parse import quote

from starlette.responses import Response, StreamingResponse

from headrace.aio.producer import Producer
from headrace.client.consumer.batch_reader import BatchReader
from headrace.common.errors import ERRORS_BY_CODE
from headrace.console.calls import Call
from headrace.console.errors import ApiError, api_error
from headrace.console.events import Event
from headrace.console.records.browse import Browser, Cursor
from headrace.console.records.inputs import InputError, encode_input
from headrace.console.records.rows import Row
from headrace.console.records.tail import tail
from headrace.console.routing import Router
from headrace.console.schema import Length, Range
from headrace.console.search.conditions import FilterError
from headrace.console.search.process import ScanError, TooManyScansError
from headrace.console.search.query import RecordQuery, path_condition
from headrace.console.search.record_json import RecordRenderer

router = Router("records")
_RECORDS = "/api/clusters/{cluster}/topics/{topic}/records"
_MAX_EXPORT = 2**62
_MAX_COPIED = 1_000_000_000
_PARTITION = Range(0, 2**31 - 1)
_OFFSET = Range(0, 2**63 - 1)
_FILES = {
    "jsonl": "application/x-ndjson",
    "csv": "text/csv; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
}


@dataclass(frozen=True, kw_only=True)
class RecordsQuery:
    """Which records, how to decode them, and how to filter them."""

    partition: list[Annotated[int, _PARTITION]] = field(default_factory=list)
    from_: Literal["newest", "oldest", "offset", "time"] = "newest"
    offset: Annotated[int, _OFFSET] = 0
    time_ms: Annotated[int, _OFFSET] | None = None
    to_time_ms: Annotated[int, _OFFSET] | None = None
    limit: Annotated[int, Range(1, 500)] = 50
    key_decoder: Annotated[str, Length(1, 64)] = "auto"
    value_decoder: Annotated[str, Length(1, 64)] = "auto"
    isolation: Literal["read_uncommitted", "read_committed"] = "read_uncommitted"
    control: bool = False
    filter_key: Annotated[str, Length(0, 10_000)] = ""
    filter_value: Annotated[str, Length(0, 10_000)] = ""
    filter_header: Annotated[str, Length(0, 10_000)] = ""
    filter_path: Annotated[str, Length(0, 10_000)] = ""
    filter_regex: Annotated[str, Length(0, 10_000)] = ""

    def to_query(self, topic: str) -> RecordQuery:
        """Returns the query. Raises ApiError for filters that cannot be understood."""
        conditions: list[Mapping[str, Any]] = []
        if self.filter_key:
            conditions.append({"field": "key", "op": "contains", "operand": self.filter_key})
        if self.filter_value:
            conditions.append({"field": "value", "op": "contains", "operand": self.filter_value})
        if self.filter_header:
            name, equals, value = self.filter_header.partition("=")
            conditions.append(
                {"field": "header", "header": name or None, "op": "contains", "operand": value}
                if equals
                else {"field": "header", "header": name, "op": "exists"}
            )
        try:
            if self.filter_path:
                conditions.append(path_condition(self.filter_path))
            if self.filter_regex:
                conditions.append({"field": "any", "op": "regex", "operand": self.filter_regex})
            query = RecordQuery(
                topic,
                partitions=tuple(sorted(set(self.partition))) or None,
                start=self.from_,
                offset=self.offset,
                time_ms=self.time_ms,
                to_time_ms=self.to_time_ms,
                read_committed=self.isolation == "read_committed",
                key_decoder=self.key_decoder,
                value_decoder=self.value_decoder,
                conditions=tuple(conditions),
            )
            query.parsed_conditions()
        except FilterError as error:
            raise _invalid(error) from None
        return query


@dataclass(frozen=True, kw_only=True)
class RecordsTailQuery(RecordsQuery):
    """Which new records."""


@dataclass(frozen=True, kw_only=True)
class RecordsPageQuery(RecordsQuery):
    """A page of records."""

    cursor: Annotated[str, Length(0, 1_000_000)] = ""
    """Of an earlier response: the page after it."""


@dataclass(frozen=True, kw_only=True)
class RecordsSearchQuery(RecordsQuery):
    """A search through a topic."""

    limit: Annotated[int, Range(1, 10_000)] = 100


@dataclass(frozen=True, kw_only=True)
class RecordsExportQuery(RecordsQuery):
    """An export of a topic."""

    format: Literal["jsonl", "csv", "parquet"] = "jsonl"
    max_records: Annotated[int, Range(1, _MAX_EXPORT)] = 100_000


@dataclass(frozen=True)
class RecordField:
    """A key, a value or the value of a header, as text."""

    decoder: str
    text: str
    size_bytes: int
    truncated: bool
    error: str | None
    """Why the chosen decoder failed."""
    json: Any = None
    """The object, if the decoder yields one."""


@dataclass(frozen=True)
class RecordHeader:
    """A header of a record."""

    name: str
    value: RecordField | None


@dataclass(frozen=True)
class RecordTransaction:
    """The transaction of a record."""

    producer_id: int
    state: Literal["committed", "aborted", "open"]


@dataclass(frozen=True)
class RecordItem:
    """A record, or a transaction marker. A value of null is a tombstone."""

    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: Literal["create", "append"]
    key: RecordField | None
    value: RecordField | None
    headers: list[RecordHeader]
    size_bytes: int
    control: Literal["commit", "abort", "other"] | None
    transaction: RecordTransaction | None
    producer_id: int | None
    producer_epoch: int | None
    sequence: int | None
    compression: str | None


@dataclass(frozen=True)
class RecordsPage:
    """Records in the order of display, and where to continue."""

    records: list[RecordItem]
    next: dict[str, int] | None
    """The position of each partition that has more records."""
    cursor: str | None
    start_offsets: dict[str, int]
    end_offsets: dict[str, int]


@router.get(_RECORDS, query=RecordsPageQuery, response=RecordsPage, summary="Browse records")
async def browse_records(call: Call, query: RecordsPageQuery) -> dict[str, Any]:
    """Records from the newest backward, or from the oldest, an offset or a time forward. With filters, a page may have
    few records and still a cursor."""
    topic = call.path["topic"]
    asked = query.to_query(topic)
    renderer = _renderer(call, asked)
    try:
        cursor = Cursor.decode(query.cursor) if query.cursor else None
        async with _reader(call, topic) as reader:
            browser = Browser(reader, asked, call.console.decoders, call.clock, with_control=query.control)
            page = await browser.page(query.limit, cursor)
    except FilterError as error:
        raise _invalid(error) from None
    return {
        "records": [row_json(renderer, row) for row in page.rows],
        "next": None if page.cursor is None else page.cursor.positions,
        "cursor": None if page.cursor is None else page.cursor.encode(),
        "start_offsets": page.starts,
        "end_offsets": page.ends,
    }


def _reader(call: Call, topic: str) -> BatchReader:
    return BatchReader(call.client_config("consumer"), topic)


def _renderer(call: Call, query: RecordQuery) -> RecordRenderer:
    try:
        return RecordRenderer(call.console.decoders, query.key_decoder, query.value_decoder)
    except KeyError as error:
        raise _invalid(error) from None


def _invalid(error: Exception) -> ApiError:
    return ApiError(400, "INVALID_REQUEST", str(error.args[0] if error.args else error))


def row_json(renderer: RecordRenderer, row: Row) -> dict[str, Any]:
    """Returns a record of a fetched batch as the object of the API."""
    record = row.record
    shown = renderer.record(
        row.partition,
        record.offset,
        record.timestamp,
        record.timestamp_type,
        record.key,
        record.value,
        record.headers,
    )
    shown["control"] = row.control
    shown["compression"] = row.compression
    if row.producer_id >= 0:
        shown["producer_id"] = row.producer_id
        shown["producer_epoch"] = row.producer_epoch
        shown["sequence"] = row.sequence if row.sequence >= 0 else None
    if row.transaction is not None:
        shown["transaction"] = {"producer_id": row.producer_id, "state": row.transaction}
    return shown


@router.stream(f"{_RECORDS}/tail", query=RecordsTailQuery, summary="Live tail")
async def tail_records(call: Call, query: RecordsTailQuery) -> AsyncIterator[Event]:
    """Events `records` with new records; `skipped` counts those that were left out because too many arrived."""
    topic = call.path["topic"]
    asked = query.to_query(topic)
    renderer = _renderer(call, asked)
    try:
        async with _reader(call, topic) as reader:
            async for rows, skipped in tail(reader, asked, call.console.decoders, call.clock, query.control):
                if rows or skipped:
                    yield Event("records", {"records": [row_json(renderer, row) for row in rows], "skipped": skipped})
    except FilterError as error:
        raise _invalid(error) from None


# ---- scans: search, export, copy


def _job(call: Call, action: str, query: RecordQuery, limit: int, **fields: Any) -> dict[str, Any]:
    _renderer(call, query)  # refuses unknown decoders
    return {
        "action": action,
        "config": call.client_config("consumer"),
        "query": query.to_json(),
        "decoders": list(call.console.decoders.options),
        "limit": limit,
        **fields,
    }


async def _scan(call: Call, job: dict[str, Any]) -> AsyncIterator[tuple[str, Any]]:
    """Runs a scan process. Its errors become those of the API."""
    events = call.console.scans.run(job)
    try:
        async for event in events:
            yield event
    except TooManyScansError as error:
        raise ApiError(429, "TOO_MANY_SCANS", str(error), retry_after=10) from None
    except ScanError as error:
        raise _scan_failed(error) from None
    finally:
        await events.aclose()


def _scan_failed(error: ScanError) -> ApiError:
    for kind in ERRORS_BY_CODE.values():
        if kind.name == error.name and kind.code > 0:
            return api_error(kind(str(error)))
    return ApiError(503 if error.name else 500, "INTERNAL", str(error))


@router.stream(f"{_RECORDS}/search", query=RecordsSearchQuery, summary="Search a topic")
async def search_records(call: Call, query: RecordsSearchQuery) -> AsyncIterator[Event]:
    """Events: `progress` about once a second, `records` with matches, and in the end `done` with the reason `end` or
    `limit`. Closing the stream cancels the search."""
    job = _job(call, "search", query.to_query(call.path["topic"]), query.limit)
    async for name, content in _scan(call, job):
        yield Event(name, {"records": content} if name == "records" else content)


@router.get(
    f"{_RECORDS}/export",
    query=RecordsExportQuery,
    summary="Export records as a file",
    content_type="application/octet-stream",
)
async def export_records(call: Call, query: RecordsExportQuery) -> Response:
    """A file of the selected records: JSON lines, CSV or Parquet. It is written while the topic is read."""
    topic = call.path["topic"]
    asked = query.to_query(topic)
    if asked.start == "newest":
        # A file has the records in the order of the log.
        asked = RecordQuery.from_json({**asked.to_json(), "start": "oldest"})
    pieces = _pieces(call, _job(call, "export", asked, query.max_records, format=query.format))
    # The first piece shows whether the topic can be read at all, while the status can still say so.
    first = await anext(pieces, b"")

    async def content() -> AsyncIterator[bytes]:
        yield first
        async for piece in pieces:
            yield piece

    name = quote(f"{topic}.{query.format}", safe="")
    return StreamingResponse(
        content(),
        media_type=_FILES[query.format],
        headers={"Content-Disposition": f"attachment; filename*=UTF-8''{name}", "Cache-Control": "no-store"},
    )


async def _pieces(call: Call, job: dict[str, Any]) -> AsyncIterator[bytes]:
    async for name, content in _scan(call, job):
        if name == "data":
            yield content


# ---- decoders


@dataclass(frozen=True)
class DecoderItem:
    """A decoder of keys and values."""

    name: str
    title: str
    user: bool
    """Whether it was added with --decoder."""


@dataclass(frozen=True)
class DecoderList:
    """All decoders."""

    items: list[DecoderItem]


@router.get("/api/clusters/{cluster}/decoders", response=DecoderList, summary="List decoders")
async def list_decoders(call: Call) -> dict[str, Any]:
    """The decoders of keys and values: built-in ones, and those of --decoder."""
    return {"items": call.console.decoders.items()}


# ---- changes


@dataclass(frozen=True)
class InputField:
    """A key or value that a person typed in."""

    encoding: str
    data: Annotated[str, Length(0, 10_000_000)]


@dataclass(frozen=True)
class HeaderInput:
    """A header that a person typed in."""

    name: Annotated[str, Length(0, 10_000)]
    value: InputField | None = None


@dataclass(frozen=True)
class NewRecord:
    """A record to produce. A value of null is a tombstone."""

    key: InputField | None = None
    value: InputField | None = None
    headers: Annotated[list[HeaderInput], Length(0, 1000)] = field(default_factory=list)
    partition: Annotated[int, _PARTITION] | None = None
    timestamp_ms: Annotated[int, _OFFSET] | None = None


@dataclass(frozen=True)
class ProducedRecord:
    """Where a record was written."""

    partition: int
    offset: int
    timestamp_ms: int


@router.post(
    _RECORDS, body=NewRecord, response=ProducedRecord, status=201, change="produce record", summary="Produce a record"
)
async def produce_record(call: Call, body: NewRecord) -> ProducedRecord:
    """Writes one record, and waits until all in-sync replicas have it."""
    topic = call.path["topic"]
    try:
        key = _bytes_of(body.key, "key")
        value = _bytes_of(body.value, "value")
        headers = [(header.name, _bytes_of(header.value, f"header {header.name}")) for header in body.headers]
    except InputError as error:
        raise _invalid(error) from None
    async with Producer(
        {"acks": "all", "allow.auto.create.topics": False, **call.client_config("producer")}
    ) as producer:
        written = await producer.send_and_wait(
            topic, value, key=key, headers=headers, partition=body.partition, timestamp_ms=body.timestamp_ms
        )
    call.audit(f"{topic}-{written.partition}", offset=written.offset)
    return ProducedRecord(written.partition, written.offset, written.timestamp)


def _bytes_of(given: InputField | None, name: str) -> bytes | None:
    return None if given is None else encode_input(given.encoding, given.data, name)


@dataclass(frozen=True)
class RecordPosition:
    """A record, by its position."""

    partition: Annotated[int, _PARTITION]
    offset: Annotated[int, _OFFSET]


@dataclass(frozen=True)
class RecordSelection:
    """Records: by their positions, or by a query."""

    offsets: Annotated[list[RecordPosition], Length(1, 10_000)] | None = None
    query: RecordsQuery | None = None
    max_records: Annotated[int, Range(1, _MAX_COPIED)] = 100_000


@dataclass(frozen=True)
class CopyRequest:
    """What to copy, and where to."""

    target_topic: Annotated[str, Length(1, 249)]
    selection: RecordSelection
    target_cluster: str | None = None
    """The same cluster by default."""
    keep_partition: bool = False
    keep_timestamp: bool = True


@dataclass(frozen=True)
class CopyResult:
    """How many records were copied."""

    copied: int


@router.post(
    f"{_RECORDS}/copy",
    body=CopyRequest,
    response=CopyResult,
    change="copy records",
    summary="Copy records to a topic",
    timeout_seconds=3600,
)
async def copy_records(call: Call, body: CopyRequest) -> CopyResult:
    """Copies keys, values and headers as they are, in the order of the log. Ends at the offsets that the topic had when
    the copy began, so a topic can be copied into itself."""
    topic, selection = call.path["topic"], body.selection
    target = call.console.clusters.get(body.target_cluster or call.cluster.name)
    if target is None:
        raise ApiError(400, "INVALID_REQUEST", f"There is no cluster {body.target_cluster!r}", "target_cluster")
    if not call.console.is_writable(target):
        raise ApiError(403, "READ_ONLY", f"The console is read-only on cluster {target.name!r}")
    if (selection.offsets is None) == (selection.query is None):
        raise ApiError(400, "INVALID_REQUEST", "Expected either offsets or query", "selection")
    if selection.query is not None:
        asked = selection.query.to_query(topic)
    else:
        positions = tuple((one.partition, one.offset) for one in selection.offsets or ())
        asked = RecordQuery(topic, offsets=positions)
    if asked.start == "newest":
        asked = RecordQuery.from_json({**asked.to_json(), "start": "oldest"})
    identity = call.console.identity(call.session, target)
    known = await identity.admin.describe_topics([body.target_topic])  # no topic is created by accident
    call.audit(topic, to=f"{target.name}/{body.target_topic}", partitions=len(known[body.target_topic].partitions))
    job = _job(
        call,
        "copy",
        asked,
        selection.max_records,
        copy={
            "topic": body.target_topic,
            "keep_partition": body.keep_partition,
            "keep_timestamp": body.keep_timestamp,
            "config": {**identity.client_config("producer"), "allow.auto.create.topics": False},
        },
    )
    async for name, content in _scan(call, job):
        if name == "done":
            call.audit(topic, copied=content["copied"])
            return CopyResult(content["copied"])
    raise ApiError(500, "INTERNAL", "The copy ended without a result")
