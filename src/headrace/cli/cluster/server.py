"""`headrace server`: a broker that runs until it is told to stop.

Standard output has one line, when clients may come:

    ready PLAINTEXT://127.0.0.1:9092

The log goes to standard error. The first SIGTERM, SIGINT or SIGHUP stops the broker in order and the exit code is 0; a
second one ends the process at once, and the next start will recover. What cannot be started is told in one line, with
exit code 1; a command line that makes no sense gives 2.
"""

import asyncio
import gc
import logging
import os
import resource
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

import click

from headrace.common.errors import HeadraceError
from headrace.common.logs import set_up_logging
from headrace.common.properties import read_properties

if TYPE_CHECKING:
    from headrace.broker.config.broker import BrokerConfig

_logger = logging.getLogger(__name__)

EMBEDDED_DEFAULTS = {"listeners": "PLAINTEXT://127.0.0.1:9092", "log.dirs": "headrace-data"}
"""What a broker runs with that is given no file."""


@click.command()
@click.argument("file", required=False, type=click.Path(dir_okay=False))
@click.option(
    "-o", "--override", "overrides", metavar="KEY=VALUE", multiple=True, help="Set a key, whatever FILE says."
)
@click.option(
    "--log-level",
    "levels",
    metavar="[LOGGER=]LEVEL",
    multiple=True,
    help="DEBUG, INFO, WARNING or ERROR for all, or for one logger: requests=DEBUG logs every request.",
)
@click.option(
    "--print-config",
    is_flag=True,
    help="Print a commented server.properties with every config and its default, and exit.",
)
def server(file: str | None, overrides: tuple[str, ...], levels: tuple[str, ...], print_config: bool) -> None:
    """Run a broker.

    FILE is a server.properties as Apache Kafka has them. Without one the broker is a cluster of its own that listens on
    127.0.0.1:9092 and keeps its data in ./headrace-data.
    """
    try:
        properties = collect_properties(file, overrides)
        if print_config:
            from headrace.broker.config.broker import BrokerConfig
            from headrace.broker.config.template import config_template

            BrokerConfig.from_properties(properties)
            click.echo(config_template(properties), nl=False)
            return
        set_up_logging(levels)
        from headrace.broker.config.broker import BrokerConfig  # takes a moment, which a wrong command line need not

        config = BrokerConfig.load(properties)
    except HeadraceError as error:
        _fail(error)
    raise_file_limit()
    sys.exit(asyncio.run(_serve(config)))


def collect_properties(file: str | None, overrides: tuple[str, ...]) -> dict[str, str]:
    """The keys of the file, or else the defaults, and on top what the command line sets."""
    properties = dict(EMBEDDED_DEFAULTS) if file is None else read_properties(file)
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(f"{override!r}: expected KEY=VALUE", param_hint="--override")
        properties[key.strip()] = value.strip()
    return properties


def raise_file_limit() -> None:
    """As many files and connections as this process may have: logs keep theirs open."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        _logger.warning("cannot raise the limit of open files: %s", error)


def _fail(error: BaseException) -> NoReturn:
    message = " ".join(str(error).split()) or type(error).__name__
    click.echo(f"headrace: {message}", err=True)
    sys.exit(1)


async def _serve(config: "BrokerConfig") -> int:
    from headrace.broker.server import Broker

    for note in config.notes:
        _logger.info("%s", note)
    told_to_stop = _stop_on_signals()
    broker = Broker(config)
    starting = asyncio.create_task(broker.start())
    stopping = asyncio.create_task(told_to_stop.wait())
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
    # What there is now stays until the end: the collector need not look at it again and again.
    gc.collect()
    gc.freeze()
    _say(f"ready {broker.addresses}")
    failed = asyncio.create_task(broker.failed.wait())
    await asyncio.wait((stopping, failed), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    failed.cancel()
    _logger.info("stopping")
    await broker.stop()
    return 1 if broker.failed.is_set() else 0


def _say(line: str) -> None:
    """A line on standard output. If nobody reads it any more, the broker runs all the same."""
    try:
        print(line, flush=True)
    except OSError as error:
        _logger.warning("cannot write to standard output: %s", error.strerror)
        with open(os.devnull, "w") as nowhere:  # or Python would try again at exit
            os.dup2(nowhere.fileno(), sys.stdout.fileno())


def _stop_on_signals() -> asyncio.Event:
    """An event that the first signal sets. The second, of either kind, ends the process."""
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    signals = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as under nohup
        signals.append(signal.SIGHUP)

    def first(number: int) -> None:
        _logger.info("got %s", signal.Signals(number).name)
        for each in signals:
            loop.remove_signal_handler(each)
            signal.signal(each, lambda number, _: os._exit(128 + number))
        told.set()

    for each in signals:
        loop.add_signal_handler(each, first, each)
    return told
