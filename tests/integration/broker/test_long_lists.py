"""Requests with long lists: too long ones are refused, all others give way to the requests of other clients."""

import logging
from collections.abc import Iterator

import pytest
from tests.support.hostile.long_lists import Path, array_paths, long_request, served_apis
from tests.support.net.wire_client import ConnectionEnded, WireClient

from headrace.broker import yielding
from headrace.broker.apis import Api
from headrace.broker.group_requests import PARTITIONS_PER_OPERATION
from headrace.broker.long_requests import SHORT_ELEMENTS
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.api_versions import ApiVersionsRequest
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from headrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.records import BatchBuilder
from headrace.testing import EmbeddedBroker

LIMIT = 10
MANY = SHORT_ELEMENTS * 4
PARTITIONS = 50
NOT_IN_TURNS = {
    ApiKey.JOIN_GROUP: "one step of the group: the protocols of a member are stored together",
    ApiKey.SYNC_GROUP: "one step of the group: the assignments of a generation are stored together",
    ApiKey.LEADER_AND_ISR: "a command of the controller: applied in turns by the control inbox, after all earlier ones",
    ApiKey.STOP_REPLICA: "a command of the controller, as LeaderAndIsr",
    ApiKey.UPDATE_METADATA: "a command of the controller: the metadata changes in one step",
    ApiKey.ALTER_PARTITION: "an event of the controller",
    ApiKey.WRITE_TXN_MARKERS: "the markers of a request are appended together",
    ApiKey.CREATE_ACLS: "without an authorizer all elements get the same error",
    ApiKey.DELETE_ACLS: "without an authorizer all elements get the same error",
    ApiKey.CREATE_DELEGATION_TOKEN: "the renewers of one token, stored together",
    ApiKey.DESCRIBE_DELEGATION_TOKEN: "filters, which become a set",
    ApiKey.DESCRIBE_CLIENT_QUOTAS: "a component for each type of entity; a repeated one fails the request",
    ApiKey.UPDATE_FEATURES: "all elements get the same error",
    ApiKey.LIST_GROUPS: "filters, which become a set",
    ApiKey.LIST_TRANSACTIONS: "filters, which become a set",
    ApiKey.LIST_CONFIG_RESOURCES: "filters, which become a set",
}
"""APIs whose lists need no turns: each element costs less than decoding it, or the request comes from a broker."""
COMMANDS = {ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA}
"""Commands of the controller. Their lists have no limit: a cluster may have more partitions."""


def all_arrays() -> list[tuple[Api, int, Path]]:
    return [
        (api, version, path)
        for api in served_apis()
        if api.key not in COMMANDS
        for version in sorted({api.lowest, api.highest})
        for path in array_paths(api.request, version)
    ]


def main_arrays() -> list[tuple[Api, Path]]:
    """Returns the first array of each API, which is the list of what the request is about."""
    return [(api, paths[0]) for api in served_apis() if (paths := list(array_paths(api.request, api.highest)))]


def name_of(value: object) -> str | None:
    return value.key.name if isinstance(value, Api) else ".".join(value) if isinstance(value, tuple) else None


@pytest.fixture(scope="module")
def strict_broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker({"headrace.request.max.elements": LIMIT}) as broker:
        yield broker


@pytest.mark.parametrize(("api", "version", "path"), all_arrays(), ids=name_of)
def test_too_many_elements_are_refused(
    strict_broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture, api: Api, version: int, path: Path
) -> None:
    request = long_request(api.request, version, path, LIMIT + 1)
    with caplog.at_level(logging.INFO), WireClient(strict_broker.address) as client:
        with pytest.raises(ConnectionEnded):
            client.call(request, version)
        peer = "{}:{}".format(*client.sock.getsockname()[:2])
    (line,) = (record.getMessage() for record in caplog.records if "array elements" in record.getMessage())
    assert f"{peer} on " in line
    assert f" {api.key.name} v{version} request of client " in line
    assert f" with {LIMIT + len(path)} array elements or more; headrace.request.max.elements allows {LIMIT}" in line


def test_as_many_elements_as_allowed_are_served(strict_broker: EmbeddedBroker) -> None:
    api, path = next((api, path) for api, path in main_arrays() if api.key is ApiKey.DESCRIBE_GROUPS)
    with WireClient(strict_broker.address) as client:
        response = client.call(long_request(api.request, api.highest, path, LIMIT), api.highest)
        assert len(response.groups) == LIMIT


@pytest.fixture(scope="module")
def small_limits() -> Iterator[None]:
    """A list is long if it has more elements than a topic of these tests has partitions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headrace.broker.dispatch.SHORT_ELEMENTS", PARTITIONS - 1)
        patch.setattr("headrace.broker.handlers.fetch.LONG_FETCH", PARTITIONS - 1)
        for handler in ("offset_commit", "offset_fetch"):
            patch.setattr(f"headrace.broker.handlers.{handler}.PARTITIONS_PER_OPERATION", PARTITIONS // 3)
        yield


@pytest.fixture(scope="module")
def broker(small_limits: None) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"wide": PARTITIONS}) as broker:
        yield broker


@pytest.fixture
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn is over after its first item, so that a list of hundreds of items takes many turns."""
    monkeypatch.setattr(yielding, "TURN_SECONDS", 0.0)


def turns(broker: EmbeddedBroker) -> int:
    return broker.call(lambda broker: broker.dispatcher.turns.turns)


@pytest.mark.parametrize(("api", "path"), main_arrays(), ids=name_of)
@pytest.mark.usefixtures("short_turns")
def test_long_list_gives_way(broker: EmbeddedBroker, api: Api, path: Path) -> None:
    before = turns(broker)
    with WireClient(broker.address) as client, WireClient(broker.address) as other:
        client.send(long_request(api.request, api.highest, path, MANY), api.highest)
        other.call(ApiVersionsRequest(client_software_name="other", client_software_version="1"), 3)
        client.receive_frame()
    if api.key not in NOT_IN_TURNS:
        assert turns(broker) - before >= MANY / PARTITIONS_PER_OPERATION / 2


@pytest.mark.usefixtures("short_turns")
def test_other_requests_are_answered_between_two_turns(broker: EmbeddedBroker) -> None:
    """A client gets a response while the long request of another one is in progress."""
    api, path = next((api, path) for api, path in main_arrays() if api.key is ApiKey.DELETE_GROUPS)
    progress: list[int] = []
    with WireClient(broker.address) as client, WireClient(broker.address) as other:
        before = turns(broker)
        client.send(long_request(api.request, api.highest, path, 10 * MANY), api.highest)
        while not progress or progress[-1] < MANY:
            other.call(ApiVersionsRequest(client_software_name="other", client_software_version="1"), 3)
            progress.append(turns(broker) - before)
        client.receive_frame()
        assert turns(broker) - before > progress[-1]


# ---- the same results as with short lists


def fetch(session_id: int = 0, epoch: int = -1, partitions: range = range(0), **values: int) -> FetchRequest:
    wide = [FetchPartition(partition=number, partition_max_bytes=1000) for number in partitions]
    topics = [FetchTopic(topic="wide", partitions=wide)] if wide else []
    return FetchRequest(session_id=session_id, session_epoch=epoch, topics=topics, max_bytes=10**8, **values)


def batch(value: bytes) -> bytes:
    builder = BatchBuilder()
    builder.append(None, value, 0)
    return bytes(builder.build())


def produce(partitions: range, acks: int = 1) -> ProduceRequest:
    data = [PartitionProduceData(index=number, records=batch(b"%d" % number)) for number in partitions]
    return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[TopicProduceData(name="wide", partition_data=data)])


def partitions_of(response: FetchResponse) -> list[int]:
    return [partition.partition_index for topic in response.responses for partition in topic.partitions]


@pytest.mark.usefixtures("short_turns")
def test_produce_and_fetch_of_many_partitions(small_limits: None) -> None:
    with EmbeddedBroker(topics={"wide": PARTITIONS}) as broker, WireClient(broker.address) as client:
        everything = range(PARTITIONS)
        # Pipelined: the second request is appended after the first one. acks=0 has no response.
        client.send(produce(everything, acks=0), 8)
        appended = client.call(produce(everything), 8).responses
        assert [(part.index, part.error_code, part.base_offset) for part in appended[0].partition_responses] == [
            (number, 0, 1) for number in everything
        ]
        created = client.call(fetch(0, 0, everything, min_bytes=1, max_wait_ms=10_000), 12)
        assert partitions_of(created) == list(everything)
        assert all(part.high_watermark == 2 and part.records for part in created.responses[0].partitions)
        with WireClient(broker.address) as other:
            ends = [FetchPartition(partition=n, fetch_offset=2, partition_max_bytes=1000) for n in everything]
            waiting = fetch(created.session_id, 1, min_bytes=1, max_wait_ms=60_000)
            waiting.topics = [FetchTopic(topic="wide", partitions=ends)]
            sent = client.send(waiting, 12)
            broker.wait_until(lambda broker: broker.replicas.fetches.delayed == 1)
            other.call(produce(everything[-1:]), 8)
            assert partitions_of(client.receive(sent)) == [everything[-1]]


@pytest.mark.usefixtures("short_turns")
def test_delayed_fetch_of_many_partitions_expires(broker: EmbeddedBroker) -> None:
    with WireClient(broker.address) as client:
        response = client.call(fetch(0, -1, range(PARTITIONS), min_bytes=1, max_wait_ms=300), 12)
        assert partitions_of(response) == list(range(PARTITIONS))


@pytest.mark.usefixtures("short_turns")
@pytest.mark.parametrize("version", [7, 8])
def test_committed_offsets_of_many_partitions(broker: EmbeddedBroker, version: int) -> None:
    with WireClient(broker.address) as client:
        client.call(FindCoordinatorRequest(coordinator_keys=["g"]))
        broker.wait_until(lambda broker: broker.coordinators.groups.shards())
        broker.wait_until(lambda broker: not broker.coordinators.groups.is_loading())
        commits = [OffsetCommitRequestPartition(partition_index=n, committed_offset=n + 1) for n in range(PARTITIONS)]
        topics = [OffsetCommitRequestTopic(name="wide", partitions=commits)]
        committed = client.call(OffsetCommitRequest(group_id="g", member_id="", topics=topics), 8)
        assert [part.error_code for part in committed.topics[0].partitions] == [0] * PARTITIONS
        wanted = [OffsetFetchRequestTopics(name="wide", partition_indexes=list(range(PARTITIONS)))]
        if version >= 8:
            group = OffsetFetchRequestGroup(group_id="g", topics=wanted)
            (topic,) = client.call(OffsetFetchRequest(groups=[group]), version).groups[0].topics
        else:
            old = [OffsetFetchRequestTopic(name="wide", partition_indexes=wanted[0].partition_indexes)]
            (topic,) = client.call(OffsetFetchRequest(group_id="g", topics=old), version).topics
        assert [(part.partition_index, part.committed_offset) for part in topic.partitions] == [
            (number, number + 1) for number in range(PARTITIONS)
        ]
