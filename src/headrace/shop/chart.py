"""Charts of numbers over time: as text for a terminal, and as a self-contained HTML page with SVG.

Each series has its own panel, because series may have different units. All panels have the same time axis. Pure
Python, no I/O.
"""

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise

_BLOCKS = " ▁▂▃▄▅▆▇█"
"""Characters that are filled by 0 to 8 eighths."""

# The layout of the SVG image, in pixels.
_WIDTH = 860
_PANEL_HEIGHT = 150
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 34, 22
_GAP = 18
_MAX_TICKS = 6

_STYLE = """
:root { --page: #fafaf8; --card: #ffffff; --ink: #1d1d1b; --soft: #6b6a66; --grid: #e6e5e0; --mark: #2a6fb0; }
@media (prefers-color-scheme: dark) {
  :root { --page: #161615; --card: #1f1f1d; --ink: #ecebe6; --soft: #a3a29c; --grid: #35342f; --mark: #5b9bd5; }
}
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 900px; margin: 32px auto; padding: 0 20px; }
h1 { font-size: 22px; margin: 0 0 4px; }
p { color: var(--soft); margin: 0 0 20px; }
dl { display: flex; flex-wrap: wrap; gap: 12px 32px; margin: 0 0 24px; }
dt { color: var(--soft); font-size: 13px; }
dd { margin: 0; font-size: 19px; font-variant-numeric: tabular-nums; }
figure { margin: 0; background: var(--card); border: 1px solid var(--grid); border-radius: 8px; padding: 16px; }
svg { width: 100%; height: auto; display: block; }
svg text { fill: var(--soft); font-size: 12px; }
svg .name { fill: var(--ink); font-size: 14px; font-weight: 600; }
svg .grid { stroke: var(--grid); }
svg .line { fill: none; stroke: var(--mark); stroke-width: 2; stroke-linejoin: round; }
svg .area { fill: var(--mark); opacity: 0.14; }
svg .hit { fill: transparent; }
svg .hit:hover { fill: var(--mark); opacity: 0.25; }
"""


@dataclass(frozen=True)
class Series:
    """A named series with one value per minute."""

    name: str
    values: Sequence[float]
    digits: int = 0

    def text(self, value: float) -> str:
        return f"{value:,.{self.digits}f}"


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
    title: str, about: str, figures: Sequence[tuple[str, str]], times_ms: Sequence[int], series: Sequence[Series]
) -> str:
    """Returns an HTML page with a title, a text, key figures (name and value), and a panel for each series."""
    definitions = "".join(
        f"<div><dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd></div>" for name, value in figures
    )
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>\n'
        f"<body><main><h1>{html.escape(title)}</h1><p>{html.escape(about)}</p><dl>{definitions}</dl>\n"
        f"<figure>{svg(times_ms, series)}</figure></main></body></html>\n"
    )


def svg(times_ms: Sequence[int], series: Sequence[Series]) -> str:
    """Returns an SVG image with one panel per series, below each other."""
    height = len(series) * (_PANEL_HEIGHT + _GAP)
    panels = "".join(_panel(times_ms, panel, index * (_PANEL_HEIGHT + _GAP)) for index, panel in enumerate(series))
    names = html.escape(", ".join(panel.name for panel in series))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{names}">'
        f"{panels}</svg>"
    )


def _panel(times_ms: Sequence[int], series: Series, top: int) -> str:
    left, right = _LEFT, _WIDTH - _RIGHT
    y_max, y_zero = top + _TOP, top + _PANEL_HEIGHT - _BOTTOM
    peak = _round_up(max(series.values, default=0))
    step = (right - left) / max(1, len(series.values) - 1)
    points = [
        (left + index * step, y_zero - value / peak * (y_zero - y_max)) for index, value in enumerate(series.values)
    ]
    parts = [f'<text class="name" x="0" y="{top + 18}">{html.escape(series.name)}</text>']
    for share in (0.0, 0.5, 1.0):
        y = y_zero - share * (y_zero - y_max)
        parts.append(f'<line class="grid" x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        label = _axis_text(peak * share)
        parts.append(f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    if points:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polygon class="area" points="{left},{y_zero} {path} {points[-1][0]:.1f},{y_zero}"/>')
        parts.append(f'<polyline class="line" points="{path}"/>')
    for index in _ticks(len(times_ms)):
        anchor = "start" if index == 0 else "end" if index == len(times_ms) - 1 else "middle"
        x = left + index * step
        parts.append(f'<text x="{x:.1f}" y="{y_zero + 16}" text-anchor="{anchor}">{clock_text(times_ms[index])}</text>')
    for (x, _), time_ms, value in zip(points, times_ms, series.values, strict=True):
        parts.append(
            f'<rect class="hit" x="{x - step / 2:.1f}" y="{y_max}" width="{step:.1f}" height="{y_zero - y_max}">'
            f"<title>{clock_text(time_ms)}  {html.escape(series.text(value))}</title></rect>"
        )
    return "".join(parts)


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
