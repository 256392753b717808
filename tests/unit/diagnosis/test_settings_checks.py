import pytest
from tests.support.cli.snapshots import check, partition, severities, snapshot, topic

from headrace.diagnosis.snapshot import Severity


def test_settings_that_differ() -> None:
    configs = {
        1: {"unclean.leader.election.enable": "true", "num.io.threads": "1"},
        2: {"unclean.leader.election.enable": "false", "num.io.threads": "2"},
        3: {"unclean.leader.election.enable": "false"},
    }
    (finding,) = check("different-settings", snapshot(broker_configs=configs))
    assert "unclean.leader.election.enable differs between brokers: true on 1; false on 2 and 3." in finding.problem


@pytest.mark.parametrize(
    ("least", "severity", "words"),
    [
        ("3", Severity.ERROR, "every write with acks=all fails"),
        ("2", Severity.WARNING, "the stop of any broker stops writes"),
        ("1", Severity.NOTE, "may be on one broker only"),
    ],
)
def test_min_isr_and_replicas(least: str, severity: Severity, words: str) -> None:
    topics = topic("t", partition(0, 1, [1, 2]))
    configs = {"t": {"min.insync.replicas": least}}
    (finding,) = check("topic-settings", snapshot(topics=topics, topic_configs=configs))
    assert finding.severity is severity
    assert finding.items == ("t",)
    assert words in finding.problem


def test_one_replica_is_a_problem_of_clusters_only() -> None:
    topics = topic("t", partition(0, 1, [1]))
    (finding,) = check("topic-settings", snapshot(1, 2, topics=topics))
    assert finding.severity is Severity.NOTE
    assert check("topic-settings", snapshot(1, topics=topics)) == []


@pytest.mark.parametrize(
    ("configs", "words"),
    [
        ({"segment.bytes": "1000", "retention.bytes": "500"}, "smaller than segment.bytes"),
        ({"segment.bytes": "1000", "max.message.bytes": "2000"}, "larger than segment.bytes"),
        ({"unclean.leader.election.enable": "true"}, "unclean leader elections"),
    ],
)
def test_contradictory_topic_settings(configs: dict[str, str], words: str) -> None:
    topics = topic("t", partition(0, 1, [1, 2, 3]))
    (finding,) = check("topic-settings", snapshot(topics=topics, topic_configs={"t": configs}))
    assert finding.severity is Severity.WARNING
    assert words in finding.problem


def test_consistent_topic_settings() -> None:
    topics = topic("t", partition(0, 1, [1, 2, 3]))
    configs = {
        "segment.bytes": "1000",
        "retention.bytes": "-1",
        "max.message.bytes": "1000",
        "min.insync.replicas": "2",
        "cleanup.policy": "delete",
    }
    assert check("topic-settings", snapshot(topics=topics, topic_configs={"t": configs})) == []


def test_internal_topic_that_is_not_compacted() -> None:
    topics = topic("__consumer_offsets", partition(0, 1, [1, 2, 3]))
    configs = {"__consumer_offsets": {"cleanup.policy": "delete", "min.insync.replicas": "1"}}
    assert severities(check("topic-settings", snapshot(topics=topics, topic_configs=configs))) == [Severity.ERROR]


def test_broker_settings_and_the_size_of_the_cluster() -> None:
    configs = {
        "default.replication.factor": "3",
        "min.insync.replicas": "4",
        "offsets.topic.replication.factor": "3",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "2",
        "transaction.max.timeout.ms": "900000",
        "transactional.id.expiration.ms": "1000",
    }
    findings = check("broker-settings", snapshot(1, 2, broker_configs={1: configs, 2: configs}))
    assert severities(findings) == [
        Severity.WARNING,
        Severity.WARNING,
        Severity.NOTE,
        Severity.ERROR,
        Severity.WARNING,
    ]
    created = topic("__consumer_offsets", partition(0, 1, [1, 2]))
    later = check("broker-settings", snapshot(1, 2, topics=created, broker_configs={1: configs}))
    assert len(later) == 4


def test_defaults_contradict_nothing() -> None:
    configs = {
        "default.replication.factor": "1",
        "min.insync.replicas": "1",
        "offsets.topic.replication.factor": "3",
        "transaction.state.log.replication.factor": "3",
        "transaction.state.log.min.isr": "2",
    }
    assert check("broker-settings", snapshot(1, 2, 3, broker_configs={1: configs})) == []
