"""What tools print: tables for people, plain lines for scripts, JSON for programs.

On a terminal a tool may use colour and align columns as it likes. Anywhere else its output is what Kafka's tool of the
same name prints, since scripts read it.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


def is_terminal() -> bool:
    """Whether a person looks at standard output."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def has_colour() -> bool:
    return is_terminal() and "NO_COLOR" not in os.environ


def styled(text: str, **style: Any) -> str:
    """Text in colour, where there is colour."""
    return click.style(text, **style) if has_colour() else text


def print_json(value: object) -> None:
    ascii_only = not (sys.stdout.encoding or "").lower().startswith("utf")
    click.echo(json.dumps(value, indent=2 if is_terminal() else None, ensure_ascii=ascii_only, default=str))


Style = Callable[[str, str], dict[str, Any] | None]
"""From the name of a column and the text of a cell to its style."""


def table_lines(
    columns: Sequence[str], rows: Iterable[Sequence[object]], style: Style = lambda _, __: None
) -> list[str]:
    """A heading and a line for each row, in columns; numbers to the right."""
    texts = [["-" if cell is None else str(cell) for cell in row] for row in rows]
    widths = [max([len(name), *(len(row[at]) for row in texts)]) for at, name in enumerate(columns)]
    numeric = [bool(texts) and all(_is_number(row[at]) for row in texts) for at in range(len(columns))]

    def line(cells: Sequence[str], look: Callable[[str, str], dict[str, Any] | None]) -> str:
        parts = []
        for name, cell, width, to_right in zip(columns, cells, widths, numeric, strict=True):
            padded = cell.rjust(width) if to_right else cell.ljust(width)
            chosen = look(name, cell)
            parts.append(styled(padded, **chosen) if chosen else padded)
        return "  ".join(parts).rstrip()

    return [line(list(columns), lambda _, __: {"bold": True}), *(line(row, style) for row in texts)]


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], style: Style = lambda _, __: None) -> None:
    for line in table_lines(columns, rows, style):
        click.echo(line)


def _is_number(text: str) -> bool:
    return text == "-" or text.replace(",", "").replace(".", "", 1).lstrip("-").isdigit()
