"""Runs the benchmarks and writes their results."""

import argparse
import tempfile
from pathlib import Path

from bench import log, records
from bench.harness import write_results


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure Headrace beside its peers.")
    parser.add_argument("which", nargs="*", choices=["records", "log", []], help="what to measure (default: all)")
    parser.add_argument("--rounds", type=int, default=11, help="alternating rounds of each comparison (default: 11)")
    parser.add_argument("--directory", type=Path, help="where to put data (default: beside the project, on its disk)")
    arguments = parser.parse_args()
    which = arguments.which or ["records", "log"]
    if "records" in which:
        write_results("records", records.run(arguments.rounds), [])
    if "log" in which:
        root = arguments.directory or Path(".bench-data")
        root.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=root) as directory:
            write_results("log", *log.run(Path(directory), arguments.rounds))


if __name__ == "__main__":
    main()
