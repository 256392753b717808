"""Fault injection, seen by a client."""

from collections.abc import Iterator

import pytest
from tests.support.net.wire_calls import batch, end_offset, fetch, produce, produce_request
from tests.support.net.wire_client import ConnectionEnded, WireClient

from headrace.common.errors import HeadraceError, NotLeaderForPartitionError
from headrace.protocol import ApiKey
from headrace.protocol.messages.api_versions import ApiVersionsRequest
from headrace.protocol.messages.metadata import MetadataRequest
from headrace.testing import EmbeddedBroker


@pytest.fixture(scope="module")
def shared() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture
def broker(shared: EmbeddedBroker) -> Iterator[EmbeddedBroker]:
    shared.create_topic("t")
    yield shared
    shared.faults.clear()
    shared.delete_topic("t")


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[WireClient]:
    with WireClient(broker.address) as client:
        yield client


def test_requests_are_not_intercepted_without_faults(broker: EmbeddedBroker, client: WireClient) -> None:
    assert broker.call(lambda inside: inside.dispatcher.intercept) is None
    with broker.faults.delay(ApiKey.FETCH, 1):
        assert broker.faults
        assert broker.call(lambda inside: inside.dispatcher.intercept) is not None
    assert not broker.faults
    assert broker.call(lambda inside: inside.dispatcher.intercept) is None


def test_error_applies_given_number_of_times(broker: EmbeddedBroker, client: WireClient) -> None:
    fault = broker.faults.error(ApiKey.PRODUCE, NotLeaderForPartitionError, times=2)
    assert [produce(client, batch()).error_code for _ in range(3)] == [6, 6, 0]
    assert fault.hits == 2
    assert len(broker.faults) == 0, "it is spent"
    assert end_offset(client) == 1, "those that failed were not appended"


def test_error_can_be_code_instance_or_class(broker: EmbeddedBroker, client: WireClient) -> None:
    for error in (7, NotLeaderForPartitionError("not me"), NotLeaderForPartitionError):
        broker.faults.error(ApiKey.FETCH, error, times=1)
    assert [fetch(client, 0).error_code for _ in range(4)] == [7, 6, 6, 0]


def test_error_within_with_block(broker: EmbeddedBroker, client: WireClient) -> None:
    with broker.faults.error(ApiKey.API_VERSIONS, 41) as fault:
        assert [client.call(ApiVersionsRequest(), 0).error_code for _ in range(3)] == [41] * 3
        assert len(client.call(MetadataRequest(topics=[]), 9).brokers) == 1, "other APIs go on"
    assert client.call(ApiVersionsRequest(), 0).error_code == 0
    assert fault.hits == 3
    fault.remove()


def test_error_for_matching_requests_only(broker: EmbeddedBroker) -> None:
    broker.faults.error(ApiKey.API_VERSIONS, 41, when=lambda context: context.client_id == "unlucky")
    for client_id, code in (("lucky", 0), ("unlucky", 41)):
        with WireClient(broker.address, client_id=client_id) as client:
            assert client.call(ApiVersionsRequest(), 0).error_code == code


def test_delays_response(broker: EmbeddedBroker, client: WireClient) -> None:
    """No timing: a later request on another connection gets its response first."""
    fault = broker.faults.delay(ApiKey.PRODUCE, 500, times=1)
    slow = client.send(produce_request(batch(b"slow")), 9)
    behind = client.send(ApiVersionsRequest(), 0)
    fault.wait_for_hits()
    with WireClient(broker.address) as other:
        assert produce(other, batch(b"quick")).base_offset == 0
    assert client.receive(slow).responses[0].partition_responses[0].base_offset == 1
    assert client.receive(behind).error_code == 0


def test_drops_connection(broker: EmbeddedBroker, client: WireClient) -> None:
    broker.faults.drop_connection(ApiKey.PRODUCE, times=1)
    with pytest.raises((ConnectionEnded, ConnectionError)):
        produce(client, batch())
    with WireClient(broker.address) as again:
        assert end_offset(again) == 0
        assert produce(again, batch()).error_code == 0


def test_dropped_response_leaves_connection_silent(broker: EmbeddedBroker, client: WireClient) -> None:
    fault = broker.faults.drop_reply(ApiKey.PRODUCE, times=1)
    client.send(produce_request(batch()), 9)
    client.send(ApiVersionsRequest(), 0)
    fault.wait_for_hits()
    with WireClient(broker.address) as other:
        assert end_offset(other) == 1, "the request was handled"
    client.sock.settimeout(0.2)
    with pytest.raises(TimeoutError):
        client.sock.recv(1)


def test_drops_response_and_closes_connection(broker: EmbeddedBroker, client: WireClient) -> None:
    broker.faults.drop_reply(ApiKey.PRODUCE, times=1, close=True)
    with pytest.raises((ConnectionEnded, ConnectionError)):
        produce(client, batch())
    with WireClient(broker.address) as again:
        assert end_offset(again) == 1


def test_first_matching_fault_applies(broker: EmbeddedBroker, client: WireClient) -> None:
    first = broker.faults.error(ApiKey.API_VERSIONS, 1, times=1)
    second = broker.faults.error(ApiKey.API_VERSIONS, 2, times=1)
    assert [client.call(ApiVersionsRequest(), 0).error_code for _ in range(3)] == [1, 2, 0]
    assert (first.hits, second.hits) == (1, 1)


def test_faults_on_produce_with_acks_0(broker: EmbeddedBroker, client: WireClient) -> None:
    """acks=0: a delayed request is still handled, there is no response, and other requests get theirs."""
    delay = broker.faults.delay(ApiKey.PRODUCE, 1, times=1)
    client.send(produce_request(batch(), acks=0), 9)
    assert client.call(ApiVersionsRequest(), 0).error_code == 0
    delay.wait_for_hits()
    broker.wait_until(lambda inside: inside.replicas.find("t", 0).log.log_end_offset == 1)
    broker.faults.drop_reply(ApiKey.PRODUCE, times=1)
    client.send(produce_request(batch(), acks=0), 9)
    assert end_offset(client) == 2
    broker.faults.error(ApiKey.PRODUCE, 7, times=1)
    client.send(produce_request(batch(), acks=0), 9)
    with pytest.raises((ConnectionEnded, ConnectionError)):
        client.call(ApiVersionsRequest(), 0)


def test_faults_survive_restart(broker: EmbeddedBroker) -> None:
    broker.faults.error(ApiKey.API_VERSIONS, 41, times=1)
    broker.restart()
    with WireClient(broker.address) as client:
        assert [client.call(ApiVersionsRequest(), 0).error_code for _ in range(2)] == [41, 0]


def test_wait_for_hits_times_out(broker: EmbeddedBroker) -> None:
    fault = broker.faults.delay(ApiKey.FETCH, 1)
    with pytest.raises(TimeoutError, match="was applied to 0 requests, not 2"):
        fault.wait_for_hits(2, timeout_ms=10)


def test_times_must_be_positive(broker: EmbeddedBroker) -> None:
    with pytest.raises(HeadraceError, match="at least 1"):
        broker.faults.delay(ApiKey.FETCH, 1, times=0)
    for wrong in ("NOT_LEADER", ValueError):
        with pytest.raises(TypeError, match=r"expected a class of headrace.errors or an error code"):
            broker.faults.error(ApiKey.PRODUCE, wrong)  # type: ignore[arg-type]


def test_wrong_arguments_raise(broker: EmbeddedBroker) -> None:
    for ms in (-10, "10", None, float("nan")):
        with pytest.raises(ValueError, match=r"ms=.* is not valid: expected a number of milliseconds, at least 0"):
            broker.faults.delay(ApiKey.FETCH, ms=ms)
    with pytest.raises(TypeError, match="'Fetch' is not an API: expected an ApiKey"):
        broker.faults.drop_connection("Fetch")
    assert not broker.faults
