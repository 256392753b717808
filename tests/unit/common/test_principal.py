import pytest

from headrace.common.errors import ConfigError
from headrace.common.principal import ANONYMOUS, Principal, parse_principal


def test_parses_what_it_prints() -> None:
    assert parse_principal("User:alice") == Principal("User", "alice")
    assert parse_principal(str(ANONYMOUS)) == ANONYMOUS
    assert parse_principal("User:CN=a,OU=b:c") == Principal("User", "CN=a,OU=b:c")


@pytest.mark.parametrize("text", ["alice", ":alice", "User:", ""])
def test_rejects_what_is_no_principal(text: str) -> None:
    with pytest.raises(ConfigError, match="expected Type:name"):
        parse_principal(text)
