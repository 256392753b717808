"""The log lines that a page explains, and the texts of all log calls and errors in the source."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

_LOGGED = re.compile(r"\d\d:\d\d:\d\d\.\d+ [A-Z]+ +\S+  (?P<line>.*)")
_EXPLAINED = re.compile(r"\| `(?P<line>[A-Z0-9][^`]{24,})` \| ")
_PLACEHOLDER = re.compile(r"%[-.\d]*[a-zA-Z]")
_SHORTEST = 16
"""Shorter texts are part of too many lines."""


def documented_lines(page: Path) -> Iterator[str]:
    """Yields the lines of logs on a page, and those in the first column of a table. `...` stands for the rest."""
    for line in page.read_text().splitlines():
        found = _LOGGED.fullmatch(line) or _EXPLAINED.match(line)
        if found is not None:
            yield found["line"]


def is_logged(line: str, sources: Path) -> bool:
    """Returns True if a text of the source can produce a line."""
    return any(_produces(parts, line) for parts in _texts(sources))


def _produces(parts: tuple[str, ...], line: str) -> bool:
    """Returns True if the line has all parts of a text, in order; before `...` those that are not cut off."""
    position = 0
    for part in parts:
        found = line.find(part, position)
        if found < 0:
            return "..." in line and position >= len(line.split("...")[0]) // 2 and position >= _SHORTEST
        position = found + len(part)
    return True


@cache
def _texts(sources: Path) -> list[tuple[str, ...]]:
    """Returns the parts of all strings between their placeholders."""
    texts: list[str] = []
    for path in sources.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
            elif isinstance(node, ast.JoinedStr):
                texts.append("".join(v.value if isinstance(v, ast.Constant) else "%s" for v in node.values))  # type: ignore[misc]
    parts = (tuple(filter(None, _PLACEHOLDER.split(text))) for text in texts)
    return [each for each in parts if sum(map(len, each)) >= _SHORTEST]
