from pathlib import Path
from typing import Any

import pytest
from tests.support.broker.admin_broker import AdminBroker

from headrace.cluster.commands import PartitionState
from headrace.common.errors import (
    InvalidRequestError,
    InvalidTopicError,
    LeaderNotAvailableError,
    ListenerNotFoundError,
    UnknownTopicOrPartitionError,
)
from headrace.common.ids import ZERO_UUID, Uuid
from headrace.common.types import TopicPartition
from headrace.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)


def describe(
    broker: AdminBroker, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None, **options: Any
) -> Any:
    return broker.call(
        DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in names],
            response_partition_limit=limit,
            cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
        ),
        **options,
    )


def shape(reply: Any) -> list[tuple[str, list[int]]]:
    return [(topic.name, [partition.partition_index for partition in topic.partitions]) for topic in reply.topics]


def next_of(reply: Any) -> tuple[str, int] | None:
    return None if reply.next_cursor is None else (reply.next_cursor.topic_name, reply.next_cursor.partition_index)


@pytest.fixture
def filled(broker: AdminBroker) -> AdminBroker:
    for name, partitions in (("b", 3), ("a", 1), ("asg", 2)):
        broker.create(name, partitions)
    return broker


def test_topics_are_sorted_by_name(filled: AdminBroker) -> None:
    reply = describe(filled, "b", "a", "a")
    assert shape(reply) == [("a", [0]), ("b", [0, 1, 2])]
    assert next_of(reply) is None
    topic = reply.topics[0]
    assert (topic.error_code, topic.topic_id, topic.is_internal) == (0, filled.image.topic_id("a"), False)
    assert topic.topic_authorized_operations == 3576  # as Kafka without an authorizer
    (partition,) = topic.partitions
    assert (partition.error_code, partition.leader_id, partition.leader_epoch) == (0, 1, 0)
    assert (partition.replica_nodes, partition.isr_nodes, partition.offline_replicas) == ([1], [1], [])
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == ([], [])


def test_describes_all_topics(filled: AdminBroker) -> None:
    assert shape(describe(filled)) == [("a", [0]), ("asg", [0, 1]), ("b", [0, 1, 2])]


@pytest.mark.parametrize("limit", range(1, 8))
def test_pages_contain_each_partition_once(filled: AdminBroker, limit: int) -> None:
    seen: list[tuple[str, int]] = []
    cursor: tuple[str, int] | None = None
    while True:
        reply = describe(filled, limit=limit, cursor=cursor)
        page = [(name, index) for name, indexes in shape(reply) for index in indexes]
        assert len(page) <= limit
        seen += page
        cursor = next_of(reply)
        if cursor is None:
            break
    assert seen == [("a", 0), ("asg", 0), ("asg", 1), ("b", 0), ("b", 1), ("b", 2)]


def test_cursor_points_to_the_next_topic(filled: AdminBroker) -> None:
    assert next_of(describe(filled, limit=1)) == ("asg", 0)
    assert next_of(describe(filled, "asg", "b", limit=2)) == ("b", 0)
    assert next_of(describe(filled, "a", "nope", limit=1)) == ("nope", 0)
    assert next_of(describe(filled, "b", limit=3)) is None


@pytest.mark.parametrize("limit", [0, -5])
def test_a_page_has_at_least_one_partition(filled: AdminBroker, limit: int) -> None:
    assert shape(describe(filled, "b", limit=limit)) == [("b", [0])]


def test_broker_limits_the_page_size(tmp_path: Path) -> None:
    with AdminBroker(tmp_path, max_request_partition_size_limit=2) as broker:
        broker.create("t", 3)
        assert shape(describe(broker, "t")) == [("t", [0, 1])]


def test_cursor_beyond_the_last_partition(filled: AdminBroker) -> None:
    assert shape(describe(filled, "b", cursor=("b", 99))) == [("b", [])]


def test_cursor_at_a_deleted_topic(filled: AdminBroker) -> None:
    assert shape(describe(filled, cursor=("aa", 5))) == [("asg", [0, 1]), ("b", [0, 1, 2])]


@pytest.mark.parametrize("cursor", [("aa", 0), ("b", -2)])
def test_refuses_invalid_cursors(filled: AdminBroker, cursor: tuple[str, int]) -> None:
    (topic,) = describe(filled, "b", cursor=cursor).topics
    assert (topic.name, topic.error_code, topic.partitions) == ("b", InvalidRequestError.code, [])


def test_errors_for_missing_topics(filled: AdminBroker) -> None:
    unknown, invalid = describe(filled, "nope", "x y").topics
    assert (unknown.name, unknown.error_code, unknown.topic_id) == (
        "nope",
        UnknownTopicOrPartitionError.code,
        ZERO_UUID,
    )
    assert (invalid.name, invalid.error_code) == ("x y", InvalidTopicError.code)


def test_internal_topics_are_marked(broker: AdminBroker) -> None:
    broker.create("__consumer_offsets")
    assert describe(broker).topics[0].is_internal


def test_errors_for_unavailable_leaders(broker: AdminBroker) -> None:
    topic_id = Uuid(int=5)
    states = [
        PartitionState(TopicPartition("t", index), topic_id, leader, 4, (1,), 0, (1, 2), offline_replicas=(2,))
        for index, leader in enumerate((-1, 2, 1))
    ]
    broker.update(states)
    partitions = describe(broker, "t").topics[0].partitions
    assert [(each.error_code, each.leader_id) for each in partitions] == [
        (LeaderNotAvailableError.code, -1),
        (LeaderNotAvailableError.code, -1),
        (0, 1),
    ]
    assert partitions[0].offline_replicas == [2]
    assert partitions[0].leader_epoch == 4
    unseen = describe(broker, "t", listener="INSIDE").topics[0].partitions[2]
    assert (unseen.error_code, unseen.leader_id) == (ListenerNotFoundError.code, -1)
