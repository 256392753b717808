"""The memory of Spark's Python workers that keep the state of `ods-dwd`, over a simulated hour, without Spark.

    python -m bench.state_memory [--rate 20000] [--minutes 60]

Two processes take turns with the source partitions, as Spark's workers do. Each task adds a second of events with new
ids to the state of its partition, saves it in a checkpoint and keeps it in the process. Runs with glibc's default
limit for large blocks, and with the limit that Spark's daemon sets. The results replace
bench/results/state-memory.md.
"""

import argparse
import ctypes
import multiprocessing
import os
import platform
import random
import tempfile
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection

from bench.harness import RESULTS
from bench.pipeline.processes import memory_mb
from bench.pipeline.report import table
from headrace.pipelines import state_cache
from headrace.pipelines.state_cache import StateStore
from headrace.shop.event_history import EventHistory
from headrace.spark.allocator import fix_large_block_limit

PARTITIONS = 4
WORKERS = 2
WINDOW_MS = 600_000
SAMPLE_MINUTES = 5
FIRST_MS = 1_800_000_000_000


class _MallocInfo(ctypes.Structure):
    """`struct mallinfo2` of glibc."""

    _names = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
    _fields_ = [(name, ctypes.c_size_t) for name in _names]


@dataclass
class Sample:
    """The memory of all workers in MB."""

    minute: float
    pss: float
    states: float
    """The hash tables of all states."""
    free: float
    """Free space in the heap, which the process keeps."""


def _work(connection: Connection, directory: str, is_limited: bool) -> None:
    if is_limited:
        fix_large_block_limit()
    libc = ctypes.CDLL(None)
    libc.mallinfo2.restype = _MallocInfo
    while (task := connection.recv()) is not None:
        if task == "sample":
            states = sum(held.state.size_bytes for held in state_cache._cache.values())
            connection.send((memory_mb([os.getpid()])[1], states / 1e6, libc.mallinfo2().fordblks / 1e6))
        else:
            connection.send(_run_task(directory, *task))


def _run_task(directory: str, batch: int, partition: int, events: int) -> None:
    store = StateStore(directory, "query", "ods", partition, lambda: EventHistory(WINDOW_MS))
    held = store.take(batch)
    begin = FIRST_MS + batch * 1000
    generations = held.state.advance(array("q", [begin + 1000 * number // events for number in range(events)]))
    held.state.mark(os.urandom(8 * events), os.urandom(8 * events), generations)
    store.save(held, batch, is_merged=False)
    store.keep(held, batch)


def measure(directory: str, rate: int, minutes: int, *, is_limited: bool) -> Iterator[Sample]:
    chance = random.Random(1)
    connections = []
    for _ in range(WORKERS):
        connection, other = multiprocessing.Pipe()
        multiprocessing.Process(target=_work, args=(other, directory, is_limited), daemon=True).start()
        connections.append(connection)
    for batch in range(minutes * 60):
        order = chance.sample(range(PARTITIONS), PARTITIONS)
        for first in range(0, PARTITIONS, WORKERS):
            for connection, partition in zip(connections, order[first:], strict=False):
                connection.send((batch, partition, rate // PARTITIONS))
            for connection in connections:
                connection.recv()
        if (batch + 1) % (SAMPLE_MINUTES * 60) == 0:
            for connection in connections:
                connection.send("sample")
            yield Sample((batch + 1) / 60, *map(sum, zip(*(each.recv() for each in connections), strict=True)))
    for connection in connections:
        connection.send(None)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rate", type=int, default=20_000, help="events per second (default: %(default)s)")
    parser.add_argument("--minutes", type=int, default=60, help="simulated time (default: %(default)s)")
    arguments = parser.parse_args()
    runs = []
    for is_limited in (False, True):
        with tempfile.TemporaryDirectory(prefix="headrace-state-") as directory:
            runs.append([*measure(directory, arguments.rate, arguments.minutes, is_limited=is_limited)])
    rows = []
    for default, limited in zip(*runs, strict=True):
        values = [value for each in (default, limited) for value in (each.states, each.free, each.pss)]
        rows.append([f"{default.minute:.0f}", *(f"{value:,.0f}" for value in values)])
    header = ["minute", "states", "free in the heap", "PSS", "states, limit", "free in the heap, limit", "PSS, limit"]
    lines = [
        "# state-memory",
        "",
        f"`python -m bench.state_memory`: {WORKERS} processes with the states of {PARTITIONS} partitions of `ods-dwd`, "
        f"at {arguments.rate:,} events/s of simulated time. MB, sums of the processes. "
        f"Python {platform.python_version()}, {' '.join(platform.libc_ver())}.",
        "",
        *table(header, rows),
        "",
        "- Each process keeps a copy of every partition that it has processed. States are full after 12.5 minutes: the "
        "deduplication window and a quarter of it.",
        "- limit: blocks of at least 4 MB are returned to the system when they are freed (`headrace.spark.allocator`).",
    ]
    (RESULTS / "state-memory.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
