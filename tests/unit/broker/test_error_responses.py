from typing import Any

import pytest

from headrace.broker.error_responses import error_response
from headrace.common.ids import Uuid
from headrace.protocol import APIS, Api, Message, MessageType, decode, encode
from headrace.protocol.message import BOOL, BYTES, FLOAT64, RECORDS, STRING, UUID, parse_versions
from headrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headrace.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from headrace.protocol.messages.describe_producers import DescribeProducersRequest
from headrace.protocol.messages.describe_producers import TopicRequest as ProducersTopic
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from headrace.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from headrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from headrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

CODE = 29
VALUES: dict[int, object] = {BOOL: True, FLOAT64: 1.0, UUID: Uuid(int=5), STRING: "x", BYTES: b"b", RECORDS: None}
EVERY = [pytest.param(api, id=api.name) for api in APIS.values()]


def has(field: Any, version: int) -> bool:
    first, last = parse_versions(field.versions)
    return first <= version <= last


def filled(message: MessageType, version: int) -> Message:
    """Returns a message with two items in each list."""
    made = message()
    assert isinstance(made, Message)
    for field in message.__fields__:
        if has(field, version):
            value = filled(field.struct, version) if field.struct else VALUES.get(field.kind, 7)
            setattr(made, field.name, [value, value] if field.is_array else value)
    return made


def codes(message: Message) -> list[int]:
    found = []
    for field in type(message).__fields__:
        value = getattr(message, field.name)
        if field.name.endswith("error_code"):
            found.append(value)
        for item in value if field.is_array and value else [value]:
            if isinstance(item, Message):
                found += codes(item)
    return found


@pytest.mark.parametrize("api", EVERY)
def test_every_response_in_every_version_has_the_code(api: Api) -> None:
    for version in api.versions:
        made = error_response(filled(api.request, version), version, CODE)
        reply = decode(api.response, version, encode(made, version))
        assert CODE in codes(reply), f"version {version}"


@pytest.mark.parametrize("api", EVERY)
def test_empty_requests_have_the_code_at_the_top(api: Api) -> None:
    for version in api.versions:
        empty = api.request()
        assert isinstance(empty, Message)
        encode(error_response(empty, version, CODE), version)


def test_produce() -> None:
    data = [PartitionProduceData(index=index, records=b"...") for index in (3, 5)]
    named = ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=data)])
    (topic,) = error_response(named, 9, CODE).responses  # type: ignore[attr-defined]
    assert topic.name == "t"
    assert [(part.index, part.error_code, part.base_offset) for part in topic.partition_responses] == [
        (3, CODE, -1),
        (5, CODE, -1),
    ]
    by_id = ProduceRequest(topic_data=[TopicProduceData(topic_id=Uuid(int=7), partition_data=data)])
    (topic,) = error_response(by_id, 13, CODE).responses  # type: ignore[attr-defined]
    assert (topic.name, topic.topic_id) == ("", Uuid(int=7))


def test_fetch() -> None:
    topics = [FetchTopic(topic="t", partitions=[FetchPartition(partition=4, fetch_offset=9)])]
    old: Any = error_response(FetchRequest(topics=topics), 4, CODE)
    (topic,) = old.responses
    (part,) = topic.partitions
    assert (topic.topic, part.partition_index, part.error_code, part.high_watermark) == ("t", 4, CODE, -1)
    assert old.error_code == 0, "there is no such field yet"
    new: Any = error_response(FetchRequest(topics=topics), 12, CODE)
    assert (new.error_code, new.responses[0].partitions[0].error_code) == (CODE, CODE)


def test_list_offsets() -> None:
    asked = ListOffsetsRequest(
        topics=[ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=2, timestamp=5)])]
    )
    (topic,) = error_response(asked, 7, CODE).topics  # type: ignore[attr-defined]
    (part,) = topic.partitions
    assert (topic.name, part.partition_index, part.error_code) == ("t", 2, CODE)
    assert (part.offset, part.timestamp) == (-1, -1), "not what was asked"


def test_metadata() -> None:
    reply: Any = error_response(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 9, CODE)
    assert [(topic.name, topic.error_code, topic.partitions) for topic in reply.topics] == [("t", CODE, [])]
    assert error_response(MetadataRequest(topics=None), 9, CODE).topics == []  # type: ignore[attr-defined]


def test_topics() -> None:
    made: Any = error_response(
        CreateTopicsRequest(topics=[CreatableTopic(name="a"), CreatableTopic(name="b")]), 5, CODE
    )
    assert [(topic.name, topic.error_code) for topic in made.topics] == [("a", CODE), ("b", CODE)]
    by_name: Any = error_response(DeleteTopicsRequest(topic_names=["a"]), 5, CODE)
    assert [(each.name, each.error_code) for each in by_name.responses] == [("a", CODE)]
    by_id: Any = error_response(DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=Uuid(int=3))]), 6, CODE)
    assert [(each.topic_id, each.error_code) for each in by_id.responses] == [(Uuid(int=3), CODE)]


def test_configs() -> None:
    asked = DescribeConfigsRequest(resources=[DescribeConfigsResource(resource_type=2, resource_name="t")])
    reply: Any = error_response(asked, 4, CODE)
    assert [(each.resource_type, each.resource_name, each.error_code) for each in reply.results] == [(2, "t", CODE)]


def test_plain_names_and_numbers() -> None:
    asked = DescribeProducersRequest(topics=[ProducersTopic(name="t", partition_indexes=[1, 2])])
    (topic,) = error_response(asked, 0, CODE).topics  # type: ignore[attr-defined]
    assert [(part.partition_index, part.error_code) for part in topic.partitions] == [(1, CODE), (2, CODE)]
    found: Any = error_response(FindCoordinatorRequest(coordinator_keys=["g"]), 4, CODE)
    assert [(each.key, each.node_id, each.error_code) for each in found.coordinators] == [("g", -1, CODE)]
