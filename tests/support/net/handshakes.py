"""TLS handshakes in memory, with the errors of both sides."""

import ssl
from dataclasses import dataclass

from headrace.net.tls_channel import TlsChannel
from headrace.security.key_stores import load_keystore
from headrace.security.tls_context import client_context, server_context
from headrace.testing.certificates import Certificate, CertificateAuthority

HOST = "broker.example"


@dataclass
class Outcome:
    client: TlsChannel
    server: TlsChannel
    client_error: ssl.SSLError | None = None
    server_error: ssl.SSLError | None = None


def _keystore(certificate: Certificate | None) -> dict[str, object]:
    if certificate is None:
        return {}
    return {"ssl.keystore.key": certificate.key_pem(), "ssl.keystore.certificate.chain": certificate.chain_pem}


def handshake(
    server: Certificate,
    ca: CertificateAuthority,
    *,
    client: Certificate | None = None,
    client_trusts: CertificateAuthority | None = None,
    client_auth: str = "none",
    host: str = HOST,
    server_protocols: tuple[str, ...] = (),
    client_protocols: tuple[str, ...] = (),
    client_ciphers: tuple[str, ...] = (),
) -> Outcome:
    """Lets a client connect to a server, until both are done or have failed."""
    truststore = {"ssl.truststore.certificates": ca.certificate_pem}
    server_values = {**truststore, **_keystore(server), "ssl.client.auth": client_auth}
    server_values["ssl.enabled.protocols"] = server_protocols
    client_values: dict[str, object] = {
        "ssl.truststore.certificates": (client_trusts or ca).certificate_pem,
        **_keystore(client),
        "ssl.enabled.protocols": client_protocols,
        "ssl.cipher.suites": client_ciphers,
    }
    keystore = load_keystore(server_values)
    assert keystore is not None
    outcome = Outcome(
        TlsChannel(
            client_context(client_values, load_keystore(client_values)), server_side=False, server_hostname=host
        ),
        TlsChannel(server_context(server_values, keystore), server_side=True),
    )
    to_client = b""
    buffer = memoryview(bytearray(1000))
    client_done = False
    for _ in range(6):
        try:
            if client_done:
                outcome.client.feed(to_client)
                outcome.client.decrypt(buffer)
            else:
                client_done = outcome.client.handshake(to_client)
        except ssl.SSLError as error:
            outcome.client_error = outcome.client_error or error
        to_server = outcome.client.take_output()
        try:
            if to_server:
                outcome.server.handshake(to_server)
        except ssl.SSLError as error:
            outcome.server_error = outcome.server_error or error
        to_client = outcome.server.take_output()
    return outcome


def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Returns the contexts of a server `broker.example` and of a client that trusts it."""
    ca = CertificateAuthority()
    values = {**_keystore(ca.issue("broker", hosts=[HOST])), "ssl.truststore.certificates": ca.certificate_pem}
    keystore = load_keystore(values)
    assert keystore is not None
    return server_context(values, keystore), client_context(values, None)
