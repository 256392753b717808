"""The core of all clients: configuration, connections, retries."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.support.client.fake_brokers import FakeCluster
from tests.support.net.virtual_loop import run

from headrace.client.config.admin import ADMIN_KEYS
from headrace.client.config.consumer import CONSUMER_KEYS
from headrace.client.config.producer import PRODUCER_KEYS
from headrace.client.config.table import ClientTable
from headrace.client.core import ClientCore
from headrace.client.errors import KafkaConnectionError, KafkaTimeoutError, NoBrokersAvailable
from headrace.common.errors import ConfigError, NotLeaderForPartitionError, TopicAlreadyExistsError
from headrace.protocol import ApiKey


def virtual(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def call() -> None:
        run(test())

    call.__name__ = test.__name__
    return call


def make(table: ClientTable = ADMIN_KEYS, cluster: FakeCluster | None = None, **config: Any) -> ClientCore:
    cluster = cluster or FakeCluster()
    values = table.load({"bootstrap.servers": "host1:9092", **config})
    return ClientCore(values, dialer=cluster.network)


@virtual
async def test_start_connects_to_bootstrap_server() -> None:
    cluster = FakeCluster()
    core = make(cluster=cluster, client_id="tester")
    await core.start()
    assert set(core.pool.nodes) == {1}
    (request,) = cluster.brokers[0].asked(ApiKey.METADATA)
    assert request.client_id == "tester"
    await core.close()
    await core.close()


@virtual
async def test_unreachable_bootstrap_servers_raise() -> None:
    cluster = FakeCluster()
    cluster.brokers[0].accepts = False
    core = make(cluster=cluster)
    with pytest.raises(
        NoBrokersAvailable, match=r"None of the bootstrap servers \(host1:9092\) is reachable: .*refused"
    ):
        await core.start(2000)
    await core.close()


@virtual
async def test_config_reaches_the_connections() -> None:
    core = make(
        PRODUCER_KEYS,
        **{
            "max.in.flight.requests.per.connection": 2,
            "request.timeout.ms": 7,
            "reconnect.backoff.ms": 8,
            "connections.max.idle.ms": 9,
            "metadata.recovery.strategy": "none",
        },
    )
    net = core.pool.config
    assert (net.max_in_flight, net.request_timeout_ms, net.reconnect_backoff_ms, net.max_idle_ms) == (2, 7, 8, 9)
    assert not net.rebootstrap
    await core.close()


@virtual
async def test_largest_fetch_fits_the_response_limit() -> None:
    core = make(CONSUMER_KEYS, **{"fetch.max.bytes": 500_000_000})
    assert core.pool.config.max_response_bytes > 500_000_000
    await core.close()


def test_invalid_bootstrap_address_is_rejected() -> None:
    async def main() -> None:
        with pytest.raises(ConfigError, match="'host:port' is not an address"):
            ClientCore(ADMIN_KEYS.load(bootstrap_servers="host:port"))

    run(main())


class Flaky:
    """A call that fails a few times."""

    def __init__(self, *errors: Exception):
        self.errors = list(errors)
        self.calls = 0

    async def __call__(self) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"


@virtual
async def test_retriable_errors_are_retried() -> None:
    core = make()
    flaky = Flaky(KafkaConnectionError("lost"), NotLeaderForPartitionError("moved"))
    assert await core.retry(flaky, 10_000, "a call") == "done"
    assert flaky.calls == 3
    await core.close()


@virtual
async def test_other_errors_are_raised_at_once() -> None:
    core = make()
    flaky = Flaky(TopicAlreadyExistsError("it is there"))
    with pytest.raises(TopicAlreadyExistsError):
        await core.retry(flaky, 10_000, "a call")
    assert flaky.calls == 1
    await core.close()


@virtual
async def test_retry_times_out_with_the_last_error() -> None:
    core = make()
    loop = asyncio.get_running_loop()
    since = loop.time()
    flaky = Flaky(*[KafkaConnectionError("lost")] * 1000)
    with pytest.raises(KafkaTimeoutError, match="a call took longer than 5000 ms; the last error: lost") as caught:
        await core.retry(flaky, 5000, "a call")
    assert isinstance(caught.value.__cause__, KafkaConnectionError)
    assert loop.time() - since == pytest.approx(5.0)
    assert 6 <= flaky.calls <= 12
    await core.close()


@virtual
async def test_hanging_call_times_out() -> None:
    core = make()

    async def hang() -> None:
        await asyncio.Event().wait()

    with pytest.raises(KafkaTimeoutError, match="a call took longer than 1000 ms"):
        await core.retry(hang, 1000, "a call")
    await core.close()
