import pytest

from headrace.cli.common import output
from headrace.cli.common.output import table_lines


def test_table_lines() -> None:
    assert table_lines(("NAME", "SIZE"), [("a", 10), ("long name", None)]) == [
        "NAME       SIZE",
        "a            10",
        "long name     -",
    ]


def test_style_of_one_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "has_color", lambda: True)
    lines = output.table_lines(("A", "B"), [(output.Styled("1", fg="red"), "x"), ("1", "x")])
    assert "\x1b[31m1" in lines[1]
    assert "\x1b[31m" not in lines[2], "another cell with the same text has no style"
