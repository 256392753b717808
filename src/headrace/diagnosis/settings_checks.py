"""Checks of settings that contradict each other or the size of the cluster."""

from collections import defaultdict
from collections.abc import Iterable

from headrace.diagnosis.snapshot import INTERNAL_TOPICS, Configs, Finding, Limits, Severity, Snapshot, counted, names
from headrace.diagnosis.snapshot import number as to_number

_SAME_EVERYWHERE = (
    "auto.create.topics.enable",
    "auto.leader.rebalance.enable",
    "default.replication.factor",
    "delete.topic.enable",
    "inter.broker.protocol.version",
    "log.retention.bytes",
    "log.retention.ms",
    "message.max.bytes",
    "min.insync.replicas",
    "num.partitions",
    "offsets.retention.minutes",
    "offsets.topic.num.partitions",
    "offsets.topic.replication.factor",
    "replica.lag.time.max.ms",
    "transaction.max.timeout.ms",
    "transaction.state.log.min.isr",
    "transaction.state.log.num.partitions",
    "transaction.state.log.replication.factor",
    "transactional.id.expiration.ms",
    "unclean.leader.election.enable",
)
"""Which broker applies them depends on who is the leader, coordinator or controller at the moment."""

_INTERNAL_FACTORS = {
    "__consumer_offsets": "offsets.topic.replication.factor",
    "__transaction_state": "transaction.state.log.replication.factor",
}


def different_settings(snapshot: Snapshot, _: Limits) -> Iterable[Finding]:
    """Settings that should be the same on all brokers, but are not."""
    for key in _SAME_EVERYWHERE:
        by_value: dict[str | None, list[int]] = defaultdict(list)
        for broker, configs in sorted(snapshot.broker_configs.items()):
            if key in configs:
                by_value[configs[key]].append(broker)
        if len(by_value) > 1:
            values = "; ".join(f"{value} on {names(ids)}" for value, ids in by_value.items())
            yield Finding(
                "different-settings",
                Severity.WARNING,
                f"{key} differs between brokers: {values}. Which value applies depends on where the leader or the "
                "controller is.",
                f"Set {key} to the same value on all brokers, or as a cluster-wide default "
                "(configs --alter --broker-defaults).",
            )


def topic_settings(snapshot: Snapshot, _: Limits) -> Iterable[Finding]:
    """Settings of topics that contradict each other."""
    fragile: list[str] = []
    one_copy: list[str] = []
    weak: list[str] = []
    for name, topic in sorted(snapshot.topics.items()):
        replicas = min((len(partition.replicas) for partition in topic.partitions), default=0)
        least = to_number(snapshot.topic_config(name, "min.insync.replicas"))
        if least is not None and replicas:
            if least > replicas:
                yield Finding(
                    "topic-settings",
                    Severity.ERROR,
                    f"Topic {name} has {counted(replicas, 'replica')}, but min.insync.replicas is {least}: every write "
                    "with acks=all fails.",
                    "Lower min.insync.replicas, or add replicas with the tool reassign-partitions.",
                    (name,),
                )
            elif least == replicas > 1:
                fragile.append(name)
            elif least == 1 and replicas > 1 and name not in INTERNAL_TOPICS:
                weak.append(name)
        if replicas == 1 and len(snapshot.live) > 1:
            one_copy.append(name)
        yield from _log_settings(name, snapshot.topic_configs.get(name, {}))
    if fragile:
        yield Finding(
            "topic-settings",
            Severity.WARNING,
            f"{counted(len(fragile), 'topic')} with min.insync.replicas equal to the number of replicas: the stop of "
            "any broker stops writes with acks=all, also during a rolling restart.",
            "Use one replica more than min.insync.replicas.",
            tuple(fragile),
        )
    if one_copy:
        yield Finding(
            "topic-settings",
            Severity.NOTE,
            f"{counted(len(one_copy), 'topic')} with one replica in a cluster of {len(snapshot.live)} brokers: the "
            "loss of a broker loses data.",
            "Add replicas with the tool reassign-partitions, and raise default.replication.factor.",
            tuple(one_copy),
        )
    if weak:
        yield Finding(
            "topic-settings",
            Severity.NOTE,
            f"{counted(len(weak), 'topic')} with several replicas and min.insync.replicas=1: a record acknowledged "
            "with acks=all may be on one broker only.",
            "Set min.insync.replicas=2 for topics with three replicas.",
            tuple(weak),
        )


def _log_settings(name: str, configs: Configs) -> Iterable[Finding]:
    segment, retention = to_number(configs.get("segment.bytes")), to_number(configs.get("retention.bytes"))
    if segment is not None and retention is not None and 0 <= retention < segment:
        yield Finding(
            "topic-settings",
            Severity.WARNING,
            f"Topic {name}: retention.bytes ({retention:,}) is smaller than segment.bytes ({segment:,}). Only whole "
            "segments are deleted, so a partition has up to a segment more.",
            f"Lower segment.bytes to a quarter of retention.bytes ({retention // 4:,}) or less.",
            (name,),
        )
    largest = to_number(configs.get("max.message.bytes"))
    if segment is not None and largest is not None and largest > segment:
        yield Finding(
            "topic-settings",
            Severity.WARNING,
            f"Topic {name}: max.message.bytes ({largest:,}) is larger than segment.bytes ({segment:,}). Batches "
            "between the two are rejected.",
            "Raise segment.bytes, or lower max.message.bytes.",
            (name,),
        )
    policy = configs.get("cleanup.policy")
    if name in INTERNAL_TOPICS and policy is not None and policy != "compact":
        yield Finding(
            "topic-settings",
            Severity.ERROR,
            f"Topic {name} has cleanup.policy={policy}: retention deletes committed offsets and transactions that are "
            "in use.",
            f"Set cleanup.policy=compact on {name} now.",
            (name,),
        )
    if configs.get("unclean.leader.election.enable") == "true":
        yield Finding(
            "topic-settings",
            Severity.WARNING,
            f"Topic {name} allows unclean leader elections: acknowledged records are lost when a replica that is not "
            "in sync becomes the leader.",
            "Set unclean.leader.election.enable=false, unless availability matters more than the records.",
            (name,),
        )


def broker_settings(snapshot: Snapshot, _: Limits) -> Iterable[Finding]:
    """Settings of brokers that contradict each other or the number of brokers."""
    size = len(snapshot.live)
    seen: set[str] = set()
    for broker, configs in sorted(snapshot.broker_configs.items()):
        for finding in _broker_settings(broker, configs, size, set(snapshot.topics)):
            key = finding.problem.partition(": ")[2]
            if key not in seen:
                seen.add(key)
                yield finding


def _broker_settings(broker: int, configs: Configs, size: int, topics: set[str]) -> Iterable[Finding]:
    default = to_number(configs.get("default.replication.factor"))
    if default is not None and default > size:
        yield Finding(
            "broker-settings",
            Severity.WARNING,
            f"Broker {broker}: default.replication.factor is {default}, but the cluster has {counted(size, 'broker')}. "
            "Topics without a replication factor of their own cannot be created.",
            "Start more brokers, or lower default.replication.factor.",
        )
    least = to_number(configs.get("min.insync.replicas"))
    if default is not None and least is not None and least > default:
        yield Finding(
            "broker-settings",
            Severity.WARNING,
            f"Broker {broker}: min.insync.replicas ({least}) is greater than default.replication.factor ({default}). "
            "Topics created with the defaults reject writes with acks=all.",
            "Raise default.replication.factor, or lower min.insync.replicas.",
        )
    for topic, key in _INTERNAL_FACTORS.items():
        factor = to_number(configs.get(key))
        if factor is not None and factor > size and topic not in topics:
            yield Finding(
                "broker-settings",
                Severity.NOTE,
                f"Broker {broker}: {key} is {factor}, but the cluster has {counted(size, 'broker')}. Apache Kafka then "
                f"does not create {topic}; Headrace creates it with fewer replicas.",
                f"Start more brokers before the first use, or lower {key}.",
            )
    in_sync = to_number(configs.get("transaction.state.log.min.isr"))
    factor = to_number(configs.get("transaction.state.log.replication.factor"))
    if in_sync is not None and factor is not None and in_sync > factor:
        yield Finding(
            "broker-settings",
            Severity.ERROR,
            f"Broker {broker}: transaction.state.log.min.isr ({in_sync}) is greater than "
            f"transaction.state.log.replication.factor ({factor}). No transaction can be written.",
            "Lower transaction.state.log.min.isr, or raise the replication factor.",
        )
    timeout = to_number(configs.get("transaction.max.timeout.ms"))
    expiration = to_number(configs.get("transactional.id.expiration.ms"))
    if timeout is not None and expiration is not None and timeout > expiration:
        yield Finding(
            "broker-settings",
            Severity.WARNING,
            f"Broker {broker}: transaction.max.timeout.ms ({timeout}) is greater than transactional.id.expiration.ms "
            f"({expiration}).",
            "Raise transactional.id.expiration.ms above every transaction's timeout.",
        )
