"""`python -m tools.mutants`: a reproducible mutation run over the critical modules.

    make mutants                            a sample of 200 mutants
    make mutants SAMPLE=0                   all mutants (days)
    make mutants MODULES='storage/*.py'     of some modules
    make mutants SEED=7                     another sample
    python -m tools.mutants --again         the survivors of the last run, after new tests

Exits with 1 if a mutant survived that `explained.toml` does not explain. Compiled modules (.pyx) are left out: each
mutant would need a build of about a minute. Parity tests against slow references, fuzzers and sanitizers check them.
"""

import argparse
import fnmatch
import hashlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from tools.mutants.mutations import Mutation, find_mutations
from tools.mutants.report import read_explained, summary, unexplained, write_report
from tools.mutants.runner import Result, Runner, copy_tree
from tools.mutants.test_map import measure

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
BUILD = ROOT / "build"
LAST_RUN = BUILD / "mutants" / "survivors.json"

CRITICAL_MODULES = (
    "storage/*.py",
    "records/*.py",
    "coordinator/*.py",
    "client/producer/*.py",
    "client/consumer/*.py",
    "client/group/*.py",
    "broker/partition.py",
    "broker/replica_manager.py",
    "broker/delayed_produce.py",
    "broker/fetching.py",
    "broker/fetch_sessions.py",
    "broker/purgatory.py",
    "broker/transactions.py",
    "broker/handlers/fetch.py",
    "broker/handlers/produce.py",
    "cluster/leader_election.py",
    "cluster/partition_state_machine.py",
    "cluster/replica_state_machine.py",
)
"""Patterns below src/headrace; `*` also matches directories."""
LEFT_OUT = ("*/__init__.py", "*/config.py")


def main() -> int:
    options = _parse()
    explained = read_explained(HERE / "explained.toml")
    BUILD.joinpath("mutants").mkdir(parents=True, exist_ok=True)
    tree = Path(tempfile.mkdtemp(prefix="tree-", dir=BUILD / "mutants"))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        copy_tree(ROOT, tree)
        environment = _environment(tree)
        sources = read_sources(tree / "src" / "headrace", options.modules)
        mutations = [each for path, source in sources.items() for each in find_mutations(path, source)]
        chosen = _choose(mutations, options)
        _print(f"{len(mutations)} mutants in {len(sources)} modules; running {len(chosen)} with seed {options.seed}")
        cache = BUILD / "mutants" / "tests"
        test_map = measure(tree, cache, options.workers, options.refresh, _print, environment)
        runner = Runner(tree, test_map, environment)
        results = _run_all(runner, chosen, options.workers, explained)
    finally:
        shutil.rmtree(tree, ignore_errors=True)
    command = f"make mutants SEED={options.seed} SAMPLE={options.sample} MODULES='{' '.join(options.modules)}'"
    write_report(BUILD / "mutants.md", results, sources, explained, command)
    LAST_RUN.write_text(json.dumps([each.mutation.fingerprint for each in results if each.outcome.is_survivor]))
    for entry in sorted(stale_entries(explained, mutations, options.modules)):
        _print(f"explained.toml: mutation {entry} no longer exists; delete the entry")
    _print(f"{summary(results, explained)}; report: {BUILD / 'mutants.md'}")
    return 1 if unexplained(results, explained) else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tools.mutants", description="Reports changes that no test detects."
    )
    parser.add_argument("modules", nargs="*", help="patterns below src/headrace; default: the critical modules")
    parser.add_argument("--seed", default="1", help="chooses the sample")
    parser.add_argument("--sample", type=int, default=200, help="number of mutants, 0 for all")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--only", nargs="+", metavar="FINGERPRINT", help="run these mutants only")
    parser.add_argument("--again", action="store_true", help="run the survivors of the last run only")
    parser.add_argument("--refresh", action="store_true", help="measure again which functions the tests call")
    options = parser.parse_args()
    options.modules = options.modules or list(CRITICAL_MODULES)
    if options.again:
        options.only = json.loads(LAST_RUN.read_text())
    return options


def _environment(tree: Path) -> dict[str, str]:
    paths = [HERE / "overlay", tree / "src", tree]
    return {"PYTHONPATH": os.pathsep.join(map(str, paths)), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}


def read_sources(package: Path, patterns: list[str]) -> dict[str, str]:
    """Returns the sources of the modules that match, by their path below the package."""
    paths = sorted(path.relative_to(package).as_posix() for path in package.rglob("*.py"))
    return {
        path: (package / path).read_text()
        for path in paths
        if any(fnmatch.fnmatch(path, pattern) for pattern in patterns)
        and not any(fnmatch.fnmatch(path, pattern) for pattern in LEFT_OUT)
    }


def _choose(mutations: list[Mutation], options: argparse.Namespace) -> list[Mutation]:
    if options.only is not None:
        return [mutation for mutation in mutations if mutation.fingerprint in options.only]
    return sample(mutations, options.seed, options.sample)


def sample(mutations: list[Mutation], seed: str, count: int) -> list[Mutation]:
    """Returns a sample that depends on the seed and the fingerprints only: a change of one module does not replace the
    sampled mutants of another."""

    def order(mutation: Mutation) -> str:
        return hashlib.sha256(f"{seed} {mutation.fingerprint}".encode()).hexdigest()

    ordered = sorted(mutations, key=order)
    return ordered[:count] if count else ordered


def stale_entries(explained: dict[str, str], mutations: list[Mutation], patterns: list[str]) -> set[str]:
    """Returns the explained fingerprints without a mutation. Unknown if the run has only some of the modules."""
    if tuple(patterns) != CRITICAL_MODULES:
        return set()
    return explained.keys() - {mutation.fingerprint for mutation in mutations}


def _run_all(runner: Runner, mutations: list[Mutation], workers: int, explained: dict[str, str]) -> list[Result]:
    results: list[Result] = []
    start = time.monotonic()
    pool = ThreadPoolExecutor(workers)
    try:
        futures = [pool.submit(runner.run, mutation) for mutation in mutations]
        for future in as_completed(futures):
            result = future.result()
            results.append(result)
            _print(_progress(result, len(results), len(mutations), time.monotonic() - start, explained))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        runner.stop()
        pool.shutdown(wait=True)
    return sorted(results, key=lambda result: (result.mutation.path, result.mutation.line))


def _progress(result: Result, number: int, total: int, seconds: float, explained: dict[str, str]) -> str:
    mutation = result.mutation
    outcome = "explained" if mutation.fingerprint in explained else result.outcome.value
    detail = f" by {result.detected_by}" if result.detected_by else f" {result.tests_run} tests"
    change = f"{mutation.before} -> {mutation.after}"
    if not result.outcome.is_survivor:
        outcome = result.outcome.value
    return (
        f"{number}/{total} {seconds:.0f}s {outcome}: {mutation.path}:{mutation.line} {mutation.function} "
        f"[{mutation.fingerprint}] {mutation.kind}: {change}{detail}"
    )


def _print(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
