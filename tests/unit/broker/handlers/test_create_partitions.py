from typing import Any

import pytest
from tests.support.broker.admin_broker import AdminBroker

from headrace.common.errors import (
    InvalidPartitionsError,
    InvalidReplicationAssignmentError,
    InvalidRequestError,
    KafkaError,
    PolicyViolationError,
    RequestTimedOutError,
    ThrottlingQuotaExceededError,
    UnknownTopicOrPartitionError,
)
from headrace.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)


def topic(name: str, count: int, assignments: list[list[int]] | None = None) -> CreatePartitionsTopic:
    given = None if assignments is None else [CreatePartitionsAssignment(broker_ids=ids) for ids in assignments]
    return CreatePartitionsTopic(name=name, count=count, assignments=given)


def grow(broker: AdminBroker, *topics: CreatePartitionsTopic, version: int = 3, **fields: Any) -> list[Any]:
    request = CreatePartitionsRequest(topics=list(topics), **{"timeout_ms": 1000, **fields})
    return list(broker.call(request, version).results)


def partitions(broker: AdminBroker, name: str) -> int:
    found = broker.image.topic(name)
    return len(found.partitions) if found is not None else 0


@pytest.mark.parametrize("version", range(4))
def test_adds_partitions(broker: AdminBroker, version: int) -> None:
    made = broker.create("t", 2)
    (result,) = grow(broker, topic("t", 5), version=version)
    assert (result.name, result.error_code, result.error_message) == ("t", 0, None)
    assert partitions(broker, "t") == 5
    assert broker.image.topic_id("t") == made.topic_id
    assert broker.log("t", 4).log_end_offset == 0


def test_adds_partitions_with_manual_assignment(broker: AdminBroker) -> None:
    broker.create("t", 2)
    assert grow(broker, topic("t", 4, [[1], [1]]))[0].error_code == 0
    assert partitions(broker, "t") == 4


def test_validating_changes_nothing(broker: AdminBroker) -> None:
    broker.create("t", 2)
    results = grow(broker, topic("t", 5), topic("nope", 5), validate_only=True)
    assert [result.error_code for result in results] == [0, UnknownTopicOrPartitionError.code]
    assert partitions(broker, "t") == 2


@pytest.mark.parametrize(
    ("asked", "error", "message"),
    [
        (
            topic("t", 1),
            InvalidPartitionsError,
            "The topic t currently has 2 partition(s); 1 would not be an increase.",
        ),
        (topic("t", 2), InvalidPartitionsError, "Topic already has 2 partition(s)."),
        (topic("t", 0), InvalidPartitionsError, ""),
        (topic("t", -1), InvalidPartitionsError, ""),
        (topic("t", 10_003), PolicyViolationError, "Excessively large number of partitions per request."),
        (topic("t", 2**31 - 1), PolicyViolationError, "Excessively large number of partitions per request."),
        (topic("nope", 3), UnknownTopicOrPartitionError, "Topic 'nope' does not exist."),
        (topic("x y", 3), UnknownTopicOrPartitionError, ""),
        (topic("t", 3, []), InvalidReplicationAssignmentError, ""),
        (topic("t", 3, [[1], [1]]), InvalidReplicationAssignmentError, ""),
        (topic("t", 3, [[9]]), InvalidReplicationAssignmentError, "9"),
        (topic("t", 3, [[1, 1]]), InvalidReplicationAssignmentError, ""),
        (topic("t", 3, [[]]), InvalidReplicationAssignmentError, ""),
    ],
)
def test_refuses_invalid_requests(
    broker: AdminBroker, asked: CreatePartitionsTopic, error: type[KafkaError], message: str
) -> None:
    broker.create("t", 2)
    broker.create("other")
    result, other = grow(broker, asked, topic("other", 2))
    assert result.error_code == error.code, result.error_message
    assert message in result.error_message
    assert other.error_code == 0
    assert (partitions(broker, "t"), partitions(broker, "other")) == (2, 2)


def test_refuses_duplicate_topics_once(broker: AdminBroker) -> None:
    broker.create("t")
    results = grow(broker, topic("t", 2), topic("t", 3))
    assert [(result.error_code, result.error_message) for result in results] == [
        (InvalidRequestError.code, "Duplicate topic name.")
    ]
    assert partitions(broker, "t") == 1


def test_times_out_while_partitions_are_created(broker: AdminBroker) -> None:
    broker.create("t")
    broker.controller_sleeps = True
    assert grow(broker, topic("t", 2), timeout_ms=0)[0].error_code == RequestTimedOutError.code
    assert grow(broker, topic("t", 2))[0].error_code == InvalidPartitionsError.code  # the store has them


def test_controller_mutation_quota(broker: AdminBroker) -> None:
    for name in "abc":
        broker.create(name, 2)
    broker.limit_mutations(1)
    # Neither an invalid count nor a validation uses anything.
    assert grow(broker, topic("a", 1))[0].error_code == InvalidPartitionsError.code
    assert grow(broker, topic("a", 100), validate_only=True)[0].error_code == 0
    results = grow(broker, topic("a", 14), topic("b", 3))
    assert [result.error_code for result in results] == [0, ThrottlingQuotaExceededError.code]
    assert [partitions(broker, name) for name in "ab"] == [14, 2]
    assert grow(broker, topic("c", 3), version=2)[0].error_code == 0
    broker.clock.advance(2000)
    assert grow(broker, topic("b", 3))[0].error_code == 0
