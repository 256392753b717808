"""A new certificate authority with the certificate of one broker, for a start with TLS without other tools.

Certificates have keys of elliptic curves (P-256). An organization that has an authority should use that one.
"""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from headrace.common.extras import requires_extra

with requires_extra("security"):
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ["NewCertificates", "make_certificates"]

_AUTHORITY_DAYS = 3650
_BROKER_DAYS = 825
_DIGITAL_SIGNATURE = {"digital_signature": True, "key_cert_sign": False, "crl_sign": False}
_SIGNING = {"digital_signature": False, "key_cert_sign": True, "crl_sign": True}


@dataclass(frozen=True)
class NewCertificates:
    """Files in PEM format."""

    authority: bytes
    """The certificate that clients trust."""
    authority_key: bytes
    """For more certificates. The broker does not need it."""
    keystore: bytes
    """The broker's key and certificate."""


def make_certificates(hosts: Iterable[str], now_ms: int) -> NewCertificates:
    """Returns an authority that is valid for ten years, and a certificate for a broker with these host names and IP
    addresses."""
    hosts = list(hosts)
    now = datetime.fromtimestamp(now_ms / 1000, UTC) - timedelta(days=1)  # clocks differ
    authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    name = _name("Headrace CA")
    authority = (
        _builder(name, name, authority_key.public_key(), now, _AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(_SIGNING), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    certificate = (
        _builder(_name(hosts[0]), name, key.public_key(), now, _BROKER_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(_DIGITAL_SIGNATURE), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False)
        .add_extension(issuer, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    return NewCertificates(_pem(authority), _key_pem(authority_key), _key_pem(key) + _pem(certificate))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, start: datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_usage(usage: dict[str, bool]) -> x509.KeyUsage:
    others = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
    return x509.KeyUsage(**usage, **dict.fromkeys(others, False), encipher_only=False, decipher_only=False)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
