"""`headrace capacity`: how many brokers, partitions, disks and Spark cores a load needs.

    headrace capacity --events-per-day 100M --peak 20000 --event-size 1KB --retention-days 3 --replicas 3

The rates of a broker are given, as `producer-perf-test` and `consumer-perf-test` measure them. The defaults are
cautious. The formulas are in `model`.
"""

import re
from dataclasses import asdict, replace

import click

from headrace.cli.capacity.model import Capacity, Choices, Load, Rates, plan
from headrace.cli.common.output import json_option, print_json, styled
from headrace.cli.common.tool import Tool
from headrace.diagnosis.snapshot import in_bytes

_FACTORS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_NUMBER = re.compile(r"([0-9_]*\.?[0-9]+) *([kmgt]?)(b?)", re.IGNORECASE)


class Quantity(click.ParamType):  # type: ignore[type-arg]  # generic in new versions of click only
    """A positive number with an optional unit: `20000`, `100M`, `1.5KB`. Units are powers of ten."""

    name = "number"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, int | float):
            return float(value)
        match = _NUMBER.fullmatch(str(value).strip())
        number = float(match[1].replace("_", "")) * _FACTORS[match[2].lower()] if match is not None else 0.0
        if number <= 0:
            self.fail(f"{value!r}: expected a positive number such as 20000, 100M or 1.5KB", param, ctx)
        return number


QUANTITY = Quantity()
_PART = click.FloatRange(0, 0.95)


@click.command(cls=Tool)
@click.option("--events-per-day", type=QUANTITY, required=True, metavar="N", help="Events of a day.")
@click.option("--peak", type=QUANTITY, required=True, metavar="N", help="Events per second at the peak.")
@click.option("--event-size", type=QUANTITY, default=1_000, metavar="BYTES", help="The size of an event (1KB).")
@click.option(
    "--compression", type=click.FloatRange(min=1), default=1.0, metavar="X", help="How many times smaller it is stored."
)
@click.option("--replicas", type=click.IntRange(min=1), default=3, show_default=True, metavar="N")
@click.option("--retention-days", type=QUANTITY, default=3, show_default=True, metavar="DAYS")
@click.option(
    "--consumers",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    metavar="N",
    help="Consumer groups, each of which reads all events.",
)
@click.option("--topics", type=click.IntRange(min=1), default=1, show_default=True, metavar="N")
@click.option(
    "--produce-rate",
    type=QUANTITY,
    default=100e6,
    metavar="BYTES",
    help="What producers can write to one broker per second (100MB).",
)
@click.option(
    "--consume-rate",
    type=QUANTITY,
    default=400e6,
    metavar="BYTES",
    help="What consumers can read from one broker per second (400MB).",
)
@click.option(
    "--partition-rate", type=QUANTITY, default=10e6, metavar="BYTES", help="The rate of one partition (10MB)."
)
@click.option(
    "--consumer-events",
    type=QUANTITY,
    default=10_000,
    metavar="N",
    help="Events that one consumer processes per second (10000).",
)
@click.option(
    "--spark-events",
    type=QUANTITY,
    default=20_000,
    metavar="N",
    help="Events that one Spark core processes per second (20000).",
)
@click.option("--headroom", type=_PART, default=0.4, show_default=True, metavar="X", help="The part that stays free.")
@click.option("--free-disk", type=_PART, default=0.3, show_default=True, metavar="X", help="The free part of disks.")
@click.option("--segment-size", type=QUANTITY, default=1 << 30, metavar="BYTES", help="segment.bytes (1 GiB).")
@click.option(
    "--processes",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Brokers of a machine (server --processes).",
)
@json_option
def capacity(
    events_per_day: float,
    peak: float,
    event_size: float,
    compression: float,
    replicas: int,
    retention_days: float,
    consumers: int,
    topics: int,
    produce_rate: float,
    consume_rate: float,
    partition_rate: float,
    consumer_events: float,
    spark_events: float,
    headroom: float,
    free_disk: float,
    segment_size: float,
    processes: int,
    as_json: bool,
) -> None:
    """Compute the size of a cluster for a load."""
    load = Load(events_per_day, peak, event_size / compression, replicas, retention_days, consumers, topics)
    if load.average_events > peak:
        raise click.UsageError(
            f"--peak {peak:,.0f}: expected at least the average of --events-per-day, "
            f"{load.average_events:,.0f} a second"
        )
    rates = Rates(produce_rate, consume_rate, partition_rate, consumer_events, spark_events)
    choices = Choices(headroom, free_disk, int(segment_size), processes)
    found = plan(load, rates, choices)
    if as_json:
        print_json(
            {"load": asdict(load), "rates": asdict(rates), "choices": asdict(choices), "capacity": asdict(found)}
        )
        return
    _print(load, rates, choices, found)


def _print(load: Load, rates: Rates, choices: Choices, found: Capacity) -> None:
    one_group = replace(load, groups=load.groups + 1)
    more = plan(one_group, rates, choices).brokers
    rows = [
        (
            "Load",
            f"{load.average_events:,.0f} events/s on average, {load.peak_events:,.0f} at the peak "
            f"({in_bytes(load.peak_bytes)}/s)",
        ),
        (
            "Brokers",
            f"{found.brokers} on {found.machines} machines: the peak keeps {found.load_brokers:.2f} brokers busy; "
            f"each is {found.busy_at_peak:.0%} busy at the peak"
            + (f", {found.busy_without_machine:.0%} if a machine is down" if found.machines > 1 else ""),
        ),
        (
            "",
            f"at least peak / min(produce rate, consume rate) = {found.least_brokers:.2f}; {more} with one group more",
        ),
        ("Partitions", f"{found.partitions} per topic, {found.replicas_per_broker:.0f} replicas on each broker"),
        (
            "Disk",
            f"{in_bytes(found.disk_bytes)} per broker, {in_bytes(found.stored_bytes)} stored in total "
            f"({load.retention_days:g} days, {load.replicas} replicas), {choices.free_disk:.0%} free",
        ),
        (
            "Network",
            f"{_bits(found.network_in_bytes)} in and {_bits(found.network_out_bytes)} out per broker at the peak",
        ),
        (
            "Spark",
            f"{found.spark_cores} cores; an hour's standstill is caught up in {found.catch_up_minutes:.0f} minutes",
        ),
    ]
    for name, text in rows:
        click.echo(f"{styled(f'{name:<11}', bold=True)}{text}")


def _bits(rate: float) -> str:
    bits = rate * 8
    return f"{bits / 1e9:.2f} Gbit/s" if bits >= 1e9 else f"{bits / 1e6:.0f} Mbit/s"
