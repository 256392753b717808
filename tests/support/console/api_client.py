"""A small client of the console's JSON API: a session with cookie and CSRF token, and server-sent events."""

import http.client
import json
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

from headrace.console.server import ConsoleServer
from headrace.console.settings import ClusterSettings, ConsoleSettings

TIMEOUT_SECONDS = 120


@dataclass
class Answer:
    """A response: its status, headers and body."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class ApiClient:
    """One session."""

    def __init__(self, url: str):
        self.url = url
        self._address = urlsplit(url).netloc
        self._cookie = ""
        self._token = ""
        self.open_session()

    def open_session(self) -> None:
        self._keep(self.get("/api/session"))

    def login(self, username: str, password: str, cluster: str = "default") -> Answer:
        answer = self.call("POST", "/api/login", {"cluster": cluster, "username": username, "password": password})
        if answer.status == 200:
            self._keep(answer)
        return answer

    def _keep(self, answer: Answer) -> None:
        assert answer.status == 200, answer.body
        cookie = answer.headers.get("set-cookie")
        if cookie is not None:
            self._cookie = cookie.partition(";")[0]
        self._token = answer.json["csrf_token"]

    def _headers(self, **more: str) -> dict[str, str]:
        return {**({"Cookie": self._cookie} if self._cookie else {}), **more}

    def get(self, path: str, **parameters: Any) -> Answer:
        return self.call("GET", path + ("?" + urlencode(parameters, doseq=True) if parameters else ""))

    def call(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Answer:
        connection = http.client.HTTPConnection(self._address, timeout=TIMEOUT_SECONDS)
        try:
            sent = self._headers(**(headers or {}))
            if method != "GET":
                sent.setdefault("X-CSRF-Token", self._token)
            content = None
            if body is not None:
                content = json.dumps(body).encode()
                sent["Content-Type"] = "application/json"
            connection.request(method, path, content, sent)
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, found, response.read())
        finally:
            connection.close()

    def stream(self, path: str, **parameters: Any) -> Generator[tuple[str, Any], None, None]:
        """Yields the events of a stream. Closing the generator closes the connection."""
        connection = http.client.HTTPConnection(self._address, timeout=TIMEOUT_SECONDS)
        query = "?" + urlencode(parameters, doseq=True) if parameters else ""
        try:
            connection.request("GET", path + query, headers=self._headers(Accept="text/event-stream"))
            response = connection.getresponse()
            assert response.status == 200, response.read()
            name = ""
            while line := response.readline():
                text = line.decode().rstrip("\n")
                if text.startswith("event: "):
                    name = text[7:]
                elif text.startswith("data: "):
                    yield name, json.loads(text[6:])
        finally:
            connection.close()


@contextmanager
def running_console(
    servers: str, config: Mapping[str, str] | None = None, *, write: bool = True, interval_seconds: float = 0.5
) -> Iterator[ApiClient]:
    """Runs a console for one cluster, named `default`. Yields a client with a session."""
    cluster = ClusterSettings(name="default", servers=servers, config=dict(config or {}))
    settings = ConsoleSettings(clusters=(cluster,), port=0, write=write, interval_seconds=interval_seconds)
    server = ConsoleServer(settings)
    server.start()
    try:
        yield ApiClient(server.url)
    finally:
        server.stop()
