"""The clients' `ssl.*` configs, with the names of all three client libraries."""

import ssl
from pathlib import Path

import pytest

from headrace.client.config.admin import ADMIN_KEYS
from headrace.client.config.tls import make_ssl_context
from headrace.common.errors import ConfigError
from headrace.testing.certificates import CertificateAuthority

CA = CertificateAuthority()
ALICE = CA.issue("alice")


def context(**values: object) -> ssl.SSLContext:
    made = make_ssl_context(ADMIN_KEYS.load({"security.protocol": "SSL"}, **values))
    assert made is not None
    return made


def authorities(made: ssl.SSLContext) -> int:
    return made.cert_store_stats()["x509"]


def error_of(**values: object) -> str:
    with pytest.raises(ConfigError) as raised:
        context(**values)
    return str(raised.value)


@pytest.fixture
def ca(tmp_path: Path) -> str:
    return str(CA.write_truststore(tmp_path / "ca.pem"))


@pytest.fixture
def keystore(tmp_path: Path) -> str:
    return str(ALICE.write_keystore(tmp_path / "alice.pem", "secret"))


def test_without_tls() -> None:
    assert make_ssl_context(ADMIN_KEYS.load({})) is None
    with pytest.raises(ConfigError, match=r"ssl.context is set, but security.protocol is PLAINTEXT"):
        make_ssl_context(ADMIN_KEYS.load({}, ssl_context=ssl.create_default_context()))
    own = ssl.create_default_context()
    assert context(ssl_context=own) is own


def test_truststores(ca: str, tmp_path: Path) -> None:
    for name in ("ssl.truststore.location", "ssl_cafile", "ssl.ca.location"):
        assert authorities(context(**{name: ca})) == 1
    for name in ("ssl.truststore.certificates", "ssl.ca.pem"):
        assert authorities(context(**{name: CA.certificate_pem})) == 1
    pkcs12 = str(CA.write_pkcs12_truststore(tmp_path / "ca.p12", "secret"))
    assert authorities(context(ssl_truststore_location=pkcs12, ssl_truststore_password="secret")) == 1


def test_keystores(ca: str, keystore: str, tmp_path: Path) -> None:
    pkcs12 = str(ALICE.write_pkcs12(tmp_path / "alice.p12", "secret"))
    common = {"ssl_cafile": ca}
    context(**common, ssl_keystore_location=keystore, ssl_key_password="secret")
    context(**common, ssl_keystore_location=pkcs12, ssl_keystore_password="secret", ssl_keystore_type="PKCS12")
    context(**common, ssl_certfile=keystore, ssl_keyfile=keystore, ssl_password="secret")
    context(**common, ssl_certificate_location=keystore, ssl_key_location=keystore, ssl_key_password="secret")
    context(**common, ssl_keystore_key=ALICE.key_pem(), ssl_keystore_certificate_chain=ALICE.chain_pem)
    context(**common, ssl_key_pem=ALICE.key_pem(), ssl_certificate_pem=ALICE.chain_pem)


def test_checks_of_the_broker(ca: str) -> None:
    assert context(ssl_cafile=ca).check_hostname
    assert not context(ssl_cafile=ca, ssl_check_hostname=False).check_hostname
    for value in ("", "none"):
        assert not context(ssl_cafile=ca, ssl_endpoint_identification_algorithm=value).check_hostname
    unchecked = context(enable_ssl_certificate_verification=False)
    assert unchecked.verify_mode == ssl.CERT_NONE


def test_versions_and_ciphers(ca: str) -> None:
    made = context(ssl_cafile=ca, ssl_enabled_protocols="TLSv1.2")
    assert made.maximum_version == ssl.TLSVersion.TLSv1_2
    for suites in ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256:ECDHE-RSA-AES256-GCM-SHA384"):
        names = [cipher["name"] for cipher in context(ssl_cafile=ca, ssl_cipher_suites=suites).get_ciphers()]
        assert "ECDHE-RSA-AES128-GCM-SHA256" in names
        assert "ECDHE-ECDSA-AES128-GCM-SHA256" not in names
    context(ssl_cafile=ca, ssl_ciphers="ECDHE+AESGCM")


def test_errors(ca: str, keystore: str) -> None:
    assert error_of(ssl_truststore_location="/no/such") == (
        "ssl.truststore.location=/no/such cannot be read: No such file or directory"
    )
    assert "ssl.cafile=/no/such cannot be used: No such file" in error_of(ssl_cafile="/no/such")
    assert "ssl.key.password is wrong" in error_of(ssl_keystore_location=keystore, ssl_key_password="x")
    assert "set ssl.key.password" in error_of(ssl_keystore_location=keystore)
    assert "ssl.certfile and ssl.keyfile" in error_of(ssl_certfile=keystore, ssl_password="x")
    assert "are both set" in error_of(ssl_cafile=ca, ssl_truststore_location=ca)
    assert "are both set" in error_of(ssl_certfile=keystore, ssl_keystore_location=keystore)
    assert "ssl.certfile must be set, too" in error_of(ssl_keyfile=keystore)
    assert "Java classes cannot be loaded" in error_of(ssl_engine_factory_class="com.example.Factory")
    assert "is set twice" in error_of(ssl_password="a", ssl_key_password="b")
    assert "secret" not in repr(ADMIN_KEYS.load(ssl_key_password="secret", ssl_keystore_key="secret"))
