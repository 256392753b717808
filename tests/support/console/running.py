"""A console for tests, and a client of its API."""

import http.client
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from headrace.console.server import ConsoleServer
from headrace.console.settings import ClusterSettings, ConsoleSettings

WAIT_SECONDS = 90.0


@dataclass
class Answer:
    """A response."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.content)

    @property
    def code(self) -> str:
        """The code of an error."""
        return str(self.json["error"]["code"])


class ApiClient:
    """A browser's session, without a browser."""

    def __init__(self, server: ConsoleServer, cluster: str = "default"):
        self.host, self.port = "127.0.0.1", server.port
        self.cookie: str | None = None
        self.csrf_token: str | None = None
        self.base = f"/api/clusters/{cluster}"

    def request(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Answer:
        """Sends a request. A path that does not begin with a slash is below the cluster's."""
        sent = {"Cookie": f"headrace_console={self.cookie}"} if self.cookie else {}
        if method != "GET" and self.csrf_token is not None:
            sent["X-CSRF-Token"] = self.csrf_token
        if body is not None:
            sent["Content-Type"] = "application/json"
        connection = http.client.HTTPConnection(self.host, self.port, timeout=WAIT_SECONDS)
        try:
            connection.request(
                method,
                path if path.startswith("/") else f"{self.base}/{path}",
                None if body is None else json.dumps(body),
                {**sent, **(headers or {})},
            )
            response = connection.getresponse()
            answer = Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            connection.close()
        cookie = answer.headers.get("set-cookie")
        if cookie is not None:
            self.cookie = cookie.partition(";")[0].partition("=")[2]
        return answer

    def get(self, path: str) -> Any:
        """Returns the document at a path. Fails if there is none."""
        answer = self.request("GET", path)
        assert answer.status == 200, (path, answer.status, answer.content)
        return answer.json

    def change(self, method: str, path: str, body: Any = None, expected: int = 200) -> Any:
        """Sends a change and returns the answer's document."""
        answer = self.request(method, path, body)
        assert answer.status == expected, (path, answer.status, answer.content)
        return answer.json if answer.content else None

    def open_session(self) -> Any:
        info = self.get("/api/session")
        self.csrf_token = info["csrf_token"]
        return info

    def log_in(self, username: str, password: str, cluster: str = "default", mechanism: str | None = None) -> Answer:
        if self.csrf_token is None:
            self.open_session()
        answer = self.request(
            "POST",
            "/api/login",
            {"cluster": cluster, "username": username, "password": password, "mechanism": mechanism},
        )
        if answer.status == 200:
            self.csrf_token = answer.json["csrf_token"]
        return answer

    def wait_for(self, path: str, condition: Callable[[Any], bool]) -> Any:
        """Reads a path until its document satisfies a condition."""
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            answer = self.request("GET", path)
            if answer.status == 200 and condition(answer.json):
                return answer.json
            assert time.monotonic() < deadline, (path, answer.status, answer.content)
            time.sleep(0.05)

    def wait_for_change(self, method: str, path: str, body: Any, expected: int) -> Any:
        """Tries a change until it has a status."""
        deadline = time.monotonic() + WAIT_SECONDS
        while (answer := self.request(method, path, body)).status != expected:
            assert time.monotonic() < deadline, (path, answer.status, answer.content)
            time.sleep(0.05)
        return answer.json

    @contextmanager
    def events(self, path: str = "events") -> Iterator[Iterator[tuple[str, Any]]]:
        """Yields the events of a stream, with their names."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=WAIT_SECONDS)
        try:
            sent = {"Cookie": f"headrace_console={self.cookie}"} if self.cookie else {}
            connection.request("GET", path if path.startswith("/") else f"{self.base}/{path}", headers=sent)
            response = connection.getresponse()
            assert response.status == 200, response.read()
            assert response.headers["content-type"].startswith("text/event-stream")
            yield _parse(response)
        finally:
            connection.close()


def _parse(response: http.client.HTTPResponse) -> Iterator[tuple[str, Any]]:
    name = ""
    while line := response.readline():
        text = line.decode().rstrip("\n")
        if text.startswith("event: "):
            name = text.removeprefix("event: ")
        elif text.startswith("data: "):
            yield name, json.loads(text.removeprefix("data: "))


@contextmanager
def console_for(
    bootstrap_servers: str, config: Mapping[str, str] | None = None, **settings: Any
) -> Iterator[ConsoleServer]:
    """Runs a console for a cluster, with a short interval. By default it allows changes and stores no history."""
    metrics_urls = settings.pop("metrics_urls", {})
    cluster = ClusterSettings(
        name="default", servers=bootstrap_servers, config=dict(config or {}), metrics_urls=metrics_urls
    )
    defaults = {"port": 0, "interval_seconds": 0.3, "write": True, "history_topic": None}
    server = ConsoleServer(ConsoleSettings(clusters=(cluster,), **{**defaults, **settings}))
    server.start()
    try:
        yield server
    finally:
        server.stop()


def ready_client(server: ConsoleServer) -> ApiClient:
    """Returns a client with a session, once the console has read the cluster."""
    client = ApiClient(server)
    client.open_session()
    client.wait_for("overview", lambda overview: overview["reachable"])
    return client
