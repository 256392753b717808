"""Fetch sessions: the client's side against the broker's implementation."""

import random

import pytest

from headrace.broker.fetch_sessions import FetchedPartition, FetchSessionCache
from headrace.client.consumer.fetch_session_handler import FetchSessionHandler, RequestedPartition
from headrace.common.errors import FetchSessionIdNotFoundError, InvalidFetchSessionEpochError, KafkaError
from headrace.common.ids import ZERO_UUID, Uuid
from headrace.common.types import TopicPartition
from headrace.testing.clock import ManualClock

ID = Uuid(int=7)
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def want(offset=0, topic_id=ID, epoch=3):
    return RequestedPartition(topic_id, offset, 1000, epoch)


def summary(request):
    return (
        request.session_id,
        request.session_epoch,
        [(topic.topic, part.partition, part.fetch_offset) for topic in request.topics for part in topic.partitions],
        [(topic.topic, index) for topic in request.forgotten_topics_data for index in topic.partitions],
    )


def test_first_request_is_full_then_incremental():
    session = FetchSessionHandler()
    assert summary(session.build_request({T0: want(5), T1: want(6)}, True)) == (0, 0, [("t", 0, 5), ("t", 1, 6)], [])
    session.handle_response(77, 0)
    assert summary(session.build_request({T0: want(5), T1: want(8)}, True)) == (77, 1, [("t", 1, 8)], [])
    session.handle_response(77, 0)
    assert summary(session.build_request({T1: want(8)}, True)) == (77, 2, [], [("t", 0)])
    session.handle_response(77, 0)
    assert summary(session.build_request({T0: want(9), T1: want(8)}, True)) == (77, 3, [("t", 0, 9)], [])


def test_new_leader_epoch_is_a_change():
    session = FetchSessionHandler()
    session.build_request({T0: want(epoch=1)}, True)
    session.handle_response(77, 0)
    request = session.build_request({T0: want(epoch=2)}, True)
    assert request.topics[0].partitions[0].current_leader_epoch == 2


def test_missing_response_starts_new_session():
    session = FetchSessionHandler()
    session.build_request({T0: want()}, True)
    session.handle_response(77, 0)
    session.build_request({T0: want()}, True)
    session.handle_error()
    assert summary(session.build_request({T0: want()}, True)) == (77, 0, [("t", 0, 0)], [])
    session.handle_response(78, 0)
    assert summary(session.build_request({T0: want()}, True)) == (78, 1, [], [])


@pytest.mark.parametrize(
    ("error", "session_id"), [(FetchSessionIdNotFoundError.code, 0), (InvalidFetchSessionEpochError.code, 77)]
)
def test_session_errors(error, session_id):
    session = FetchSessionHandler()
    session.build_request({T0: want()}, True)
    session.handle_response(77, 0)
    session.build_request({T0: want()}, True)
    session.handle_response(0, error)
    assert summary(session.build_request({T0: want()}, True)) == (session_id, 0, [("t", 0, 0)], [])


def test_response_with_other_session_id():
    session = FetchSessionHandler()
    session.build_request({T0: want()}, True)
    session.handle_response(77, 0)
    session.build_request({T0: want()}, True)
    session.handle_response(0, 0)
    assert summary(session.build_request({T0: want()}, True))[:2] == (0, 0)


def test_broker_without_room_for_session():
    session = FetchSessionHandler()
    for _ in range(3):
        assert summary(session.build_request({T0: want()}, True)) == (0, 0, [("t", 0, 0)], [])
        session.handle_response(0, 0)


def test_disabled_sessions():
    session = FetchSessionHandler(enabled=False)
    for _ in range(3):
        assert summary(session.build_request({T0: want()}, True)) == (0, -1, [("t", 0, 0)], [])
        session.handle_response(77, 0)


def test_names_and_ids_do_not_mix():
    session = FetchSessionHandler()
    session.build_request({T0: want(topic_id=ZERO_UUID)}, False)
    session.handle_response(77, 0)
    assert summary(session.build_request({T0: want()}, True))[:2] == (77, 0)


def test_recreated_topic_has_new_id():
    session = FetchSessionHandler()
    session.build_request({T0: want()}, True)
    session.handle_response(77, 0)
    request = session.build_request({T0: want(topic_id=Uuid(int=8))}, True)
    assert [topic.topic_id for topic in request.topics] == [Uuid(int=8)]
    assert [topic.topic_id for topic in request.forgotten_topics_data] == [ID]


def test_epoch_wraps_to_1():
    session = FetchSessionHandler()
    session.build_request({T0: want()}, True)
    session.handle_response(77, 0)
    session._epoch = 2**31 - 1
    assert session.build_request({T0: want()}, True).session_epoch == 2**31 - 1
    session.handle_response(77, 0)
    assert session.build_request({T0: want()}, True).session_epoch == 1


@pytest.mark.parametrize("seed", range(20))
def test_broker_session_matches_requested_partitions(seed):
    """Requests random partitions from the broker's session cache, with lost requests and responses, and evictions."""
    chance = random.Random(seed)
    ids = {"a": Uuid(int=1), "b": Uuid(int=2)}
    session = FetchSessionHandler()
    cache = FetchSessionCache(1000, ManualClock(), random.Random(seed))
    answers = 0
    for number in range(200):
        wanted = {
            TopicPartition(name, index): RequestedPartition(ids[name], chance.randrange(3), 1000, 0)
            for name in ids
            for index in range(4)
            if chance.random() < 0.5
        }
        request = session.build_request(wanted, True)
        if chance.random() < 0.05:
            session.handle_error()  # the request was lost
            continue
        asked = [
            FetchedPartition(topic.topic, topic.topic_id, part.partition, part.fetch_offset, part.partition_max_bytes)
            for topic in request.topics
            for part in topic.partitions
        ]
        if chance.random() < 0.05:
            cache.remove(request.session_id)
        try:
            if request.session_epoch == 0:
                cache.remove(request.session_id)
                found = cache.create(len(asked), privileged=False, uses_topic_ids=True)
                if found is not None:
                    found.change(asked, [])
            else:
                found = cache.use(request.session_id, request.session_epoch, uses_topic_ids=True)
                gone = [(topic.topic_id, part) for topic in request.forgotten_topics_data for part in topic.partitions]
                found.change(asked, gone)
        except KafkaError as error:
            session.handle_response(0, error.code)
            continue
        assert {key: each.fetch_offset for key, each in found.partitions.items()} == {
            (want.topic_id, tp.partition): want.fetch_offset for tp, want in wanted.items()
        }, f"seed {seed}, request {number}"
        if chance.random() < 0.05:
            session.handle_error()  # the response was lost
        else:
            session.handle_response(found.id, 0)
            answers += 1
    assert answers > 100
