import pytest

from headrace.common.errors import ConfigError
from headrace.security.kerberos_names import KerberosNames, NoRuleError

REALM = "EXAMPLE.COM"


def user(principal: str, *rules: str) -> str:
    return KerberosNames(rules or ("DEFAULT",), REALM).user(principal)


@pytest.mark.parametrize(
    ("principal", "name"),
    [("alice@EXAMPLE.COM", "alice"), ("kafka/host@EXAMPLE.COM", "kafka"), ("alice", "alice")],
)
def test_default(principal: str, name: str) -> None:
    assert user(principal) == name


@pytest.mark.parametrize(
    ("rule", "principal", "name"),
    [
        ("RULE:[1:$1]", "alice@OTHER", "alice"),
        ("RULE:[2:$1]", "kafka/host@OTHER", "kafka"),
        ("RULE:[2:$1_$2]", "kafka/host@OTHER", "kafka_host"),
        ("RULE:[1:$1@$0](.*@OTHER)s/@.*//", "alice@OTHER", "alice"),
        (r"RULE:[2:$1@$0](admin@EXAMPLE\.COM)s/.*/root/", "admin/ops@EXAMPLE.COM", "root"),
        ("RULE:[1:$1]s/a/b/", "aa@X", "ba"),
        ("RULE:[1:$1]s/a/b/g", "aa@X", "bb"),
        ("RULE:[1:$1]s/(.)(.*)/$2-$1/", "abc@X", "bc-a"),
        (r"RULE:[1:$1]s/a/\$/", "abc@X", "$bc"),
        ("RULE:[1:$1]/L", "Alice@X", "alice"),
        ("RULE:[1:$1]/U", "Alice@X", "ALICE"),
        ("RULE:[1:$1@$0](.*@X)s/@.*///L", "Alice@X", "alice"),
        ("RULE:[1:user-$1]", "alice@X", "user-alice"),
    ],
)
def test_rules(rule: str, principal: str, name: str) -> None:
    assert user(principal, rule) == name


def test_first_rule_that_matches_is_used() -> None:
    rules = ("RULE:[1:$1@$0](alice@.*)s/.*/first/", "RULE:[1:$1]s/$/-second/", "DEFAULT")
    assert user("alice@X", *rules) == "first"
    assert user("bob@X", *rules) == "bob-second"
    assert user("kafka/host@EXAMPLE.COM", *rules) == "kafka"


@pytest.mark.parametrize(
    ("principal", "rules"),
    [
        ("alice@OTHER", ("DEFAULT",)),
        ("kafka/host@EXAMPLE.COM", ("RULE:[1:$1]",)),
        ("alice@X", ("RULE:[1:$1@$0]",)),  # keeps the realm
        ("a/b/c@EXAMPLE.COM", ("DEFAULT", "RULE:[2:$1]")),
        ("a/b", ("DEFAULT",)),
        ("alice@X@EXAMPLE.COM", ("DEFAULT", "RULE:[1:$1]")),
        ("@EXAMPLE.COM", ("DEFAULT", "RULE:[1:$1]")),
        ("alice@X", ("RULE:[1:$1](bob)",)),
    ],
)
def test_no_user_name(principal: str, rules: tuple[str, ...]) -> None:
    with pytest.raises(NoRuleError):
        user(principal, *rules)


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ("default", "is not a rule: expected DEFAULT or RULE"),
        ("RULE:[1:$1](", "is not a rule"),
        ("RULE:[3:$1]", "1 or 2 parts"),
        ("RULE:[1:$2]", "must be one of them"),
        ("RULE:[1:$1](*)", "is not a regular expression"),
        ("RULE:[1:$1]s/(/x/", "is not a regular expression"),
        ("RULE:[1:$1]s/a/$1/", "a group that does not exist"),
    ],
)
def test_wrong_rules(rule: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        KerberosNames([rule], REALM)
