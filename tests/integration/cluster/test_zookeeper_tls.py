"""TLS to a real ZooKeeper, with a client certificate, and the ACLs that need it."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.broker.process import HOST, free_port
from tests.support.cluster.zookeeper import ZooKeeper
from tests.support.cluster.zookeeper_store import new_chroot, open_store, slow_test
from tests.support.net.certificates import make_certificate

from headrace.cluster.store import ConnectionLoss, Create, StoreError


class SecureZooKeeper:
    """A server with a port for TLS. Server and clients share a certificate."""

    def __init__(self, directory: Path):
        self.store = make_certificate(directory)
        self.certificate = directory / "cert.pem"
        port = free_port()
        self.secure_connect = f"{HOST}:{port}"
        self.server = ZooKeeper(
            directory,
            properties={
                "secureClientPort": port,
                "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
                "authProvider.x509": "org.apache.zookeeper.server.auth.X509AuthenticationProvider",
                "ssl.keyStore.location": self.store,
                "ssl.keyStore.type": "PEM",
                "ssl.trustStore.location": self.certificate,
                "ssl.trustStore.type": "PEM",
                "ssl.clientAuth": "need",
            },
        )

    def tls(self, **other: object) -> dict[str, object]:
        """The configs of a client."""
        return {
            "ssl_client_enable": True,
            "ssl_keystore_location": str(self.store),
            "ssl_truststore_location": str(self.certificate),
            **other,
        }


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureZooKeeper]:
    zookeeper = SecureZooKeeper(tmp_path_factory.mktemp("secure"))
    with zookeeper.server:
        yield zookeeper


@slow_test
async def _pipelined(secure: SecureZooKeeper) -> None:
    store = await open_store(
        secure.secure_connect + new_chroot(), **secure.tls(ssl_enabled_protocols="TLSv1.2,TLSv1.3")
    )
    await asyncio.gather(*(store.create(f"/{number}", b"x" * number) for number in range(200)))
    found = await asyncio.gather(*(store.get(f"/{number}") for number in range(200)))
    assert [len(data) for data, _ in found] == list(range(200))
    await store.close()


def test_pipelined_requests(secure: SecureZooKeeper) -> None:
    _pipelined(secure)


@slow_test
async def _acls(secure: SecureZooKeeper) -> None:
    chroot = new_chroot()
    store = await open_store(secure.secure_connect + chroot, **secure.tls(set_acl=True))
    stranger = await open_store(secure.server.connect + chroot)
    await store.create("/a", b"x")
    await store.multi([Create("/config"), Create("/config/users"), Create("/config/users/alice", b"secret")])
    assert (await stranger.get("/a"))[0] == b"x"
    with pytest.raises(StoreError, match="ACL of node /a does not allow"):
        await stranger.set("/a", b"y")
    with pytest.raises(StoreError, match="ACL of node /new does not allow"):
        await stranger.create("/new")
    with pytest.raises(StoreError, match="ACL of node /config/users/alice does not allow"):
        await stranger.get("/config/users/alice")
    assert (await store.get("/config/users/alice"))[0] == b"secret"
    await store.set("/a", b"y")
    await stranger.close()
    await store.close()


def test_acls(secure: SecureZooKeeper) -> None:
    _acls(secure)


@slow_test
async def _refused(secure: SecureZooKeeper, config: dict[str, object]) -> None:
    with pytest.raises(ConnectionLoss, match="Cannot connect to ZooKeeper"):
        await open_store(secure.secure_connect, connection_timeout_ms=2_000, **config)


def test_untrusted_server(secure: SecureZooKeeper, caplog: pytest.LogCaptureFixture) -> None:
    _refused(secure, secure.tls(ssl_truststore_location=None))
    assert "CERTIFICATE_VERIFY_FAILED" in caplog.text


def test_client_without_certificate(secure: SecureZooKeeper) -> None:
    _refused(secure, secure.tls(ssl_keystore_location=None))


def test_client_without_tls(secure: SecureZooKeeper) -> None:
    _refused(secure, {})
