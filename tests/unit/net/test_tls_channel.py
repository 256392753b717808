"""TLS sessions between two channels in memory."""

import ssl

import pytest

from headrace.net.tls_channel import RECORD_BYTES, TlsChannel
from headrace.security.key_stores import load_keystore
from headrace.security.tls_context import client_context, server_context
from headrace.testing.certificates import Certificate, CertificateAuthority

CA = CertificateAuthority()
BROKER = CA.issue("broker", hosts=["broker.example"])
ALICE = CA.issue("alice")


def values(certificate: Certificate | None, **more: object) -> dict[str, object]:
    found: dict[str, object] = {"ssl.truststore.certificates": CA.certificate_pem}
    if certificate is not None:
        found |= {"ssl.keystore.key": certificate.key_pem(), "ssl.keystore.certificate.chain": certificate.chain_pem}
    return {**found, **{name.replace("_", "."): value for name, value in more.items()}}


def make_server(certificate: Certificate = BROKER, **more: object) -> TlsChannel:
    settings = values(certificate, **more)
    keystore = load_keystore(settings)
    assert keystore is not None
    return TlsChannel(server_context(settings, keystore), server_side=True)


def make_client(certificate: Certificate | None = None, host: str = "broker.example", **more: object) -> TlsChannel:
    settings = values(certificate, **more)
    context = client_context(settings, load_keystore(settings))
    return TlsChannel(context, server_side=False, server_hostname=host)


def connect(client: TlsChannel, server: TlsChannel) -> None:
    data, client_done, server_done = b"", False, False
    for _ in range(10):
        client_done = client.handshake(data)
        server_done = server.handshake(client.take_output())
        data = server.take_output()
        if client_done and server_done:
            client.feed(data)
            return
    raise AssertionError("the handshake does not end")


def test_bytes_pass_in_both_directions() -> None:
    client, server = make_client(), make_server()
    connect(client, server)
    message = bytes(range(256)) * 300  # several records
    for sender, receiver in ((client, server), (server, client)):
        sender.encrypt(message)
        receiver.feed(sender.take_output())
        received = bytearray()
        buffer = memoryview(bytearray(10_000))
        while receiver.has_input:
            received += buffer[: receiver.decrypt(buffer)]
        assert received == message


def test_incomplete_records_wait_for_the_rest() -> None:
    client, server = make_client(), make_server()
    connect(client, server)
    client.encrypt(b"x" * 1000)
    sent = client.take_output()
    buffer = memoryview(bytearray(2 * RECORD_BYTES))
    for byte in sent[:-1]:
        server.feed(bytes([byte]))
        assert server.decrypt(buffer) == 0
    server.feed(sent[-1:])
    assert server.decrypt(buffer) == 1000
    assert not server.has_input


def test_both_sides_learn_the_certificates() -> None:
    client, server = make_client(ALICE), make_server(ssl_client_auth="required")
    connect(client, server)
    assert server.peer_certificate == ssl.PEM_cert_to_DER_cert(ALICE.chain_pem)
    assert client.peer_certificate == ssl.PEM_cert_to_DER_cert(BROKER.chain_pem)
    assert client.cipher is not None
    assert client.cipher[1] == "TLSv1.3"
    client, server = make_client(), make_server(ssl_client_auth="requested")
    connect(client, server)
    assert server.peer_certificate is None


def test_a_required_certificate_is_missing() -> None:
    with pytest.raises(ssl.SSLError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
        connect(make_client(), make_server(ssl_client_auth="required"))


def test_the_end_is_announced() -> None:
    client, server = make_client(), make_server()
    connect(client, server)
    buffer = memoryview(bytearray(100))
    client.decrypt(buffer)  # session tickets
    client.encrypt(b"last")
    client.end()
    server.feed(client.take_output())
    assert server.decrypt(buffer) == 4
    assert server.ended


def test_changed_bytes_are_detected() -> None:
    client, server = make_client(), make_server()
    connect(client, server)
    client.encrypt(b"x" * 100)
    sent = bytearray(client.take_output())
    sent[50] ^= 1
    server.feed(sent)
    with pytest.raises(ssl.SSLError):
        server.decrypt(memoryview(bytearray(200)))
