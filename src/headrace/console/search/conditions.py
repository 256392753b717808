"""Conditions on records, as requests state them.

    [{"field": "value", "path": "$.user.id", "op": "equals", "operand": "u-17"},
     {"field": "header", "header": "trace", "op": "exists"},
     {"field": "any", "op": "contains", "operand": "timeout", "ignore_case": true, "negate": true}]

A record is selected if it meets all conditions.

- `field`: `key`, `value`, `any` (key or value), or `header` (of the name in `header`, or any header).
- `path`: a JSON path; the condition is then about that part of a key or value. Paths consist of members (`.name`,
  `['name']`), array elements (`[0]`, `[-1]`) and all elements (`[*]`). If a path selects several parts, one has to
  match.
- `op`: `contains`, `equals`, `starts_with`, `regex` (RE2), `exists`, `missing`, `lt`, `le`, `gt`, `ge`. The last four
  compare numbers if the operand is a number, and text otherwise.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import re2

from headrace.common.errors import HeadraceError

__all__ = ["Condition", "FilterError", "JsonPath", "parse_conditions"]

FIELDS = ("key", "value", "header", "any")
OPS = ("contains", "equals", "starts_with", "regex", "exists", "missing", "lt", "le", "gt", "ge")
_WITHOUT_OPERAND = ("exists", "missing")
_MEMBERS = {"field", "header", "path", "op", "operand", "ignore_case", "negate"}
MAX_CONDITIONS = 20
MAX_OPERAND_CHARS = 10_000
_STEP = re.compile(r"""\.(?P<name>[^.\[\]'"\s]+)|\[(?P<index>-?\d{1,9})\]|\[(?P<all>\*)\]|\['(?P<quoted>[^']*)'\]""")
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?")


class FilterError(HeadraceError, ValueError):
    """A condition cannot be understood. The message says which and why."""


class AllElements:
    """The step `[*]`."""


ALL_ELEMENTS = AllElements()
Step = str | int | AllElements


@dataclass(frozen=True)
class JsonPath:
    """A parsed JSON path."""

    text: str
    steps: tuple[Step, ...]

    @classmethod
    def parse(cls, text: str) -> "JsonPath":
        rest = text.strip()
        if rest.startswith("$"):
            rest = rest[1:]
        elif rest and rest[0] not in ".[":
            rest = "." + rest
        steps: list[Step] = []
        position = 0
        while position < len(rest):
            match = _STEP.match(rest, position)
            if match is None:
                raise FilterError(f"JSON path {text!r}: expected .name, ['name'], [0] or [*] at {rest[position:]!r}")
            name = match["name"] if match["name"] is not None else match["quoted"]
            if name is not None:
                steps.append(name)
            else:
                steps.append(ALL_ELEMENTS if match["all"] else int(match["index"]))
            position = match.end()
        if not steps:
            raise FilterError(f"JSON path {text!r} is empty: expected for example $.user.id")
        return cls(text, tuple(steps))

    @property
    def members(self) -> tuple[str, ...] | None:
        """The names, if the path has only members."""
        names = tuple(step for step in self.steps if isinstance(step, str))
        return names if len(names) == len(self.steps) else None

    def select(self, value: Any) -> list[Any]:
        """Returns the parts of a parsed JSON value that the path selects."""
        selected = [value]
        for step in self.steps:
            if isinstance(step, str):
                selected = [part[step] for part in selected if isinstance(part, dict) and step in part]
            elif isinstance(step, int):
                selected = [
                    part[step] for part in selected if isinstance(part, list) and -len(part) <= step < len(part)
                ]
            else:
                selected = [
                    element
                    for part in selected
                    if isinstance(part, list | dict)
                    for element in (part if isinstance(part, list) else part.values())
                ]
        return selected


@dataclass(frozen=True)
class Condition:
    """One condition."""

    field: str
    op: str
    operand: str = ""
    header: str | None = None
    path: JsonPath | None = None
    ignore_case: bool = False
    negate: bool = False

    @cached_property
    def regex(self) -> str | None:
        """The regular expression of the condition, if it is one: `regex`, and comparisons that ignore case."""
        if self.op == "regex":
            return self.operand
        if not self.ignore_case or self.op not in ("contains", "starts_with", "equals"):
            return None
        before = "" if self.op == "contains" else r"\A"
        return f"{before}{re2.escape(self.operand)}" + (r"\z" if self.op == "equals" else "")

    @cached_property
    def pattern(self) -> Any:
        """The regular expression, compiled by RE2, which takes linear time whatever the pattern."""
        options = re2.Options()
        options.log_errors = False
        options.max_mem = 8 * 1024 * 1024
        options.case_sensitive = not self.ignore_case
        return re2.compile(self.regex, options)

    @cached_property
    def number(self) -> float | None:
        """The operand as a number."""
        return to_number(self.operand)

    def matches_text(self, text: str | None) -> bool:
        """Returns whether one text meets the condition, without its negation. None is missing."""
        if self.op in _WITHOUT_OPERAND:
            return (text is not None) == (self.op == "exists")
        if text is None:
            return False
        if self.op == "equals" and self.number is not None and to_number(text) == self.number:
            return True
        if self.regex is not None:
            return self.pattern.search(text) is not None
        if self.op == "contains":
            return self.operand in text
        if self.op == "starts_with":
            return text.startswith(self.operand)
        return text == self.operand if self.op == "equals" else self._compares(text)

    def _compares(self, text: str) -> bool:
        left: Any = text
        right: Any = self.operand
        if self.number is not None:
            left, right = to_number(text), self.number
            if left is None:
                return False
        if self.op in ("lt", "le"):
            return bool(left < right or (self.op == "le" and left == right))
        return bool(left > right or (self.op == "ge" and left == right))


def to_number(text: str) -> float | None:
    """Returns a number as JSON writes it, otherwise None."""
    return float(text) if len(text) <= 400 and _NUMBER.fullmatch(text) else None


def parse_conditions(given: object) -> tuple[Condition, ...]:
    """Returns the conditions of a request. Raises FilterError."""
    if given is None:
        return ()
    if not isinstance(given, list):
        raise FilterError("A filter is a list of conditions")
    if len(given) > MAX_CONDITIONS:
        raise FilterError(f"A filter has at most {MAX_CONDITIONS} conditions, not {len(given)}")
    return tuple(_parse(item, number) for number, item in enumerate(given, 1))


def _parse(given: object, number: int) -> Condition:
    def wrong(problem: str) -> FilterError:
        return FilterError(f"Condition {number}: {problem}")

    if not isinstance(given, Mapping):
        raise wrong(f"expected an object, not {type(given).__name__}")
    unknown = sorted(set(given) - _MEMBERS)
    if unknown:
        raise wrong(f"unknown member {unknown[0]!r}")
    for name in ("field", "op", "operand", "header", "path"):
        if not isinstance(given.get(name, ""), str | None):
            raise wrong(f"{name} is not text")
    for name in ("ignore_case", "negate"):
        if not isinstance(given.get(name, False), bool):
            raise wrong(f"{name} is not true or false")
    field, op = given.get("field") or "any", given.get("op") or "contains"
    operand = given.get("operand") or ""
    path = given.get("path") or None
    if field not in FIELDS:
        raise wrong(f"field {field!r}: expected {', '.join(FIELDS)}")
    if op not in OPS:
        raise wrong(f"op {op!r}: expected {', '.join(OPS)}")
    if len(operand) > MAX_OPERAND_CHARS or "\0" in operand:
        raise wrong(f"the operand has a NUL character, or more than {MAX_OPERAND_CHARS} characters")
    try:
        operand.encode()
        (path or "").encode()
        (given.get("header") or "").encode()
    except UnicodeEncodeError:
        raise wrong("text with half of a surrogate pair") from None
    if op in _WITHOUT_OPERAND and operand:
        raise wrong(f"{op} takes no operand")
    if path is not None and field not in ("key", "value"):
        raise wrong("a path needs field key or value")
    if given.get("header") is not None and field != "header":
        raise wrong("`header` needs field header")
    condition = Condition(
        field,
        op,
        operand,
        given.get("header"),
        None if path is None else JsonPath.parse(path),
        given.get("ignore_case", False),
        given.get("negate", False),
    )
    if op == "regex":
        try:
            _ = condition.pattern
        except re2.error as error:
            message = error.args[0] if error.args else error
            text = message.decode(errors="replace") if isinstance(message, bytes) else str(message)
            raise wrong(f"regular expression {operand!r}: {text}") from None
    return condition
