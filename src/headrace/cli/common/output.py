"""Output of the tools: tables for people, plain lines for scripts, JSON for programs.

On a terminal, tools print aligned columns and colors. Elsewhere their output is identical to that of
Kafka's tool of the same name, because scripts parse it.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def is_terminal() -> bool:
    """Returns True if standard output is a terminal."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def has_color() -> bool:
    return is_terminal() and "NO_COLOR" not in os.environ


def styled(text: str, **style: Any) -> str:
    """Returns the text with its style if the terminal has colors."""
    return click.style(text, **style) if has_color() else text


def print_json(value: object) -> None:
    ascii_only = not (sys.stdout.encoding or "").lower().startswith("utf")
    click.echo(json.dumps(value, indent=2 if is_terminal() else None, ensure_ascii=ascii_only, default=str))


Style = Callable[[str, str], dict[str, Any] | None]
"""Maps a column name and a cell's text to the cell's style."""


class Styled(str):
    """The text of a cell with a style of its own."""

    __slots__ = ("style",)

    def __new__(cls, text: str, **style: Any) -> "Styled":
        styled_text = super().__new__(cls, text)
        styled_text.style = style
        return styled_text

    style: dict[str, Any]


def table_lines(
    columns: Sequence[str], rows: Iterable[Sequence[object]], style: Style = lambda _, __: None
) -> list[str]:
    """Returns a header line and one line per row, in aligned columns. Numbers are right-aligned."""
    texts = [["-" if cell is None else cell if isinstance(cell, Styled) else str(cell) for cell in row] for row in rows]
    widths = [max([len(name), *(len(row[index]) for row in texts)]) for index, name in enumerate(columns)]
    numeric = [bool(texts) and all(_is_number(row[index]) for row in texts) for index in range(len(columns))]

    def line(cells: Sequence[str], look: Callable[[str, str], dict[str, Any] | None]) -> str:
        parts = []
        for name, cell, width, to_right in zip(columns, cells, widths, numeric, strict=True):
            padded = cell.rjust(width) if to_right else cell.ljust(width)
            cell_style = cell.style if isinstance(cell, Styled) else look(name, cell)
            parts.append(styled(padded, **cell_style) if cell_style else padded)
        return "  ".join(parts).rstrip()

    return [line(list(columns), lambda _, __: {"bold": True}), *(line(row, style) for row in texts)]


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], style: Style = lambda _, __: None) -> None:
    for line in table_lines(columns, rows, style):
        click.echo(line)


def _is_number(text: str) -> bool:
    return text == "-" or text.replace(",", "").replace(".", "", 1).lstrip("-").isdigit()
