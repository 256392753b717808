"""The report of a run, and the survivors that `explained.toml` explains.

    [[explained]]
    fingerprint = "0123456789"
    change = "storage/log.py, Log.append: a < b -> a <= b"
    reason = "equal values cannot occur: the caller checks that"

An entry whose mutation no longer exists, because the code changed, is reported and should be deleted.
"""

import tomllib
from collections import Counter
from pathlib import Path

from tools.mutants.mutations import diff_of
from tools.mutants.runner import Outcome, Result

__all__ = ["read_explained", "summary", "write_report"]


def read_explained(path: Path) -> dict[str, str]:
    """Returns the reason of each explained mutation by its fingerprint."""
    entries = tomllib.loads(path.read_text()).get("explained", [])
    reasons: dict[str, str] = {}
    for entry in entries:
        missing = {"fingerprint", "change", "reason"} - entry.keys()
        if missing:
            raise ValueError(f"{path}: an entry has no {', '.join(sorted(missing))}: {entry}")
        if entry["fingerprint"] in reasons:
            raise ValueError(f"{path}: fingerprint {entry['fingerprint']} occurs twice")
        reasons[entry["fingerprint"]] = entry["reason"]
    return reasons


def unexplained(results: list[Result], explained: dict[str, str]) -> list[Result]:
    return [result for result in results if result.outcome.is_survivor and result.mutation.fingerprint not in explained]


def summary(results: list[Result], explained: dict[str, str]) -> str:
    """Returns one line with the numbers of a run."""
    survivors = [result for result in results if result.outcome.is_survivor]
    left = unexplained(results, explained)
    timeouts = sum(result.outcome is Outcome.TIMEOUT for result in results)
    return (
        f"{len(results)} mutants: {len(results) - len(survivors)} detected ({timeouts} by a timeout), "
        f"{len(survivors) - len(left)} explained, {len(left)} survived"
    )


def write_report(
    path: Path, results: list[Result], sources: dict[str, str], explained: dict[str, str], command: str
) -> None:
    """Writes the report as Markdown: numbers by module, then each survivor as a diff."""
    lines = ["# Mutants", "", f"{summary(results, explained)}.", "", f"Repeat with `{command}`.", ""]
    lines += _table(results, explained)
    left = unexplained(results, explained)
    lines += ["", "## Survivors without explanation", ""] + ([] if left else ["None.", ""])
    for result in left:
        lines += _section(result, sources)
    known = [each for each in results if each.outcome.is_survivor and each not in left]
    if known:
        lines += ["## Explained survivors", ""]
    for result in known:
        lines += [*_section(result, sources), explained[result.mutation.fingerprint], ""]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines))


def _table(results: list[Result], explained: dict[str, str]) -> list[str]:
    lines = ["| module | mutants | detected | explained | survived |", "|---|---|---|---|---|"]
    counts: dict[str, Counter[str]] = {}
    for result in results:
        counter = counts.setdefault(result.mutation.path, Counter())
        counter["all"] += 1
        if not result.outcome.is_survivor:
            counter["detected"] += 1
        elif result.mutation.fingerprint in explained:
            counter["explained"] += 1
        else:
            counter["survived"] += 1
    for module, counter in sorted(counts.items()):
        row = [module, *(str(counter[key]) for key in ("all", "detected", "explained", "survived"))]
        lines.append(f"| {' | '.join(row)} |")
    return lines


def _section(result: Result, sources: dict[str, str]) -> list[str]:
    mutation = result.mutation
    if result.outcome is Outcome.UNTESTED:
        tests = "no test calls this function"
    else:
        tests = f"{result.tests_run} tests passed"
        if result.tests_left_out:
            tests += f", {result.tests_left_out} were left out to save time"
    return [
        f"### src/headrace/{mutation.path}:{mutation.line} {mutation.function}",
        "",
        f"{mutation.fingerprint}: {mutation.kind}; {tests}",
        "",
        "```diff",
        diff_of(mutation, sources[mutation.path]),
        "```",
        "",
    ]
