"""Checks of partitions and their replicas: leaders, in-sync replicas, placement."""

from collections import Counter, defaultdict
from collections.abc import Iterable

from headrace.common.types import TopicPartition
from headrace.diagnosis.snapshot import Finding, Limits, Severity, Snapshot, brokers, counted, number, texts

_THROTTLES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_FEWEST_LEADERS = 10
"""With fewer leaders on average, an uneven distribution means nothing."""


def offline_partitions(snapshot: Snapshot, _: Limits) -> Iterable[Finding]:
    """Partitions without a leader."""
    by_isr: dict[frozenset[int], list[TopicPartition]] = defaultdict(list)
    for tp, partition in snapshot.partitions():
        if snapshot.is_offline(partition):
            by_isr[frozenset(partition.isr or partition.replicas)].append(tp)
    for isr, tps in sorted(by_isr.items(), key=lambda item: sorted(item[0])):
        absent = isr - snapshot.live
        if absent:
            fix = (
                f"Start {brokers(absent)}: the last in-sync replicas are there. Only if they are lost for good, elect "
                "another replica with the tool leader-election (--election-type unclean --topic NAME --partition N), "
                "which loses the records that it does not have."
            )
        else:
            fix = (
                f"Look into the logs of {brokers(isr)} for a failed log directory, and of the controller "
                f"(broker {snapshot.cluster.controller_id}) for failed elections. Repair the directory and restart "
                "the broker."
            )
        yield Finding(
            "offline-partitions",
            Severity.ERROR,
            f"{counted(len(tps), 'partition')} cannot be read or written: no leader.",
            fix,
            texts(tps),
        )


def under_min_isr(snapshot: Snapshot, _: Limits) -> Iterable[Finding]:
    """Partitions with fewer in-sync replicas than min.insync.replicas."""
    tps = []
    for tp, partition in snapshot.partitions():
        least = number(snapshot.topic_config(tp.topic, "min.insync.replicas"))
        if least is not None and not snapshot.is_offline(partition) and len(partition.isr) < least:
            if least > len(partition.replicas):
                continue  # a contradictory setting
            tps.append(tp)
    if tps:
        yield Finding(
            "under-min-isr",
            Severity.ERROR,
            f"{counted(len(tps), 'partition')} rejected for producers with acks=all: fewer in-sync replicas than "
            "min.insync.replicas.",
            "Bring the missing replicas back (see under-replicated). Do not lower min.insync.replicas: it protects "
            "acknowledged records.",
            texts(tps),
        )


def under_replicated(snapshot: Snapshot, _: Limits) -> Iterable[Finding]:
    """Replicas that are not in sync, by broker, except those that a reassignment adds."""
    missing: dict[int, list[TopicPartition]] = defaultdict(list)
    for tp, partition in snapshot.partitions():
        if not snapshot.is_offline(partition):
            for replica in set(partition.replicas) - set(partition.isr):
                if not snapshot.is_adding(tp, replica):
                    missing[replica].append(tp)
    throttled = [
        key for configs in snapshot.broker_configs.values() for key in _THROTTLES if _is_throttle(configs.get(key))
    ]
    for broker, tps in sorted(missing.items()):
        if broker not in snapshot.live:
            problem = (
                f"Broker {broker} is not running, and {counted(len(tps), 'partition')} "
                f"{'has' if len(tps) == 1 else 'have'} a replica less."
            )
            fix = f"Start broker {broker}, or move its replicas to other brokers with the tool reassign-partitions."
        else:
            problem = (
                f"Broker {broker} is running, but its replicas of {counted(len(tps), 'partition')} are not in sync."
            )
            fix = (
                f"Wait if broker {broker} has just started. Otherwise look into its log for errors of fetchers and "
                "log directories, and check its disk and its network to the leaders."
            )
            if throttled:
                fix += f" {throttled[0]} is set: remove it if no reassignment is in progress."
        yield Finding("under-replicated", Severity.ERROR, problem, fix, texts(tps))


def _is_throttle(text: str | None) -> bool:
    rate = number(text)
    return rate is not None and rate < 2**62


def missing_brokers(snapshot: Snapshot, _: Limits) -> Iterable[Finding]:
    """Brokers that have replicas, but do not run or cannot be reached; no controller."""
    holders: Counter[int] = Counter()
    for _tp, partition in snapshot.partitions():
        holders.update(partition.replicas)
    for broker in sorted(set(holders) - snapshot.live):
        yield Finding(
            "missing-brokers",
            Severity.ERROR,
            f"Broker {broker} is not in the cluster, but {counted(holders[broker], 'replica')} should be there.",
            f"Start broker {broker}. If it is lost, start a new broker with the same broker.id and empty log "
            "directories: it copies the data from the leaders.",
        )
    addresses = {broker.id: f"{broker.host}:{broker.port}" for broker in snapshot.cluster.brokers}
    for broker, reason in sorted(snapshot.unreachable.items()):
        yield Finding(
            "missing-brokers",
            Severity.ERROR,
            f"Broker {broker} is in the cluster, but this machine cannot use it at {addresses.get(broker)}: {reason}",
            f"Check that broker {broker} responds, that its advertised.listeners has an address which clients can "
            "resolve, and that no firewall blocks it.",
        )
    if snapshot.cluster.controller_id not in snapshot.live and not snapshot.not_inspected.get("controller"):
        yield Finding(
            "missing-brokers",
            Severity.ERROR,
            "The cluster has no active controller: no leaders are elected and no topics can be created.",
            "Check that the brokers reach ZooKeeper or their coordination store, and look for elections in their logs.",
        )


def leader_imbalance(snapshot: Snapshot, limits: Limits) -> Iterable[Finding]:
    """Leaders that are not on their preferred brokers, and brokers with far more leaders than others."""
    preferred: Counter[int] = Counter()
    elsewhere: dict[int, list[TopicPartition]] = defaultdict(list)
    leaders: Counter[int] = Counter()
    for tp, partition in snapshot.partitions():
        if snapshot.is_offline(partition):
            continue
        leaders[partition.leader] += 1
        first = partition.replicas[0] if partition.replicas else -1
        preferred[first] += 1
        if partition.leader != first and first in partition.isr and first in snapshot.live:
            elsewhere[first].append(tp)
    moved = set()
    for broker, tps in sorted(elsewhere.items()):
        configs = snapshot.broker_configs.get(broker, {})
        allowed = (number(configs.get("leader.imbalance.per.broker.percentage")) or 10) / 100
        if len(tps) > allowed * preferred[broker]:
            moved.add(broker)
            is_automatic = configs.get("auto.leader.rebalance.enable") == "true"
            later = (
                "The controller moves them back within leader.imbalance.check.interval.seconds; to do it at once, use"
                if is_automatic
                else "Set auto.leader.rebalance.enable=true, or use"
            )
            yield Finding(
                "leader-imbalance",
                Severity.WARNING,
                f"Broker {broker} should lead {counted(preferred[broker], 'partition')}, but {len(tps):,} of them "
                f"{'has its leader' if len(tps) == 1 else 'have their leaders'} elsewhere.",
                f"{later} the tool leader-election (--election-type preferred --all-topic-partitions).",
                texts(tps),
            )
    average = sum(leaders.values()) / max(1, len(snapshot.live))
    if moved or average < _FEWEST_LEADERS:
        return
    for broker in sorted(snapshot.live):
        if leaders[broker] > limits.max_skew * average:
            yield Finding(
                "leader-imbalance",
                Severity.WARNING,
                f"Broker {broker} leads {counted(leaders[broker], 'partition')}; the average is {average:.0f}. It does "
                "more work than the others.",
                "Spread the preferred leaders with the tool reassign-partitions.",
            )


def rack_placement(snapshot: Snapshot, _: Limits) -> Iterable[Finding]:
    """Replicas that share a rack although there are several, and brokers without a rack."""
    racks = {broker.id: broker.rack for broker in snapshot.cluster.brokers}
    named = {rack for rack in racks.values() if rack}
    without = [broker for broker, rack in racks.items() if not rack]
    if named and without:
        yield Finding(
            "rack-placement",
            Severity.WARNING,
            f"{brokers(without).capitalize()} {'has' if len(without) == 1 else 'have'} no broker.rack, the others do. "
            "Apache Kafka then refuses to create topics with automatic assignment.",
            "Set broker.rack on every broker.",
        )
    if len(named) < 2:
        return
    tps = []
    for tp, partition in snapshot.partitions():
        found = {racks.get(replica) for replica in partition.replicas if replica in racks}
        if len(partition.replicas) > 1 and len(found) == 1 and None not in found:
            tps.append(tp)
    if tps:
        yield Finding(
            "rack-placement",
            Severity.WARNING,
            f"{counted(len(tps), 'partition')} {'has' if len(tps) == 1 else 'have'} all replicas in one rack: its "
            "failure takes them offline.",
            "Spread the replicas over the racks with the tool reassign-partitions.",
            texts(tps),
        )
