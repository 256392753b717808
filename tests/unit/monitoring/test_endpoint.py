import pytest

from headrace.common.errors import ConfigError
from headrace.monitoring.endpoint import parse_address


@pytest.mark.parametrize(
    ("text", "address"),
    [("127.0.0.1:9404", ("127.0.0.1", 9404)), (":9404", ("", 9404)), ("[::1]:0", ("::1", 0)), ("a.b:1", ("a.b", 1))],
)
def test_address(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", "9404", "localhost", "localhost:", "localhost:x", "a:65536", "a:-1"])
def test_invalid_address(text: str) -> None:
    with pytest.raises(ConfigError, match=r"expected HOST:PORT, such as 127\.0\.0\.1:9404"):
        parse_address(text)
