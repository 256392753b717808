"""Connections over real sockets: brokers with faults, and other servers."""

import asyncio
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.broker.cutting_proxy import CuttingProxy
from tests.support.net.certificates import make_certificate

from headrace.client.config.admin import ADMIN_KEYS
from headrace.client.core import ClientCore
from headrace.client.errors import KafkaConnectionError, KafkaTimeoutError, NoBrokersAvailable, SslAuthenticationError
from headrace.common.errors import ConfigError, RequestTimedOutError
from headrace.net.broker_pool import BrokerPool, NetConfig
from headrace.net.dialer import SocketDialer
from headrace.protocol import ApiKey
from headrace.protocol.messages.metadata import MetadataRequest, MetadataResponse
from headrace.testing import EmbeddedBroker

PATIENCE_MS = 60_000


def make_core(servers: str, **settings: Any) -> ClientCore:
    quick = {"reconnect_backoff_ms": 1, "retry_backoff_ms": 1, **settings}
    return ClientCore(ADMIN_KEYS.load(bootstrap_servers=servers, **quick))


@asynccontextmanager
async def open_core(servers: str, **settings: Any) -> AsyncIterator[ClientCore]:
    core = make_core(servers, **settings)
    try:
        yield core
    finally:
        await core.close()


async def ask(core: ClientCore) -> MetadataResponse:
    """Makes one attempt to connect."""
    reply = await core.pool.send_to_any(MetadataRequest(topics=[]))
    assert isinstance(reply, MetadataResponse)
    return reply


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(main)


async def eventually(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_MS / 1000):
        while not condition():
            await asyncio.sleep(0.005)


# ---- faults


@pytest.fixture(scope="module")
def broker() -> Any:
    with EmbeddedBroker(topics={"events": 3}) as running:
        yield running


@pytest.fixture(autouse=True)
def _no_faults(broker: EmbeddedBroker) -> Any:
    yield
    broker.faults.clear()


def test_dropped_connection_is_reestablished(broker: EmbeddedBroker) -> None:
    async def main() -> None:
        async with open_core(broker.bootstrap_servers) as core:
            broker.faults.drop_connection(ApiKey.METADATA, times=3)
            assert len((await core.metadata.topic("events", PATIENCE_MS)).partitions) == 3
            (link,) = core.pool.links()
            assert link.stats.disconnects >= 3

    run(main())


def test_lost_response_times_out_and_is_retried(broker: EmbeddedBroker) -> None:
    async def main() -> None:
        async with open_core(broker.bootstrap_servers, request_timeout_ms=200) as core:
            with broker.faults.drop_reply(ApiKey.METADATA, times=1) as fault:
                with pytest.raises(RequestTimedOutError, match=r"did not respond to Metadata within 200 ms"):
                    await core.pool.send_to_any(MetadataRequest(topics=[]))
                assert fault.hits == 1
            assert (await core.metadata.update_brokers(PATIENCE_MS)).nodes

    run(main())


def test_waits_for_slow_broker(broker: EmbeddedBroker) -> None:
    async def main() -> None:
        async with open_core(broker.bootstrap_servers) as core:
            broker.faults.delay(ApiKey.METADATA, 300, times=1)
            replies = await asyncio.gather(*[core.pool.send_to_any(MetadataRequest(topics=[])) for _ in range(5)])
            assert len(replies) == 5

    run(main())


def test_stuck_broker_recovers() -> None:
    async def main() -> None:
        async with (
            EmbeddedBroker(topics={"events": 1}) as broker,
            open_core(broker.bootstrap_servers, request_timeout_ms=200, socket_connection_setup_timeout_ms=200) as core,
        ):
            await core.metadata.topic("events", PATIENCE_MS)
            broker.pause()
            with pytest.raises(KafkaTimeoutError, match="Failed to update metadata after 1000 ms"):
                await core.metadata.update(["events"], 1000)
            broker.resume()
            assert (await core.metadata.update(["events"], PATIENCE_MS)).topic("events") is not None

    run(main())


@pytest.mark.parametrize("clean", [True, False])
def test_reconnects_to_restarted_broker(clean: bool) -> None:
    async def main() -> None:
        async with EmbeddedBroker(topics={"events": 1}) as broker, open_core(broker.bootstrap_servers) as core:
            await core.metadata.topic("events", PATIENCE_MS)
            await asyncio.to_thread(broker.stop if clean else broker.kill)
            await eventually(lambda: not any(link.connection for link in core.pool.links()))
            with pytest.raises(KafkaConnectionError):
                await core.pool.send_to_any(MetadataRequest(topics=[]))
            asking = asyncio.create_task(core.metadata.update(["events"], PATIENCE_MS))
            await asyncio.to_thread(broker.start)
            assert (await asking).partition_count("events") == 1

    run(main())


def test_connection_cut_at_every_byte_of_the_responses() -> None:
    """Whichever byte is the last, the client reaches the same view in the end."""

    async def main() -> None:
        with CuttingProxy() as proxy:
            async with EmbeddedBroker(proxy.properties, topics={"events": 2}) as broker:
                proxy.target = broker.address
                async with open_core(proxy.bootstrap_servers) as core:
                    await core.metadata.topic("events", PATIENCE_MS)
                    whole = proxy.replied_bytes
                for size in range(whole + 1):
                    proxy.cut_after(size)
                    async with open_core(proxy.bootstrap_servers) as core:
                        info = await core.metadata.topic("events", PATIENCE_MS)
                        assert [each.leader for each in info.partitions] == [0, 0]
                assert proxy.cuts >= whole

    run(main())


# ---- unreachable servers


def test_connection_refused() -> None:
    async def main() -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))  # bound, but not listening
            port = probe.getsockname()[1]
            async with open_core(f"127.0.0.1:{port}") as core:
                with pytest.raises(
                    KafkaConnectionError, match=rf"could not connect to 127.0.0.1:{port}: Connection refused"
                ):
                    await ask(core)
                with pytest.raises(NoBrokersAvailable, match=rf"\(127.0.0.1:{port}\) is reachable"):
                    await core.start(300)

    run(main())


def test_invalid_host_names_raise() -> None:
    async def main() -> None:
        async with open_core("no-such-host.invalid:9092") as core:
            with pytest.raises(KafkaConnectionError, match=r"could not connect to no-such-host.invalid:9092"):
                await ask(core)
        async with open_core(f"{'x' * 70}.example:9092") as core:
            with pytest.raises(KafkaConnectionError, match="invalid host name"):
                await ask(core)

    run(main())


def test_one_reachable_bootstrap_server_is_enough(broker: EmbeddedBroker) -> None:
    async def main() -> None:
        async with open_core(f"no-such-host.invalid:9092,127.0.0.1:1,{broker.bootstrap_servers}") as core:
            assert (await core.metadata.topic("events", PATIENCE_MS)).name == "events"

    run(main())


# ---- other servers

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def server(answer: Answer, ssl_context: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    serving: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        try:
            await answer(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            serving.discard(task)

    listening = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=ssl_context)
    try:
        yield listening.sockets[0].getsockname()[1]
    finally:
        listening.close()
        await listening.wait_closed()
        for task in tuple(serving):
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)


async def speak_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(10)
    writer.write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
    await writer.drain()


async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)


@pytest.mark.parametrize(
    ("answer", "setup_ms", "words"),
    [
        (speak_http, 60_000, "looks like an HTTP server"),
        (say_nothing, 200, "not established within"),
        (hang_up, 60_000, "closed the connection|was lost"),
    ],
)
def test_other_servers_are_recognized(answer: Answer, setup_ms: int, words: str) -> None:
    async def main() -> None:
        async with (
            server(answer) as port,
            open_core(f"127.0.0.1:{port}", socket_connection_setup_timeout_ms=setup_ms) as core,
        ):
            with pytest.raises(KafkaConnectionError, match=words):
                await ask(core)

    run(main())


def test_plaintext_client_on_tls_port(certificate: Path) -> None:
    async def main() -> None:
        async with (
            server(say_nothing, server_context(certificate)) as port,
            open_core(f"127.0.0.1:{port}", socket_connection_setup_timeout_ms=60_000) as core,
        ):
            # Servers differ in their reaction to a missing handshake.
            with pytest.raises(KafkaConnectionError, match=r"TLS|closed the connection|was lost"):
                await ask(core)

    run(main())


# ---- TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificate(tmp_path_factory.mktemp("tls"))


def server_context(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


def passing_on(broker: EmbeddedBroker) -> Answer:
    """A TLS proxy in front of the broker."""

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_reader, to_writer = await asyncio.open_connection(*broker.address)
        try:
            await asyncio.gather(copy(reader, to_writer), copy(to_reader, writer), return_exceptions=True)
        finally:
            to_writer.transport.abort()

    return answer


def test_tls(broker: EmbeddedBroker, certificate: Path) -> None:
    async def main() -> None:
        async with server(passing_on(broker), server_context(certificate)) as port:
            context = ssl.create_default_context(cafile=str(certificate))
            pool = BrokerPool([("127.0.0.1", port)], NetConfig(), dialer=SocketDialer(context))
            replies = await asyncio.gather(*[pool.send_to_any(MetadataRequest(topics=None)) for _ in range(50)])
            assert all(isinstance(reply, MetadataResponse) for reply in replies)
            assert {topic.name for topic in replies[0].topics} >= {"events"}
            await pool.close()

    run(main())


def test_untrusted_certificate_is_rejected(broker: EmbeddedBroker, certificate: Path) -> None:
    async def main() -> None:
        async with (
            server(passing_on(broker), server_context(certificate)) as port,
            open_core(f"127.0.0.1:{port}", security_protocol="SSL") as core,
        ):
            with pytest.raises(SslAuthenticationError, match=r"certificate of the broker is not accepted.*truststore"):
                await ask(core)

    run(main())


def test_tls_client_on_plaintext_port(broker: EmbeddedBroker) -> None:
    async def main() -> None:
        async with open_core(broker.bootstrap_servers, security_protocol="SSL") as core:
            with pytest.raises(KafkaConnectionError, match=r"could not connect.*PLAINTEXT"):
                await ask(core)

    run(main())


def test_invalid_tls_config_raises() -> None:
    async def main() -> None:
        for key in ("ssl_cafile", "ssl_certfile", "ssl_crlfile"):
            with pytest.raises(
                ConfigError, match=f"{key.replace('_', '.')}=/no/such/file cannot be used: No such file"
            ):
                make_core("localhost:1", security_protocol="SSL", **{key: "/no/such/file"})
        with pytest.raises(ConfigError, match=r"ssl.keyfile=/no/such/key cannot be used: No such file"):
            make_core("localhost:1", security_protocol="SSL", ssl_certfile=__file__, ssl_keyfile="/no/such/key")
        with pytest.raises(ConfigError, match=r"ssl.cafile=.*test_connections.py cannot be used: \[X509: NO_CERT"):
            make_core("localhost:1", security_protocol="SSL", ssl_cafile=__file__)
        with pytest.raises(ConfigError, match=r"ssl.ciphers=none cannot be used: No cipher can be selected"):
            make_core("localhost:1", security_protocol="SSL", ssl_ciphers="none")
        with pytest.raises(ConfigError, match=r"ssl.context is set, but security.protocol is PLAINTEXT"):
            make_core("localhost:1", ssl_context=ssl.create_default_context())

    run(main())


def test_no_threads_remain(broker: EmbeddedBroker) -> None:
    import headrace

    before = threading.active_count()
    with headrace.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        assert admin.list_topics()
        assert threading.active_count() > before
    assert threading.active_count() <= before
