"""Runs seeds of the simulation: `python -m headrace.testing.simulation --seed 17`, or `--seeds 0 100`.

Runs itself again with PYTHONHASHSEED=0, because sets of strings would differ between runs. Prints the trace of a failed
run, and exits with 1.
"""

import argparse
import os
import sys
import traceback
from collections import Counter

from headrace.testing.simulation.seeds import run_seed

_TRACE_LINES = 150


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m headrace.testing.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="run one seed and print its trace")
    parser.add_argument("--seeds", type=int, nargs=2, metavar=("FIRST", "COUNT"), help="run several seeds")
    parser.add_argument("--replication-factor", type=int, default=3)
    parser.add_argument("--brokers", type=int, help="the number of brokers; decided by the seed by default")
    parser.add_argument("--move-log-dirs", action="store_true", help="move replicas between log directories, too")
    parser.add_argument("--keep-going", action="store_true", help="run all seeds, and list those that fail")
    options = parser.parse_args()
    first, count = (options.seed, 1) if options.seed is not None else options.seeds or (0, 50)
    failed: list[int] = []
    injected: Counter[str] = Counter()
    acknowledged = read = 0
    for seed in range(first, first + count):
        try:
            outcome = run_seed(seed, options.replication_factor, options.brokers, moves_log_dirs=options.move_log_dirs)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            failed.append(seed)
            trace = getattr(error, "trace", [])
            if options.keep_going:
                print(f"seed {seed} failed: {error!r}", flush=True)
                continue
            print("\n".join(trace if options.seed is not None else trace[-_TRACE_LINES:]))
            traceback.print_exception(error)
            print(f"seed {seed} failed: {error}\nRun it again: python -m headrace.testing.simulation --seed {seed}")
            return 1
        injected.update(outcome.faults)
        acknowledged, read = acknowledged + outcome.acknowledged, read + outcome.read
        if options.seed is not None:
            print("\n".join(outcome.trace))
        print(
            f"seed {seed}: {outcome.acknowledged} acknowledged, {outcome.read} read, {outcome.transactions} "
            f"transactions, {outcome.truncations} truncations, {outcome.virtual_seconds:.0f} s, "
            f"{outcome.callbacks} callbacks, faults {outcome.faults}, failed calls {outcome.failures}",
            flush=True,
        )
    if options.seed is None:
        kinds = ", ".join(f"{number} {kind}" for kind, number in sorted(injected.items()))
        print(
            f"{count:,} seeds, {sum(injected.values()):,} faults ({kinds}), {acknowledged:,} records acknowledged, "
            f"{read:,} read"
        )
    if failed:
        print(f"failed seeds: {failed}")
    return bool(failed)


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        os.execve(sys.executable, [sys.executable, "-m", "headrace.testing.simulation", *sys.argv[1:]], environment)
    sys.exit(main())
