"""Percentiles, slopes, and the rules that decide what is steady. Pure functions."""

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

FLAT_SHARE_PER_HOUR = 0.05
FLAT_MB_PER_HOUR = 20.0
PEAK_FACTOR = 3.0
"""The busiest second of a day has this many times the day's average rate."""
LOAD = 0.7
"""The share of a core or task slot that may be busy at the peak."""


def percentile(values: Sequence[float], percent: float) -> float:
    """Returns the smallest value that at least `percent` of all values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Returns the slope of the least-squares line through points (x, y), or 0 for fewer than two x."""
    count = len(points)
    if count == 0:
        return 0.0
    mean_x = sum(x for x, _ in points) / count
    mean_y = sum(y for _, y in points) / count
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0


def lag_growth(lags: Sequence[int]) -> int:
    """Returns how much the smallest lag of the last third exceeds the smallest lag of the first third.

    The lag rises during a batch and falls at its end, so only the smallest values are comparable.
    """
    third = max(1, len(lags) // 3)
    return min(lags[-third:]) - min(lags[:third])


def is_sustained(rate: float, written_per_second: float, lags: Sequence[int]) -> bool:
    """Returns True if the events were written at this rate, and the lag grew by at most a second's worth of events."""
    return written_per_second >= 0.97 * rate and lag_growth(lags) <= rate


def highest_sustained(rates: Sequence[int], start: int, sustained: Callable[[int], bool]) -> int:
    """Returns the highest sustained rate, or 0. Tries `start` first, and then goes up or down, one step at a time."""
    position = rates.index(start)
    if sustained(rates[position]):
        while position + 1 < len(rates) and sustained(rates[position + 1]):
            position += 1
        return rates[position]
    while position > 0:
        position -= 1
        if sustained(rates[position]):
            return rates[position]
    return 0


def memory_growth(points: Sequence[tuple[float, float]]) -> tuple[float, float, bool]:
    """Returns the growth in MB per hour, as a share of the mean, and True if it is flat, for points (seconds, MB)."""
    per_hour = slope(points) * 3600
    mean = sum(mb for _, mb in points) / len(points)
    share = per_hour / mean if mean else 0.0
    return per_hour, share, per_hour <= FLAT_MB_PER_HOUR or share <= FLAT_SHARE_PER_HOUR


def warm_rate(batches: Sequence[Mapping[str, Any]]) -> float:
    """Returns the rows per second of a catch-up, without the batches of the first third of the rows.

    Batches of several flows overlap, so the time is the time from the first start to the last end.
    """
    spans = sorted(
        (
            begin := datetime.fromisoformat(str(batch["time"])).timestamp(),
            begin + float(batch["seconds"]),
            batch["rows"],
        )
        for batch in batches
        if batch["rows"]
    )
    total, passed = sum(rows for _, _, rows in spans), 0
    warm = []
    for span in spans:
        if passed >= total / 3:
            warm.append(span)
        passed += span[2]
    if sum(rows for _, _, rows in warm) < total / 2:
        warm = spans  # there are too few batches to leave some out
    seconds = max(end for _, end, _ in warm) - warm[0][0]
    return sum(rows for _, _, rows in warm) / seconds


def busy_rate(batches: Sequence[Mapping[str, Any]]) -> float:
    """Returns the rows per second while batches ran: all rows over the busy time of the busiest flow."""
    seconds: dict[object, float] = {}
    for batch in batches:
        seconds[batch["flow"]] = seconds.get(batch["flow"], 0.0) + float(batch["seconds"])
    return sum(int(batch["rows"]) for batch in batches) / max(seconds.values())


def needed(per_day: float, slot_rate: float, broker_us: float) -> tuple[float, int, int]:
    """Returns the peak rate of a number of events per day, and the task slots and broker cores for it."""
    peak = per_day / 86_400 * PEAK_FACTOR
    return peak, math.ceil(peak / (LOAD * slot_rate)), math.ceil(peak * broker_us / 1e6 / LOAD)
