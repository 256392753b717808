"""The `headrace` command. A tool's module is imported when the tool is called, so that help and others stay quick."""

import importlib
import io
import sys
from typing import Any, NoReturn

import click

from headrace import __version__
from headrace.cli.common.tool import Terminated, exit_with, nobody_listens

TOOLS = {
    "broker-api-versions": (
        "headrace.cli.cluster.broker_api_versions:broker_api_versions",
        "Show which versions of which requests the brokers know.",
    ),
    "cluster-id": ("headrace.cli.cluster.cluster_id:cluster_id", "Show the id of the cluster."),
    "completion": ("headrace.cli.cluster.completion:completion", "Print a script that completes commands in a shell."),
    "configs": ("headrace.cli.cluster.configs:configs", "Show and change settings of topics, brokers and groups."),
    "console-consumer": (
        "headrace.cli.records.console_consumer:console_consumer",
        "Print records of a topic as they come.",
    ),
    "console-producer": (
        "headrace.cli.records.console_producer:console_producer",
        "Send lines of standard input to a topic.",
    ),
    "consumer-groups": (
        "headrace.cli.groups.consumer_groups:consumer_groups",
        "List, describe, watch, reset and delete groups.",
    ),
    "consumer-perf-test": (
        "headrace.cli.perf.consumer_perf_test:consumer_perf_test",
        "Measure how fast records can be read.",
    ),
    "datagen": ("headrace.cli.pipelines.datagen:datagen", "Write events of a simulated shop to topics."),
    "delete-records": ("headrace.cli.topics.delete_records:delete_records", "Delete the oldest records of partitions."),
    "dump-log": ("headrace.cli.records.dump_log:dump_log", "Show what is in the files of a log."),
    "end-to-end-latency": (
        "headrace.cli.perf.end_to_end_latency:end_to_end_latency",
        "Measure the way of a record to a consumer.",
    ),
    "get-offsets": ("headrace.cli.topics.get_offsets:get_offsets", "Show first, last and timed offsets of partitions."),
    "log-dirs": ("headrace.cli.cluster.log_dirs:log_dirs", "Show what the log directories of brokers hold."),
    "perf": ("headrace.cli.perf.perf:perf", "Measure producing and consuming together."),
    "producer-perf-test": (
        "headrace.cli.perf.producer_perf_test:producer_perf_test",
        "Measure how fast records can be sent.",
    ),
    "pipeline": ("headrace.cli.pipelines.pipeline:pipeline", "Run streaming pipelines on Spark."),
    "server": ("headrace.cli.cluster.server:server", "Run a broker."),
    "transactions": (
        "headrace.cli.cluster.transactions:transactions",
        "Look at transactions, and end those that hang.",
    ),
    "topics": ("headrace.cli.topics.topics:topics", "List, describe, create, change and delete topics."),
}
"""Each tool's function, and what the list of tools says about it."""


class Tools(click.Group):
    """A group whose commands are imported on use."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return sorted(TOOLS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in TOOLS:
            return None
        module, _, attribute = TOOLS[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def main(self, *args: Any, **extra: Any) -> NoReturn:
        """Runs a command line. Whatever goes wrong is told in one line; the exit code says how it went."""
        if isinstance(sys.stdout, io.TextIOWrapper):  # what a locale has no letters for is shown, too
            sys.stdout.reconfigure(errors="backslashreplace")
        try:
            code = super().main(*args, **{"prog_name": "headrace", **extra, "standalone_mode": False})
            sys.stdout.flush()
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            sys.exit(error.exit_code)
        except click.ClickException as error:
            exit_with(error)
        except (KeyboardInterrupt, click.Abort) as error:
            sys.unraisablehook = lambda _: None  # of what a second Ctrl-C cut short
            sys.exit(143 if isinstance(error, Terminated) or isinstance(error.__context__, Terminated) else 130)
        except BrokenPipeError:
            nobody_listens()
        sys.exit(code if isinstance(code, int) else 0)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, TOOLS[name][1]) for name in self.list_commands(ctx)])


@click.group(
    cls=Tools,
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
)
@click.version_option(__version__, "-V", "--version", prog_name="headrace", message="%(prog)s %(version)s")
def main() -> None:
    """Headrace: Apache Kafka's system in Python."""
