"""The pages: files of the package, from memory, with an entity tag. Any other path shows `index.html`, which has its
own routes. Also /healthz and /metrics."""

import hashlib
import mimetypes
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute
from starlette.routing import Route as StarletteRoute

from headrace.console.metrics import families
from headrace.console.openapi import describe
from headrace.monitoring.exposition import render

if TYPE_CHECKING:
    from headrace.console.app import Console

_TYPES = {
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
}
_INDEX = "index.html"


class StaticFiles:
    """The files below `static`, read once."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[bytes, str, str]] = {}
        self._read(files("headrace.console") / "static", "")

    def _read(self, folder: Traversable, prefix: str) -> None:
        for entry in folder.iterdir():
            name = f"{prefix}{entry.name}"
            if entry.is_dir():
                self._read(entry, f"{name}/")
            elif not entry.name.endswith((".py", ".pyc")):
                content = entry.read_bytes()
                suffix = name[name.rfind(".") :]
                kind = _TYPES.get(suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"
                self._files[name] = content, kind, f'"{hashlib.sha256(content).hexdigest()[:32]}"'

    def respond(self, name: str, request: Request) -> Response:
        """Returns a file, or 304 if the browser has it."""
        found = self._files.get(name)
        if found is None:
            raise HTTPException(404)
        content, kind, tag = found
        headers = {"ETag": tag, "Cache-Control": "no-cache"}
        if tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=kind, headers=headers)


def static_routes(console: "Console") -> list[BaseRoute]:
    """Returns the routes outside the API's pages."""
    static = StaticFiles()
    description = describe(console.routes)

    async def file(request: Request) -> Response:
        return static.respond(request.path_params["path"], request)

    async def index(request: Request) -> Response:
        if request.url.path.startswith("/api"):
            raise HTTPException(404)
        return static.respond(_INDEX, request)

    async def openapi(_: Request) -> Response:
        return JSONResponse(description)

    async def health(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def metrics(request: Request) -> Response:
        content_type, body = await render(families(console), request.headers.get("accept", ""))
        return Response(body, headers={"Content-Type": content_type})

    return [
        StarletteRoute("/api/openapi.json", openapi),
        StarletteRoute("/healthz", health),
        StarletteRoute("/metrics", metrics),
        StarletteRoute("/static/{path:path}", file),
        StarletteRoute("/{path:path}", index),
    ]
