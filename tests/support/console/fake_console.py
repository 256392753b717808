"""A fake console: the real static files, and the API's contract with the documents of `sample_cluster.py`.

For tests and screenshots of the user interface alone: many topics, states that a real cluster shows rarely, and the
requests that the page sent.
"""

import asyncio
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from tests.support.console import sample_cluster as sample

import headrace

STATIC = Path(headrace.__file__).parent / "console" / "static"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'none'; "
    "frame-ancestors 'none'; base-uri 'none'"
)


class FakeConsole:
    """What the fake serves, and the changes that pages asked for: (method, path, body)."""

    def __init__(self, extra_topics: int = 0, extra_groups: int = 0, writable: bool = True, login: bool = False):
        self.extra_topics, self.extra_groups = extra_topics, extra_groups
        self.writable, self.login, self.user = writable, login, None
        self.changes: list[tuple[str, str, Any]] = []
        self.refuse: dict[str, tuple[int, str, str]] = {}
        """Path → (status, code, message) of requests that fail."""
        self.reachable = True
        self.stopped = threading.Event()
        self.changed_configs = {"retention.ms": "259200000", "min.insync.replicas": "2"}
        self.deleted: set[str] = set()
        self.fixed_ms: int | None = None
        """The time of all documents, if it does not pass."""
        self.created: list[tuple[str, int]] = []

    @property
    def now_ms(self) -> int:
        return self.fixed_ms or int(time.time() * 1000)

    def topics(self) -> list[dict[str, Any]]:
        return [
            row
            for row in sample.topic_rows(self.now_ms, self.extra_topics, self.created)
            if row["name"] not in self.deleted
        ]

    def groups(self) -> list[dict[str, Any]]:
        return sample.group_rows(self.now_ms, self.extra_groups)

    def session(self) -> dict[str, Any]:
        need = "required" if self.login else "none"
        clusters = [
            {
                "name": name,
                "login": need,
                "user": self.user,
                "mechanisms": ["PLAIN", "SCRAM-SHA-512"] if self.login else [],
                "writable": self.writable and (not self.login or self.user is not None),
                "reachable": name == "production",
                "error": None,
                "cluster_id": "kL4wq0m2T5eC1hR7yPz8Ug",
            }
            for name in ("production", "staging")
        ]
        return {
            "csrf_token": "t0ken",
            "version": headrace.__version__,
            "write": True,
            "clusters": clusters,
            "expires_at_ms": None,
        }

    def app(self) -> Starlette:
        base = "/api/clusters/{cluster}"
        routes = [
            Route("/api/session", lambda _: JSONResponse(self.session())),
            Route("/api/login", self._login, methods=["POST"]),
            Route("/api/logout", self._logout, methods=["POST"]),
            Route(base + "/events", self._events),
            Route(base + "/topics/{topic}/records/{stream}", self._stream),
            Route(base + "/{rest:path}", self._read),
            Route(base + "/{rest:path}", self._change, methods=["POST", "PUT", "PATCH", "DELETE"]),
            Mount("/static", StaticFiles(directory=STATIC)),
            Route(
                "/{rest:path}",
                lambda _: FileResponse(STATIC / "index.html", headers={"Content-Security-Policy": POLICY}),
            ),
        ]
        return Starlette(routes=routes)

    async def _login(self, request: Request) -> Response:
        body = await request.json()
        if body["password"] != "secret":
            return _error(401, "LOGIN_FAILED", "Authentication failed: user or password is wrong.")
        self.user = f"User:{body['username']}"
        return JSONResponse(self.session())

    async def _logout(self, _: Request) -> Response:
        self.user = None
        return JSONResponse(self.session())

    async def _events(self, _: Request) -> Response:
        return StreamingResponse(self._ticks(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})

    async def _ticks(self) -> AsyncIterator[str]:
        yield "retry: 500\n\n"
        shown: bool | None = None
        while not self.stopped.is_set():
            if shown != self.reachable:
                shown = self.reachable
                yield _event(
                    "status", {"reachable": shown, "error": None if shown else "Connection refused by 127.0.0.1:9092"}
                )
                firing = sample.alerts(self.now_ms)
                yield _event("alerts", {"firing": 1, "alerts": firing})
            overview = sample.overview(self.now_ms, self.topics(), self.groups())
            yield _event("tick", {"time_ms": self.now_ms, "overview": overview, "generation": {}})
            for _ in range(10):
                if self.stopped.is_set() or shown != self.reachable:
                    break
                await asyncio.sleep(0.1)

    async def _stream(self, request: Request) -> Response:
        kind = request.path_params["stream"]
        if kind == "export":
            rows = "".join(json.dumps(sample.record(0, offset, self.now_ms)) + "\n" for offset in range(10))
            return Response(
                rows,
                media_type="application/x-ndjson",
                headers={"Content-Disposition": "attachment; filename=records.jsonl"},
            )
        stream = self._tail() if kind == "tail" else self._search(request)
        return StreamingResponse(stream, media_type="text/event-stream")

    async def _tail(self) -> AsyncIterator[str]:
        offset = 5000
        while not self.stopped.is_set():
            yield _event("records", {"records": [sample.record(offset % 3, offset, self.now_ms)], "skipped": 0})
            offset += 1
            await asyncio.sleep(0.1)

    async def _search(self, request: Request) -> AsyncIterator[str]:
        total, wanted = 5_000_000, request.query_params.get("filter_value", "")
        found = [
            each
            for offset in range(200)
            for each in [sample.record(offset % 3, offset, self.now_ms)]
            if each["value"] and wanted in each["value"]["text"]
        ]
        progress: dict[str, Any] = {}
        for step in range(1, 6):
            progress = {
                "scanned_records": total * step // 5,
                "scanned_bytes": 200 * total * step // 5,
                "matched": len(found[: step * 10]),
                "total_records": total,
                "percent": 20 * step,
                "records_per_second": 1_000_000,
                "remaining_seconds": (5 - step) * 0.2,
            }
            yield _event("progress", progress)
            yield _event("records", {"records": found[step * 10 - 10 : step * 10]})
            await asyncio.sleep(0.1)
        yield _event("done", {"reason": "end", **progress})

    async def _read(self, request: Request) -> Response:
        path = request.path_params["rest"].split("/")
        if problem := self.refuse.get(request.path_params["rest"]):
            return _error(*problem)
        answer = self._document(path, request.query_params)
        return (
            JSONResponse(answer)
            if answer is not None
            else _error(404, "NOT_FOUND", f"There is no {request.path_params['rest']}.")
        )

    def _document(self, path: list[str], query: Any) -> Any:
        now = self.now_ms
        simple: dict[str, Callable[[], Any]] = {
            "overview": lambda: sample.overview(now, self.topics(), self.groups()),
            "history": lambda: sample.history(
                query.getlist("series"), int(query["from_ms"]), int(query["to_ms"]), int(query["points"])
            ),
            "decoders": lambda: {
                "items": [
                    {"name": name, "title": title, "user": False}
                    for name, title in [
                        ("text", "Text"),
                        ("json", "JSON"),
                        ("hex", "Hex"),
                        ("int64", "64-bit integer"),
                        ("avro", "Avro"),
                    ]
                ]
            },
            "reassignments": lambda: {
                "items": [
                    {
                        "topic": "clickstream.raw",
                        "partition": 4,
                        "replicas": [1, 2, 3],
                        "adding": [1],
                        "removing": [3],
                        "copied_bytes": 12_000_000_000,
                        "total_bytes": 29_000_000_000,
                        "progress": 0.41,
                        "remaining_seconds": 410.0,
                    }
                ]
            },
            "transactions": lambda: _paged(
                [{"name": row["transactional_id"], **row} for row in sample.transactions(now)], query
            ),
            "transactions/hanging": lambda: {
                "items": [
                    {
                        "topic": "billing.invoices",
                        "partition": 2,
                        "producer_id": 77,
                        "producer_epoch": 0,
                        "coordinator_epoch": 3,
                        "start_offset": 8_100,
                        "last_timestamp_ms": now - 912_000,
                        "transactional_id": "billing-export",
                    }
                ],
                "time_ms": now,
            },
            "pipelines": lambda: _paged(
                [{"name": name, **sample.pipeline_row(name, now)} for name in ("ods-dwd", "dws-traffic")], query
            ),
            "access/users": lambda: _paged(
                [
                    {"name": name, "mechanisms": [{"mechanism": "SCRAM-SHA-512", "iterations": 8192}]}
                    for name in ("alice", "billing", "console", "warehouse")
                ],
                query,
            ),
            "access/acls": lambda: _paged(
                [
                    {
                        "name": user,
                        "principal": f"User:{user}",
                        "host": "*",
                        "operation": operation,
                        "permission": "ALLOW",
                        "resource_type": "TOPIC",
                        "resource_name": topic,
                        "pattern_type": kind,
                    }
                    for user, operation, topic, kind in [
                        ("billing", "READ", "billing.", "PREFIXED"),
                        ("billing", "WRITE", "billing.", "PREFIXED"),
                        ("alice", "ALL", "*", "LITERAL"),
                        ("warehouse", "READ", "dwd_", "PREFIXED"),
                    ]
                ],
                query,
            ),
            "access/quotas": lambda: _paged(
                [
                    {
                        "name": "q",
                        "entity": {"user": "billing"},
                        "quotas": {"producer_byte_rate": 5e6, "consumer_byte_rate": 1e7},
                    },
                    {"name": "r", "entity": {"user": None}, "quotas": {"request_percentage": 200.0}},
                ],
                query,
            ),
            "access/tokens": lambda: _paged(
                [
                    {
                        "name": "t",
                        "token_id": "Yp3kLqH0SnC8",
                        "owner": "User:billing",
                        "requester": "User:billing",
                        "issue_time_ms": now - 10**7,
                        "expiry_time_ms": now + 10**7,
                        "max_time_ms": now + 10**8,
                        "renewers": [],
                    }
                ],
                query,
            ),
            "alerts": lambda: {"alerts": sample.alerts(now), "time_ms": now},
            "alerts/rules": lambda: {"items": sample.RULES},
            "brokers": lambda: {"items": sample.broker_rows(now), "total": 3},
            "brokers/default/configs": lambda: sample.configs({}),
        }
        if found := simple.get("/".join(path)):
            return found()
        match path:
            case ["topics"]:
                return _paged(
                    [row for row in self.topics() if query.get("internal") == "true" or not row["internal"]], query
                )
            case ["topics", name, *rest]:
                rows = [row for row in self.topics() if row["name"] == name]
                return self._topic(rows[0], rest, now) if rows else None
            case ["groups"]:
                return _paged(
                    [
                        {"name": row["group"], **row}
                        for row in self.groups()
                        if query.get("state", row["state"]) == row["state"]
                    ],
                    query,
                )
            case ["groups", name]:
                return next((sample.group(row) for row in self.groups() if row["group"] == name), None)
            case ["brokers", number, *rest]:
                return sample.configs({}) if rest else sample.broker(sample.broker_rows(now)[int(number) - 1])
            case ["pipelines", name, "dead-letters"]:
                return sample.dead_letters(now, query.get("reason"))
            case ["pipelines", name]:
                return sample.pipeline(name, now)
        return None

    def _topic(self, row: dict[str, Any], rest: list[str], now: int) -> Any:
        match rest:
            case []:
                return sample.topic(row, now)
            case ["configs"]:
                return sample.configs(self.changed_configs)
            case ["records"]:
                records = [sample.record(offset % 3, 999 - offset, now) for offset in range(50)]
                return {"records": records, "cursor": "more", "next": {}, "start_offsets": {}, "end_offsets": {}}
            case ["producers"]:
                return {
                    "items": [
                        {
                            "partition": number,
                            "producer_id": 4001,
                            "producer_epoch": 2,
                            "last_sequence": 4_410,
                            "last_timestamp_ms": now - 900,
                            "current_txn_start_offset": 900 if number == 1 else None,
                            "coordinator_epoch": 1,
                        }
                        for number in range(3)
                    ]
                }
        return None

    async def _change(self, request: Request) -> Response:
        path = request.path_params["rest"]
        if request.headers.get("X-CSRF-Token") != "t0ken":
            return _error(403, "CSRF", "The request has no valid CSRF token.")
        body = await request.json() if await request.body() else None
        if problem := self.refuse.get(path):
            return _error(*problem)
        self.changes.append((request.method, path, body))
        parts = path.split("/")
        if path == "topics":
            self.created.append((body["name"], body["partitions"]))
        if request.method == "DELETE":
            self.deleted.add(parts[-1])
            return Response(status_code=204)
        if parts[-1] == "configs":
            for name in body["reset"]:
                self.changed_configs.pop(name, None)
            self.changed_configs.update(body["set"])
            return JSONResponse(sample.configs(self.changed_configs))
        offsets = [
            {"topic": "ods_traffic", "partition": number, "old": 40_000_000, "new": 39_000_000, "records": -1_000_000}
            for number in range(12)
        ]
        answers: dict[str, Any] = {
            "elections": {"elected": [{"topic": "ods_traffic", "partition": 0}], "not_needed": 11, "errors": []},
            "reassignments": {"started": 1, "errors": []},
            "copy": {"copied": 3},
            "replay": {"replayed": 18},
            "abort": {"aborted": True},
            "records": {"partition": 1, "offset": 4242, "timestamp_ms": self.now_ms},
            "preview": {"changes": offsets},
            "offsets": {"changes": offsets},
            "test": {"delivered": True, "error": None},
            "tokens": {"token_id": "Nx7", "hmac": "c2VjcmV0IGhtYWM="},
        }
        return JSONResponse(answers.get(parts[-1], {}), status_code=200)


class _Server(uvicorn.Server):
    """Ends streams before it waits for connections."""

    def __init__(self, config: uvicorn.Config, console: FakeConsole):
        super().__init__(config)
        self._console = console

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._console.stopped.set()
        await super().shutdown(sockets)


@contextmanager
def listening() -> Iterator[socket.socket]:
    """A socket that listens on loopback. It outlives a console, so that no other program takes its port meanwhile."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(128)
        yield listener


@contextmanager
def running(console: FakeConsole, listener: socket.socket | None = None) -> Iterator[str]:
    """Serves the fake console on loopback, in a thread; yields its address."""
    if listener is None:
        with listening() as own, running(console, own) as url:
            yield url
        return
    console.stopped.clear()
    server = _Server(uvicorn.Config(console.app(), log_level="error", ws="none", timeout_graceful_shutdown=2), console)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener.dup()]}, name="fake console")
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def _paged(rows: list[dict[str, Any]], query: Any) -> dict[str, Any]:
    """What the list APIs do: search, sort, page."""
    page, per_page = int(query.get("page", 1)), int(query.get("per_page", 50))
    rows = [row for row in rows if query.get("search", "").lower() in row["name"].lower()]
    by = query.get("sort")
    if by and rows and by in rows[0]:
        known = sorted(
            (row for row in rows if row[by] is not None), key=lambda row: row[by], reverse=query.get("order") == "desc"
        )
        rows = known + [row for row in rows if row[by] is None]
    return {
        "items": rows[(page - 1) * per_page : page * per_page],
        "total": len(rows),
        "page": page,
        "per_page": per_page,
    }


def _event(name: str, data: Any) -> str:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"


def _error(status: int, code: str, message: str) -> Response:
    return JSONResponse({"error": {"code": code, "message": message, "field": None}}, status_code=status)
