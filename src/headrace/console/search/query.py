"""What to read from a topic: the parameters of browsing, searches, exports and copies.

A query travels as JSON to the scan process.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.console.search.conditions import Condition, FilterError, parse_conditions

__all__ = ["RecordQuery", "path_condition"]

STARTS = ("newest", "oldest", "offset", "time")
_COMPARISONS = {"!=": "equals", "<=": "le", ">=": "ge", "=": "equals", "<": "lt", ">": "gt"}


@dataclass(frozen=True)
class RecordQuery:
    """A selection of records. `conditions` are in the form of requests, so that the query is JSON."""

    topic: str
    partitions: tuple[int, ...] | None = None
    """All partitions by default."""
    start: str = "newest"
    offset: int = 0
    """The first offset, for start `offset`."""
    time_ms: int | None = None
    """Only records with this timestamp or a later one."""
    to_time_ms: int | None = None
    """Only records with an earlier timestamp."""
    read_committed: bool = False
    key_decoder: str = "auto"
    value_decoder: str = "auto"
    conditions: tuple[Mapping[str, Any], ...] = ()
    offsets: tuple[tuple[int, int], ...] | None = None
    """Only these records, by partition and offset."""

    def __post_init__(self) -> None:
        if self.start not in STARTS:
            raise FilterError(f"from={self.start}: expected {', '.join(STARTS)}")
        if self.start == "time" and self.time_ms is None:
            raise FilterError("from=time needs time_ms")
        if self.offset < 0:
            raise FilterError(f"offset={self.offset}: expected 0 or more")

    def parsed_conditions(self) -> tuple[Condition, ...]:
        """Raises FilterError."""
        return parse_conditions([dict(condition) for condition in self.conditions])

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> "RecordQuery":
        fields = dict(given)
        for name in ("partitions", "conditions"):
            fields[name] = None if fields[name] is None else tuple(fields[name])
        if fields["offsets"] is not None:
            fields["offsets"] = tuple((partition, offset) for partition, offset in fields["offsets"])
        return cls(**fields)


def path_condition(text: str) -> dict[str, Any]:
    """Returns the condition of `$.user.id=17`: a JSON path in the value, optionally with a comparison.

    The operators are `=`, `!=`, `<`, `<=`, `>` and `>=`. Quotes around the operand are removed. Without an operator,
    the path has to exist.
    """
    quoted = False
    for position, char in enumerate(text):
        if char == "'":
            quoted = not quoted
        if quoted or char not in "!=<>":
            continue
        operator = text[position : position + 2] if text[position : position + 2] in _COMPARISONS else char
        if operator not in _COMPARISONS:
            raise FilterError(f"filter_path={text}: expected =, !=, <, <=, > or >= at {text[position:]!r}")
        operand = text[position + len(operator) :].strip()
        if len(operand) >= 2 and operand[0] == operand[-1] and operand[0] in "'\"":
            operand = operand[1:-1]
        return {
            "field": "value",
            "path": text[:position].strip(),
            "op": _COMPARISONS[operator],
            "operand": operand,
            "negate": operator == "!=",
        }
    return {"field": "value", "path": text.strip(), "op": "exists"}
