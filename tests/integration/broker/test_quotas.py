"""Quotas over a socket: throttle times, empty fetches, muted connections, and changes at run time."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.broker.admin_calls import (
    BROKER,
    DELETE,
    SET,
    alter_configs,
    create_topic,
    delete_topic,
    describe_configs,
)
from tests.support.net.wire_calls import batch
from tests.support.net.wire_client import ConnectionEnded, WireClient

import headrace
from headrace.admin import (
    ClientQuotaAlteration,
    ClientQuotaEntity,
    ClientQuotaFilter,
    ClientQuotaFilterComponent,
)
from headrace.common.errors import InvalidRequestError, ThrottlingQuotaExceededError
from headrace.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryDataRequest,
    OpData,
)
from headrace.protocol.messages.api_versions import ApiVersionsRequest
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.testing import EmbeddedBroker

RECORD = b"x" * 100_000


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[WireClient]:
    with WireClient(broker.address) as client:
        create_topic(client, "t")
        yield client


def alter(client: WireClient, entity: dict[str, str | None], **quotas: float | None) -> None:
    response = client.call(
        AlterClientQuotasRequest(
            entries=[
                EntryDataRequest(
                    entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
                    ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in quotas.items()],
                )
            ]
        )
    )
    (entry,) = response.entries
    assert entry.error_code == 0, entry.error_message


def produce(client: WireClient, records: bytes = RECORD, acks: int = 1, version: int = 9) -> Any:
    request = ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch(records))])],
    )
    sent = client.send(request, version)
    return None if acks == 0 else client.receive(sent)


def fetch(client: WireClient, session_id: int = 0, session_epoch: int = -1, max_bytes: int = 1 << 20) -> Any:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=max_bytes)
    topics = [FetchTopic(topic="t", partitions=[partition])] if session_epoch < 1 else []
    request = FetchRequest(
        max_bytes=max_bytes, min_bytes=1, session_id=session_id, session_epoch=session_epoch, topics=topics
    )
    return client.call(request, 12)


def record_bytes(response: Any) -> int:
    return sum(len(partition.records) for topic in response.responses for partition in topic.partitions)


def test_producers_are_throttled_by_client_id(broker: EmbeddedBroker, client: WireClient) -> None:
    alter(client, {"client-id": "limited"}, producer_byte_rate=len(RECORD) / 10)
    with WireClient(broker.address, "limited") as limited, WireClient(broker.address, "other") as other:
        # The request is a little larger than what the quota allows in its windows.
        response = produce(limited)
        assert 1 <= response.throttle_time_ms <= 200
        assert response.responses[0].partition_responses[0].error_code == 0
        assert produce(other).throttle_time_ms == 0
        # The requests of a muted connection are handled later.
        assert limited.call(ApiVersionsRequest(client_software_name="a", client_software_version="1")).error_code == 0
        alter(client, {"client-id": "limited"}, producer_byte_rate=None)
        assert produce(limited).throttle_time_ms == 0


def test_quotas_count_requests_without_response(broker: EmbeddedBroker, client: WireClient) -> None:
    alter(client, {"user": "ANONYMOUS"}, producer_byte_rate=len(RECORD) / 10)
    with WireClient(broker.address) as limited:
        produce(limited, acks=0)
        assert produce(limited, b"small").throttle_time_ms >= 1


def test_consumers_get_empty_responses(broker: EmbeddedBroker, client: WireClient) -> None:
    for _ in range(3):
        produce(client)
    alter(client, {"user": None}, consumer_byte_rate=12_000)
    with WireClient(broker.address) as limited:
        first = fetch(limited, session_epoch=0, max_bytes=110_000)
        assert first.throttle_time_ms == 0
        assert record_bytes(first) == 110_000
        assert first.session_id > 0
        throttled = fetch(limited, first.session_id, 1)
        assert (throttled.error_code, throttled.responses) == (0, [])
        assert throttled.throttle_time_ms > 0
        assert throttled.session_id == first.session_id
    alter(client, {"user": None}, consumer_byte_rate=1)
    with WireClient(broker.address) as limited:
        # A full fetch creates no session, because the client cannot know its partitions.
        throttled = fetch(limited, session_epoch=0)
        assert (throttled.session_id, throttled.responses) == (0, [])
        assert throttled.throttle_time_ms > 0
    assert broker.call(lambda inside: len(inside.fetch_sessions)) == 1
    # A fetch reads at most what the quota allows in all windows, but at least one batch.
    alter(client, {"user": None}, consumer_byte_rate=None)  # forgets what was used
    alter(client, {"user": None}, consumer_byte_rate=15_000)
    with WireClient(broker.address) as limited:
        while not record_bytes(response := fetch(limited)):
            assert response.throttle_time_ms > 0
        assert len(RECORD) < record_bytes(response) <= 150_000
    alter(client, {"user": None}, consumer_byte_rate=None)
    assert record_bytes(fetch(client)) > 3 * len(RECORD)


def test_controller_mutations_are_refused(client: WireClient) -> None:
    alter(client, {"user": "ANONYMOUS", "client-id": "wire"}, controller_mutation_rate=1)
    assert create_topic(client, "a", 12).error_code == 0
    refused = create_topic(client, "b")
    assert refused.error_code == ThrottlingQuotaExceededError.code
    alter(client, {"user": "ANONYMOUS", "client-id": "wire"}, controller_mutation_rate=None)
    assert create_topic(client, "b").error_code == 0
    assert delete_topic(client, "a").error_code == 0


def test_request_time(broker: EmbeddedBroker, client: WireClient) -> None:
    alter(client, {"client-id": None}, request_percentage=1e-9)
    with WireClient(broker.address) as limited:
        response = limited.call(ApiVersionsRequest(client_software_name="a", client_software_version="1"))
        assert response.throttle_time_ms == 1000  # at most one window


def test_quotas_survive_a_restart(client: WireClient, broker: EmbeddedBroker) -> None:
    alter(client, {"user": "alice", "client-id": None}, producer_byte_rate=5)
    broker.restart()
    assert broker.call(lambda inside: inside.quotas.produce.group_of("alice", "any") is not None)
    assert broker.call(lambda inside: inside.dispatcher.quotas is inside.quotas)


def test_the_admin_client(broker: EmbeddedBroker) -> None:
    alice, both, address = (
        ClientQuotaEntity({"user": "alice"}),
        ClientQuotaEntity({"user": "alice", "client-id": None}),
        ClientQuotaEntity({"ip": "10.0.0.1"}),
    )
    with headrace.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        assert admin.describe_client_quotas() == {}
        admin.alter_client_quotas(
            [
                ClientQuotaAlteration(alice, {"producer_byte_rate": 1024, "request_percentage": 12.5}),
                ClientQuotaAlteration(both, {"consumer_byte_rate": 2048}),
                ClientQuotaAlteration(address, {"connection_creation_rate": 5}),
            ]
        )
        assert admin.describe_client_quotas() == {
            alice: {"producer_byte_rate": 1024.0, "request_percentage": 12.5},
            both: {"consumer_byte_rate": 2048.0},
            address: {"connection_creation_rate": 5.0},
        }
        admin.alter_client_quotas([ClientQuotaAlteration(alice, {"producer_byte_rate": None})])
        only_alice = ClientQuotaFilter.contains_only([ClientQuotaFilterComponent.of_entity("user", "alice")])
        assert admin.describe_client_quotas(only_alice) == {alice: {"request_percentage": 12.5}}
        results = admin.alter_client_quotas(
            [ClientQuotaAlteration(alice, {"retention.ms": 1}), ClientQuotaAlteration(both, {})], raise_errors=False
        )
        assert isinstance(results[alice].error, InvalidRequestError)
        assert results[both].error is None
        mixed = ClientQuotaEntity({"ip": "10.0.0.1", "user": "alice"})
        with pytest.raises(InvalidRequestError, match="IP entity should not be combined"):
            admin.alter_client_quotas([ClientQuotaAlteration(mixed, {"producer_byte_rate": 1})], validate_only=True)


def test_connection_rate_of_an_address(broker: EmbeddedBroker, client: WireClient) -> None:
    alter(client, {"ip": "127.0.0.1"}, connection_creation_rate=0)
    with WireClient(broker.address) as throttled:
        sent = throttled.send(ApiVersionsRequest(client_software_name="a", client_software_version="1"))
        with pytest.raises((ConnectionEnded, ConnectionError)):
            throttled.receive(sent)
    alter(client, {"ip": "127.0.0.1"}, connection_creation_rate=None)
    alter(client, {"ip": None}, connection_creation_rate=1000)
    with WireClient(broker.address) as served:
        assert served.call(ApiVersionsRequest(client_software_name="a", client_software_version="1")).error_code == 0


def test_connection_limits_are_dynamic_configs(broker: EmbeddedBroker, client: WireClient) -> None:
    key = "listener.name.plaintext.max.connections"
    broker_id = str(broker.call(lambda inside: inside.node_id))
    alter_configs(client, BROKER, broker_id, (key, SET, "1"), ("max.connection.creation.rate", SET, "1000"))
    assert describe_configs(client, BROKER, broker_id, key)[key][0] == "1"
    assert broker.call(lambda inside: inside.dynamic_config.connection_rates()) == (1000, {})
    with WireClient(broker.address) as refused, pytest.raises((ConnectionEnded, ConnectionError)):
        refused.call(ApiVersionsRequest(), 0)
    alter_configs(client, BROKER, broker_id, (key, DELETE, None))
    with WireClient(broker.address) as admitted:
        assert admitted.call(ApiVersionsRequest(), 0).error_code == 0
