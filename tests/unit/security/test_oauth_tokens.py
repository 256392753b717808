import asyncio
import base64
import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.support.security.oauth import unsecured_token

from headrace.common.errors import ConfigError, SaslAuthenticationFailedError
from headrace.common.ids import make_random
from headrace.security import oauth_tokens
from headrace.security.oauth_http import HttpError
from headrace.security.oauth_tokens import (
    CallbackSource,
    EndpointSource,
    FileSource,
    ProviderSource,
    RefreshingToken,
    RefreshSchedule,
    Token,
    TokenSource,
    UnsecuredSource,
)
from headrace.security.oauth_validator import decode_token
from headrace.testing.clock import ManualClock

CLOCK = ManualClock()
NOW = CLOCK.time_ms() / 1000


def fetch(source: TokenSource) -> Token:
    return asyncio.run(source.fetch())


class Provider:
    def token(self) -> str:
        return "opaque"

    def extensions(self) -> dict[str, str]:
        return {"a": "b"}


class AsyncProvider:
    async def token(self) -> str:
        return "opaque"


def test_provider_objects() -> None:
    assert fetch(ProviderSource(Provider(), {"c": "d"})) == Token("opaque", None, "", {"a": "b", "c": "d"})
    assert fetch(ProviderSource(AsyncProvider())) == Token("opaque", None, "", {})
    broken = Provider()
    broken.token = lambda: None
    with pytest.raises(SaslAuthenticationFailedError, match=r"token\(\) returned NoneType: expected a str"):
        fetch(ProviderSource(broken))


def test_callbacks() -> None:
    async def later(argument: str) -> tuple[str, float, str, dict[str, str]]:
        return argument, 5, "alice", {"a": "b"}

    assert fetch(CallbackSource(lambda argument: (argument, 5.0), "x=1", {"c": "d"})) == Token("x=1", 5, "", {"c": "d"})
    assert fetch(CallbackSource(later, "x=1")) == Token("x=1", 5, "alice", {"a": "b"})
    for wrong in (None, 5, ("hunter2",), ("hunter2", "soon"), (1, 2)):
        with pytest.raises(SaslAuthenticationFailedError, match="oauth_cb must return") as caught:
            fetch(CallbackSource(lambda argument, wrong=wrong: wrong))
        assert "hunter2" not in str(caught.value)


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "token"
    token = unsecured_token({"sub": "alice", "exp": NOW + 60})
    path.write_text(f"{token}\n")
    assert fetch(FileSource(path.as_uri())) == Token(token, NOW + 60, "alice", {})
    for content, problem in (
        ("hunter2", "not a JSON Web Token"),
        (unsecured_token({"sub": "hunter2"}), "no claim exp"),
        (unsecured_token({"user": "hunter2", "exp": NOW}), "no claim sub"),
    ):
        path.write_text(content)
        with pytest.raises(SaslAuthenticationFailedError, match=problem) as caught:
            fetch(FileSource(path.as_uri()))
        assert "hunter2" not in str(caught.value)


class Endpoint:
    """Stands for the HTTP server: answers in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: bytes | HttpError):
        self.answers = list(answers)
        self.requests: list[tuple[bytes, Mapping[str, str], float]] = []
        self.waits: list[float] = []
        monkeypatch.setattr(oauth_tokens, "fetch", self.fetch)

    def fetch(self, key, url, *, data, headers, timeout_seconds, max_bytes) -> bytes:
        self.requests.append((data, headers, timeout_seconds))
        answer = self.answers.pop(0)
        if isinstance(answer, HttpError):
            raise answer
        return answer

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)

    def source(self, **options) -> EndpointSource:
        return EndpointSource("https://issuer/token", "the client", "hunter 2&", sleep=self.sleep, **options)


TOKEN = unsecured_token({"sub": "alice", "exp": NOW + 60})
ANSWER = json.dumps({"access_token": TOKEN, "expires_in": 60}).encode()
OVERLOADED, FORBIDDEN = HttpError("overloaded", True), HttpError("forbidden", False)


def test_client_credentials_grant(monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = Endpoint(monkeypatch, ANSWER, ANSWER)
    assert fetch(endpoint.source(scope="a b")) == Token(TOKEN, NOW + 60, "alice", {})
    data, headers, _ = endpoint.requests[0]
    assert data == b"grant_type=client_credentials&scope=a+b"
    assert headers["Authorization"] == "Basic " + base64.b64encode(b"the client:hunter 2&").decode()
    fetch(endpoint.source(urlencode=True))
    assert endpoint.requests[1][1]["Authorization"] == "Basic " + base64.b64encode(b"the+client:hunter+2%26").decode()


def test_retries_of_the_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = Endpoint(monkeypatch, OVERLOADED, OVERLOADED, ANSWER)
    assert fetch(endpoint.source()).value == TOKEN
    assert endpoint.waits == [0.1, 0.2]
    endpoint = Endpoint(monkeypatch, *[OVERLOADED] * 10)
    with pytest.raises(HttpError, match="overloaded"):
        fetch(endpoint.source(backoff_max_ms=1000))
    assert endpoint.waits == [0.1, 0.2, 0.4]
    endpoint = Endpoint(monkeypatch, FORBIDDEN)
    with pytest.raises(HttpError, match="forbidden"):
        fetch(endpoint.source())
    assert endpoint.waits == []


@pytest.mark.parametrize("answer", [b"", b"[]", b"{}", b'{"access_token": 7}', b'{"access_token": "hunter2"}'])
def test_wrong_answers_of_the_endpoint(monkeypatch: pytest.MonkeyPatch, answer: bytes) -> None:
    endpoint = Endpoint(monkeypatch, answer)
    with pytest.raises(SaslAuthenticationFailedError, match=r"sasl\.oauthbearer\.token\.endpoint\.url: ") as caught:
        fetch(endpoint.source())
    assert "hunter2" not in str(caught.value)
    assert "hunter" not in repr(endpoint.source())


def test_unsecured_tokens() -> None:
    token = fetch(UnsecuredSource({"user": "alice"}, CLOCK, "user", 60))
    assert (token.expires_at, token.principal) == (NOW + 60, "alice")
    header, claims, signature = decode_token(token.value)
    assert (header, signature) == ({"alg": "none"}, "")
    assert claims == {"user": "alice", "iat": NOW, "exp": NOW + 60}


def test_the_schedule() -> None:
    random = make_random(1)
    plain = RefreshSchedule(0.8, 0, 60, 300)
    assert plain.refresh_at(1000, 4600, random) == 1000 + 0.8 * 3600
    assert plain.refresh_at(1000, 2000, random) == 2000 - 300
    assert plain.refresh_at(1000, 1100, random) == 1080, "the token lives shorter than period and buffer"
    assert dataclasses.replace(plain, buffer_seconds=3000).refresh_at(1000, 4600, random) == 4600 - 3000
    assert dataclasses.replace(plain, min_period_seconds=900, buffer_seconds=0).refresh_at(0, 1000, random) == 900
    jittered = RefreshSchedule(0.8, 0.05, 0, 0)
    assert 800 <= jittered.refresh_at(0, 1000, random) <= 850


class Source:
    """Returns tokens of 100 s with increasing numbers, or raises `error`."""

    def __init__(self, clock: ManualClock, seconds: float | None = 100):
        self.clock, self.seconds = clock, seconds
        self.count = 0
        self.error: Exception | None = None

    async def fetch(self) -> Token:
        self.count += 1
        if self.error is not None:
            raise self.error
        await asyncio.sleep(0)
        expires_at = None if self.seconds is None else self.clock.time_ms() / 1000 + self.seconds
        return Token(str(self.count), expires_at)


SCHEDULE = RefreshSchedule(0.8, 0, 5, 10)


def test_a_token_is_used_until_it_is_refreshed() -> None:
    clock = ManualClock()
    source = Source(clock)

    async def main() -> None:
        tokens = RefreshingToken(source, SCHEDULE, clock)
        assert [token.value for token in await asyncio.gather(*[tokens.get() for _ in range(3)])] == ["1"] * 3
        clock.advance(79_000)
        assert (await tokens.get()).value == "1"
        clock.advance(1_000)
        assert (await tokens.get()).value == "2"

    asyncio.run(main())


def test_a_failed_refresh_keeps_the_token_until_it_expires(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    source = Source(clock)

    async def main() -> None:
        tokens = RefreshingToken(source, SCHEDULE, clock)
        await tokens.get()
        source.error = ConfigError("unreachable")
        clock.advance(80_000)
        assert (await tokens.get()).value == "1"
        assert (await tokens.get()).value == "1"
        assert source.count == 2, "not before the minimum period"
        clock.advance(20_000)
        with pytest.raises(SaslAuthenticationFailedError, match="Could not get an OAuth token: unreachable"):
            await tokens.get()
        source.error = None
        assert (await tokens.get()).value == "4"

    asyncio.run(main())
    assert caplog.text.count("using the last one") == 1


def test_a_token_for_one_connection_is_not_kept() -> None:
    clock = ManualClock()

    async def main() -> None:
        tokens = RefreshingToken(Source(clock, None), SCHEDULE, clock)
        assert [(await tokens.get()).value for _ in range(2)] == ["1", "2"]

    asyncio.run(main())


def test_errors_of_callbacks_do_not_show_secrets() -> None:
    clock = ManualClock()
    source = Source(clock)
    source.error = RuntimeError("token hunter2 is bad")
    with pytest.raises(SaslAuthenticationFailedError, match="callback failed with RuntimeError") as caught:
        asyncio.run(RefreshingToken(source, SCHEDULE, clock).get())
    assert "hunter2" not in str(caught.value)
    with pytest.raises(SaslAuthenticationFailedError, match="already expired"):
        asyncio.run(RefreshingToken(Source(clock, -1), SCHEDULE, clock).get())
    assert "hunter2" not in repr(Token("hunter2", 5))
