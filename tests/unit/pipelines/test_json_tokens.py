"""JSON as Jackson reads and writes it."""

import pytest

from headrace.pipelines.json_tokens import (
    Kind,
    NotJson,
    Rules,
    is_single_json_value,
    is_strict_json,
    tokenize,
    write_double,
    write_tokens,
)


def test_tokens_have_the_name_of_their_field() -> None:
    tokens = tokenize(' {"a": [1, {"b": 2.50}], "c": null} behind')
    assert [(token.kind.name, token.name) for token in tokens] == [
        ("START_OBJECT", None),
        ("FIELD_NAME", "a"),
        ("START_ARRAY", "a"),
        ("INTEGER", None),
        ("START_OBJECT", None),
        ("FIELD_NAME", "b"),
        ("FLOAT", "b"),
        ("END_OBJECT", None),
        ("END_ARRAY", "a"),
        ("FIELD_NAME", "c"),
        ("NULL", "c"),
        ("END_OBJECT", None),
    ]
    assert tokenize(" \n") == []


@pytest.mark.parametrize(
    ("text", "readers"),
    [
        ('{"a":1} x', "FPS"),
        ("{'a':'b\\'c'}", "FP"),
        ('{"a":NaN}', "F"),
        ('{"a":+INF}', "F"),
        ('{"a":INF}', ""),
        ('{"a":"\t"}', "P"),
        ('{"a":"\\ud800"}', "FP"),
        ('{"a":"\\ud83d\\ude00"}', "FPS"),
        ('{"a":1,"a":2}', "FP"),
        ("7]", ""),
        ("null]", "FPS"),
        ("nullx", ""),
        ('{"a":01}', ""),
        ('{"a":1.}', ""),
        ('{"a":1,}', ""),
        ("[" * 1000 + "]" * 1000, "FPS"),
        ("[" * 1001 + "]" * 1001, ""),
        ("[" + "1" * 1000 + "]", "FPS"),
        ("[" + "1" * 1001 + "]", ""),
        ('{"' + "x" * 50_001 + '":1}', ""),
    ],
)
def test_rules(text: str, readers: str) -> None:
    """What the three readers accept: F is from_json, P is get_json_object, S is try_parse_json."""
    accepted = ""
    for letter, rules in (("F", Rules.FROM_JSON), ("P", Rules.PATH), ("S", Rules.STRICT)):
        try:
            tokenize(text, rules)
            accepted += letter
        except NotJson:
            pass
    assert accepted == readers


def test_single_values() -> None:
    for text in ("{}", ' {"a": [1]} ', "7", '"x"'):
        assert is_single_json_value(text), text
    for text in ("", "{} x", "{}]", "{},1", "{},1] x", "{}{}", "{'a':1}", '{"a":1,"a":2}', "[" * 1000 + "]" * 1000):
        assert not is_single_json_value(text), text
    assert is_strict_json("[" * 1000 + "]" * 1000)


def test_writes_values_as_jackson_does() -> None:
    tokens = tokenize('{"a" : [1.50, -0, 1e400, "\\u0041\\/\\u0001\\ud800😀"], "b": {"c": true}, "d": []}')
    text, last = write_tokens(tokens, 0)
    assert text == '{"a":[1.5,0,"Infinity","A/\\u0001\\uD800\\uD83D\\uDE00"],"b":{"c":true},"d":[]}'
    assert last == len(tokens) - 1
    assert tokens[last].kind == Kind.END_OBJECT


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (100.0, "100.0"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (1e7, "1.0E7"),
        (9999999.5, "9999999.5"),
        (12345678.9, "1.23456789E7"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (float("nan"), '"NaN"'),
        (float("-inf"), '"-Infinity"'),
    ],
)
def test_doubles(number: float, text: str) -> None:
    assert write_double(number) == text
