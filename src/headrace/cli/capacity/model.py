"""The sizing of a cluster. Pure arithmetic; rates are per second, sizes in bytes.

A broker has one core, and its work is writing and reading. Per second of the peak, with rate W of new data, R replicas
and G consumer groups:

    written    W * R              the leader's append, and the appends of R - 1 followers
    read       W * (R - 1 + G)    R - 1 followers fetch from the leader, each group reads everything

    load       written / produce rate + read / consume rate        in brokers that are fully busy
    brokers    the largest of
                 load / (1 - headroom)
                 R
                 so many that the others carry the load while a machine is down (if R > 1)

The rates are those of one broker that does nothing else. So without replicas, with one group and no headroom the result
lies between peak / min(produce rate, consume rate), which is its lower limit, and twice that.
"""

from dataclasses import dataclass
from math import ceil

SECONDS_PER_DAY = 86_400
SEGMENT_DAYS = 7
"""`segment.ms`: a segment is closed after that time, even if it is not full."""


@dataclass(frozen=True)
class Load:
    """What the cluster has to carry."""

    events_per_day: float
    peak_events: float
    """Per second."""
    event_bytes: float
    """As stored, so after compression."""
    replicas: int = 3
    retention_days: float = 3.0
    groups: int = 1
    """Consumer groups, each of which reads everything."""
    topics: int = 1
    """The load is spread evenly over them."""

    @property
    def average_events(self) -> float:
        return self.events_per_day / SECONDS_PER_DAY

    @property
    def peak_bytes(self) -> float:
        return self.peak_events * self.event_bytes


@dataclass(frozen=True)
class Rates:
    """What one broker, one partition, one consumer and one Spark core can do, per second."""

    produce_bytes: float
    consume_bytes: float
    partition_bytes: float
    """Of one partition, limited by one producer's or consumer's connection."""
    consumer_events: float
    """Of one consumer of a group."""
    spark_events: float
    """Of one Spark core."""


@dataclass(frozen=True)
class Choices:
    """How much of the machines may be used."""

    headroom: float = 0.4
    """The part of a broker that stays free at the peak."""
    free_disk: float = 0.3
    segment_bytes: int = 1 << 30
    processes_per_machine: int = 1


@dataclass(frozen=True)
class Capacity:
    """The size of the cluster."""

    load_brokers: float
    """Brokers that the peak keeps busy, without headroom."""
    least_brokers: float
    """peak / min(produce rate, consume rate)."""
    brokers: int
    machines: int
    partitions: int
    """Per topic."""
    replicas_per_broker: float
    busy_at_peak: float
    """The busy part of each broker."""
    busy_without_machine: float
    """The busy part of each other broker while a machine is down."""
    stored_bytes: float
    """Of all replicas, with the segments that are not deleted yet."""
    disk_bytes: float
    """Per broker, with the free part."""
    network_in_bytes: float
    """Per broker and second at the peak."""
    network_out_bytes: float
    spark_cores: int
    catch_up_minutes: float
    """The time in which Spark catches up after an hour's standstill, at the average rate."""


def plan(load: Load, rates: Rates, choices: Choices) -> Capacity:
    """Returns the size of the cluster for a load."""
    written = load.peak_bytes * load.replicas
    read = load.peak_bytes * (load.replicas - 1 + load.groups)
    busy = written / rates.produce_bytes + read / rates.consume_bytes
    brokers = max(load.replicas, ceil(busy / (1 - choices.headroom)), 1)
    while not _survives(brokers, busy, load, choices):
        brokers += 1
    machines = _machines(brokers, load, choices)
    others = brokers - ceil(brokers / machines)
    spark_cores = ceil(load.peak_events / rates.spark_events / (1 - choices.headroom))
    partitions = _partitions(load, rates, brokers, spark_cores)
    stored = _stored_bytes(load, choices, partitions * load.topics)
    faster = spark_cores * rates.spark_events - load.average_events
    backlog = load.average_events * 3600
    return Capacity(
        load_brokers=busy,
        least_brokers=load.peak_bytes / min(rates.produce_bytes, rates.consume_bytes),
        brokers=brokers,
        machines=machines,
        partitions=partitions,
        replicas_per_broker=partitions * load.topics * load.replicas / brokers,
        busy_at_peak=busy / brokers,
        busy_without_machine=busy / others if others else float("inf"),
        stored_bytes=stored,
        disk_bytes=stored / brokers / (1 - choices.free_disk),
        network_in_bytes=written / brokers,
        network_out_bytes=read / brokers,
        spark_cores=spark_cores,
        catch_up_minutes=backlog / faster / 60 if faster > 0 else float("inf"),
    )


def _machines(brokers: int, load: Load, choices: Choices) -> int:
    """Returns the machines of so many brokers: at least one for each replica of a partition."""
    return max(ceil(brokers / choices.processes_per_machine), load.replicas)


def _survives(brokers: int, busy: float, load: Load, choices: Choices) -> bool:
    """Returns True if the brokers carry the peak while a machine is down. Without replicas they cannot."""
    machines = _machines(brokers, load, choices)
    return load.replicas == 1 or busy <= brokers - ceil(brokers / machines)


def _partitions(load: Load, rates: Rates, brokers: int, spark_cores: int) -> int:
    """Returns the partitions of a topic: enough for its rate, its consumers and its Spark cores, and a multiple of the
    brokers, so that all lead equally many."""
    parts = (
        load.peak_bytes / load.topics / rates.partition_bytes,
        load.peak_events / load.topics / rates.consumer_events,
        spark_cores / load.topics,
        brokers / load.topics,
    )
    needed = ceil(max(1.0, *parts))
    return needed if load.topics > 1 else ceil(needed / brokers) * brokers


def _stored_bytes(load: Load, choices: Choices, partitions: int) -> float:
    """Retention deletes whole segments, so each replica has up to one segment more."""
    per_day = load.events_per_day * load.event_bytes
    open_segments = min(partitions * choices.segment_bytes, per_day * SEGMENT_DAYS)
    return (per_day * load.retention_days + open_segments) * load.replicas
