"""The console as an ASGI application: its state, and the way of a request from a route to a handler and back.

Before a handler runs: the session and the login are checked, for a change also the CSRF token, the origin and whether
the console is read-only; then the query and the body are parsed. Owner of all state: the loop that calls `start`.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs, unquote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route as StarletteRoute

from headrace.common.clock import Clock
from headrace.common.errors import HeadraceError
from headrace.console.alerts.manager import AlertManager
from headrace.console.api import ROUTERS
from headrace.console.audit import address_of, log_change
from headrace.console.calls import Call
from headrace.console.clusters import Cluster
from headrace.console.decoders.registry import DecoderRegistry
from headrace.console.errors import ApiError, api_error
from headrace.console.events import Event, encode_stream
from headrace.console.identity import Identity
from headrace.console.pipelines.watch import PipelineWatch
from headrace.console.routing import Route
from headrace.console.schema import as_json, parse, parse_query
from headrace.console.search.process import ScanProcesses
from headrace.console.security import MAX_BODY_BYTES, SecurityMiddleware, check_origin
from headrace.console.sessions import LoginLimit, Session, Sessions
from headrace.console.settings import ConsoleSettings
from headrace.console.static import static_routes

__all__ = ["COOKIE", "Console"]

_logger = logging.getLogger(__name__)

COOKIE = "headrace_console"
_HOUSEKEEPING_SECONDS = 20.0


class Console:
    """The console. Create it on its loop; `start` it before requests, and `stop` it in the end."""

    def __init__(self, settings: ConsoleSettings, clock: Clock):
        self.settings = settings
        self.clock = clock
        self.sessions = Sessions(clock, settings.session_idle_seconds, settings.session_seconds)
        self.login_limit = LoginLimit(clock)
        self.decoders = DecoderRegistry(settings.decoders)
        self.scans = ScanProcesses()
        self.clusters = {
            cluster.name: Cluster(
                cluster,
                clock,
                settings.interval_seconds,
                history_hours=settings.history_hours,
                history_topic=settings.history_topic,
            )
            for cluster in settings.clusters
        }
        self.pipelines = {name: PipelineWatch(cluster.own) for name, cluster in self.clusters.items()}
        for name, watch in self.pipelines.items():
            self.clusters[name].on_snapshot(watch.collect)
        self.alerts = {
            name: AlertManager(cluster, self.pipelines[name], cluster.store) for name, cluster in self.clusters.items()
        }
        for name, manager in self.alerts.items():
            self.clusters[name].on_snapshot(manager.evaluate)
        self.stopping = asyncio.Event()
        """Set when streams should end."""
        self.routes: list[Route] = [route for router in ROUTERS for route in router.routes]
        self.app = Starlette(
            routes=[*(self._starlette_route(route) for route in self.routes), *static_routes(self)],
            middleware=[
                Middleware(
                    SecurityMiddleware,
                    allowed_hosts=(settings.host, *settings.allowed_hosts),
                    is_secure=settings.is_secure,
                )
            ],
            exception_handlers={HTTPException: _http_error},  # type: ignore[dict-item]
        )
        self._housekeeping: asyncio.Task[None] | None = None

    async def start(self) -> None:
        for cluster in self.clusters.values():
            await cluster.start()
        self._housekeeping = asyncio.create_task(self._keep_house(), name="sessions of the console")

    async def stop(self) -> None:
        self.stopping.set()
        if self._housekeeping is not None:
            self._housekeeping.cancel()
            with suppress(asyncio.CancelledError):
                await self._housekeeping
        self.sessions.end_all()
        await self._close_ended()
        for cluster in self.clusters.values():
            await cluster.stop()
        for watch in self.pipelines.values():
            await watch.close()
        for manager in self.alerts.values():
            await manager.close()

    async def _keep_house(self) -> None:
        """Ends old sessions, and closes the connections of ended ones."""
        while True:
            await asyncio.sleep(_HOUSEKEEPING_SECONDS)
            self.sessions.expire()
            await self._close_ended()

    async def _close_ended(self) -> None:
        for identity in self.sessions.take_ended():
            await identity.close()

    # ---- who may do what

    def identity(self, session: Session | None, cluster: Cluster) -> Identity:
        """Returns the principal of a session on a cluster. Raises ApiError without a login where one is needed."""
        if not cluster.settings.needs_login:
            return cluster.own
        identity = None if session is None else session.identities.get(cluster.name)
        if identity is None:
            raise ApiError(401, "LOGIN_REQUIRED", f"Log in to cluster {cluster.name!r} first.")
        return identity

    def is_writable(self, cluster: Cluster) -> bool:
        """Whether the console lets changes through. On a cluster with login the ACLs decide."""
        return cluster.settings.needs_login or self.settings.write

    def set_cookie(self, response: Response, session: Session) -> None:
        response.set_cookie(
            COOKIE, session.id, path="/", httponly=True, samesite="strict", secure=self.settings.is_secure
        )

    # ---- requests

    def _starlette_route(self, route: Route) -> StarletteRoute:
        async def endpoint(request: Request) -> Response:
            return await self._respond(route, request)

        found = StarletteRoute(route.path, endpoint, methods=[route.method], name=route.operation_id)
        if found.methods is not None:
            found.methods.discard("HEAD")
        return found

    async def _respond(self, route: Route, request: Request) -> Response:
        try:
            return await self._handle(route, request)
        except ApiError as error:
            return error_response(error)
        except ClientDisconnect:
            return Response(status_code=400)
        except (HeadraceError, TimeoutError) as error:
            return error_response(api_error(error))
        except Exception:
            _logger.exception("%s %s failed", route.method, route.path)
            return error_response(ApiError(500, "INTERNAL", "The console has failed; its log has the reason."))

    async def _handle(self, route: Route, request: Request) -> Response:
        path = {name: unquote(value) for name, value in request.path_params.items()}
        session = self.sessions.find(request.cookies.get(COOKIE))
        call = Call(self, request, session or _no_session(self), path)
        if "cluster" in path and route.needs_login:
            self.identity(session, call.cluster)
        if route.method != "GET":
            await self._check_change(route, call, session)
        arguments: dict[str, Any] = {}
        if route.query is not None:
            text = request.scope["query_string"].decode("latin-1")
            arguments["query"] = parse_query(route.query, parse_qs(text, keep_blank_values=True, errors="strict"))
        if route.body is not None:
            arguments["body"] = parse(route.body, await _read_json(request))
        if route.stream:
            return self._stream(route, call, arguments)
        if route.change is None:
            return _response(route, await route.handler(call, **arguments))
        return await self._change(route, call, arguments)

    async def _check_change(self, route: Route, call: Call, session: Session | None) -> None:
        try:
            check_origin(call.request)
            if session is None or not session.has_token(call.request.headers.get("x-csrf-token")):
                raise ApiError(
                    403, "CSRF", "This request needs a session, and its CSRF token in the header X-CSRF-Token."
                )
            if route.change is not None and "cluster" in call.path and not self.is_writable(call.cluster):
                raise ApiError(403, "READ_ONLY", "The console is read-only. Start it with --write to allow changes.")
        except ApiError as error:
            self._audit(route, call, f"refused: {error.code}")
            raise

    async def _change(self, route: Route, call: Call, arguments: dict[str, Any]) -> Response:
        try:
            async with asyncio.timeout(route.timeout_seconds):
                result = await route.handler(call, **arguments)
        except Exception as error:
            failure = api_error(error)
            self._audit(route, call, f"failed: {failure.code}")
            raise
        self._audit(route, call, "done")
        call.changed()
        return _response(route, result)

    def _audit(self, route: Route, call: Call, outcome: str) -> None:
        cluster = call.path.get("cluster")
        try:
            user = call.user if cluster is not None else "anonymous"
        except ApiError:
            user = "anonymous"
        rest = {name: value for name, value in call.path.items() if name != "cluster"}
        details = {**({"target": "/".join(rest.values())} if rest else {}), **call.details}
        log_change(user, address_of(call.request), route.change or route.summary, cluster, details, outcome)

    def _stream(self, route: Route, call: Call, arguments: dict[str, Any]) -> Response:
        async def events() -> AsyncIterator[Event]:
            try:
                async for event in route.handler(call, **arguments):
                    yield event
            except (HeadraceError, TimeoutError) as error:
                yield Event("error", api_error(error).document["error"])
            except Exception:
                _logger.exception("Stream %s failed", route.path)
                yield Event(
                    "error", {"code": "INTERNAL", "message": "The console's log has the reason.", "field": None}
                )

        return StreamingResponse(
            encode_stream(events(), self.stopping), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"}
        )


def error_response(error: ApiError) -> Response:
    headers = {"Retry-After": str(error.retry_after)} if error.retry_after is not None else None
    return JSONResponse(error.document, error.status, headers)


def _response(route: Route, result: Any) -> Response:
    if isinstance(result, Response):
        return result
    if result is None:
        return Response(status_code=204 if route.status == 200 else route.status)
    body = json.dumps(as_json(result), ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    return Response(body, route.status, media_type="application/json")


def _no_session(console: Console) -> Session:
    """Returns a session for a request without one. It is not kept."""
    return Session("", "", console.clock.monotonic(), console.clock.monotonic())


async def _read_json(request: Request) -> Any:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError(415, "UNSUPPORTED_MEDIA_TYPE", "Expected the content type application/json")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise ApiError(413, "TOO_LARGE", f"The body is larger than {MAX_BODY_BYTES} bytes")
    try:
        return json.loads(bytes(body))
    except (ValueError, RecursionError):
        raise ApiError(400, "INVALID_REQUEST", "The body is not JSON") from None


def _http_error(_: Request, error: HTTPException) -> Response:
    code, message = {
        404: ("NOT_FOUND", "There is nothing at this address."),
        405: ("METHOD_NOT_ALLOWED", "This address does not have the method."),
    }.get(error.status_code, ("INVALID_REQUEST", str(error.detail)))
    response = error_response(ApiError(error.status_code, code, message))
    for name, value in (error.headers or {}).items():
        response.headers[name] = value
    return response
