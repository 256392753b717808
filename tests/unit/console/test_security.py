import pytest

from headrace.console.security import is_allowed_host


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:80", "a.localhost", "127.0.0.1", "10.0.0.7:8080", "[::1]:8080", "console.example"]
)
def test_addresses_and_known_names_are_allowed(host: str) -> None:
    assert is_allowed_host(host, {"console.example"})


@pytest.mark.parametrize(
    "host",
    ["", "attacker.example", "console.example.attacker.example", "localhost.attacker.example", "[::1", "a b", "1.2.3"],
)
def test_other_names_are_not(host: str) -> None:
    assert not is_allowed_host(host, {"console.example"})
