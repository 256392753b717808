"""Contexts from settings. Handshakes are in `net/test_tls_errors.py`."""

import ssl

import pytest

from headrace.common.errors import ConfigError
from headrace.security.key_stores import load_keystore
from headrace.security.tls_context import load_context, server_context
from headrace.testing.certificates import CertificateAuthority

CA = CertificateAuthority()
BROKER = CA.issue("broker")
KEYSTORE = {"ssl.keystore.key": BROKER.key_pem(), "ssl.keystore.certificate.chain": BROKER.chain_pem}


def make_server(**values: object) -> ssl.SSLContext:
    settings = {**KEYSTORE, **{name.replace("_", "."): value for name, value in values.items()}}
    keystore = load_keystore(settings)
    assert keystore is not None
    return server_context(settings, keystore, "listener.name.x.")


def test_servers() -> None:
    context = make_server()
    assert context.verify_mode == ssl.CERT_NONE
    assert (context.minimum_version, context.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert make_server(ssl_client_auth="requested").verify_mode == ssl.CERT_OPTIONAL
    assert make_server(ssl_client_auth="required").verify_mode == ssl.CERT_REQUIRED
    assert make_server(ssl_enabled_protocols=("TLSv1.3",)).minimum_version == ssl.TLSVersion.TLSv1_3
    assert make_server(ssl_enabled_protocols=("TLSv1.2",)).maximum_version == ssl.TLSVersion.TLSv1_2


def test_clients() -> None:
    context = load_context({"ssl.truststore.certificates": CA.certificate_pem})
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.cert_store_stats()["x509_ca"] == 1
    assert not load_context({"ssl.endpoint.identification.algorithm": ""}).check_hostname
    assert load_context({"ssl.endpoint.identification.algorithm": "HTTPS"}).check_hostname
    load_context({**KEYSTORE})


def test_damaged_certificates() -> None:
    damaged = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"
    with pytest.raises(ConfigError, match=r"listener.name.x.ssl.truststore: a certificate is damaged"):
        make_server(ssl_truststore_certificates=damaged)
    with pytest.raises(ConfigError, match=r"listener.name.x.ssl.cipher.suites"):
        make_server(ssl_cipher_suites=("x",))
