import json
import threading
from pathlib import Path

import pytest
from tests.support.security.oauth import Issuer

from headrace.common.errors import ConfigError
from headrace.security.oauth_keys import JwksSource, make_jwks_source, parse_jwks
from headrace.testing.clock import ManualClock

FIRST, SECOND = Issuer(kid="first"), Issuer(kid="second")


def kids(source: JwksSource) -> list[str]:
    return [key.kid for key in source.current()]


class Endpoint:
    """Answers with what a test sets; an error is raised."""

    def __init__(self, answer: bytes | ConfigError):
        self.answer = answer
        self.requests = 0
        self.asked = threading.Condition()

    def read(self) -> bytes:
        with self.asked:
            self.requests += 1
            self.asked.notify_all()
        if isinstance(self.answer, ConfigError):
            raise self.answer
        return self.answer

    def wait_for(self, requests: int) -> None:
        with self.asked:
            assert self.asked.wait_for(lambda: self.requests >= requests, timeout=30)


def test_reads_the_usable_keys(caplog: pytest.LogCaptureFixture) -> None:
    entries = [
        *FIRST.jwks()["keys"],
        {"kty": "oct", "k": "c2VjcmV0", "kid": "secret"},
        {"kty": "AKP", "kid": "of the future"},
        {**SECOND.jwks()["keys"][0], "use": "enc"},
        {"kty": "RSA", "n": "!", "e": "AQAB", "kid": "broken"},
        "no key",
    ]
    keys = parse_jwks(json.dumps({"keys": entries}).encode())
    assert [key.kid for key in keys] == ["first"]
    assert caplog.text.count("Ignoring a key") == 1


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"keys": 7}', b'{"keys": []}', b"\xff", b"[" * 100_000])
def test_what_is_not_a_jwks(text: bytes) -> None:
    with pytest.raises(ConfigError, match=r"sasl\.oauthbearer\.jwks\.endpoint\.url"):
        parse_jwks(text)


def test_keys_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "the keys.json"
    path.write_bytes(FIRST.jwks_text())
    source = make_jwks_source(path.as_uri(), (), 3_600_000, 100, 1000, ManualClock())
    assert kids(source) == ["first"]
    path.write_bytes(SECOND.jwks_text())
    source.refresh()
    assert kids(source) == ["second"]
    source.close()


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://issuer/keys", "must be a file: or an https: URL"),
        ("ftp://issuer/keys", "must be a file: or an https: URL"),
        ("https://issuer/keys", "is not allowed: add the URL to headrace.oauthbearer.allowed.urls"),
        ("https://allowed/keys/../other", "is not allowed"),
        ("file:keys.json", "expected file:///path"),
        ("file://host/keys.json", "expected file:///path"),
        ("file:///no/such/keys.json", "cannot read /no/such/keys.json: No such file"),
        ("file:///dev/zero", "larger than"),
    ],
)
def test_urls_that_are_not_accepted(url: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        make_jwks_source(url, ("https://allowed/keys",), 3_600_000, 100, 1000, ManualClock())


def test_a_failed_refresh_keeps_the_keys(caplog: pytest.LogCaptureFixture) -> None:
    endpoint = Endpoint(FIRST.jwks_text())
    source = JwksSource(endpoint.read, 3_600_000, 100, 250, ManualClock())
    assert source.refresh() == 3600
    endpoint.answer = ConfigError("unreachable")
    assert [source.refresh() for _ in range(3)] == [0.1, 0.2, 0.25]
    assert kids(source) == ["first"]
    assert caplog.text.count("using the last ones") == 1
    endpoint.answer = SECOND.jwks_text()
    assert source.refresh() == 3600
    assert kids(source) == ["second"]


def test_a_missing_key_refreshes_the_keys_at_most_every_10_seconds() -> None:
    clock = ManualClock()
    endpoint = Endpoint(FIRST.jwks_text())
    source = JwksSource(endpoint.read, 3_600_000, 100, 250, clock)
    source.start()
    try:
        source.key_is_missing()
        clock.advance(10_000)
        assert endpoint.requests == 1
        for number in (2, 3):
            source.key_is_missing()
            source.key_is_missing()
            endpoint.wait_for(number)
            clock.advance(10_000)
        assert endpoint.requests == 3
    finally:
        source.close()


def test_keys_are_refreshed_periodically() -> None:
    endpoint = Endpoint(FIRST.jwks_text())
    source = JwksSource(endpoint.read, 1, 1, 1, ManualClock())
    source.start()
    try:
        endpoint.wait_for(5)
    finally:
        source.close()


def test_the_first_reading_must_succeed() -> None:
    with pytest.raises(ConfigError, match="unreachable"):
        JwksSource(Endpoint(ConfigError("unreachable")).read, 1, 1, 1, ManualClock()).start()
