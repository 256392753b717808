"""`headrace server`: runs a broker.

Prints one line to standard output when the broker accepts clients:

    ready PLAINTEXT://127.0.0.1:9092

Logs to standard error. The first SIGTERM, SIGINT or SIGHUP starts a clean shutdown with exit code 0. A second one ends
the process at once, and the next start recovers the logs. If the broker cannot start, the process prints one line and
exits with 1. A wrong command line exits with 2.

With `--processes N`, the process is the parent of N brokers (`broker.processes`). It prints the `ready` line with all
their addresses. The first signal stops them one after the other. The parent starts each broker as `headrace server
--supervised`: that ends when its standard input is closed, because then the parent is gone.
"""

import asyncio
import gc
import logging
import os
import platform
import resource
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from headrace import __version__
from headrace.common.clock import SystemClock
from headrace.common.errors import HeadraceError
from headrace.common.ids import make_random
from headrace.common.logs import set_up_logging
from headrace.common.properties import read_properties

if TYPE_CHECKING:
    from headrace.broker.config.broker import BrokerConfig
    from headrace.cli.cluster.console_process import ConsoleOptions, ConsoleProcess

_logger = logging.getLogger(__name__)

EMBEDDED_DEFAULTS = {"listeners": "PLAINTEXT://127.0.0.1:9092", "log.dirs": "headrace-data"}
"""The configuration of a broker without a property file."""


@click.command()
@click.argument("file", required=False, type=click.Path(dir_okay=False))
@click.option("-o", "--override", "overrides", metavar="KEY=VALUE", multiple=True, help="Override a config of FILE.")
@click.option(
    "--log-level",
    "levels",
    metavar="[LOGGER=]LEVEL",
    multiple=True,
    help="DEBUG, INFO, WARNING or ERROR, for all loggers or for one: requests=DEBUG logs every request.",
)
@click.option(
    "--print-config",
    is_flag=True,
    help="Print a commented server.properties with every config and its default, and exit.",
)
@click.option(
    "--processes",
    type=click.IntRange(min=1, max=1000),
    metavar="N",
    help="Run N brokers of one cluster, each in its own process, and restart those that end.",
)
@click.option(
    "--metrics",
    metavar="HOST:PORT",
    help="Serve metrics for Prometheus and health checks at this address (headrace.metrics.listener).",
)
@click.option(
    "--console",
    metavar="HOST:PORT",
    help="Run the web console at this address, in a process of its own.",
)
@click.option("--console-write", is_flag=True, help="Allow changes in the console, if brokers need no login.")
@click.option(
    "--console-config",
    metavar="FILE",
    type=click.Path(dir_okay=False, exists=True),
    help="Client configs with which the console connects to brokers.",
)
@click.option(
    "--supervised", metavar="NAME", hidden=True, help="End when the standard input is closed; log lines have this name."
)
@click.option("--store", metavar="SOCKET", hidden=True, help="The socket of the parent's coordination store.")
def server(
    file: str | None,
    overrides: tuple[str, ...],
    levels: tuple[str, ...],
    print_config: bool,
    processes: int | None,
    metrics: str | None,
    console: str | None,
    console_write: bool,
    console_config: str | None,
    supervised: str | None,
    store: str | None,
) -> None:
    """Run a broker, or several with --processes.

    FILE is a server.properties in the format of Apache Kafka. Without a FILE, the broker forms its own cluster,
    listens on 127.0.0.1:9092 and stores its data in ./headrace-data.
    """
    try:
        if metrics is not None:
            overrides = (*overrides, f"headrace.metrics.listener={metrics}")
        properties = collect_properties(file, overrides)
        if print_config:
            from headrace.broker.config.broker import BrokerConfig
            from headrace.broker.config.template import config_template

            BrokerConfig.from_properties(properties)
            click.echo(config_template(properties), nl=False)
            return
        set_up_logging(levels, source=supervised or ("" if processes is None else "parent"))
        from headrace.broker.config.broker import BrokerConfig  # imported late: a wrong command line fails faster

        options = _console_options(console, console_write, console_config)
        if processes is not None:
            sys.exit(_run_processes(properties, processes, file, overrides, levels, options))
        config = BrokerConfig.load(properties)
    except (HeadraceError, OSError) as error:
        _fail(error)
    raise_file_limit()
    sys.exit(asyncio.run(_serve(config, supervised is not None, None if store is None else Path(store), options)))


def _console_options(listen: str | None, write: bool, config: str | None) -> "ConsoleOptions | None":
    if listen is None:
        if write or config is not None:
            raise click.UsageError("--console-write and --console-config are only allowed with --console")
        return None
    from headrace.cli.cluster.console_process import ConsoleOptions

    return ConsoleOptions(listen, write, config)


def _run_processes(
    properties: dict[str, str],
    count: int,
    file: str | None,
    overrides: tuple[str, ...],
    levels: tuple[str, ...],
    console_options: "ConsoleOptions | None",
) -> int:
    """Runs several brokers as child processes."""
    from headrace.broker.processes.layout import BrokerLayout, plan_processes
    from headrace.broker.processes.supervisor import Supervisor

    layout = plan_processes(properties, count)

    def command_of(broker: BrokerLayout) -> list[str]:
        command = [sys.executable, "-m", "headrace", "server", "--supervised", broker.name]
        command += [] if file is None else [file]
        for override in (*overrides, *(f"{key}={value}" for key, value in broker.overrides.items())):
            command += ["--override", override]
        for level in levels:
            command += ["--log-level", level]
        return command if layout.socket is None else [*command, "--store", str(layout.socket)]

    async def run() -> None:
        supervisor = Supervisor(layout, command_of, SystemClock(), make_random())
        starting: list[asyncio.Task[ConsoleProcess]] = []

        def on_ready(addresses: str) -> None:
            _print_line(f"ready {addresses}")
            if console_options is not None:
                starting.append(asyncio.create_task(_start_console(console_options, addresses, {})))

        try:
            await supervisor.run(_stop_on_signals(), on_ready)
        finally:
            for task in starting:
                await (await task).stop()

    asyncio.run(run())
    return 0


def collect_properties(file: str | None, overrides: tuple[str, ...]) -> dict[str, str]:
    """Returns the configs of the file, or the defaults, with the overrides of the command line."""
    properties = dict(EMBEDDED_DEFAULTS) if file is None else read_properties(file)
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(f"{override!r}: expected KEY=VALUE", param_hint="--override")
        properties[key.strip()] = value.strip()
    return properties


def raise_file_limit() -> None:
    """Raises the soft limit of open files to the hard limit, because logs keep files open."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        _logger.warning("Cannot raise the limit of open files: %s", error)


def _fail(error: BaseException) -> NoReturn:
    if isinstance(error, OSError) and error.filename is not None:
        message = f"Cannot access {os.fspath(error.filename)}: {error.strerror}"
    else:
        message = " ".join(str(error).split()) or type(error).__name__
    click.echo(f"headrace: {message}", err=True)
    sys.exit(1)


async def _start_console(
    options: "ConsoleOptions", addresses: str, metrics_urls: Mapping[int, str]
) -> "ConsoleProcess":
    from headrace.cli.cluster.console_process import ConsoleProcess, console_command

    process = ConsoleProcess(console_command(options, addresses, metrics_urls))
    await process.start()
    return process


async def _serve(
    config: "BrokerConfig", supervised: bool, store: Path | None, console_options: "ConsoleOptions | None"
) -> int:
    from headrace.broker.environment import BrokerEnvironment, RemoteStoreOpener
    from headrace.broker.server import Broker

    open_remote = None if store is None else RemoteStoreOpener(store)

    broker_id = str(config.node_id) if config.has_node_id else "with a generated id"
    _logger.info("Starting Headrace %s on Python %s, broker %s", __version__, platform.python_version(), broker_id)
    for note in config.notes:
        _logger.info("%s", note)
    stop_requested = _stop_on_signals()
    gc.disable()  # the start creates objects that live until shutdown; with many partitions, scanning them takes long
    broker = Broker(config, None if open_remote is None else BrokerEnvironment(open_store=open_remote))
    parent_lost = asyncio.Event()
    if supervised:

        def on_parent_lost() -> None:
            _logger.error("The parent process has ended, so this broker stops")
            parent_lost.set()
            if open_remote is not None:
                open_remote.abandon()
            stop_requested.set()

        await _watch_parent(on_parent_lost)
    starting = asyncio.create_task(broker.start())
    stopping = asyncio.create_task(stop_requested.wait())
    await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        starting.cancel()
        await asyncio.wait((starting,))
        return 0
    try:
        starting.result()
    except (HeadraceError, OSError) as error:
        stopping.cancel()
        _fail(error)
    # Objects that exist now live until shutdown, so the garbage collector need not scan them again.
    gc.collect()
    gc.freeze()
    gc.enable()
    _print_line(f"ready {broker.addresses}")
    console = None
    if console_options is not None:
        metrics = broker.metrics_service
        urls = {} if metrics is None else {broker.node_id: f"{metrics.endpoint.url}/metrics"}
        console = await _start_console(console_options, broker.addresses, urls)
    failed = asyncio.create_task(broker.failed.wait())
    await asyncio.wait((stopping, failed), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    failed.cancel()
    if console is not None:
        await console.stop()
    await broker.stop(hand_over=not parent_lost.is_set())
    return 1 if broker.failed.is_set() else 0


async def _watch_parent(on_end: Callable[[], None]) -> None:
    """Calls a function when the standard input is closed: it is a pipe of the parent."""

    class Lifeline(asyncio.Protocol):
        def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
            on_end()

    await asyncio.get_running_loop().connect_read_pipe(Lifeline, sys.stdin)


def _print_line(line: str) -> None:
    """Prints a line. The broker keeps running if standard output is closed."""
    try:
        print(line, flush=True)
    except OSError as error:
        _logger.warning("Cannot write to standard output: %s", error.strerror)
        with open(os.devnull, "w") as nowhere:  # otherwise Python writes again at exit
            os.dup2(nowhere.fileno(), sys.stdout.fileno())


def _stop_on_signals() -> asyncio.Event:
    """Returns an event that the first signal sets. A second signal ends the process."""
    stop_requested = asyncio.Event()
    loop = asyncio.get_running_loop()
    signals = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # unless started with nohup
        signals.append(signal.SIGHUP)

    def on_first_signal(number: int) -> None:
        _logger.info("Received %s, starting a clean shutdown", signal.Signals(number).name)
        for signum in signals:
            loop.remove_signal_handler(signum)
            signal.signal(signum, lambda number, _: os._exit(128 + number))
        stop_requested.set()

    for signum in signals:
        loop.add_signal_handler(signum, on_first_signal, signum)
    return stop_requested
