"""PEM and PKCS12 stores, in files and in configs."""

import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from headrace.common.errors import ConfigError
from headrace.security.key_stores import KeyStore, load_keystore, load_truststore, store_files
from headrace.testing.certificates import CertificateAuthority

CA = CertificateAuthority()
SUB_CA = CertificateAuthority("Sub CA", issuer=CA)
BROKER = SUB_CA.issue("broker", hosts=["broker.example"])
PREFIX = "listener.name.ssl."


def keystore(**values: object) -> KeyStore:
    loaded = load_keystore({f"ssl.{name.replace('_', '.')}": value for name, value in values.items()}, PREFIX)
    assert loaded is not None
    loaded.load_into(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    return loaded


def truststore(**values: object) -> str | None:
    return load_truststore({f"ssl.{name.replace('_', '.')}": value for name, value in values.items()}, PREFIX)


def certificates(pem: str | None) -> int:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    assert pem is not None
    context.load_verify_locations(cadata=pem)
    return context.cert_store_stats()["x509"]


def error_of_keystore(**values: object) -> str:
    with pytest.raises(ConfigError) as raised:
        keystore(**values)
    return str(raised.value)


def error_of_truststore(**values: object) -> str:
    with pytest.raises(ConfigError) as raised:
        truststore(**values)
    return str(raised.value)


def test_nothing() -> None:
    assert load_keystore({}) is None
    assert load_truststore({}) is None
    assert store_files({"ssl.keystore.location": "a", "ssl.truststore.location": None}) == ("a",)


@pytest.mark.parametrize("password", [None, "key-secret"])
def test_pem_files(tmp_path: Path, password: str | None) -> None:
    path = BROKER.write_keystore(tmp_path / "broker.pem", password)
    loaded = keystore(keystore_location=str(path), keystore_type="PEM", key_password=password)
    assert loaded.certificate == BROKER.certificate.public_bytes(Encoding.DER)
    assert "key-secret" not in repr(loaded)
    assert "PRIVATE" not in repr(loaded)
    assert path.stat().st_mode & 0o777 == 0o600


def test_pkcs12_files(tmp_path: Path) -> None:
    path = str(BROKER.write_pkcs12(tmp_path / "broker.p12", "secret"))
    for store_type in (None, "PKCS12", "JKS"):  # Java reads PKCS12 as JKS, too
        loaded = keystore(keystore_location=path, keystore_password="secret", keystore_type=store_type)
        assert loaded.chain.count("BEGIN CERTIFICATE") == 2
    path = str(CA.write_pkcs12_truststore(tmp_path / "ca.p12", "secret"))
    assert certificates(truststore(truststore_location=path, truststore_password="secret")) == 1


def test_truststore_files(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    path.write_text(f"# authorities\n{CA.certificate_pem}text between\n{SUB_CA.certificate_pem}")
    assert certificates(truststore(truststore_location=str(path))) == 2


def one_line(pem: str) -> str:
    return " ".join(pem.split("\n"))


@pytest.mark.parametrize("form", [str, one_line])
def test_inline(form: object) -> None:
    assert callable(form)
    loaded = keystore(keystore_key=form(BROKER.key_pem()), keystore_certificate_chain=form(BROKER.chain_pem))
    assert loaded.chain.count("BEGIN CERTIFICATE") == 2
    encrypted = form(BROKER.key_pem("secret"))
    keystore(keystore_key=encrypted, keystore_certificate_chain=BROKER.chain_pem, key_password="secret")
    assert certificates(truststore(truststore_certificates=form(CA.certificate_pem), truststore_type="PEM")) == 1


def test_jks_is_refused_with_the_command(tmp_path: Path) -> None:
    path = tmp_path / "old.jks"
    path.write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    command = f"keytool -importkeystore -srckeystore {path} -destkeystore old.p12 -deststoretype PKCS12"
    error = error_of_keystore(keystore_location=str(path), keystore_type="JKS")
    assert command in error
    assert "set listener.name.ssl.ssl.keystore.location to old.p12" in error
    assert command in error_of_truststore(truststore_location=str(path))


def test_errors_of_keystores(tmp_path: Path) -> None:
    plain = str(BROKER.write_keystore(tmp_path / "broker.pem"))
    encrypted = str(BROKER.write_keystore(tmp_path / "encrypted.pem", "secret"))
    pkcs12 = str(BROKER.write_pkcs12(tmp_path / "broker.p12", "secret"))
    other = tmp_path / "other.pem"
    other.write_text(BROKER.key_pem() + CA.issue("x").chain_pem)
    name = f"{PREFIX}ssl.keystore.location="
    assert (
        error_of_keystore(keystore_location="/no/such") == f"{name}/no/such cannot be read: No such file or directory"
    )
    assert "set ssl.key.password" in error_of_keystore(keystore_location=encrypted)
    assert "ssl.key.password is wrong" in error_of_keystore(keystore_location=encrypted, key_password="x")
    assert "does not belong to the first certificate" in error_of_keystore(keystore_location=str(other))
    assert f"is a PEM file, but {PREFIX}ssl.keystore.type=PKCS12" in error_of_keystore(
        keystore_location=plain, keystore_type="PKCS12"
    )
    assert "has no store password" in error_of_keystore(keystore_location=plain, keystore_password="x")
    assert "its password is wrong" in error_of_keystore(keystore_location=pkcs12, keystore_password="x")
    assert "its password is missing" in error_of_keystore(keystore_location=pkcs12)
    assert "are both set" in error_of_keystore(keystore_location=plain, keystore_key=BROKER.key_pem())
    assert "certificate.chain must be set, too" in error_of_keystore(keystore_key=BROKER.key_pem())
    assert "must have one private key as PEM, but it has 0" in error_of_keystore(
        keystore_key="x", keystore_certificate_chain=BROKER.chain_pem
    )
    assert "has no certificate as PEM" in error_of_keystore(
        keystore_key=BROKER.key_pem(), keystore_certificate_chain="x"
    )
    assert "ssl.keystore.type=PKCS12, but the configs have PEM text" in error_of_keystore(
        keystore_key="x", keystore_certificate_chain="y", keystore_type="PKCS12"
    )
    assert "ssl.keystore.password cannot be set with PEM text" in error_of_keystore(
        keystore_key="x", keystore_certificate_chain="y", keystore_password="z"
    )


def test_errors_of_truststores(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    for content, words in (
        (b"", "is neither a PEM nor a PKCS12 file"),
        (b"-----BEGIN CERTIFICATE-----\n", "has no certificate as PEM"),
        (b"-----BEGIN X-----\xff", "has other bytes than text"),
    ):
        path.write_bytes(content)
        assert words in error_of_truststore(truststore_location=str(path))
    CA.write_truststore(path)
    assert "has no password" in error_of_truststore(truststore_location=str(path), truststore_password="x")
    assert "are both set" in error_of_truststore(truststore_location=str(path), truststore_certificates="x")
    assert "has no private key" in error_of_keystore(
        keystore_location=str(CA.write_pkcs12_truststore(tmp_path / "ca.p12", "s")), keystore_password="s"
    )
