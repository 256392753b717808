"""What an audit found, as figures, as a table and as a verdict. Pure Python, no Spark."""

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Input:
    """The records of an ODS topic: each is one of the four."""

    topic: str
    records: int
    sound: int
    """Events that were not there before, and have to be in the outputs."""
    duplicates: int
    """Later copies of such."""
    unrouted: int
    """Changes of tables that go nowhere."""
    broken: int
    """What has to be in the dead letters."""


@dataclass(frozen=True)
class Output:
    """The rows of an output topic, and how many the input asks for. What follows these two is violations."""

    topic: str
    rows: int
    expected: int
    lost: int = 0
    doubled: int = 0
    unexpected: int = 0
    """Rows of events or of list elements that are not in the input."""
    misplaced: int = 0
    """Events whose rows have another key than their record, or were made of a later copy of it."""
    disordered: int = 0
    """Rows that come before a row of their key that was there earlier, or in another partition."""


@dataclass(frozen=True)
class DeadLetters:
    """The dead letters of an ODS topic. All but `letters` and `expected` are violations."""

    topic: str
    letters: int
    expected: int
    lost: int = 0
    doubled: int = 0
    unexpected: int = 0
    """Letters about records that are sound, or not there."""


@dataclass(frozen=True)
class Latency:
    """From the time a record was sent to the time the last of its rows was, in milliseconds."""

    p50_ms: float
    p99_ms: float
    max_ms: float


@dataclass(frozen=True)
class Report:
    inputs: Sequence[Input]
    outputs: Sequence[Output]
    dead_letters: Sequence[DeadLetters]
    latency: Latency | None = None
    examples: Sequence[str] = field(default_factory=tuple)
    """A few of the violations, each with the ids that it takes to look for it."""

    @property
    def violations(self) -> list[str]:
        """What is wrong, a line for each kind; none if all is well."""
        found = []
        for name, meaning in (
            ("lost", "lost"),
            ("doubled", "written more than once"),
            ("unexpected", "without an origin in the input"),
        ):
            rows = sum(getattr(output, name) for output in self.outputs)
            letters = sum(getattr(each, name) for each in self.dead_letters)
            found += _line(rows, "row", meaning)
            found += _line(letters, "dead letter", meaning)
        found += _line(sum(output.misplaced for output in self.outputs), "event", "with a wrong key or origin")
        found += _line(sum(output.disordered for output in self.outputs), "row", "out of order within their key")
        return found

    @property
    def ok(self) -> bool:
        return not self.violations

    @property
    def verdict(self) -> str:
        if self.ok:
            return "passed: nothing lost, nothing doubled, order per key intact"
        return f"FAILED: {'; '.join(self.violations)}"

    def lines(self) -> list[str]:
        """The report as text."""
        lines = table(
            ["input", "records", "sound", "duplicates", "unrouted", "broken"],
            [
                [each.topic, each.records, each.sound, each.duplicates, each.unrouted, each.broken]
                for each in self.inputs
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
                f"from event to clean rows: {seconds(latency.p50_ms)} in the middle (p50), "
                f"{seconds(latency.p99_ms)} for 99 of 100, {seconds(latency.max_ms)} at most",
            ]
        if self.examples:
            lines += ["", "for example", *(f"  {example}" for example in self.examples)]
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
    """Columns of text: the first to the left, numbers to the right; None stays blank."""
    shown = [[each if isinstance(each, str) else "" if each is None else f"{each:,}" for each in row] for row in rows]
    widths = [max(len(row[column]) for row in [list(head), *shown]) for column in range(len(head))]
    lines = []
    for row in [list(head), ["-" * width for width in widths], *shown]:
        cells = [
            f"{cell:<{width}}" if not place else f"{cell:>{width}}"
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines
