"""`headrace pipeline`: runs, lists and describes pipelines.

Imports and starts Spark only when needed. Progress goes to standard error, results to standard output. The first
SIGINT or SIGTERM completes the current batch and exits with 0. A second one ends the process at once, and the next run
replays the batch. An error prints one line and exits with 1. A wrong command line exits with 2.
"""

import importlib
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

import click

from headrace.cli.common.connection import Connection
from headrace.common.errors import HeadraceError
from headrace.common.extras import requires_extra
from headrace.common.properties import read_properties
from headrace.pipelines.built_in import BUILT_IN_PIPELINES
from headrace.pipelines.loading import load_pipeline
from headrace.pipelines.pipeline import Pipeline, PipelineError, Table, Topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.pipelines.progress import Progress, Summary
    from headrace.pipelines.run_settings import RunSettings
    from headrace.pipelines.runner import Runner

_LAZY_COMMANDS = {
    "audit": ("headrace.cli.pipelines.audit:audit", "Reconcile a pipeline's inputs, outputs and dead letters.")
}
"""Commands in other modules, imported on use."""


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *_LAZY_COMMANDS])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _LAZY_COMMANDS:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = _LAZY_COMMANDS[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        own = {name: command.get_short_help_str(80) for name, command in self.commands.items()}
        lazy = {name: summary for name, (_, summary) in _LAZY_COMMANDS.items()}
        with formatter.section("Commands"):
            formatter.write_dl(sorted({**own, **lazy}.items()))


@click.group(cls=_Commands, no_args_is_help=True)
def pipeline() -> None:
    """Run streaming pipelines on Spark."""


@pipeline.command("list")
def list_pipelines() -> None:
    """List the pipelines that come with Headrace."""
    width = max(map(len, BUILT_IN_PIPELINES))
    for name, built_in in BUILT_IN_PIPELINES.items():
        click.echo(f"{name:{width}}  {built_in.summary}")


@pipeline.command()
@click.argument("name")
def describe(name: str) -> None:
    """Describe a pipeline: sources, outputs and settings.

    NAME is a pipeline of the list, or a Python file: mine.py, or mine.py:orders if it has several.
    """
    with _errors_in_one_line():
        loaded = _load(name)
        click.echo("\n".join(description(loaded)))


def description(definition: Pipeline) -> list[str]:
    """Returns a pipeline's description as lines."""
    lines = [definition.name]
    lines += [f"  {line}".rstrip() for line in definition.description.splitlines()]
    for flow in definition.flows:
        lines += [
            "",
            f"flow {flow.name}",
            *_table([(name, _source_text(topic)) for name, topic in flow.sources.items()]),
        ]
    places = [
        (output, _place_text(place)) for output, output_places in definition.outputs.items() for place in output_places
    ]
    lines += ["", "outputs", *_table(places)]
    if definition.settings:
        settings = [
            (f"{name}={_setting_text(value)}", type(value).__name__) for name, value in definition.settings.items()
        ]
        lines += ["", "settings (--set)", *_table(settings)]
    return lines


def _table(rows: list[tuple[str, str]]) -> list[str]:
    width = max(len(name) for name, _ in rows)
    return [f"  {name:{width}}  {text}".rstrip() for name, text in rows]


def _source_text(topic: Topic) -> str:
    return f"topic {topic.name}" if topic.pattern is None else f"topics matching {topic.pattern}"


def _place_text(place: Topic | Table) -> str:
    if isinstance(place, Table):
        return f"table {place.name}, by day and hour of {place.time}"
    if place.name is None:
        return "topics that the rows name"
    return f"topic {place.name}" + (f", created with {place.partitions} partitions" if place.partitions else "")


def _setting_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def key_values(_context: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    """Parses repeated KEY=VALUE options."""
    values = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(f"{text!r}: expected KEY=VALUE", param=option)
        values[key.strip()] = value.strip()
    return values


@pipeline.command()
@click.argument("name")
@click.option("--bootstrap-server", required=True, metavar="HOST:PORT", help="The brokers to bootstrap from.")
@click.option(
    "--checkpoint", required=True, metavar="DIR", help="The checkpoint directory; a new one starts from the beginning."
)
@click.option(
    "--master",
    default="local[*]",
    show_default=True,
    metavar="URL",
    help="The Spark master: local[*], spark://host:7077.",
)
@click.option("--warehouse", metavar="DIR", help="The directory for tables; required if the pipeline writes any.")
@click.option("--available-now", is_flag=True, help="Process the records that exist now, then exit.")
@click.option("--trigger", metavar="INTERVAL", help="Minimum time between batches, such as '10 seconds'.")
@click.option(
    "--max-rows",
    type=click.IntRange(min=1),
    default=200_000,
    show_default=True,
    help="Maximum rows per source and batch.",
)
@click.option("--starting-offsets", metavar="OFFSETS", help="For a new checkpoint: earliest (the default) or latest.")
@click.option(
    "--set", "settings", multiple=True, callback=key_values, metavar="KEY=VALUE", help="A setting of the pipeline."
)
@click.option("--conf", multiple=True, callback=key_values, metavar="KEY=VALUE", help="A Spark config.")
@click.option("--command-config", metavar="FILE", help="A property file with client configs.")
@click.option("--metrics", metavar="FILE", help="Append a JSON line per batch to FILE.")
@click.option("--no-status", is_flag=True, help="Do not publish the status of the flows for the console.")
@click.option("--quiet", is_flag=True, help="Do not show progress.")
@click.option(
    "--log-level",
    type=click.Choice(["ERROR", "WARN", "INFO", "DEBUG", "OFF"], case_sensitive=False),
    default="OFF",
    show_default=True,
    help="The level of Spark's log.",
)
def run(
    name: str,
    bootstrap_server: str,
    checkpoint: str,
    master: str,
    warehouse: str | None,
    available_now: bool,
    trigger: str | None,
    max_rows: int,
    starting_offsets: str | None,
    settings: dict[str, str],
    conf: dict[str, str],
    command_config: str | None,
    metrics: str | None,
    no_status: bool,
    quiet: bool,
    log_level: str,
) -> None:
    """Run a pipeline until it is stopped.

    NAME is a built-in pipeline, or a Python file: mine.py, or mine.py:orders if it has several.
    """
    with _errors_in_one_line():
        with requires_extra("spark"):
            import pyspark  # noqa: F401 - report a missing PySpark before topics are created
        definition = _load(name)
        from headrace.pipelines.run_settings import RunSettings, check_run
        from headrace.pipelines.sessions import quiet_session
        from headrace.pipelines.topics import prepare_topics

        run_settings = RunSettings(
            bootstrap_servers=bootstrap_server,
            checkpoint=checkpoint,
            warehouse=warehouse,
            available_now=available_now,
            trigger=trigger,
            max_rows_per_batch=max_rows,
            settings=settings,
            client=read_properties(command_config) if command_config else {},
            source_options={"startingOffsets": starting_offsets} if starting_offsets else {},
            publish_status=not no_status,
        )
        check_run(definition, run_settings)
        with _metrics_file(metrics) as lines:
            Connection(bootstrap_server, dict(run_settings.client)).check()  # fails before Spark starts, and quickly
            prepare_topics(definition, bootstrap_server, run_settings.client)
            spark = quiet_session(
                f"headrace {definition.name}",
                master,
                conf,
                log_level=log_level,
                processes_rows=processes_rows(definition),
            )
            try:
                _run(definition, spark, run_settings, lines, None if quiet else sys.stderr)
            finally:
                spark.stop()


def processes_rows(definition: Pipeline) -> bool:
    """Returns False if the JVM only schedules: the functions of Arrow flows run in Python workers."""
    return not all(hasattr(flow, "transform") for flow in definition.flows)


def _run(
    definition: Pipeline,
    spark: "SparkSession",
    run_settings: "RunSettings",
    metrics: IO[str] | None,
    terminal: IO[str] | None,
) -> None:
    from headrace.pipelines.progress import ProgressLine
    from headrace.pipelines.runner import Runner

    line = ProgressLine(terminal) if terminal is not None else None

    def report(progress: "Progress") -> None:
        if metrics is not None:
            metrics.write(progress.as_json() + "\n")
            metrics.flush()
        if line is not None:
            line.batch(progress)

    runner = Runner(definition, spark, run_settings, on_progress=report)
    _stop_on_signals(runner)
    try:
        summary = runner.run()
    finally:
        if line is not None:
            line.end()
    click.echo("\n".join(summary_lines(summary)))


def summary_lines(summary: "Summary") -> list[str]:
    """Returns a summary of a run as lines."""
    lines = [
        f"{summary.pipeline}: {summary.rows:,} rows read in {summary.seconds:,.1f} s"
        f" ({summary.rows_per_second:,.0f} rows/s while processing)"
    ]
    return lines + _table(
        [(name, f"{rows:>12,}") for name, rows in sorted(summary.outputs.items())] or [("nothing written", "")]
    )


def _load(name: str) -> Pipeline:
    with requires_extra("spark"):
        return load_pipeline(name)


def _stop_on_signals(runner: "Runner") -> None:
    def on_first_signal(_number: int, _frame: object) -> None:
        for signum in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signum, lambda number, _frame: os._exit(128 + number))
        runner.request_stop()

    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, on_first_signal)


@contextmanager
def _metrics_file(name: str | None) -> Iterator[IO[str] | None]:
    if name is None:
        yield None
        return
    try:
        file = open(name, "a")  # noqa: SIM115 - only errors of open() mean this
    except OSError as error:
        raise PipelineError(f"Cannot write metrics to {name}: {error.strerror}") from None
    with file:
        yield file


@contextmanager
def _errors_in_one_line() -> Iterator[None]:
    """Prints errors in one line and exits with 1."""
    try:
        yield
    except (HeadraceError, OSError) as error:
        message = " ".join(str(error).split()) or type(error).__name__
        click.echo(f"headrace: {message}", err=True)
        sys.exit(1)
