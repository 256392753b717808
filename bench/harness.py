"""Alternating rounds of Headrace and a peer, and the ratio of the two with its spread.

The machine may be shared and noisy. So each round has its own ratio, because both sides meet the same noise within a
round, and the result is the median of these ratios. A slow run does not fail: the table marks missed targets.
"""

import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


@dataclass
class Measurement:
    """One comparison. `ratio` is Headrace's value over the peer's; if it is a speed, above 1 Headrace is faster."""

    name: str
    unit: str
    peer: str
    ours: float
    theirs: float
    ratio: float
    ratio_low: float
    ratio_high: float
    target: float
    rounds: int
    lower_is_better: bool = False

    @property
    def reached(self) -> bool:
        return self.ratio <= self.target if self.lower_is_better else self.ratio >= self.target

    @property
    def goal(self) -> str:
        return f"{'≤' if self.lower_is_better else '≥'} {self.target:g}"


def seconds_of(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def compare(
    name: str,
    *,
    peer: str,
    ours: Callable[[], float],
    theirs: Callable[[], float],
    work: float,
    unit: str,
    target: float,
    rounds: int,
) -> Measurement:
    """Measures both alternately. Each callable does the same amount of `work` and returns its duration in seconds."""
    ours()
    theirs()
    pairs: list[tuple[float, float]] = []
    for number in range(rounds):
        # The first one alternates, in case the order matters.
        if number % 2:
            their_seconds, our_seconds = theirs(), ours()
        else:
            our_seconds, their_seconds = ours(), theirs()
        pairs.append((our_seconds, their_seconds))
    ratios = sorted(their_seconds / our_seconds for our_seconds, their_seconds in pairs)
    measured = Measurement(
        name,
        unit,
        peer,
        work / statistics.median(pair[0] for pair in pairs),
        work / statistics.median(pair[1] for pair in pairs),
        statistics.median(ratios),
        ratios[len(ratios) // 10],
        ratios[-1 - len(ratios) // 10],
        target,
        rounds,
    )
    print(describe(measured), file=sys.stderr, flush=True)
    return measured


def from_pairs(
    name: str, unit: str, peer: str, pairs: list[tuple[float, float]], target: float, lower_is_better: bool = False
) -> Measurement:
    """Returns the comparison of rounds that each have a value of Headrace's and one of the peer's."""
    ratios = sorted(ours / theirs for ours, theirs in pairs)
    return Measurement(
        name,
        unit,
        peer,
        statistics.median(ours for ours, _ in pairs),
        statistics.median(theirs for _, theirs in pairs),
        statistics.median(ratios),
        ratios[len(ratios) // 10],
        ratios[-1 - len(ratios) // 10],
        target,
        len(pairs),
        lower_is_better,
    )


def describe(measured: Measurement) -> str:
    mark = "ok" if measured.reached else "MISSED"
    return (
        f"{measured.name:<60} {measured.ours:>9.2f} vs {measured.theirs:>9.2f} {measured.unit:<9} "
        f"ratio {measured.ratio:>6.2f} [{measured.ratio_low:.2f}, {measured.ratio_high:.2f}]  "
        f"target {measured.goal}  {mark}"
    )


def write_results(name: str, measurements: list[Measurement], notes: list[str]) -> None:
    """Writes the results as a table for people (.md) and as data (.json)."""
    RESULTS.mkdir(exist_ok=True)
    counts = {each.rounds for each in measurements}
    rounds = " to ".join(map(str, sorted({min(counts), max(counts)})))
    lines = [
        f"# {name}",
        "",
        f"{rounds} alternating rounds; the ratio is the median over the rounds of Headrace's value "
        "over the peer's, with the 10th to 90th percentile in brackets. "
        f"{os.cpu_count()} cores, Python {platform.python_version()}, {platform.system()} {platform.machine()}.",
        "",
        "| case | unit | Headrace | peer | | ratio | target | |",
        "|---|---|---:|---:|---|---:|---:|---|",
    ]
    for each in measurements:
        lines.append(
            f"| {each.name} | {each.unit} | {each.ours:.2f} | {each.theirs:.2f} | {each.peer} "
            f"| **{each.ratio:.2f}** [{each.ratio_low:.2f}, {each.ratio_high:.2f}] | {each.goal} "
            f"| {'' if each.reached else 'missed'} |"
        )
    lines += ["", *(f"- {note}" for note in notes)] if notes else []
    (RESULTS / f"{name}.md").write_text("\n".join(lines) + "\n")
    (RESULTS / f"{name}.json").write_text(json.dumps([asdict(each) for each in measurements], indent=1) + "\n")
    print(f"wrote {RESULTS / name}.md and .json", file=sys.stderr)
