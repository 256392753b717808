"""Runs the attacks on both brokers and writes the table."""

import json
import os
import platform
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from tests.support.apache_kafka.broker import KafkaUnavailable

from bench.broker_sides import Headrace, Kafka, Side
from bench.harness import RESULTS
from bench.hostile.attack import Attack, Row
from bench.hostile.attacks import ATTACKS

NAME = "hostile"
NOTES = [
    "A well-behaved client produces one record with acks=1 every 10 ms. p50, p99 and max are its latencies during the "
    "attack, from the moment when the record was due.",
    "lag: the longest wait for the response to an ApiVersions request; another connection sends one every 20 ms.",
    "memory: resident set of the broker before the attack, and its peak. Apache Kafka has a heap of 1 GB from its "
    "start.",
]
HEADER = [
    "| attack | broker | p50 ms | p99 ms | max ms | lag ms | failed | memory MB | peak MB | outcome | missed |",
    "|---|---|---:|---:|---:|---:|---:|---:|---:|---|---|",
]


def run(directory: Path, *, quick: bool = False, only: str = "", attacks: Sequence[Attack] = ATTACKS) -> list[Row]:
    """Runs the attacks whose name contains `only`, prints the table, and writes the results."""
    chosen = [attack for attack in attacks if only in attack.name]
    if not chosen:
        raise SystemExit(f"no attack has {only!r} in its name; there are: {', '.join(each.name for each in attacks)}")
    rows: list[Row] = []
    for number, attack in enumerate(chosen):
        attack.quick = quick
        for kind in (Headrace, Kafka) if attack.peer and not quick else (Headrace,):
            try:
                rows += _measure(attack, kind, directory / str(number))
            except KafkaUnavailable as reason:
                print(f"{attack.name}: Apache Kafka is not available: {reason}", file=sys.stderr)
        if not quick:
            _write(rows, attacks)
    print("\n".join([*HEADER, *map(line_of, rows)]))
    return rows


def _measure(attack: Attack, kind: type[Side], directory: Path) -> Iterator[Row]:
    directory = directory / kind.__name__
    directory.mkdir(parents=True)
    for row in attack.rows(kind, directory):
        print(line_of(row), file=sys.stderr, flush=True)
        yield row
    shutil.rmtree(directory)


def line_of(row: Row) -> str:
    """Returns a line of the table."""
    latencies = [_number(value, 1) for value in (row.p50_ms, row.p99_ms, row.max_ms, row.lag_ms)]
    counts = [_number(value, 0) for value in (row.failures, row.memory_before_mb, row.memory_peak_mb)]
    return "| " + " | ".join([row.attack, row.side, *latencies, *counts, row.outcome, row.missed]) + " |"


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


def _write(rows: list[Row], attacks: Sequence[Attack]) -> None:
    """Writes the rows. Those of attacks that were not run stay."""
    data, table = RESULTS / f"{NAME}.json", RESULTS / f"{NAME}.md"
    earlier = [Row(**each) for each in json.loads(data.read_text())] if data.exists() else []
    known = {(row.attack, row.side): row for row in [*earlier, *rows]}
    order = [name for attack in attacks for name in attack.row_names()]
    kept = sorted((row for row in known.values() if row.attack in order), key=lambda row: order.index(row.attack))
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}, {platform.system()} {platform.machine()}."
    lines = [f"# {NAME}", "", machine, "", *HEADER, *map(line_of, kept), "", *(f"- {note}" for note in NOTES)]
    table.write_text("\n".join(lines) + "\n")
    data.write_text(json.dumps([asdict(row) for row in kept], indent=1) + "\n")
