"""The result of an audit: numbers, a table and a verdict. Pure Python, no Spark."""

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Input:
    """The records of an ODS topic. Each record is counted in exactly one of the last four fields."""

    topic: str
    records: int
    sound: int
    """First copies of valid events, which must be in the outputs."""
    duplicates: int
    """Later copies of valid events."""
    unrouted: int
    """Changes of tables without a route."""
    broken: int
    """Invalid records, which must be in the dead letters."""


@dataclass(frozen=True)
class Output:
    """The rows of an output topic and the number that the input requires. The other fields are violations."""

    topic: str
    rows: int
    expected: int
    lost: int = 0
    doubled: int = 0
    unexpected: int = 0
    """Rows of events or list elements that are not in the input."""
    misplaced: int = 0
    """Events whose rows have another key than their record, or originate from a later copy."""
    disordered: int = 0
    """Rows that are out of order within their key, or in another partition than other rows of their key."""


@dataclass(frozen=True)
class DeadLetters:
    """The dead letters of an ODS topic. All fields except `letters` and `expected` are violations."""

    topic: str
    letters: int
    expected: int
    lost: int = 0
    doubled: int = 0
    unexpected: int = 0
    """Dead letters of records that are valid or not in the input."""


@dataclass(frozen=True)
class Latency:
    """The time from the timestamp of a record to the timestamp of its last row, in milliseconds."""

    p50_ms: float
    p99_ms: float
    max_ms: float


@dataclass(frozen=True)
class Report:
    """The result of an audit."""

    inputs: Sequence[Input]
    outputs: Sequence[Output]
    dead_letters: Sequence[DeadLetters]
    latency: Latency | None = None
    examples: Sequence[str] = field(default_factory=tuple)
    """A few of the violations, with the ids that are needed to investigate them."""

    @property
    def violations(self) -> list[str]:
        """Returns one line per kind of violation."""
        lines = []
        for name, meaning in (
            ("lost", "lost"),
            ("doubled", "written more than once"),
            ("unexpected", "without an origin in the input"),
        ):
            rows = sum(getattr(output, name) for output in self.outputs)
            letters = sum(getattr(dead_letters, name) for dead_letters in self.dead_letters)
            lines += _line(rows, "row", meaning)
            lines += _line(letters, "dead letter", meaning)
        lines += _line(sum(output.misplaced for output in self.outputs), "event", "with a wrong key or origin")
        lines += _line(sum(output.disordered for output in self.outputs), "row", "out of order within their key")
        return lines

    @property
    def ok(self) -> bool:
        return not self.violations

    @property
    def verdict(self) -> str:
        if self.ok:
            return "passed: nothing lost, nothing doubled, order per key intact"
        return f"FAILED: {'; '.join(self.violations)}"

    def lines(self) -> list[str]:
        """Returns the report as lines of text."""
        lines = table(
            ["input", "records", "sound", "duplicates", "unrouted", "broken"],
            [
                [topic.topic, topic.records, topic.sound, topic.duplicates, topic.unrouted, topic.broken]
                for topic in self.inputs
            ],
        )
        lines.append("")
        lines += table(
            ["output", "rows", "expected", "lost", "doubled", "unexpected", "misplaced", "disordered"],
            [*map(_output_cells, self.outputs), *map(_letters_cells, self.dead_letters)],
        )
        if self.latency is not None:
            latency = self.latency
            lines += [
                "",
                f"latency from event to clean rows: p50 {seconds(latency.p50_ms)}, "
                f"p99 {seconds(latency.p99_ms)}, maximum {seconds(latency.max_ms)}",
            ]
        if self.examples:
            lines += ["", "examples", *(f"  {example}" for example in self.examples)]
        return [*lines, "", f"audit {self.verdict}"]


def _output_cells(o: Output) -> list[str | int | None]:
    return [o.topic, o.rows, o.expected, o.lost, o.doubled, o.unexpected, o.misplaced, o.disordered]


def _letters_cells(d: DeadLetters) -> list[str | int | None]:
    return [f"dead letters of {d.topic}", d.letters, d.expected, d.lost, d.doubled, d.unexpected, None, None]


def _line(count: int, what: str, meaning: str) -> list[str]:
    return [f"{count:,} {what}{'' if count == 1 else 's'} {meaning}"] if count else []


def seconds(milliseconds: float) -> str:
    return f"{milliseconds / 1000:.2f} s"


def table(head: Sequence[str], rows: Sequence[Sequence[str | int | None]]) -> list[str]:
    """Formats rows as lines: the first column is left-aligned, numbers are right-aligned, None is blank."""
    texts = [[cell if isinstance(cell, str) else "" if cell is None else f"{cell:,}" for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in [list(head), *texts]) for column in range(len(head))]
    lines = []
    for row in [list(head), ["-" * width for width in widths], *texts]:
        cells = [
            f"{cell:<{width}}" if not column else f"{cell:>{width}}"
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines
