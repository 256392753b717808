"""Metadata and ApiVersions over a socket."""

import time
from collections.abc import Iterator
from typing import Any, NoReturn

import pytest
from tests.support.net.wire_calls import auto_create, topic_id
from tests.support.net.wire_client import WireClient

from headrace.broker.apis import REGISTRY
from headrace.broker.handlers.api_versions import TELEMETRY_APIS
from headrace.cluster.embedded_store import EmbeddedStore
from headrace.cluster.store import ConnectionLoss
from headrace.common.ids import Uuid
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.api_versions import ApiVersionsRequest
from headrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from headrace.testing import EmbeddedBroker

ALL_VERSIONS = range(14)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"a": 1, "b": 3}) as broker:
        yield broker


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[WireClient]:
    with WireClient(broker.address) as client:
        yield client


def ask(client: WireClient, version: int, *names: str, **options: Any) -> Any:
    return client.call(MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names], **options), version)


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_describes_a_topic_in_every_version(broker: EmbeddedBroker, client: WireClient, version: int) -> None:
    reply = ask(client, version, "b")
    assert [(one.host, one.port) for one in reply.brokers] == [broker.address]
    (topic,) = reply.topics
    assert (topic.error_code, topic.name, len(topic.partitions)) == (0, "b", 3)
    assert {one.leader_id for one in topic.partitions} == {reply.brokers[0].node_id}


def test_requests_all_topics_and_none(client: WireClient) -> None:
    names = {"a", "b"}
    assert names <= {topic.name for topic in ask(client, 0).topics}  # version 0 requests all topics with an empty list
    assert ask(client, 1).topics == []
    assert names <= {topic.name for topic in client.call(MetadataRequest(topics=None), 1).topics}


@pytest.mark.parametrize("name", ["", None])
def test_topics_by_id(client: WireClient, name: str | None) -> None:
    known = topic_id(client, "b")
    asked = [MetadataRequestTopic(name=name, topic_id=one) for one in (known, Uuid(int=5))]
    topics = client.call(MetadataRequest(topics=asked), 12).topics
    assert [(topic.error_code, topic.name, topic.topic_id) for topic in topics] == [
        (0, "b", known),
        (100, None, Uuid(int=5)),
    ]


def test_creates_a_missing_topic(client: WireClient) -> None:
    """The first response has UNKNOWN_TOPIC_OR_PARTITION, as in Kafka: after a deletion clients rely on it."""
    first, topic = auto_create(client, "made-on-demand")
    assert [(one.error_code, one.partitions) for one in first.topics] == [(3, [])]
    assert len(topic.partitions) == 1


def test_does_not_create_a_topic_if_the_client_disallows_it(client: WireClient) -> None:
    assert ask(client, 12, "not-made", allow_auto_topic_creation=False).topics[0].error_code == 3


@pytest.mark.parametrize("name", ["", "..", "white space", "x" * 250])
def test_refuses_invalid_names(client: WireClient, name: str) -> None:
    for allowed in (True, False):
        assert ask(client, 11, name, allow_auto_topic_creation=allowed).topics[0].error_code == 17


def test_does_not_create_a_topic_if_auto_creation_is_disabled() -> None:
    with EmbeddedBroker({"auto.create.topics.enable": "false"}) as broker, WireClient(broker.address) as client:
        assert ask(client, 12, "not-made").topics[0].error_code == 3


@pytest.mark.parametrize("version", range(5))
def test_api_versions_announces_the_registry(client: WireClient, version: int) -> None:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1.0")
    reply = client.call(request, version)
    assert reply.error_code == 0
    assert [(one.api_key, one.min_version, one.max_version) for one in reply.api_keys] == [
        (key, api.lowest if key != ApiKey.PRODUCE else 0, api.highest)
        for key, api in sorted(REGISTRY.items())
        if key not in TELEMETRY_APIS
    ]


def test_unsupported_api_versions_gets_version_0(client: WireClient) -> None:
    # As a newer client would: a flexible header, and a body that this broker cannot decode.
    client.sock.sendall(bytes.fromhex("00000012 0012 0063 00000007 0004 77697265 00 ff ff ff"))
    frame = client.receive_frame()
    assert frame.hex() == "00000007002300000001001200000004"


def test_refuses_an_invalid_client_software_name(client: WireClient) -> None:
    assert client.call(ApiVersionsRequest(client_software_name="", client_software_version="1"), 3).error_code == 42


@pytest.mark.parametrize("version", [10, 11])
def test_refuses_ids_before_version_12(client: WireClient, version: int) -> None:
    asked = [MetadataRequestTopic(name=None, topic_id=Uuid(int=5)), MetadataRequestTopic(name="a")]
    topics = client.call(MetadataRequest(topics=asked), version).topics
    assert [(topic.error_code, topic.name) for topic in topics] == [(42, ""), (0, "a")]


def test_failing_store_is_logged(
    client: WireClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*_: object) -> NoReturn:
        raise ConnectionLoss("the disk is full")

    with monkeypatch.context() as broken:
        broken.setattr(EmbeddedStore, "multi", fail)
        assert [topic.error_code for topic in ask(client, 12, "to-be-made", "a").topics] == [3, 0]
        deadline = time.monotonic() + 20
        while "Topic to-be-made cannot be created automatically" not in caplog.text:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    auto_create(client, "to-be-made")


def test_topic_named_twice_is_in_the_response_once(client: WireClient) -> None:
    topics = ask(client, 12, "a", "twice", "a", "twice", allow_auto_topic_creation=False).topics
    assert [(topic.name, topic.error_code) for topic in topics] == [("a", 0), ("twice", 3)]


def test_limits_the_creation_of_topics(caplog: pytest.LogCaptureFixture) -> None:
    """Topics beyond the limit get a retriable error; later requests create them at the permitted rate."""
    limits = {
        "headrace.auto.create.topics.per.second": 20,
        "headrace.auto.create.topics.max.in.flight": 3,
        "auto.create.topics.enable": "true",
    }
    names = [f"flood-{number}" for number in range(40)]
    with EmbeddedBroker(limits) as broker, WireClient(broker.address) as client:
        codes = [topic.error_code for topic in ask(client, 12, *names).topics]
        assert codes == [3] * 40
        assert caplog.text.count("names 40 topics that do not exist: 37 of them are not created now") == 1
        deadline = time.monotonic() + 30
        while sum(topic.error_code == 0 for topic in ask(client, 12, *names).topics) < 8:
            assert time.monotonic() < deadline
