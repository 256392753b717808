"""Runs `headrace pipeline` and notes when the phases of its start begin.

    python -m bench.pipeline.start_profile FILE run NAME [options]

FILE gets a line of JSON per phase: its name, the seconds since this program began, and the processor time of driver,
JVM and Python workers up to then.
"""

import functools
import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.pipeline.processes import DRIVER, JVM, WORKERS, cpu_seconds, find_processes

IMPORTS, QUERY = "imports of the driver", "start of the query: offsets and plan, in Python planners"
BEFORE = {
    "headrace.cli.common.connection:Connection.check": "check of broker and topics",
    "pyspark.java_gateway:launch_gateway": "start of the JVM",
    "pyspark:SparkContext.__init__": "Spark context",
    "headrace.spark.sessions:let_streams_start_together": "list of data sources, in a Python planner",
    "headrace.pipelines.runner:Runner.start": "stream of the flow, in a Python planner",
    "headrace.pipelines.flow_query:FlowQuery.process_batch": "first batch: Python workers, tasks, transactions",
}
"""The functions whose first call begins a phase."""
AFTER = {
    "pyspark:SparkContext.__init__": "SQL session",
    "headrace.pipelines.runner:Runner.start": QUERY,
}
"""The functions whose first return begins a phase."""


class PhaseLog:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._began = time.monotonic()
        self._known: set[str] = set()

    def begin(self, phase: str) -> None:
        """Notes the first begin of a phase."""
        if phase in self._known:
            return
        self._known.add(phase)
        seconds = time.monotonic() - self._began
        processes = find_processes(os.getpid(), None, os.getpid())
        cpu = {name: cpu_seconds(processes[name]) for name in (DRIVER, JVM, WORKERS)}
        with self._file.open("a") as file:
            file.write(json.dumps({"phase": phase, "seconds": seconds, "cpu": cpu}) + "\n")

    def watch(self, function: str) -> None:
        """Replaces a function by one that notes the phases that it begins and ends."""
        module, _, path = function.partition(":")
        owner: Any = importlib.import_module(module)
        *parents, name = path.split(".")
        for parent in parents:
            owner = getattr(owner, parent)
        setattr(owner, name, self._watched(getattr(owner, name), function))

    def _watched(self, original: Callable[..., Any], function: str) -> Callable[..., Any]:
        @functools.wraps(original)
        def watched(*arguments: Any, **named: Any) -> Any:
            if function in BEFORE:
                self.begin(BEFORE[function])
            try:
                return original(*arguments, **named)
            finally:
                if function in AFTER:
                    self.begin(AFTER[function])

        return watched


def main() -> None:
    log = PhaseLog(Path(sys.argv[1]))
    log.begin(IMPORTS)
    for function in BEFORE:
        log.watch(function)
    from headrace.cli.pipelines.pipeline import pipeline

    pipeline(sys.argv[2:])


if __name__ == "__main__":
    main()
