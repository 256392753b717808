"""The `headrace` command. It imports a tool's module only when the tool runs, so that `--help` stays fast."""

import importlib
import io
import sys
from typing import Any, NoReturn

import click

from headrace import __version__
from headrace.cli.common.hints import command_hint
from headrace.cli.common.tool import Terminated, exit_on_broken_pipe, exit_with
from headrace.common.extras import MissingExtraError

TOOLS = {
    "acls": ("headrace.cli.security.acls:acls", "List, add and remove access control lists."),
    "broker-api-versions": (
        "headrace.cli.cluster.broker_api_versions:broker_api_versions",
        "Show the API versions that each broker supports.",
    ),
    "capacity": ("headrace.cli.capacity.capacity:capacity", "Compute the size of a cluster for a load."),
    "cluster": ("headrace.cli.cluster.cluster:cluster", "Show the cluster id and the brokers' addresses."),
    "cluster-id": ("headrace.cli.cluster.cluster_id:cluster_id", "Show the cluster id."),
    "completion": ("headrace.cli.cluster.completion:completion", "Print a shell completion script."),
    "configs": ("headrace.cli.cluster.configs:configs", "Describe and alter configs of topics, brokers, groups."),
    "console": ("headrace.cli.console.console:console", "Run the web console of one or more clusters."),
    "console-consumer": (
        "headrace.cli.records.console_consumer:console_consumer",
        "Print the records of a topic.",
    ),
    "console-producer": (
        "headrace.cli.records.console_producer:console_producer",
        "Send lines from standard input to a topic.",
    ),
    "consumer-groups": (
        "headrace.cli.groups.consumer_groups:consumer_groups",
        "List, describe, watch, reset, delete consumer groups.",
    ),
    "consumer-perf-test": (
        "headrace.cli.perf.consumer_perf_test:consumer_perf_test",
        "Measure consumer throughput.",
    ),
    "datagen": ("headrace.cli.pipelines.datagen:datagen", "Generate events of a simulated shop."),
    "delegation-tokens": (
        "headrace.cli.security.delegation_tokens:delegation_tokens",
        "Create, renew, expire and describe delegation tokens.",
    ),
    "delete-records": (
        "headrace.cli.topics.delete_records:delete_records",
        "Delete records of partitions up to an offset.",
    ),
    "doctor": ("headrace.cli.doctor.doctor:doctor", "Find what is wrong with a cluster, and how to fix it."),
    "dump-log": ("headrace.cli.records.dump_log:dump_log", "Print the contents of log segment files."),
    "end-to-end-latency": (
        "headrace.cli.perf.end_to_end_latency:end_to_end_latency",
        "Measure the latency from producer to consumer.",
    ),
    "get-offsets": (
        "headrace.cli.topics.get_offsets:get_offsets",
        "Show partition offsets: earliest, latest or by time.",
    ),
    "leader-election": (
        "headrace.cli.cluster.leader_election:leader_election",
        "Elect preferred leaders, or unclean ones.",
    ),
    "log-dirs": ("headrace.cli.cluster.log_dirs:log_dirs", "Show the brokers' log directories and replica sizes."),
    "perf": ("headrace.cli.perf.perf:perf", "Measure producing and consuming at the same time."),
    "producer-perf-test": (
        "headrace.cli.perf.producer_perf_test:producer_perf_test",
        "Measure producer throughput.",
    ),
    "pipeline": ("headrace.cli.pipelines.pipeline:pipeline", "Run streaming pipelines on Spark."),
    "reassign-partitions": (
        "headrace.cli.reassignment.reassign_partitions:reassign_partitions",
        "Move partitions to other brokers or log directories.",
    ),
    "replica-verification": (
        "headrace.cli.replicas.replica_verification:replica_verification",
        "Compare the replicas of partitions.",
    ),
    "server": ("headrace.cli.cluster.server:server", "Run a broker."),
    "transactions": (
        "headrace.cli.cluster.transactions:transactions",
        "List, describe, and abort hanging transactions.",
    ),
    "storage": (
        "headrace.cli.cluster.storage:storage",
        "Add SCRAM credentials before the first start.",
    ),
    "topics": ("headrace.cli.topics.topics:topics", "List, describe, create, alter and delete topics."),
    "zookeeper-server": (
        "headrace.cli.cluster.zookeeper_server:zookeeper_server",
        "Run a ZooKeeper server for development and tests.",
    ),
}
"""Each tool's function and its line in `headrace --help`."""


class Tools(click.Group):
    """A click group that imports a command when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return sorted(TOOLS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in TOOLS:
            return None
        module, _, attribute = TOOLS[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in TOOLS and not name.startswith("-") and not ctx.resilient_parsing:
            ctx.fail(f"No such command {name!r}.{command_hint(name, TOOLS)}")
        return super().resolve_command(ctx, args)

    def main(self, *args: Any, **extra: Any) -> NoReturn:
        """Runs a command line and exits. Prints errors in one line and sets the exit code."""
        if isinstance(sys.stdout, io.TextIOWrapper):  # print characters that the locale cannot encode, too
            sys.stdout.reconfigure(errors="backslashreplace")
        try:
            code = super().main(*args, **{"prog_name": "headrace", **extra, "standalone_mode": False})
            sys.stdout.flush()
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            sys.exit(error.exit_code)
        except click.ClickException as error:
            exit_with(error)
        except MissingExtraError as error:
            exit_with(click.ClickException(str(error)))
        except (KeyboardInterrupt, click.Abort) as error:
            sys.unraisablehook = lambda _: None  # a second Ctrl-C interrupts cleanup; hide its tracebacks
            sys.exit(143 if isinstance(error, Terminated) or isinstance(error.__context__, Terminated) else 130)
        except BrokenPipeError:
            exit_on_broken_pipe()
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
