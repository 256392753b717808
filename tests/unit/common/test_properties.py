from pathlib import Path

import pytest

from headrace.common.errors import ConfigError
from headrace.common.properties import parse_properties, read_properties

# The results of java.util.Properties.
CASES = {
    "": {},
    "a=1": {"a": "1"},
    "a=1\nb=2\n": {"a": "1", "b": "2"},
    "a=1\r\nb=2\rc=3": {"a": "1", "b": "2", "c": "3"},
    "# no\n! no\n  # no\n\n   \na=1 # part of the value": {"a": "1 # part of the value"},
    "a : 1\nb 2\nc\t=\t3\nd:=4\ne = = 5": {"a": "1", "b": "2", "c": "3", "d": "=4", "e": "= 5"},
    "empty=\nalone\nblank=  ": {"empty": "", "alone": "", "blank": ""},
    "a=  kept blanks at the end  ": {"a": "kept blanks at the end  "},
    "a=one, \\\n    two, \\\n\tthree": {"a": "one, two, three"},
    "a=1\\\n# not a comment": {"a": "1# not a comment"},
    "a=1\\\\\nb=2": {"a": "1\\", "b": "2"},
    "a=1\\": {"a": "1"},
    "\\": {},
    "a\\ b\\=c\\:=1": {"a b=c:": "1"},
    "path=C\\:\\\\data\\t\\n\\r\\f\\q": {"path": "C:\\data\t\n\r\fq"},
    "a=\\u00e9\\u20AC \\ud83d\\ude00": {"a": "é€ 😀"},
    "a=\\ leading": {"a": " leading"},
    "a=1\na=2": {"a": "2"},
    "=1": {"": "1"},
    "a\\\n  =1": {"a": "1"},
}


@pytest.mark.parametrize("text", CASES, ids=repr)
def test_parses_like_java(text: str) -> None:
    assert parse_properties(text) == CASES[text]


@pytest.mark.parametrize("escape", ["\\u12", "\\u12g4", "\\u", "\\u 123"])
def test_error_names_line_of_invalid_escape(escape: str) -> None:
    with pytest.raises(ConfigError, match=r"server.properties, line 3: .* expected four hexadecimal digits"):
        parse_properties(f"# first\na=1\nb={escape}", "server.properties")


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_bytes("a=é\n".encode())
    assert read_properties(path) == {"a": "é"}
    path.write_bytes("a=é\n".encode("latin-1"))
    assert read_properties(path) == {"a": "é"}
    with pytest.raises(ConfigError, match=r"Cannot read .*missing: No such file or directory"):
        read_properties(tmp_path / "missing")
