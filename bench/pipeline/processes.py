"""The processes of a run by component, and their processor time and memory, from /proc.

The processor time of a process includes that of its children that have ended, so workers that come and go count.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from bench.broker_sides import TICKS_PER_SECOND

BROKER, GENERATOR, DRIVER, JVM, WORKERS, BENCH = (
    "broker",
    "generator",
    "driver",
    "Spark JVM",
    "Python workers",
    "measuring",
)
COMPONENTS = (BROKER, GENERATOR, DRIVER, JVM, WORKERS)
_JAVA = "java"


def find_processes(broker: int, generator: int | None, driver: int) -> dict[str, list[int]]:
    """Returns the process ids of each component. Processes below Spark's JVM are Python workers and their daemons."""
    children: dict[int, list[int]] = {}
    names: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                name, _, fields = (entry / "stat").read_text().rpartition(")")
            except OSError:  # the process has ended
                continue
            names[int(entry.name)] = name.partition("(")[2]
            children.setdefault(int(fields.split()[1]), []).append(int(entry.name))
    found: dict[str, list[int]] = {DRIVER: [], JVM: [], WORKERS: []}
    pending = [(driver, DRIVER)]
    while pending:
        pid, component = pending.pop()
        if names.get(pid) == _JAVA:
            component = JVM
        elif component == JVM:
            component = WORKERS
        found[component].append(pid)
        pending += [(child, component) for child in children.get(pid, ())]
    found[BROKER] = _tree(broker, children)
    found[GENERATOR] = [] if generator is None else _tree(generator, children)
    return found


def _tree(pid: int, children: dict[int, list[int]]) -> list[int]:
    found = [pid]
    for each in found:
        found += children.get(each, ())
    return found


def cpu_seconds(pids: Iterable[int]) -> float:
    """Returns the processor time of processes and of their ended children."""
    total = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:  # the process has ended
            continue
        total += sum(map(int, fields[11:15]))
    return total / TICKS_PER_SECOND


class TreeCpu:
    """The processor time of a process and all its descendants, also of those that have ended, as far as samples saw
    them."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._ticks: dict[int, int] = {}

    def sample(self) -> None:
        children: dict[int, list[int]] = {}
        ticks: dict[int, int] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                except OSError:  # the process has ended
                    continue
                children.setdefault(int(fields[1]), []).append(int(entry.name))
                ticks[int(entry.name)] = int(fields[11]) + int(fields[12])
        self._ticks |= {pid: ticks[pid] for pid in _tree(self._pid, children) if pid in ticks}

    @property
    def seconds(self) -> float:
        return sum(self._ticks.values()) / TICKS_PER_SECOND


def cpu_by_component(processes: dict[str, list[int]]) -> dict[str, float]:
    """Returns the processor time of each component, and of this process."""
    own = os.times()
    return {BENCH: own.user + own.system, **{name: cpu_seconds(pids) for name, pids in processes.items()}}


def machine_cpu_seconds() -> float:
    """Returns the time that all processors were busy since the machine started."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(
        int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    )
    return (user + nice + system + irq + softirq + steal) / TICKS_PER_SECOND


def memory_mb(pids: Iterable[int]) -> tuple[float, float]:
    """Returns the resident and the proportional set size. The latter counts pages that processes share once."""
    rss = pss = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:  # the process has ended
            continue
        for line in lines:
            if line.startswith("Rss:"):
                rss += int(line.split()[1])
            elif line.startswith("Pss:"):
                pss += int(line.split()[1])
    return rss * 1024 / 1e6, pss * 1024 / 1e6


def disk_mb(directory: Path) -> float:
    """Returns the size of all files below a directory, which may change meanwhile."""
    total = 0
    for path, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.stat(os.path.join(path, name)).st_size
            except OSError:  # the file was deleted
                continue
    return total / 1e6
