"""Real errors of handshakes, in the words of each side."""

import ssl
from datetime import timedelta

import pytest
from tests.support.net.handshakes import Outcome, handshake

from headrace.net.tls_errors import PLAINTEXT, TlsHandshakeError, describe_for_client, describe_for_server, is_permanent
from headrace.testing.certificates import CertificateAuthority

CA = CertificateAuthority()
OTHER_CA = CertificateAuthority("Other CA")
BROKER = CA.issue("broker", hosts=["broker.example"])


def check(outcome: Outcome, *, client: str = "", server: str = "") -> None:
    if client:
        assert outcome.client_error is not None
        assert client in describe_for_client(outcome.client_error)
        assert is_permanent(outcome.client_error)
    if server:
        assert outcome.server_error is not None
        assert server in describe_for_server(outcome.server_error)


def test_wrong_authority() -> None:
    outcome = handshake(BROKER, CA, client_trusts=OTHER_CA)
    check(
        outcome,
        client=". Set ssl.truststore.location",
        server="the client refused the broker's certificate: it does not know the authority",
    )


def test_wrong_host() -> None:
    outcome = handshake(BROKER, CA, host="other.example")
    check(outcome, client="not valid for 'other.example'. Connect by a name of the certificate")
    outcome = handshake(BROKER, CA, host="10.0.0.1")
    check(outcome, client="Connect by a name of the certificate")


@pytest.mark.parametrize(
    ("validity", "words"),
    [
        ({"valid_until": timedelta(hours=-1)}, "certificate has expired. Renew it"),
        ({"valid_from": timedelta(hours=1)}, "certificate is not yet valid. Wait until it is"),
    ],
)
def test_validity(validity: dict[str, timedelta], words: str) -> None:
    broker = CA.issue("broker", hosts=["broker.example"], **validity)
    check(handshake(broker, CA), client=f"the certificate of the broker is not accepted: {words}")
    client = CA.issue("alice", **validity)
    check(
        handshake(BROKER, CA, client=client, client_auth="required"),
        server=f"the certificate of the client is not accepted: {words}",
        client="the broker refused this client's certificate",
    )


def test_no_client_certificate() -> None:
    outcome = handshake(BROKER, CA, client_auth="required")
    check(outcome, client="set ssl.keystore.location", server="the client sent no certificate")


def test_client_certificate_of_another_authority() -> None:
    outcome = handshake(BROKER, CA, client=OTHER_CA.issue("mallory"), client_auth="required")
    check(
        outcome,
        client="it does not know the authority that signed the certificate",
        server="Its authority must be in ssl.truststore.location",
    )


def test_no_common_version_or_cipher() -> None:
    outcome = handshake(BROKER, CA, server_protocols=("TLSv1.3",), client_protocols=("TLSv1.2",))
    check(outcome, client="no TLS version in common", server="no TLS version in common")
    outcome = handshake(BROKER, CA, server_protocols=("TLSv1.2",), client_ciphers=("ECDHE-RSA-AES128-GCM-SHA256",))
    check(outcome, client="no cipher suite in common", server="no cipher suite in common")


def test_plaintext() -> None:
    assert "security.protocol=SSL" in describe_for_server(TlsHandshakeError(PLAINTEXT))
    assert "security.protocol=PLAINTEXT" in describe_for_client(TlsHandshakeError(PLAINTEXT))
    assert "security.protocol=PLAINTEXT" in describe_for_client(TlsHandshakeError("closed", ended=True))
    assert describe_for_client(TlsHandshakeError("too slow")) == "too slow"
    assert not is_permanent(TlsHandshakeError(PLAINTEXT))


def test_unknown_errors_keep_their_text() -> None:
    error = ssl.SSLError(1, "[SSL: NEW_REASON] new reason (_ssl.c:1006)")
    assert describe_for_client(error) == describe_for_server(error) == "[SSL: NEW_REASON] new reason"
    assert not is_permanent(error)
    assert not is_permanent(ConnectionResetError())
