from tests.support.cli.snapshots import check, cluster, partition, severities, snapshot, topic

from headrace.client.admin.types import OngoingReassignment
from headrace.common.types import TopicPartition
from headrace.diagnosis.snapshot import Severity

HEALTHY = topic("t", partition(0, 1, [1, 2, 3]), partition(1, 2, [2, 3, 1]), partition(2, 3, [3, 1, 2]))
PARTITION_CHECKS = (
    "missing-brokers",
    "offline-partitions",
    "under-min-isr",
    "under-replicated",
    "leader-imbalance",
    "rack-placement",
)


def test_healthy_cluster_has_no_findings() -> None:
    found = snapshot(topics=HEALTHY, topic_configs={"t": {"min.insync.replicas": "2"}})
    assert [finding for name in PARTITION_CHECKS for finding in check(name, found)] == []


def test_offline_partitions_name_the_brokers_to_start() -> None:
    topics = topic("t", partition(0, -1, [3, 4], [4]), partition(1, 1, [1, 2]), partition(2, -1, [4, 3], [4]))
    (finding,) = check("offline-partitions", snapshot(topics=topics))
    assert finding.severity is Severity.ERROR
    assert finding.items == ("t-0", "t-2")
    assert "Start broker 4:" in finding.fix


def test_offline_partition_on_running_brokers() -> None:
    (finding,) = check("offline-partitions", snapshot(topics=topic("t", partition(0, -1, [1, 2], [1]))))
    assert "logs of broker 1 for a failed log directory" in finding.fix


def test_under_min_isr() -> None:
    topics = topic("t", partition(0, 1, [1, 2, 3], [1]), partition(1, 1, [1, 2, 3], [1, 2]))
    found = snapshot(topics=topics, topic_configs={"t": {"min.insync.replicas": "2"}})
    (finding,) = check("under-min-isr", found)
    assert (finding.severity, finding.items) == (Severity.ERROR, ("t-0",))


def test_too_few_replicas_for_min_isr_are_a_contradictory_setting_instead() -> None:
    found = snapshot(topics=topic("t", partition(0, 1, [1])), topic_configs={"t": {"min.insync.replicas": "2"}})
    assert check("under-min-isr", found) == []
    assert severities(check("topic-settings", found))[0] is Severity.ERROR


def test_under_replicated_by_broker() -> None:
    topics = topic("t", partition(0, 1, [1, 2, 4], [1]), partition(1, 1, [1, 4], [1]))
    running, stopped = check("under-replicated", snapshot(topics=topics))
    assert running.problem.startswith("Broker 2 is running, but")
    assert stopped.problem.startswith("Broker 4 is not running, and 2 partitions have")
    assert stopped.items == ("t-0", "t-1")
    assert "throttled" not in running.fix


def test_replicas_that_a_reassignment_adds_are_not_missing() -> None:
    topics = topic("t", partition(0, 1, [2, 3, 1], [1]), partition(1, 1, [2, 1], [1]))
    moving = {TopicPartition("t", 0): OngoingReassignment((2, 3, 1), (2, 3), (1,))}
    (finding,) = check("under-replicated", snapshot(topics=topics, reassignments=moving))
    assert finding.problem.startswith("Broker 2 is running")
    assert finding.items == ("t-1",)


def test_under_replicated_with_throttle() -> None:
    topics = topic("t", partition(0, 1, [1, 2], [1]))
    configs = {1: {"leader.replication.throttled.rate": "1000"}}
    (finding,) = check("under-replicated", snapshot(topics=topics, broker_configs=configs))
    assert "leader.replication.throttled.rate is set" in finding.fix
    unlimited = {1: {"leader.replication.throttled.rate": str(2**63 - 1)}}
    (finding,) = check("under-replicated", snapshot(topics=topics, broker_configs=unlimited))
    assert "throttled" not in finding.fix


def test_missing_and_unreachable_brokers_and_controller() -> None:
    topics = topic("t", partition(0, 1, [1, 4], [1]), partition(1, 1, [1, 4], [1]))
    found = snapshot(cluster=cluster(1, 2, controller=-1), topics=topics, unreachable={2: "connection refused"})
    missing, unreachable, controller = check("missing-brokers", found)
    assert "Broker 4 is not in the cluster, but 2 replicas" in missing.problem
    assert "cannot use it at host:9092: connection refused" in unreachable.problem
    assert "no active controller" in controller.problem


def test_leaders_away_from_their_preferred_broker() -> None:
    topics = topic("t", *(partition(number, 2, [1, 2]) for number in range(10)))
    (finding,) = check("leader-imbalance", snapshot(1, 2, topics=topics))
    assert finding.problem.startswith("Broker 1 should lead 10 partitions, but 10 of them have")
    assert "Set auto.leader.rebalance.enable=true" in finding.fix
    configs = {1: {"auto.leader.rebalance.enable": "true", "leader.imbalance.per.broker.percentage": "10"}}
    (finding,) = check("leader-imbalance", snapshot(1, 2, topics=topics, broker_configs=configs))
    assert finding.fix.startswith("The controller moves them back")


def test_preferred_leader_out_of_sync_is_no_imbalance() -> None:
    topics = topic("t", partition(0, 2, [1, 2], [2]))
    assert check("leader-imbalance", snapshot(1, 2, topics=topics)) == []


def test_broker_with_too_many_leaders() -> None:
    partitions = [partition(number, 1 if number < 38 else 2, [1 if number < 38 else 2]) for number in range(40)]
    (finding,) = check("leader-imbalance", snapshot(1, 2, topics=topic("t", *partitions)))
    assert finding.problem.startswith("Broker 1 leads 38 partitions; the average is 20")


def test_racks() -> None:
    racks = {1: "a", 2: "a", 3: "b"}
    topics = topic("t", partition(0, 1, [1, 2]), partition(1, 1, [1, 3]))
    (finding,) = check("rack-placement", snapshot(cluster=cluster(1, 2, 3, racks=racks), topics=topics))
    assert finding.items == ("t-0",)
    (finding,) = check("rack-placement", snapshot(cluster=cluster(1, 2, 3, racks={1: "a"}), topics=topics))
    assert finding.problem.startswith("Brokers 2 and 3 have no broker.rack")
