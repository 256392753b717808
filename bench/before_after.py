"""Compares two checkouts of Headrace: `python -m bench.before_after ../before records protocol clients broker`.

Each round runs the same benchmarks in both checkouts, one after the other, and the order alternates. Every benchmark
also measures a peer that is the same in both checkouts, so the noise of the machine is divided out: the change of a
case is its ratio (Headrace's value over the peer's) after, divided by its ratio before. The table shows the median over
the rounds and the range. Both checkouts need a virtual environment in `.venv` (`make check` creates it).
"""

import argparse
import re
import statistics
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from bench.harness import RESULTS

_LINE = re.compile(
    r"^(?P<name>\S.*?) +(?P<ours>[\d.]+) vs +(?P<theirs>[\d.]+) (?P<unit>\S.*?) +ratio +(?P<ratio>[\d.]+) \["
    r".*target (?P<goal>[≤≥])"
)
_NOISE = 0.1
"""Changes smaller than this fraction count as noise."""
_ROUNDS = {"records": 7, "protocol": 7, "log": 5}
"""Rounds within one run of a benchmark. The other benchmarks are long and run one round."""


def measure(checkout: Path, which: list[str]) -> dict[str, tuple[float, bool]]:
    """Runs benchmarks in a checkout. Returns the ratio to the peer for each case, and whether lower is better."""
    found: dict[str, tuple[float, bool]] = {}
    for name in which:
        found |= _measure(checkout, name)
    return found


def _measure(checkout: Path, name: str) -> dict[str, tuple[float, bool]]:
    rounds = str(_ROUNDS.get(name, 1))
    command = [str(checkout / ".venv/bin/python"), "-m", "bench", "--quick", "--rounds", rounds, name]
    done = subprocess.run(
        command, cwd=checkout, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}")
    found = {}
    for line in done.stdout.splitlines():
        if match := _LINE.match(line):
            found[match["name"]] = (float(match["ratio"]), match["goal"] == "≤")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.before_after", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("before", type=Path, help="checkout to compare with")
    parser.add_argument("which", nargs="+", help="benchmarks to run, as for python -m bench")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    before, after = arguments.before.resolve(), Path(__file__).parents[1]
    changes: dict[str, list[float]] = defaultdict(list)
    for number in range(arguments.rounds):
        results = {}
        for checkout in (before, after) if number % 2 == 0 else (after, before):
            print(f"round {number + 1} of {arguments.rounds}: {checkout.name}", file=sys.stderr, flush=True)
            results[checkout] = measure(checkout, arguments.which)
        for name, (ratio, lower_is_better) in results[after].items():
            if name in results[before] and results[before][name][0] and ratio:
                change = ratio / results[before][name][0]
                changes[name].append(1 / change if lower_is_better else change)
    lines = [
        "# before and after",
        "",
        f"{arguments.rounds} rounds of {', '.join(arguments.which)} in two checkouts, in alternating order. Above 1 "
        "is better than before. Both checkouts also measure the same peer, which divides out the machine's noise.",
        "",
        "| case | change | range | |",
        "|---|---:|---|---|",
    ]
    for name, values in changes.items():
        median = statistics.median(values)
        mark = "slower" if median < 1 - _NOISE else "faster" if median > 1 + _NOISE else ""
        lines.append(f"| {name} | {median:.2f} | {min(values):.2f} to {max(values):.2f} | {mark} |")
    overall = statistics.geometric_mean(statistics.median(values) for values in changes.values())
    lines += ["", f"Geometric mean over {len(changes)} cases: {overall:.2f}."]
    (RESULTS / "before-after.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
