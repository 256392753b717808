import pytest

from headrace.common.errors import ConfigError
from headrace.security.jaas import JaasEntry, parse_jaas, parse_jaas_for

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_parses_kafkas_examples() -> None:
    entry = parse_jaas(f'{PLAIN_MODULE} required username="admin" password="a-secret" user_alice="alice secret";')
    assert entry == JaasEntry(PLAIN_MODULE, {"username": "admin", "password": "a-secret", "user_alice": "alice secret"})
    entry = parse_jaas(
        """
        com.sun.security.auth.module.Krb5LoginModule Required  // the broker's own
            useKeyTab=true storeKey=true /* two
            lines */
            keyTab='/etc/security/keytabs/kafka.keytab'
            principal = "kafka/kafka1.hostname.com@EXAMPLE.COM"
        ;
        """
    )
    assert entry.options["principal"] == "kafka/kafka1.hostname.com@EXAMPLE.COM"
    assert entry.options["keyTab"] == "/etc/security/keytabs/kafka.keytab"
    assert entry.is_true("useKeyTab")
    assert not entry.is_true("debug")
    assert parse_jaas(f"{PLAIN_MODULE} required;").options == {}


@pytest.mark.parametrize(
    ("quoted", "value"),
    [
        (r'"a\"b"', 'a"b'),
        (r"'a\'b\"c'", "a'b\"c"),
        (r'"a\\b"', "a\\b"),
        (r'"tab\tline\nend"', "tab\tline\nend"),
        (r'"\101\60\7"', "A0\a"),
        (r'"\q;=//"', "q;=//"),
        ('"密码"', "密码"),
        ('""', ""),
        ("a-b_c.d$e1", "a-b_c.d$e1"),
    ],
)
def test_values_have_quotes_and_escapes(quoted: str, value: str) -> None:
    assert parse_jaas(f"{PLAIN_MODULE} required password={quoted};").options == {"password": value}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is empty"),
        (" // nothing\n", "is empty"),
        ("=", "line 1, column 1: expected the class name of a login module, not a sign"),
        ("com.sun.security.auth.module.JndiLoginModule required;", "line 1, column 1: unknown login module"),
        (PLAIN_MODULE, r"column 56: expected the control flag .* not the end"),
        (f"{PLAIN_MODULE}\n hunter2=x;", "line 2, column 2: expected the control flag"),
        (f"{PLAIN_MODULE} required", "must end with a semicolon"),
        (f"{PLAIN_MODULE} required password=hunter2", "must end with a semicolon"),
        (f"{PLAIN_MODULE} required password hunter2;", "expected '=' after the name of an option"),
        (f"{PLAIN_MODULE} required password=;", "expected the value of an option, not a sign"),
        (f"{PLAIN_MODULE} required password=the hunter2;", "expected '='"),
        (f"{PLAIN_MODULE} required =hunter2;", "expected the name of an option"),
        (f'{PLAIN_MODULE} required\npassword="hunter2;', "line 2, column 10: the quoted text that starts here"),
        (f"{PLAIN_MODULE} required password=hunter2!;", "column 82: unexpected character"),
        (f"{PLAIN_MODULE} required a=hunter2 a=hunter2;", "set twice"),
        (f"{PLAIN_MODULE} required; {PLAIN_MODULE} required;", "only one login module"),
    ],
)
def test_errors_name_the_position_and_no_secret(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        parse_jaas(text)
    assert "sasl.jaas.config" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_the_login_module_must_be_that_of_the_mechanism() -> None:
    text = f"{PLAIN_MODULE} required;"
    assert parse_jaas_for("PLAIN", text).login_module == PLAIN_MODULE
    with pytest.raises(ConfigError, match=r"not for the mechanism SCRAM-SHA-256: use .*ScramLoginModule"):
        parse_jaas_for("SCRAM-SHA-256", text)


def test_required_options_and_hidden_values() -> None:
    entry = parse_jaas(f"{PLAIN_MODULE} required username='' password=hunter2;")
    assert entry.require("password") == "hunter2"
    with pytest.raises(ConfigError, match=r"option username of .*PlainLoginModule is missing or empty"):
        entry.require("username")
    assert "hunter2" not in repr(entry)
