"""Rules from Kafka's documentation, and Java's replacement syntax."""

import pytest

from headrace.common.errors import ConfigError
from headrace.security.principal_mapping import NoMatchingRuleError, PrincipalMapper

DOCUMENTED = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,"
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,"
    "DEFAULT"
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("CN=serviceuser,OU=ServiceUsers,O=Unknown,L=Unknown,ST=Unknown,C=Unknown", "serviceuser"),
        ("CN=adminUser,OU=Admin,O=Unknown,L=Unknown,ST=Unknown,C=Unknown", "adminuser@admin"),
        ("CN=Duke.x,O=Unknown", "duke.x"),
        ("O=Unknown", "O=Unknown"),
    ],
)
def test_documented_rules(name: str, expected: str) -> None:
    assert PrincipalMapper(DOCUMENTED).name(name) == expected


@pytest.mark.parametrize(
    ("rules", "name", "expected"),
    [
        ("DEFAULT", "CN=a,O=b", "CN=a,O=b"),
        ("", "CN=a,O=b", "CN=a,O=b"),
        (" RULE:CN=(.*),O=b/$1/U , DEFAULT ", "CN=a,O=b", "A"),
        (r"RULE:^CN=(.*?)\/(.*)$/$2-$1/", "CN=a/b", "b-a"),
        (r"RULE:CN=(\w+).*/$1\$x\/y/", "CN=a", "a$x/y"),
        ("RULE:CN=(?<user>[a-z]+).*/${user}!$10$2/", "CN=bob", "bob!bob0$2"),
        ("RULE:CN=a/$0/", "CN=a", "CN=a"),
        ("RULE:CN=(b)?a/x$1/", "CN=a", "x"),
        ("RULE:CN=x,O=y/z/,RULE:CN=(.*)/$1/", "CN=x,O=y", "z"),
    ],
)
def test_rules(rules: str, name: str, expected: str) -> None:
    assert PrincipalMapper(rules).name(name) == expected


def test_no_rule_matches() -> None:
    with pytest.raises(NoMatchingRuleError, match=r"no rule of ssl.principal.mapping.rules matches 'CN=b'"):
        PrincipalMapper("RULE:CN=a/x/").name("CN=b")


@pytest.mark.parametrize("rules", ["RULE:CN=a", "RULE:CN=a/b", "default", "RULE:a/b/X", "DEFAULT;DEFAULT"])
def test_invalid_rules(rules: str) -> None:
    with pytest.raises(ConfigError, match="invalid rule at"):
        PrincipalMapper(rules)


def test_invalid_pattern() -> None:
    with pytest.raises(ConfigError, match="is not a regular expression"):
        PrincipalMapper("RULE:CN=(/x/")
