from pathlib import Path
from typing import Any

import pytest
from tests.support.broker.admin_broker import AdminBroker

from headrace.common.errors import (
    InvalidRequestError,
    RequestTimedOutError,
    ThrottlingQuotaExceededError,
    TopicDeletionDisabledError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from headrace.common.ids import ZERO_UUID, Uuid
from headrace.common.types import TopicPartition
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

OTHER_ID = Uuid(int=77)


def delete_by_name(broker: AdminBroker, *names: str, version: int = 5, timeout_ms: int = 1000) -> list[Any]:
    return list(broker.call(DeleteTopicsRequest(topic_names=list(names), timeout_ms=timeout_ms), version).responses)


def delete(broker: AdminBroker, *topics: tuple[str | None, Uuid]) -> list[Any]:
    states = [DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in topics]
    return list(broker.call(DeleteTopicsRequest(topics=states, timeout_ms=1000), 6).responses)


@pytest.mark.parametrize("version", range(1, 6))
def test_deletes_by_name(broker: AdminBroker, version: int) -> None:
    broker.create("t", 2)
    gone, unknown = delete_by_name(broker, "t", "nope", version=version)
    assert (gone.name, gone.error_code) == ("t", 0)
    assert (unknown.name, unknown.error_code) == ("nope", UnknownTopicOrPartitionError.code)
    assert not broker.image.has_topic("t")
    assert broker.log_manager.get(TopicPartition("t", 0)) is None


def test_deletes_by_id_or_name(broker: AdminBroker) -> None:
    first, second = broker.create("a"), broker.create("b")
    by_id, by_name = delete(broker, (None, first.topic_id), ("b", ZERO_UUID))
    assert (by_id.name, by_id.topic_id, by_id.error_code) == ("a", first.topic_id, 0)
    assert (by_name.name, by_name.topic_id, by_name.error_code) == ("b", second.topic_id, 0)
    assert not broker.image.topics


def test_errors_for_missing_topics(broker: AdminBroker) -> None:
    name, topic_id = delete(broker, ("nope", ZERO_UUID), (None, OTHER_ID))
    assert (name.name, name.error_code) == ("nope", UnknownTopicOrPartitionError.code)
    assert (topic_id.name, topic_id.topic_id, topic_id.error_code) == (None, OTHER_ID, UnknownTopicIdError.code)


def test_refuses_both_or_neither_of_name_and_id(broker: AdminBroker) -> None:
    made = broker.create("t")
    both, neither = delete(broker, ("t", made.topic_id), (None, ZERO_UUID))
    assert (both.error_code, both.error_message) == (
        InvalidRequestError.code,
        "You may not specify both topic name and topic id.",
    )
    assert (neither.error_code, neither.error_message) == (
        InvalidRequestError.code,
        "Neither topic name nor id were specified.",
    )
    assert broker.image.has_topic("t")


def test_refuses_duplicate_topics(broker: AdminBroker) -> None:
    made, other = broker.create("t"), broker.create("other")
    results = delete_by_name(broker, "t", "t")
    assert [(result.name, result.error_code) for result in results] == [("t", InvalidRequestError.code)]
    results = delete(broker, ("t", ZERO_UUID), (None, made.topic_id), (None, other.topic_id), (None, other.topic_id))
    assert [(result.error_code, result.error_message) for result in results] == [
        (InvalidRequestError.code, "Duplicate topic name."),
        (InvalidRequestError.code, "Duplicate topic id."),
        (InvalidRequestError.code, "Duplicate topic id."),
    ]
    assert set(broker.image.topics) == {"t", "other"}


def test_refuses_if_deletion_is_disabled(tmp_path: Path) -> None:
    with AdminBroker(tmp_path, delete_topic_enable="false") as broker:
        broker.create("t")
        codes = [delete_by_name(broker, "t", version=version)[0].error_code for version in (1, 2, 3, 5)]
        disabled = TopicDeletionDisabledError.code
        assert codes == [InvalidRequestError.code, InvalidRequestError.code, disabled, disabled]
        assert broker.image.has_topic("t")


def test_times_out_while_the_topic_is_deleted(broker: AdminBroker) -> None:
    broker.create("t")
    broker.controller_sleeps = True
    (result,) = delete_by_name(broker, "t", timeout_ms=0)
    assert result.error_code == RequestTimedOutError.code
    assert "still being deleted" in result.error_message


def test_accepts_no_topics(broker: AdminBroker) -> None:
    assert delete(broker) == []


def test_controller_mutation_quota(broker: AdminBroker) -> None:
    for name, partitions in (("a", 12), ("b", 1), ("c", 1)):
        broker.create(name, partitions)
    broker.limit_mutations(1)
    results = delete_by_name(broker, "missing", "a", "b")
    assert [result.error_code for result in results] == [
        UnknownTopicOrPartitionError.code,
        0,
        ThrottlingQuotaExceededError.code,
    ]
    assert broker.image.topic("b") is not None
    assert delete_by_name(broker, "b", version=4)[0].error_code == 0
    assert delete_by_name(broker, "c")[0].error_code == ThrottlingQuotaExceededError.code
    broker.clock.advance(2000)
    assert delete_by_name(broker, "c")[0].error_code == 0
