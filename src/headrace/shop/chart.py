"""Charts of numbers over time: as text for a terminal, and as a self-contained HTML page with SVG.

Each series has its own panel, because series may have different units. The panels of a section have the same time axis.
The page has no scripts, loads nothing, follows the reader's choice of light or dark, and fits a phone. Pure Python, no
I/O.
"""

import html
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise

_BLOCKS = " ▁▂▃▄▅▆▇█"
"""Characters that are filled by 0 to 8 eighths."""

# The layout of a panel, in pixels. It is about as wide as a phone, so that its text stays readable there.
_WIDTH = 420
_HEIGHT = 150
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 10, 12, 22
_MAX_TICKS = 5

_STYLE = """
:root { --page: #f6f5f1; --card: #ffffff; --ink: #1d1d1b; --soft: #6a6963; --grid: #e4e2db; --mark: #2a6fb0;
  --other: #b3621b; --good: #1d7a46; --bad: #b3261e; }
@media (prefers-color-scheme: dark) {
  :root { --page: #141413; --card: #1e1e1c; --ink: #ecebe6; --soft: #a3a29c; --grid: #34332e; --mark: #64a6e0;
    --other: #e0964f; --good: #5fc48d; --bad: #f2867d; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 960px; margin: 28px auto 48px; padding: 0 16px; }
h1 { font-size: 24px; line-height: 1.25; margin: 0 0 4px; }
h2 { font-size: 17px; margin: 32px 0 2px; }
p { color: var(--soft); margin: 0 0 14px; }
.verdict { display: inline-block; margin: 4px 0 18px; padding: 5px 12px; border-radius: 6px; font-weight: 600;
  color: var(--good); border: 1px solid currentColor; }
.verdict.bad { color: var(--bad); }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(132px, 1fr)); gap: 10px; margin: 0 0 8px; }
dl div { background: var(--card); border: 1px solid var(--grid); border-radius: 8px; padding: 8px 12px; }
dt { color: var(--soft); font-size: 13px; }
dd { margin: 0; font-size: 20px; font-variant-numeric: tabular-nums; white-space: nowrap; }
.panels { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr)); gap: 12px; }
figure { margin: 0; background: var(--card); border: 1px solid var(--grid); border-radius: 8px; padding: 10px 12px; }
figcaption { display: flex; justify-content: space-between; gap: 12px; font-weight: 600; font-size: 14px; }
figcaption span { color: var(--soft); font-weight: 400; font-variant-numeric: tabular-nums; white-space: nowrap; }
svg { width: 100%; height: auto; display: block; }
svg text { fill: var(--soft); font-size: 12px; }
svg .grid { stroke: var(--grid); }
svg .line { fill: none; stroke: var(--mark); stroke-width: 2; stroke-linejoin: round; }
svg .area { fill: var(--mark); opacity: 0.14; }
svg .hit { fill: transparent; }
svg .hit:hover { fill: var(--mark); opacity: 0.25; }
.other { --mark: var(--other); }
.scroll { overflow-x: auto; background: var(--card); border: 1px solid var(--grid); border-radius: 8px; }
table { border-collapse: collapse; width: 100%; font-size: 14px; font-variant-numeric: tabular-nums; }
th, td { padding: 5px 12px; text-align: right; white-space: nowrap; }
th { color: var(--soft); font-weight: 500; }
th:first-child, td:first-child { text-align: left; }
tr + tr td { border-top: 1px solid var(--grid); }
"""


@dataclass(frozen=True)
class Series:
    """A named series with one value per point in time."""

    name: str
    values: Sequence[float]
    digits: int = 0
    unit: str = ""

    def text(self, value: float) -> str:
        return f"{value:,.{self.digits}f}{self.unit}"


@dataclass(frozen=True)
class Section:
    """A part of the page: panels with one time axis, or a table."""

    title: str
    about: str
    times_ms: Sequence[int] = ()
    series: Sequence[Series] = ()
    label: Callable[[int], str] = field(default=lambda time_ms: clock_text(time_ms))
    """Returns the text of a time."""
    table: Sequence[Sequence[str]] = ()
    """Rows of cells; the first row is the head."""
    is_other: bool = False
    """Has another color than the other sections."""


# ---- text


def text_chart(times_ms: Sequence[int], series: Sequence[Series], width: int = 72, height: int = 7) -> list[str]:
    """Draws the first series as columns and each other series as one line of blocks. Returns the lines."""
    if not times_ms:
        return ["no data"]
    first, *other_series = series
    columns = min(width, len(times_ms))
    heights = _buckets(first.values, columns)
    peak = max(heights) or 1.0
    labels = [first.text(peak), *[""] * (height - 2), "0"]
    label_width = max(len(label) for label in [*labels, *(line_series.name for line_series in other_series)])
    lines = [f"{first.name} ({_scale(times_ms, columns)})"]
    for row, label in enumerate(labels):
        floor = height - 1 - row
        cells = "".join(_BLOCKS[max(0, min(8, round((value / peak * height - floor) * 8)))] for value in heights)
        lines.append(f"{label:>{label_width}} ┤{cells}".rstrip())
    lines.append(f"{'':>{label_width}} └{'─' * columns}")
    lines.append(f"{'':>{label_width}}  {_time_line(times_ms, columns)}")
    for line_series in other_series:
        values = _buckets(line_series.values, columns)
        peak = max(values) or 1.0
        cells = "".join(_BLOCKS[max(1, math.ceil(value / peak * 8))] if value else " " for value in values)
        lines.append(f"{line_series.name:>{label_width}}  {cells:<{columns}}  max {line_series.text(max(values))}")
    return lines


def _buckets(values: Sequence[float], columns: int) -> list[float]:
    """Returns the average of the values in each column."""
    edges = [round(index * len(values) / columns) for index in range(columns + 1)]
    return [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]


def _scale(times_ms: Sequence[int], columns: int) -> str:
    minutes = len(times_ms) / columns
    return "per minute" if minutes == 1 else f"per minute; one column is {minutes:.1f} minutes"


def _time_line(times_ms: Sequence[int], columns: int) -> str:
    first, last = clock_text(times_ms[0]), clock_text(times_ms[-1])
    if columns < len(first) + len(last) + 2:
        return first
    middle = clock_text(times_ms[len(times_ms) // 2])
    gap = columns - len(first) - len(last)
    return f"{first}{middle:^{gap}}{last}" if gap > len(middle) + 4 else f"{first}{'':{gap}}{last}"


def clock_text(time_ms: int) -> str:
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%H:%M}"


# ---- HTML


def html_page(
    title: str,
    about: str,
    figures: Sequence[tuple[str, str]],
    sections: Sequence[Section],
    verdict: tuple[bool, str] | None = None,
) -> str:
    """Returns an HTML page with a title, a text, a verdict (is it good, and its text), key figures (name and value),
    and sections."""
    definitions = "".join(
        f"<div><dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd></div>" for name, value in figures
    )
    badge = ""
    if verdict is not None:
        badge = f'<div class="verdict{"" if verdict[0] else " bad"}">{html.escape(verdict[1])}</div>'
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" '
        f'content="light dark"><style>{_STYLE}</style></head>\n'
        f"<body><main><h1>{html.escape(title)}</h1><p>{html.escape(about)}</p>{badge}<dl>{definitions}</dl>\n"
        f"{''.join(map(_section, sections))}</main></body></html>\n"
    )


def _section(section: Section) -> str:
    head = f"<h2>{html.escape(section.title)}</h2><p>{html.escape(section.about)}</p>"
    panels = "".join(
        f"<figure><figcaption>{html.escape(series.name)}<span>max "
        f"{html.escape(series.text(max(series.values, default=0)))}</span></figcaption>"
        f"{svg(section.times_ms, series, section.label)}</figure>"
        for series in section.series
    )
    body = f'<div class="panels{" other" if section.is_other else ""}">{panels}</div>' if panels else ""
    if section.table:
        head_row, *rows = section.table
        cells = [_row("th", head_row), *(_row("td", row) for row in rows)]
        body += f'<div class="scroll"><table>{"".join(cells)}</table></div>'
    return f"<section>{head}{body}</section>\n"


def _row(tag: str, cells: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{html.escape(cell)}</{tag}>' for cell in cells)}</tr>"


def svg(times_ms: Sequence[int], series: Series, label: Callable[[int], str] | None = None) -> str:
    """Returns an SVG image of a series."""
    label = label or clock_text
    left, right, y_max, y_zero = _LEFT, _WIDTH - _RIGHT, _TOP, _HEIGHT - _BOTTOM
    peak = _round_up(max(series.values, default=0))
    step = (right - left) / max(1, len(series.values) - 1)
    points = [
        (left + index * step, y_zero - value / peak * (y_zero - y_max)) for index, value in enumerate(series.values)
    ]
    parts = []
    for share in (0.0, 0.5, 1.0):
        y = y_zero - share * (y_zero - y_max)
        parts.append(f'<line class="grid" x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{_axis_text(peak * share)}</text>')
    if points:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polygon class="area" points="{left},{y_zero} {path} {points[-1][0]:.1f},{y_zero}"/>')
        parts.append(f'<polyline class="line" points="{path}"/>')
    for index in _ticks(len(times_ms)):
        anchor = "start" if index == 0 else "end" if index == len(times_ms) - 1 else "middle"
        x = left + index * step
        text = html.escape(label(times_ms[index]))
        parts.append(f'<text x="{x:.1f}" y="{y_zero + 16}" text-anchor="{anchor}">{text}</text>')
    for (x, _), time_ms, value in zip(points, times_ms, series.values, strict=True):
        parts.append(
            f'<rect class="hit" x="{x - step / 2:.1f}" y="{y_max}" width="{step:.1f}" height="{y_zero - y_max}">'
            f"<title>{html.escape(label(time_ms))}  {html.escape(series.text(value))}</title></rect>"
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{html.escape(series.name)}">{"".join(parts)}</svg>'
    )


def _ticks(count: int) -> list[int]:
    if count <= _MAX_TICKS:
        return list(range(count))
    return [round(index * (count - 1) / (_MAX_TICKS - 1)) for index in range(_MAX_TICKS)]


def _round_up(value: float) -> float:
    """Rounds up to a round number for an axis: 1, 2, 3, 4, 6, 8 or 10 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 3, 4, 6, 8, 10) if step * power >= value)


def _axis_text(value: float) -> str:
    return f"{value / 1000:g}k" if value >= 10_000 else f"{value:,.10g}"
