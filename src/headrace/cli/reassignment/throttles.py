"""The throttles of reassignments, as `kafka-reassign-partitions.sh` sets and removes them (KIP-73).

leader.replication.throttled.replicas           topic    the replicas that partitions are copied from
follower.replication.throttled.replicas         topic    the replicas that are added
leader.replication.throttled.rate               broker   bytes per second, of all brokers that take part
follower.replication.throttled.rate             broker
replica.alter.log.dirs.io.max.bytes.per.second  broker   bytes per second, of the brokers that move replicas
                                                         between their log directories
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import click

from headrace.cli.common.tool import Failure
from headrace.cli.reassignment.plan import Move, throttled_replicas
from headrace.common.types import TopicPartition

if TYPE_CHECKING:
    from headrace.client.admin.admin import Admin

RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LOG_DIRS_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"


class Throttles(NamedTuple):
    """The limits of --execute, in bytes per second and broker."""

    between_brokers: int | None
    between_log_dirs: int | None

    @property
    def any(self) -> bool:
        return self != (None, None)


def set_throttle(admin: "Admin", moves: Mapping[TopicPartition, Move], rate: int) -> None:
    """Limits the rate at which the moves copy records, in bytes per second and broker."""
    from headrace.client.admin.types import ConfigResource

    admin.alter_configs(
        ConfigResource("topic", topic, {LEADER_REPLICAS: leaders, FOLLOWER_REPLICAS: followers})
        for topic, (leaders, followers) in throttled_replicas(moves).items()
    )
    involved = {broker for move in moves.values() for broker in (*move.sources, *move.destinations)}
    running = _running(admin)
    admin.alter_configs(
        ConfigResource("broker", str(broker), dict.fromkeys(RATES, rate)) for broker in sorted(involved & running)
    )
    for broker in sorted(involved - running):
        click.echo(f"Broker {broker} is not running: no throttle was set there", err=True)
    click.echo(f"The inter-broker throttle limit was set to {rate} B/s")


def set_log_dirs_throttle(admin: "Admin", brokers: Iterable[int], rate: int) -> None:
    """Limits the rate at which brokers copy replicas between their log directories, in bytes per second and broker."""
    from headrace.client.admin.types import ConfigResource

    admin.alter_configs(ConfigResource("broker", str(broker), {LOG_DIRS_RATE: rate}) for broker in sorted(set(brokers)))
    click.echo(f"The replica-alter-dir throttle limit was set to {rate} B/s")


def clear_throttles(admin: "Admin", targets: Iterable[int], topics: Iterable[str]) -> None:
    """Removes the throttles of all running brokers and of the topics. Raises a Failure if a target is not running.

    The sources of a completed reassignment are not known any more, so it removes the throttles of all brokers.
    """
    from headrace.client.admin.types import ConfigResource

    running = sorted(_running(admin))
    click.echo(f"Clearing broker-level throttles on broker{_plural(running)} {','.join(map(str, running))}")
    admin.reset_configs(ConfigResource("broker", str(broker), (*RATES, LOG_DIRS_RATE)) for broker in running)
    names = sorted(set(topics))
    click.echo(f"Clearing topic-level throttles on topic{_plural(names)} {','.join(names)}")
    admin.reset_configs(ConfigResource("topic", name, (LEADER_REPLICAS, FOLLOWER_REPLICAS)) for name in names)
    stopped = sorted(set(targets) - set(running))
    if stopped:
        raise Failure(
            f"Broker {','.join(map(str, stopped))} is not running, so its throttles could not be cleared. Run --verify "
            "again when it runs"
        )


def _running(admin: "Admin") -> set[int]:
    return {broker.id for broker in admin.describe_cluster().brokers}


def _plural(items: list[int] | list[str]) -> str:
    return "" if len(items) == 1 else "s"
