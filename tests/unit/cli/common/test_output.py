from headrace.cli.common.output import table_lines


def test_table_lines() -> None:
    assert table_lines(("NAME", "SIZE"), [("a", 10), ("long name", None)]) == [
        "NAME       SIZE",
        "a            10",
        "long name     -",
    ]
