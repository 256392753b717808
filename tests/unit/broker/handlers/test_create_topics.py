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
    ThrottlingQuotaExceededError,
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


def test_responds_to_names_and_values_of_any_length(broker: AdminBroker) -> None:
    """Error messages quote the value, and strings in a response have at most 32,767 bytes."""
    long = "n" * 32_767
    results = create(broker, topic(long), topic("t", retention_ms=long), topic("u", **{long: "1"}))
    assert [result.error_code for result in results] == [InvalidTopicError.code, 40, 40]


def test_topic_has_leaders_when_the_response_is_sent(broker: AdminBroker) -> None:
    (result,) = create(broker, topic("t", 3, 1, retention_ms="5000", cleanup_policy="compact"))
    assert (result.error_code, result.error_message) == (0, None)
    assert (result.num_partitions, result.replication_factor) == (3, 1)
    assert result.topic_id == broker.image.topic_id("t") != ZERO_UUID
    assert broker.image.topic_is_ready("t", 3)
    assert broker.stored(ConfigEntity.topic("t")) == {"retention.ms": "5000", "cleanup.policy": "compact"}
    assert broker.log("t").config.retention_ms == 5000


def test_response_has_configs_and_sources(broker: AdminBroker) -> None:
    (result,) = create(broker, topic(retention_ms="5000"))
    configs = {config.name: (config.value, config.config_source) for config in result.configs}
    assert configs["retention.ms"] == ("5000", 1)
    assert configs["segment.bytes"] == (str(1024**3), 5)
    assert list(configs) == sorted(configs)


def test_uses_the_brokers_default_counts(broker: AdminBroker) -> None:
    (result,) = create(broker, topic(partitions=-1, replicas=-1))
    assert (result.num_partitions, result.replication_factor) == (2, 1)


def test_creates_with_manual_assignment(broker: AdminBroker) -> None:
    (result,) = create(broker, topic(partitions=-1, replicas=-1, assignment=[(1, [1]), (0, [1])]))
    assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 2, 1)


@pytest.mark.parametrize("version", range(2, 8))
def test_all_versions(broker: AdminBroker, version: int) -> None:
    (result,) = create(broker, topic(f"v{version}"), version=version)
    assert (result.name, result.error_code) == (f"v{version}", 0)
    assert (result.topic_id != ZERO_UUID) == (version == 7)


def test_validation_creates_nothing(broker: AdminBroker) -> None:
    (result,) = create(broker, topic("t", 3, retention_ms="1"), validate_only=True)
    assert (result.error_code, result.num_partitions, result.topic_id) == (0, 3, ZERO_UUID)
    assert not broker.image.has_topic("t")
    assert create(broker, topic("t"))[0].error_code == 0
    (result,) = create(broker, topic("t"), validate_only=True)
    assert result.error_code == TopicAlreadyExistsError.code


@pytest.mark.parametrize(
    ("asked", "error", "message"),
    [
        (topic(""), InvalidTopicError, "the empty string is not allowed"),
        (topic("x y"), InvalidTopicError, "other than ASCII alphanumerics"),
        (topic("x" * 250), InvalidTopicError, "is longer than the max allowed length 249"),
        (topic(partitions=0), InvalidPartitionsError, ""),
        (topic(partitions=-2), InvalidPartitionsError, ""),
        (topic(partitions=10_001), PolicyViolationError, "Excessively large number of partitions per request."),
        (
            topic(partitions=2**31 - 1),
            PolicyViolationError,
            "Excessively large number of partitions per request.",
        ),
        (topic(replicas=0), InvalidReplicationFactorError, ""),
        (topic(replicas=3), InvalidReplicationFactorError, ""),
        (
            topic(assignment=[(0, [1])]),
            InvalidRequestError,
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        ),
        (
            topic("t", -1, -1, [(0, [1]), (2, [1])]),
            InvalidReplicationAssignmentError,
            "partitions should be a consecutive 0-based integer sequence",
        ),
        (
            topic("t", -1, -1, [(0, [1]), (0, [1])]),
            InvalidReplicationAssignmentError,
            "Found multiple manual partition assignments for partition 0",
        ),
        (topic("t", -1, -1, [(0, [9])]), InvalidReplicationAssignmentError, "9"),
        (topic("t", -1, -1, [(0, [1, 1])]), InvalidReplicationAssignmentError, "includes the broker 1 more than once"),
        (topic("t", -1, -1, [(0, [])]), InvalidReplicationAssignmentError, ""),
        (topic(retention_ms="soon"), InvalidConfigurationError, "Invalid value soon for configuration retention.ms"),
        (
            topic(retention_ms=None),
            InvalidConfigurationError,
            "Null value not supported for topic configs: retention.ms",
        ),
        (
            topic(retention_msx="1"),
            InvalidConfigurationError,
            "Unknown topic config name: retention.msx, did you mean retention.ms?",
        ),
    ],
)
def test_refuses_invalid_topics(
    broker: AdminBroker, asked: CreatableTopic, error: type[KafkaError], message: str
) -> None:
    result, other = create(broker, asked, topic("other"))
    assert result.error_code == error.code, result.error_message
    assert message in result.error_message
    assert (result.topic_id, result.num_partitions, result.replication_factor) == (ZERO_UUID, -1, -1)
    assert other.error_code == 0
    assert set(broker.image.topics) == {"other"}


def test_refuses_existing_and_colliding_names(broker: AdminBroker) -> None:
    create(broker, topic("a.b"))
    taken, clash = create(broker, topic("a.b"), topic("a_b"))
    assert (taken.error_code, taken.error_message) == (TopicAlreadyExistsError.code, "Topic 'a.b' already exists.")
    assert clash.error_code == InvalidTopicError.code
    assert "collides with existing topic: a.b" in clash.error_message


def test_refuses_duplicate_topics_once(broker: AdminBroker) -> None:
    results = create(broker, topic("d"), topic("e"), topic("d", 2))
    assert [(result.name, result.error_code) for result in results] == [("d", InvalidRequestError.code), ("e", 0)]
    assert results[0].error_message == "Duplicate topic name."
    assert not broker.image.has_topic("d")


def test_limits_the_partitions_of_a_request(broker: AdminBroker) -> None:
    results = create(broker, topic("a", 9_999), topic("b", 2), topic("c", 1), validate_only=True)
    assert [result.error_code for result in results] == [0, PolicyViolationError.code, 0]


def test_times_out_while_the_topic_is_created(broker: AdminBroker) -> None:
    broker.controller_sleeps = True
    (result,) = create(broker, topic("t"), timeout_ms=0)
    assert (result.error_code, result.num_partitions) == (RequestTimedOutError.code, -1)
    assert create(broker, topic("t"))[0].error_code == TopicAlreadyExistsError.code


def test_accepts_no_topics(broker: AdminBroker) -> None:
    assert create(broker) == []


def test_controller_mutation_quota(broker: AdminBroker) -> None:
    broker.limit_mutations(1)
    # Neither an invalid topic nor a validation uses anything.
    create(broker, topic("bad name", 500), topic("valid", 500), validate_only=True)
    first, invalid, second, third = create(broker, topic("a", 11), topic("bad name", 90), topic("b", 1), topic("c", 1))
    assert [first.error_code, second.error_code] == [0, 0]
    assert invalid.error_code == InvalidTopicError.code
    assert third.error_code == ThrottlingQuotaExceededError.code
    assert broker.image.topic("c") is None
    (older,) = create(broker, topic("d", 1), version=5)
    assert older.error_code == 0
    (again,) = create(broker, topic("e", 1))
    assert again.error_code == ThrottlingQuotaExceededError.code
    broker.clock.advance(2000)
    (later,) = create(broker, topic("e", 1))
    assert later.error_code == 0
