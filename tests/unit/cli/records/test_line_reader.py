import click
import pytest

from headrace.cli.common.tool import Failure
from headrace.cli.records.line_reader import Line, LineReader

BOTH = {"parse.key": "true", "parse.headers": "true"}


@pytest.mark.parametrize(
    ("properties", "text", "expected"),
    [
        ({}, b"a\tb", Line(None, b"a\tb", [])),
        ({}, b"", Line(None, b"", [])),
        ({"parse.key": "true"}, b"k\tv\tw", Line(b"k", b"v\tw", [])),
        ({"parse.key": "true", "key.separator": "::"}, b"k::v", Line(b"k", b"v", [])),
        ({"parse.key": "true", "null.marker": "-"}, b"-\t-", Line(None, None, [])),
        (BOTH, b"a:1,b:2\tk\tv", Line(b"k", b"v", [("a", b"1"), ("b", b"2")])),
        (BOTH, b"\tk\tv", Line(b"k", b"v", [])),
        ({**BOTH, "null.marker": "-"}, b"-\tk\tv", Line(b"k", b"v", [])),
        ({**BOTH, "null.marker": "-"}, b"a:-\tk\tv", Line(b"k", b"v", [("a", None)])),
        (
            {**BOTH, "headers.delimiter": "|", "headers.separator": ";", "headers.key.separator": "="},
            b"a=1;b=2|k\tv",
            Line(b"k", b"v", [("a", b"1"), ("b", b"2")]),
        ),
        ({"parse.key": "true", "ignore.error": "true"}, b"no key", Line(None, b"no key", [])),
        ({"parse.headers": "true", "ignore.error": "true"}, b"a\tv", Line(None, b"v", [("a", None)])),
    ],
)
def test_parses_lines(properties: dict[str, str], text: bytes, expected: Line) -> None:
    assert LineReader(properties).read(text) == expected


@pytest.mark.parametrize(
    ("properties", "text", "said"),
    [
        ({"parse.key": "true"}, b"nothing", "Line 1 has no key.separator '\\t': 'nothing'"),
        (BOTH, b"nothing", "Line 1 has no headers.delimiter '\\t': 'nothing'"),
        ({"parse.headers": "true"}, b"a\tv", "Line 1 has a header 'a' without a value: 'a\\tv'"),
    ],
)
def test_error_names_invalid_line(properties: dict[str, str], text: bytes, said: str) -> None:
    with pytest.raises(Failure) as caught:
        LineReader(properties).read(text)
    assert caught.value.message == said


@pytest.mark.parametrize(
    "properties",
    [
        {"parse.key": "maybe"},
        {"key.separator": ""},
        {"parse.headers": "true", "headers.separator": "\t"},
        {"parse.headers": "true", "headers.key.separator": ","},
    ],
)
def test_rejects_invalid_properties(properties: dict[str, str]) -> None:
    with pytest.raises(click.UsageError):
        LineReader(properties)


def test_warns_about_unknown_properties(capsys: pytest.CaptureFixture[str]) -> None:
    reader = LineReader({"parse.keys": "true", "key.serializer": "StringSerializer"})
    assert reader.read(b"a\tb") == Line(None, b"a\tb", [])
    assert capsys.readouterr().err.endswith(": key.serializer, parse.keys\n")
