"""The results of the parts as Markdown. Pure: each part becomes a section, and the goals a table above them."""

import os
import platform
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from bench.pipeline.catch_up import SLOTS, START_EVENTS
from bench.pipeline.figures import LOAD, PEAK_FACTOR, needed
from bench.pipeline.processes import BENCH, BROKER, COMPONENTS, DRIVER, JVM, WORKERS
from bench.pipeline.sides import ALL_SIDES, ARROW

GOALS: dict[str, tuple[str, bool]] = {
    "highest sustained rate, events/s": ("≥ 40,000", True),
    "lag at 20,000 events/s, in seconds' worth of events": ("< 2", False),
    "latency at 10,000 events/s, p50, s": ("≤ 1", False),
    "latency at 10,000 events/s, p99, s": ("≤ 2", False),
    "first rows from a cold start, s": ("≤ 12", False),
    "`make run`: 100,000 events with the audit, s": ("≤ 60", False),
}
"""The goals of the Arrow version, and True if more is better."""
PER_DAY = {"100 million": 1e8, "10 billion": 1e10}
EVENT_KB = 1.0
SPARK = (DRIVER, JVM, WORKERS)
STATE_BYTES = 43
"""The upper bound of the deduplication state per event of the window, from docs/shop.md."""
WINDOW_SECONDS = 600


def report_lines(results: Mapping[str, Any]) -> list[str]:
    """Returns the report on all parts that have results."""
    lines = [
        "# pipeline",
        "",
        '`ods-dwd` with Arrow flows; the same pipeline in SQL (data frame flows, `format("headrace")`); and the same '
        "SQL on Spark's JVM connector, which writes without transactions. Broker, generator and Spark (`local[2]`) "
        f"share {os.cpu_count()} cores; events of about {EVENT_KB:g} KB, 6.2 rows per event. Values are medians of the "
        f"rounds, with all rounds in brackets. Python {platform.python_version()}, {platform.system()} "
        f"{platform.machine()}.",
        "",
        *_goal_table(results),
    ]
    for part, section in _SECTIONS.items():
        if part in results:
            result = results[part]
            lines += ["", f"## {_TITLES[part]}", ""]
            lines += [f"{result['when']}, {result['rounds']} rounds. Load average before: {result['load']}.", ""]
            if "note" in result:  # written by hand; the next run of the part removes it
                lines += [result["note"], ""]
            lines += section(result["data"])
    windows = results["cpu"]["data"] if "cpu" in results else results.get("rate", {}).get("data", {}).get("windows", [])
    if "cpu" not in results and windows:
        lines += ["", f"## {_TITLES['cpu']}", "", "From the windows of the highest sustained rate.", "", *_cpu(windows)]
    extrapolation = _extrapolation(results.get("scaling", {}).get("data", []), windows)
    return [*lines, "", *extrapolation] if extrapolation else lines


def table(header: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> list[str]:
    """Returns a Markdown table, whose first `left` columns are text and others numbers."""
    align = ["---"] * left + ["---:"] * (len(header) - left)
    return ["| " + " | ".join(cells) + " |" for cells in (header, align, *rows)]


def spread(values: Sequence[float], digits: int = 0) -> str:
    """Returns the median of the rounds, and all of them if there are several."""
    if not values:
        return ""
    text = f"**{statistics.median(values):,.{digits}f}**"
    return text if len(values) == 1 else f"{text} [{', '.join(f'{value:,.{digits}f}' for value in values)}]"


def _by_side(
    rows: Iterable[Mapping[str, Any]], value: Callable[[Mapping[str, Any]], float | None]
) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for row in rows:
        if (number := value(row)) is not None:
            found.setdefault(row["side"], []).append(number)
    return found


def _goal_values(results: Mapping[str, Any]) -> dict[str, dict[str, list[float]]]:
    parts = ("rate", "latency", "start", "profile", "demo")
    rate, latency, start, profile, demo = (results.get(part, {}).get("data") for part in parts)
    values: dict[str, dict[str, list[float]]] = {name: {} for name in GOALS}
    names = list(GOALS)
    if rate:
        at_20 = [window for window in rate["windows"] if window["rate"] == 20_000]
        values[names[0]] = rate["highest"]
        values[names[1]] = _by_side(at_20, lambda window: window["lag_median"] / window["rate"])
    if latency:
        for name, percent in ((names[2], "50"), (names[3], "99")):
            values[name] = _by_side(
                latency, lambda w, p=percent: w["latency_ms"][p] / 1000 if w["latency_ms"] else None
            )
    if start:
        values[names[4]] = _by_side(start["later"], lambda each: each["first_row"])
    if profile:  # always with an archive of classes
        values[names[4]][ARROW] = [each[-1]["seconds"] for each in profile]
    if demo:
        values[names[5]] = _by_side(demo, lambda each: each["seconds"])
    return values


def _goal_table(results: Mapping[str, Any]) -> list[str]:
    rows = []
    for name, by_side in _goal_values(results).items():
        goal, more_is_better = GOALS[name]
        digits = 0 if more_is_better else 1
        met = ""
        if by_side.get(ARROW):
            limit, value = float(goal[2:].replace(",", "")), statistics.median(by_side[ARROW])
            is_met = value >= limit if more_is_better else value < limit or (goal[0] == "≤" and value == limit)
            met = "" if is_met else "missed"
        rows.append([name, *(spread(by_side.get(side, []), digits) for side in ALL_SIDES), goal, met])
    return table(["", *ALL_SIDES, "goal", ""], rows)


def _windows(windows: Sequence[Mapping[str, Any]]) -> list[str]:
    rows = []
    for each in windows:
        latency = each["latency_ms"]
        rows.append(
            [
                each["side"],
                f"{each['rate']:,}",
                "yes" if each["sustained"] else "no",
                f"{each['written'] / each['seconds']:,.0f}",
                f"{each['done'] / each['seconds']:,.0f}",
                f"{each['lag_median'] / each['rate']:.1f}",
                f"{each['lag_max'] / each['rate']:.1f}",
                f"{latency['50'] / 1000:.2f}" if latency else "",
                f"{latency['99'] / 1000:.2f}" if latency else "",
                f"{each['latency_rows']:,}",
                "" if each["batch_median"] is None else f"{each['batch_median']:.2f}",
                f"{each['other_cores']:.2f}",
            ]
        )
    header = ["version", "rate", "sustained", "written/s", "processed/s", "lag s", "max lag s", "p50 s", "p99 s"]
    return table([*header, "rows", "batch s", "other cores"], rows)


def _rate(data: Mapping[str, Any]) -> list[str]:
    return [
        *_windows(data["windows"]),
        "",
        "- Sustained: at least 97 % of the rate was written, and the smallest lag of the last third of the window "
        "exceeds the smallest lag of the first third by at most a second's worth of events.",
        "- lag: events that are written but not in a completed batch, in seconds' worth of events. p50, p99: latency "
        "of the sampled rows. other cores: used by processes that are no part of the measurement.",
    ]


def _latency(data: Sequence[Mapping[str, Any]]) -> list[str]:
    return [
        *_windows(data),
        "",
        "- Latency: the time at which a consumer with isolation.level=read_committed received a row of dwd_error or "
        "dwd_payment, minus the timestamp of the event's record in the ODS topic.",
    ]


def _start(data: Mapping[str, Any]) -> list[str]:
    rows = []
    for side in ALL_SIDES:
        later = [each for each in data["later"] if each["side"] == side]
        first = [each["first_row"] for each in data["first"] if each["side"] == side]
        if later:
            firsts, alls = ([each[name] for each in later] for name in ("first_row", "all_rows"))
            cpu = [[each["cpu"][name] for each in later if each.get("cpu")] for name in SPARK]
            rows.append([side, *(spread(values, 1) for values in (firsts, alls, first, *cpu))])
    header = ["version", "first visible row, s", f"all {START_EVENTS} events, s", "the very first start, s"]
    return [
        *table([*header, *(f"CPU s: {name}" for name in SPARK)], rows),
        "",
        "- From the start of `headrace pipeline run` with a running broker and existing events. The very first start "
        "has an empty cache; when a run has ended, Spark's JVM leaves an archive of its classes, which later starts "
        "use. CPU: processor time until the first row, of later starts.",
    ]


def _profile(data: Sequence[Sequence[Mapping[str, Any]]]) -> list[str]:
    rows = []
    for number, phase in enumerate(data[0][:-1]):
        steps = [(each[number], each[number + 1]) for each in data]
        seconds = [after["seconds"] - before["seconds"] for before, after in steps]
        cpu = [[after["cpu"][name] - before["cpu"][name] for before, after in steps] for name in SPARK]
        rows.append([phase["phase"], spread(seconds, 1), *(f"{statistics.median(values):.1f}" for values in cpu)])
    total = [each[-1]["seconds"] - each[0]["seconds"] for each in data]
    cpu_sums = [[each[-1]["cpu"][name] for each in data] for name in SPARK]
    rows.append(["all", spread(total, 1), *(f"{statistics.median(values):.1f}" for values in cpu_sums)])
    return [
        *table(["phase", "seconds", *(f"CPU s: {name}" for name in SPARK)], rows),
        "",
        "- Of the Arrow version, with an archive of classes. A phase lasts until the next one begins, the last one "
        "until the first row is visible.",
    ]


def _cpu(data: Sequence[Mapping[str, Any]]) -> list[str]:
    rows = []
    for rate in sorted({each["rate"] for each in data}):
        for side in ALL_SIDES:
            chosen = [each for each in data if each["side"] == side and each["rate"] == rate]
            if chosen:
                medians = [statistics.median(each["cpu_us"][name] for each in chosen) for name in (*COMPONENTS, BENCH)]
                kept_up = all(each["sustained"] for each in chosen)
                cells = [f"{value:.1f}" for value in (*medians, sum(medians[:-1]))]
                rows.append([side, f"{rate:,}", "yes" if kept_up else "no", *cells])
    return [
        *table(["version", "rate", "sustained", *COMPONENTS, BENCH, "sum without measuring"], rows),
        "",
        "- Microseconds of processor time per event: broker and generator per written event, others per processed "
        "event.",
    ]


def _catchup(data: Sequence[Mapping[str, Any]]) -> list[str]:
    rows = []
    for events in sorted({each["events"] for each in data}):
        for side in ALL_SIDES:
            chosen = [each for each in data if each["side"] == side and each["events"] == events]
            if chosen:
                columns = [("seconds", 1), ("with_start", 0), ("while_busy", 0), ("warm", 0)]
                rows.append([side, f"{events:,}", *(spread([c[name] for c in chosen], n) for name, n in columns)])
    return [
        *table(["version", "events", "whole command, s", "events/s with start", "while batches ran", "warm"], rows),
        "",
        "- `--available-now` over existing events, without a generator. warm: after the first third of the events.",
    ]


def _scaling(data: Sequence[Mapping[str, Any]]) -> list[str]:
    rows = []
    for side in ALL_SIDES:
        base = statistics.median([c["warm"] for c in data if c["side"] == side and c["master"] == "local[1]"] or [0])
        for master, slots in SLOTS.items():
            warm = [each["warm"] for each in data if each["side"] == side and each["master"] == master]
            if warm and base:
                ratio = f"{statistics.median(warm) / base:.2f}"
                rows.append([side, master, str(slots), spread(warm), ratio])
    return [
        *table(["version", "master", "task slots", "events/s, warm", "to one slot"], rows, left=2),
        "",
        f"- Catching up with {data[0]['events']:,} existing events, warm. Two slots share the cores with the broker "
        "and Spark's other threads.",
    ]


def _memory(data: Sequence[Mapping[str, Any]]) -> list[str]:
    rows = []
    for window in data:
        samples = window["memory"]
        for position in sorted({round(part * (len(samples) - 1) / 5) for part in range(6)}):
            seconds, by_component = samples[position]
            cells = [f"{by_component[name]:,.0f}" for name in COMPONENTS]
            rows.append([window["side"], f"{seconds:.0f}", *cells, f"{sum(by_component.values()):,.0f}"])
    return [
        *table(["version", "second", *COMPONENTS, "sum"], rows),
        "",
        f"- MB (proportional set size), at {data[0]['rate']:,} events/s.",
    ]


def _demo(data: Sequence[Mapping[str, Any]]) -> list[str]:
    seconds, cpu = ([each[name] for each in data if name in each] for name in ("seconds", "cpu"))
    return [
        *table(
            ["events", "whole command, s", "CPU s"],
            [[f"{data[0]['events']:,}", spread(seconds, 1), spread(cpu, 1)]],
            left=0,
        ),
        "",
        "- `examples/shop_demo.py`: broker, generator, `ods-dwd`, `dws-traffic` and the audit. CPU: processor time of "
        "all its processes.",
    ]


def _extrapolation(scaling: Sequence[Mapping[str, Any]], cpu: Sequence[Mapping[str, Any]]) -> list[str]:
    per_slot = [
        each["warm"] / SLOTS[each["master"]]
        for each in scaling
        if each["side"] == ARROW and "[1]" not in each["master"]
    ]
    sustained = [each["cpu_us"] for each in cpu if each["side"] == ARROW and each["sustained"]]
    if not sustained:
        return []
    spark_us = statistics.median(sum(each[name] for name in SPARK) for each in sustained)
    slot_rate = statistics.median(per_slot) if per_slot else 1e6 / spark_us
    broker_us = statistics.median(each[BROKER] for each in sustained)
    source = "measured above" if per_slot else f"from {spark_us:.1f} µs of processor time of Spark and its workers"
    rows = []
    for name, per_day in PER_DAY.items():
        peak, slots, cores = needed(per_day, slot_rate, broker_us)
        state = peak * WINDOW_SECONDS * STATE_BYTES / 1e9
        cells = [f"{per_day / 86_400:,.0f}", f"{peak:,.0f}", f"{slots:,}", f"{cores:,}"]
        rows.append([name, *cells, f"{peak * EVENT_KB / 1000:,.0f}", f"{state:,.1f}"])
    return [
        "### Extrapolation",
        "",
        *table(
            ["events a day", "average/s", "peak/s", "task slots", "broker cores", "input MB/s", "state, at most GB"],
            rows,
        ),
        "",
        f"- Not measured. {slot_rate:,.0f} events/s per slot ({source}) and {broker_us:.1f} µs of broker time per "
        f"event; peak {PEAK_FACTOR:g} times the average; slots and cores busy to {LOAD:.0%}. Each slot needs a "
        f"partition. State: {STATE_BYTES} bytes per event of {WINDOW_SECONDS // 60} minutes.",
    ]


_TITLES = {
    "rate": "Highest sustained rate",
    "latency": "From event to row",
    "start": "Cold start",
    "profile": "Cold start by phase",
    "cpu": "Processor time per event",
    "catchup": "Throughput with the start",
    "memory": "Memory",
    "demo": "make run",
    "scaling": "Task slots",
}
_SECTIONS: dict[str, Callable[[Any], list[str]]] = {
    "rate": _rate,
    "latency": _latency,
    "start": _start,
    "profile": _profile,
    "cpu": _cpu,
    "catchup": _catchup,
    "memory": _memory,
    "demo": _demo,
    "scaling": _scaling,
}
