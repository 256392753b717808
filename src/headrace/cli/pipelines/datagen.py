"""`headrace datagen`: generates events of a simulated shop for the shop's pipelines.

Progress goes to standard error, the summary to standard output. SIGINT and SIGTERM flush the generated events and exit
with 0. The exit code is 1 if no broker is reachable or an event was not written.
"""

import signal
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from headrace.cli.common.client_config import configs_for, known_configs
from headrace.cli.common.connection import Connection
from headrace.common.clock import SystemClock
from headrace.common.errors import HeadraceError
from headrace.common.properties import read_properties

if TYPE_CHECKING:
    from headrace.shop.datagen import GeneratedEvents

DEFAULT_EVENTS = 100_000
DEFAULT_SPAN_SECONDS = 3600.0
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def duration(_context: click.Context, _option: click.Parameter, text: str | None) -> float | None:
    """Parses a duration such as 90s, 15m, 1.5h or 2d into seconds."""
    if text is None:
        return None
    try:
        seconds = float(text[:-1]) * _UNITS[text[-1:]]
    except (KeyError, ValueError):
        raise click.BadParameter(f"{text!r}: expected a number with a unit, such as 90s, 15m or 2h") from None
    if not 0 < seconds < 3.2e9:
        raise click.BadParameter(f"{text!r}: expected more than 0, and less than 100 years")
    return seconds


def moment(_context: click.Context, _option: click.Parameter, text: str | None) -> int | None:
    """Parses an ISO 8601 time, UTC by default, into a timestamp in milliseconds."""
    if text is None:
        return None
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(f"{text!r}: expected a time such as 2026-01-31T12:00:00") from None
    return round((parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp() * 1000)


SHARE = click.FloatRange(0, 1)


@click.command()
@click.option("--bootstrap-server", required=True, metavar="HOST:PORT", help="The brokers to bootstrap from.")
@click.option("--events", type=click.IntRange(min=1), help="Number of events; unlimited if only --rate is given.")
@click.option(
    "--rate", type=click.FloatRange(min=0, min_open=True), help="Events per second; default: as fast as possible."
)
@click.option(
    "--span",
    callback=duration,
    metavar="DURATION",
    help="Spread the event times over this period before now: 90s, 15m, 2h.",
)
@click.option("--start", callback=moment, metavar="TIME", help="The time of the first event (ISO 8601).")
@click.option(
    "--seed", type=int, default=1, show_default=True, help="The same seed and start generate the same events."
)
@click.option("--broken", type=SHARE, default=0.005, show_default=True, help="The share of invalid events.")
@click.option("--late", type=SHARE, default=0.01, show_default=True, help="The share of late app events.")
@click.option(
    "--late-by",
    callback=duration,
    metavar="DURATION",
    default="3m",
    show_default=True,
    help="The maximum delay of late events.",
)
@click.option(
    "--duplicates", type=SHARE, default=0.01, show_default=True, help="The share of events that are sent twice."
)
@click.option("--devices", type=click.IntRange(min=1), default=20_000, show_default=True, help="Number of visitors.")
@click.option(
    "--partitions", type=click.IntRange(min=1), default=4, show_default=True, help="Partitions of new topics."
)
@click.option("--log-topic", default="ods_log", show_default=True, help="The topic for app events.")
@click.option("--db-topic", default="ods_db", show_default=True, help="The topic for database changes.")
@click.option("--command-config", metavar="FILE", help="A property file with client configs.")
@click.option("--producer-property", "properties", metavar="KEY=VALUE", multiple=True, help="A producer config.")
@click.option("-q", "--quiet", is_flag=True, help="Do not show progress.")
def datagen(
    bootstrap_server: str,
    events: int | None,
    rate: float | None,
    span: float | None,
    start: int | None,
    seed: int,
    broken: float,
    late: float,
    late_by: float,
    duplicates: float,
    devices: int,
    partitions: int,
    log_topic: str,
    db_topic: str,
    command_config: str | None,
    properties: tuple[str, ...],
    quiet: bool,
) -> None:
    """Write events of a simulated shop to the topics ods_log and ods_db.

    With --rate alone, each event has the time at which it is sent. Otherwise their times span an hour, or --span.
    """
    from headrace.shop.datagen import StreamSettings, create_topics, generate
    from headrace.shop.datagen.visits import DB, LOG

    if events is None and (rate is None or span is not None):
        events = DEFAULT_EVENTS
    if span is None and rate is None:
        span = DEFAULT_SPAN_SECONDS
    producer_properties = dict(_key_value(text) for text in properties)
    topics = {LOG: log_topic, DB: db_topic}
    received_signals: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: received_signals.append(number))
    display = _Display(events, quiet)
    try:
        client = known_configs(read_properties(command_config)) if command_config else {}
        settings = StreamSettings(
            events=events,
            span_ms=None if span is None else round(span * 1000),
            rate=rate or 1000.0,
            seed=seed,
            broken=broken,
            late=late,
            late_by_ms=round(late_by * 1000),
            duplicates=duplicates,
            devices=devices,
        )
        Connection(bootstrap_server, client).check()
        create_topics(bootstrap_server, partitions, topics, configs_for("admin", client))
        generated = generate(
            bootstrap_server,
            settings,
            rate=rate,
            start_ms=start,
            topics=topics,
            producer_settings={**configs_for("producer", client), **producer_properties},
            report=display.show,
            stopped=lambda: bool(received_signals),
        )
    except (HeadraceError, OSError) as error:
        display.end()
        click.echo(f"headrace: {' '.join(str(error).split()) or type(error).__name__}", err=True)
        sys.exit(1)
    display.end()
    click.echo(summary(generated, topics[LOG], topics[DB]))


class _Display:
    """A progress bar, or only a counter if the number of events is unlimited."""

    def __init__(self, events: int | None, quiet: bool):
        from headrace.shop.datagen.progress import Progress

        self._clock = SystemClock()
        self._events = events
        self._quiet = quiet
        self._progress = Progress(sys.stderr, self._clock)
        self._began = 0.0

    def show(self, generated: "GeneratedEvents", sent_bytes: int) -> None:
        from headrace.shop.datagen.progress import bar, rate_text, time_text

        if generated.events == 0:
            self._began = self._clock.monotonic()
            return
        is_complete = generated.events == self._events
        if self._quiet or not (is_complete or self._progress.is_due()):
            return
        passed = self._clock.monotonic() - self._began
        speed = rate_text(generated.events, sent_bytes, passed)
        if self._events is None:
            line = f"{generated.events:,} events  {speed}  {time_text(passed)}"
        else:
            share = generated.events / self._events
            remaining = passed / share - passed
            counts = f"{generated.events:,} of {self._events:,}"
            line = f"{bar(share)} {share:4.0%}  {counts}  {speed}  {time_text(remaining)} left"
        self._progress.show(line)

    def end(self) -> None:
        self._progress.end()


def summary(generated: "GeneratedEvents", log_topic: str, db_topic: str) -> str:
    broken = sum(generated.broken.values())
    return (
        f"{generated.events:,} events: {generated.log:,} in {log_topic}, {generated.db:,} in {db_topic}; "
        f"of them {broken:,} broken, {generated.late:,} late, {generated.duplicates:,} duplicates"
    )


def _key_value(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise click.BadParameter(f"{text!r}: expected KEY=VALUE", param_hint="--producer-property")
    return key.strip(), value.strip()
