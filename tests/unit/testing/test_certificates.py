"""Certificates for tests: chains, stores, validity. Java and OpenSSL read the stores in other tests."""

from datetime import timedelta
from pathlib import Path

from cryptography import x509

from headrace.testing.certificates import LOCAL_HOSTS, CertificateAuthority


def test_certificates_are_signed_by_their_authority() -> None:
    ca = CertificateAuthority()
    sub = CertificateAuthority("Sub CA", issuer=ca)
    certificate = sub.issue("broker", hosts=LOCAL_HOSTS)
    certificate.certificate.verify_directly_issued_by(sub.certificate)
    sub.certificate.verify_directly_issued_by(ca.certificate)
    assert certificate.chain_pem.count("BEGIN CERTIFICATE") == 2
    assert ca.issue("alice").chain_pem.count("BEGIN CERTIFICATE") == 1
    names = certificate.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    assert len(names.get_values_for_type(x509.IPAddress)) == 2


def test_validity() -> None:
    expired = CertificateAuthority().issue("x", valid_until=timedelta(hours=-1)).certificate
    assert expired.not_valid_after_utc - expired.not_valid_before_utc == timedelta(hours=23)


def test_files_are_replaced_at_once(tmp_path: Path) -> None:
    ca = CertificateAuthority()
    path = ca.issue("a").write_keystore(tmp_path / "k.pem")
    before = path.read_text()
    with path.open() as still_open:
        ca.issue("a").write_keystore(path)
        assert still_open.read() == before != path.read_text()
    assert [file.name for file in tmp_path.iterdir()] == ["k.pem"]
    assert "RSA" in type(ca.issue("a", use_rsa=True).private_key).__name__
