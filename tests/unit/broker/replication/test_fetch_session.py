"""The follower's side of fetch sessions."""

import pytest

from headrace.broker.replication.fetch_session import ReplicaFetchSession, RequestedPartition
from headrace.common.errors import FetchSessionIdNotFoundError, InvalidFetchSessionEpochError
from headrace.common.ids import ZERO_UUID, Uuid
from headrace.common.types import TopicPartition
from headrace.protocol.messages.fetch import FetchRequest

ID, OTHER_ID = Uuid(int=1), Uuid(int=2)
A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def partition(offset: int = 0, topic_id: Uuid = ID) -> RequestedPartition:
    return RequestedPartition(topic_id, offset, 0, 5, 4, 1000)


def sent(request: FetchRequest) -> tuple[int, int, list[tuple[int, int]], list[int]]:
    """Returns session id and epoch, partitions with their offsets, and forgotten partitions."""
    return (
        request.session_id,
        request.session_epoch,
        [(part.partition, part.fetch_offset) for topic in request.topics for part in topic.partitions],
        [index for topic in request.forgotten_topics_data for index in topic.partitions],
    )


@pytest.fixture
def session() -> ReplicaFetchSession:
    """A session with id 7, which has both partitions at offset 0."""
    session = ReplicaFetchSession()
    assert sent(session.build({A: partition(), B: partition()}, (), True)) == (0, 0, [(0, 0), (1, 0)], [])
    session.responded(7, 0)
    assert not session.is_full
    return session


def test_first_request_has_all_fields() -> None:
    (topic,) = ReplicaFetchSession().build({A: partition(3)}, (), True).topics
    (part,) = topic.partitions
    assert (topic.topic, topic.topic_id) == ("t", ID)
    assert (part.fetch_offset, part.log_start_offset, part.partition_max_bytes) == (3, 0, 1000)
    assert (part.current_leader_epoch, part.last_fetched_epoch) == (5, 4)


def test_sends_only_changes(session: ReplicaFetchSession) -> None:
    assert sent(session.build({A: partition(2), B: partition()}, (), True)) == (7, 1, [(0, 2)], [])
    session.responded(7, 0)
    assert sent(session.build({A: partition(2)}, (), True)) == (7, 2, [], [])


def test_forgets(session: ReplicaFetchSession) -> None:
    assert sent(session.build({}, [A, TopicPartition("never", 0)], True)) == (7, 1, [], [0])
    session.responded(7, 0)
    assert sent(session.build({A: partition()}, (), True)) == (7, 2, [(0, 0)], [])


def test_recreated_topic(session: ReplicaFetchSession) -> None:
    assert sent(session.build({A: partition(topic_id=OTHER_ID)}, (), True)) == (7, 1, [(0, 0)], [0])


def test_new_topic_id_in_a_session_by_name() -> None:
    """The leader removes what is forgotten after it has added the rest: it would lose the partition."""
    session = ReplicaFetchSession()
    session.build({A: partition(topic_id=ZERO_UUID)}, (), False)
    session.responded(7, 0)
    assert sent(session.build({A: partition(topic_id=ID)}, (), False)) == (7, 1, [(0, 0)], [])


@pytest.mark.parametrize(
    ("session_id", "code", "next_id"),
    [
        (0, FetchSessionIdNotFoundError.code, 0),
        (7, InvalidFetchSessionEpochError.code, 7),
        (0, 0, 0),
        (8, 0, 0),
    ],
)
def test_starts_again(session: ReplicaFetchSession, session_id: int, code: int, next_id: int) -> None:
    session.build({}, (), True)
    session.responded(session_id, code)
    assert session.is_full
    assert sent(session.build({A: partition(9)}, (), True)) == (next_id, 0, [(0, 9)], [])


def test_starts_again_after_a_lost_response(session: ReplicaFetchSession) -> None:
    session.failed()
    assert sent(session.build({A: partition(9)}, (), False)) == (7, 0, [(0, 9)], [])


def test_leader_without_room() -> None:
    session = ReplicaFetchSession()
    for _ in range(2):
        assert sent(session.build({A: partition()}, (), True)) == (0, 0, [(0, 0)], [])
        session.responded(0, 0)


def test_epochs_wrap(session: ReplicaFetchSession) -> None:
    session._epoch = 2**31 - 1
    session.build({}, (), True)
    session.responded(7, 0)
    assert session.build({}, (), True).session_epoch == 1


def test_names_and_ids_must_not_mix(session: ReplicaFetchSession) -> None:
    with pytest.raises(ValueError, match="topic names and topic ids"):
        session.build({}, (), False)
