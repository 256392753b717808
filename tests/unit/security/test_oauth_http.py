import http.server
import threading
from collections.abc import Iterator

import pytest

from headrace.common.errors import ConfigError
from headrace.security.oauth_http import HttpError, fetch

KEY = "some.url"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        status = int(self.path.partition("?")[0].rpartition("/")[2])
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "/200")
        self.send_header("Content-Length", "6")
        self.end_headers()
        self.wfile.write(b"secret")

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def get(url: str, max_bytes: int = 100) -> bytes:
    return fetch(KEY, url, timeout_seconds=30, max_bytes=max_bytes)


def test_returns_the_content(url: str) -> None:
    assert get(f"{url}/200") == b"secret"


@pytest.mark.parametrize(("status", "retriable"), [(302, False), (401, False), (404, False), (429, True), (503, True)])
def test_statuses(url: str, status: int, retriable: bool) -> None:
    with pytest.raises(HttpError, match=f"some.url: {url}/{status} answered with HTTP status {status}") as caught:
        get(f"{url}/{status}?password=hunter2")
    assert caught.value.retriable == retriable
    assert "secret" not in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_large_answer(url: str) -> None:
    with pytest.raises(HttpError, match="is larger than 5 bytes"):
        get(f"{url}/200", 5)


def test_an_unreachable_server() -> None:
    with pytest.raises(HttpError, match=r"request to http://127.0.0.1:1/x failed: .*refused") as caught:
        get("http://127.0.0.1:1/x?password=hunter2")
    assert caught.value.retriable
    assert "hunter2" not in str(caught.value)


def test_a_url_with_a_password() -> None:
    with pytest.raises(ConfigError, match="must not contain a user and password") as caught:
        get("http://user:hunter2@127.0.0.1:1/x")
    assert "hunter2" not in str(caught.value)
