from typing import Any

import pytest
from tests.support.broker.admin_broker import AdminBroker

from headrace.cluster.config_store import ConfigEntity
from headrace.common.errors import (
    InvalidConfigurationError,
    InvalidPartitionsError,
    InvalidReplicationAssignmentError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    InvalidTopicError,
    KafkaError,
    PolicyViolationError,
    RequestTimedOutError,
    TopicAlreadyExistsError,
)
from headrace.common.ids import ZERO_UUID
from headrace.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)


def topic(
    name: str = "t",
    partitions: int = 1,
    replicas: int = 1,
    assignment: list[tuple[int, list[int]]] | None = None,
    **configs: str | None,
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=ids) for index, ids in assignment or []
        ],
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )


def create(broker: AdminBroker, *topics: CreatableTopic, version: int = 7, **fields: Any) -> list[Any]:
    reply = broker.call(CreateTopicsRequest(topics=list(topics), **fields), version)
    return list(reply.topics)


def test_names_and_values_of_any_length_are_refused_in_a_reply(broker: AdminBroker) -> None:
    """What is refused is quoted, and a reply's strings end at 32,767 bytes."""
    long = "n" * 32_767
    results = create(broker, topic(long), topic("t", retention_ms=long), topic("u", **{long: "1"}))
    assert [result.error_code for result in results] == [InvalidTopicError.code, 40, 40]


def test_a_topic_is_there_with_leaders_when_the_reply_comes(broker: AdminBroker) -> None:
    (result,) = create(broker, topic("t", 3, 1, retention_ms="5000", cleanup_policy="compact"))
    assert (result.error_code, result.error_message) == (0, None)
    assert (result.num_partitions, result.replication_factor) == (3, 1)
    assert result.topic_id == broker.image.topic_id("t") != ZERO_UUID
    assert broker.image.topic_is_ready("t", 3)
    assert broker.stored(ConfigEntity.topic("t")) == {"retention.ms": "5000", "cleanup.policy": "compact"}
    assert broker.log("t").config.retention_ms == 5000


def test_the_reply_tells_all_settings_and_where_they_come_from(broker: AdminBroker) -> None:
    (result,) = create(broker, topic(retention_ms="5000"))
    configs = {config.name: (config.value, config.config_source) for config in result.configs}
    assert configs["retention.ms"] == ("5000", 1)
    assert configs["segment.bytes"] == (str(1024**3), 5)
    assert list(configs) == sorted(configs)


def test_numbers_may_be_left_to_the_broker(broker: AdminBroker) -> None:
    (result,) = create(broker, topic(partitions=-1, replicas=-1))
    assert (result.num_partitions, result.replication_factor) == (2, 1)


def test_replicas_may_be_given(broker: AdminBroker) -> None:
    (result,) = create(broker, topic(partitions=-1, replicas=-1, assignment=[(1, [1]), (0, [1])]))
    assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 2, 1)


@pytest.mark.parametrize("version", range(2, 8))
def test_all_versions(broker: AdminBroker, version: int) -> None:
    (result,) = create(broker, topic(f"v{version}"), version=version)
    assert (result.name, result.error_code) == (f"v{version}", 0)
    assert (result.topic_id != ZERO_UUID) == (version == 7)


def test_validating_makes_nothing(broker: AdminBroker) -> None:
    (result,) = create(broker, topic("t", 3, retention_ms="1"), validate_only=True)
    assert (result.error_code, result.num_partitions, result.topic_id) == (0, 3, ZERO_UUID)
    assert not broker.image.has_topic("t")
    assert create(broker, topic("t"))[0].error_code == 0
    (result,) = create(broker, topic("t"), validate_only=True)
    assert result.error_code == TopicAlreadyExistsError.code


@pytest.mark.parametrize(
    ("asked", "error", "message"),
    [
        (topic(""), InvalidTopicError, "must not be empty"),
        (topic("x y"), InvalidTopicError, "other than ASCII alphanumerics"),
        (topic("x" * 250), InvalidTopicError, "is 250, which is longer than the maximum of 249"),
        (topic(partitions=0), InvalidPartitionsError, ""),
        (topic(partitions=-2), InvalidPartitionsError, ""),
        (topic(partitions=10_001), PolicyViolationError, "at most 10000 partitions, topic 't' exceeds the limit"),
        (
            topic(partitions=2**31 - 1),
            PolicyViolationError,
            "at most 10000 partitions, topic 't' exceeds the limit",
        ),
        (topic(replicas=0), InvalidReplicationFactorError, ""),
        (topic(replicas=3), InvalidReplicationFactorError, ""),
        (topic(assignment=[(0, [1])]), InvalidRequestError, "must be -1, not 1 and 1"),
        (
            topic("t", -1, -1, [(0, [1]), (2, [1])]),
            InvalidReplicationAssignmentError,
            "partitions 0 to 1, not",
        ),
        (
            topic("t", -1, -1, [(0, [1]), (0, [1])]),
            InvalidReplicationAssignmentError,
            "assigns replicas to partition t-0 more than once",
        ),
        (topic("t", -1, -1, [(0, [9])]), InvalidReplicationAssignmentError, "9"),
        (topic("t", -1, -1, [(0, [1, 1])]), InvalidReplicationAssignmentError, "Duplicate brokers"),
        (topic("t", -1, -1, [(0, [])]), InvalidReplicationAssignmentError, ""),
        (topic(retention_ms="soon"), InvalidConfigurationError, "retention.ms='soon'"),
        (
            topic(retention_ms=None),
            InvalidConfigurationError,
            "Null value not supported for topic config retention.ms",
        ),
        (
            topic(retention_msx="1"),
            InvalidConfigurationError,
            "Unknown topic config name: retention.msx, did you mean retention.ms?",
        ),
    ],
)
def test_topics_that_cannot_be(
    broker: AdminBroker, asked: CreatableTopic, error: type[KafkaError], message: str
) -> None:
    result, other = create(broker, asked, topic("other"))
    assert result.error_code == error.code, result.error_message
    assert message in result.error_message
    assert (result.topic_id, result.num_partitions, result.replication_factor) == (ZERO_UUID, -1, -1)
    assert other.error_code == 0
    assert set(broker.image.topics) == {"other"}


def test_a_name_that_is_taken_or_clashes(broker: AdminBroker) -> None:
    create(broker, topic("a.b"))
    taken, clash = create(broker, topic("a.b"), topic("a_b"))
    assert (taken.error_code, taken.error_message) == (TopicAlreadyExistsError.code, "Topic 'a.b' already exists.")
    assert clash.error_code == InvalidTopicError.code
    assert "collides with existing topic 'a.b'" in clash.error_message


def test_a_name_that_comes_twice_is_refused_once(broker: AdminBroker) -> None:
    results = create(broker, topic("d"), topic("e"), topic("d", 2))
    assert [(result.name, result.error_code) for result in results] == [("d", InvalidRequestError.code), ("e", 0)]
    assert results[0].error_message == "Duplicate topic in request: d"
    assert not broker.image.has_topic("d")


def test_partitions_of_all_topics_in_a_request_are_counted(broker: AdminBroker) -> None:
    results = create(broker, topic("a", 9_999), topic("b", 2), topic("c", 1), validate_only=True)
    assert [result.error_code for result in results] == [0, PolicyViolationError.code, 0]


def test_time_may_run_out_while_the_topic_is_made(broker: AdminBroker) -> None:
    broker.controller_sleeps = True
    (result,) = create(broker, topic("t"), timeout_ms=0)
    assert (result.error_code, result.num_partitions) == (RequestTimedOutError.code, -1)
    assert create(broker, topic("t"))[0].error_code == TopicAlreadyExistsError.code


def test_nothing_asked_for(broker: AdminBroker) -> None:
    assert create(broker) == []
