"""`headrace doctor`: says in sentences what is wrong with a cluster, and how to repair it.

    headrace doctor --bootstrap-server localhost:9092

Works with every cluster that speaks Kafka's protocol, and changes nothing. Exit codes:

0  no problem, or only notes
1  the cluster could not be inspected
2  problems found
"""

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click

from headrace.cli.common.connection import Connection, connection_options
from headrace.cli.common.output import json_option, print_json, styled
from headrace.cli.common.tool import Tool
from headrace.cli.doctor.collect import Collector
from headrace.common.clock import SystemClock
from headrace.diagnosis.checks import CHECKS, run_checks
from headrace.diagnosis.snapshot import Finding, Limits, Severity, Snapshot, counted

_PROBLEMS_CODE = 2
_SHOWN_ITEMS = 8


@click.command(cls=Tool)
@connection_options
@click.option(
    "--check",
    "only",
    metavar="NAME",
    multiple=True,
    type=click.Choice(list(CHECKS)),
    help=f"Run only this check: {', '.join(CHECKS)}.",
)
@click.option("--skip", metavar="NAME", multiple=True, type=click.Choice(list(CHECKS)), help="Do not run this check.")
@click.option(
    "--max-lag-seconds",
    type=click.IntRange(min=1),
    default=300,
    show_default=True,
    metavar="S",
    help="A group lags if it has not read a record that is older.",
)
@click.option(
    "--max-clock-skew-ms",
    type=click.IntRange(min=0),
    default=1_000,
    show_default=True,
    metavar="MS",
    help="The allowed difference between a broker's clock and this machine's.",
)
@json_option
def doctor(
    connection: Connection,
    only: tuple[str, ...],
    skip: tuple[str, ...],
    max_lag_seconds: int,
    max_clock_skew_ms: int,
    as_json: bool,
) -> None:
    """Find what is wrong with a cluster, and how to repair it."""
    limits = Limits(max_lag_ms=max_lag_seconds * 1000, max_clock_skew_ms=max_clock_skew_ms)
    with connection.admin() as admin:
        snapshot = Collector(admin, SystemClock(), limits).collect()
    selected = [name for name in only or CHECKS if name not in skip]
    findings = run_checks(snapshot, limits, selected)
    if as_json:
        print_json(_document(snapshot, findings))
    else:
        _print(snapshot, findings)
    if any(finding.severity is not Severity.NOTE for finding in findings):
        sys.exit(_PROBLEMS_CODE)


def _document(snapshot: Snapshot, findings: Iterable[Finding]) -> dict[str, Any]:
    return {
        "cluster_id": snapshot.cluster.cluster_id,
        "controller": snapshot.cluster.controller_id,
        "brokers": sorted(snapshot.live),
        "topics": len(snapshot.topics),
        "partitions": sum(1 for _ in snapshot.partitions()),
        "groups": len(snapshot.groups),
        "findings": [
            {
                "check": finding.check,
                "severity": finding.severity.value,
                "problem": finding.problem,
                "fix": finding.fix,
                "items": list(finding.items),
            }
            for finding in findings
        ],
    }


def _print(snapshot: Snapshot, findings: Sequence[Finding]) -> None:
    colors = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}
    for finding in findings:
        heading = styled(f"{finding.severity.name:<8}", fg=colors[finding.severity], bold=True)
        click.echo(f"{heading} {finding.problem}")
        if finding.items:
            rest = len(finding.items) - _SHOWN_ITEMS
            more = f" and {rest:,} more (--json shows all)" if rest > 0 else ""
            click.echo(f"         {finding.check}: {', '.join(finding.items[:_SHOWN_ITEMS])}{more}")
        click.echo(f"         Fix: {finding.fix}")
    counts = [
        counted(sum(finding.severity is severity for finding in findings), severity.value)
        for severity in Severity
        if any(finding.severity is severity for finding in findings)
    ]
    inspected = ", ".join(
        (
            counted(len(snapshot.live), "broker"),
            counted(len(snapshot.topics), "topic"),
            counted(sum(1 for _ in snapshot.partitions()), "partition"),
            counted(len(snapshot.groups), "group"),
        )
    )
    click.echo(f"{', '.join(counts) if counts else 'No problems'} in {inspected}.")
