"""Throwaway authorities and certificates for tests with TLS.

    ca = CertificateAuthority()
    broker = ca.issue("localhost", hosts=["localhost", "127.0.0.1"])
    broker.write_keystore(directory / "broker.pem")
    ca.write_truststore(directory / "ca.pem")

Keys are made anew each time (elliptic curves, which is fast). Never use them for anything but tests.
"""

import ipaddress
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from headrace.common.clock import SystemClock
from headrace.common.extras import requires_extra

with requires_extra("security"):
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec, rsa
    from cryptography.hazmat.primitives.serialization import pkcs12
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ["Certificate", "CertificateAuthority"]

LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
"""The names by which a broker of a test is reached."""

_PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
_OIDS = {
    "CN": NameOID.COMMON_NAME,
    "OU": NameOID.ORGANIZATIONAL_UNIT_NAME,
    "O": NameOID.ORGANIZATION_NAME,
    "L": NameOID.LOCALITY_NAME,
    "ST": NameOID.STATE_OR_PROVINCE_NAME,
    "C": NameOID.COUNTRY_NAME,
    "DC": NameOID.DOMAIN_COMPONENT,
    "UID": NameOID.USER_ID,
    "EMAIL": NameOID.EMAIL_ADDRESS,
}


@dataclass(frozen=True)
class Certificate:
    """A certificate with its private key and the certificates of its issuers."""

    certificate: x509.Certificate
    private_key: _PrivateKey
    issuers: tuple[x509.Certificate, ...] = ()

    def key_pem(self, password: str | None = None) -> str:
        """Returns the private key as PKCS #8 PEM, encrypted if there is a password."""
        encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password is not None:
            encryption = serialization.BestAvailableEncryption(password.encode())
        return self.private_key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
        ).decode()

    @property
    def chain_pem(self) -> str:
        """The certificate and its issuers as PEM."""
        return "".join(map(_pem, (self.certificate, *self.issuers)))

    def write_keystore(self, path: Path, password: str | None = None) -> Path:
        """Writes key and chain as one PEM file, in place of an old one at once. Returns the path."""
        return _write(path, (self.key_pem(password) + self.chain_pem).encode())

    def write_pkcs12(self, path: Path, password: str, name: str = "key") -> Path:
        """Writes key and chain as a PKCS12 keystore, which Java also reads. Returns the path."""
        data = pkcs12.serialize_key_and_certificates(
            name.encode(), self.private_key, self.certificate, self.issuers, _pkcs12_encryption(password)
        )
        return _write(path, data)


class CertificateAuthority:
    """An authority that signs itself, or, with `issuer`, an intermediate authority."""

    def __init__(self, name: str = "Test CA", *, issuer: "CertificateAuthority | None" = None):
        self._now = datetime.fromtimestamp(SystemClock().time_ms() / 1000, UTC)
        self._key = ec.generate_private_key(ec.SECP256R1())
        subject = _name({"CN": name})
        builder = self._builder(
            subject, self._key, self._now - timedelta(days=1), self._now + timedelta(days=2), issuer or self
        )
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        builder = builder.add_extension(_key_usage(signs_certificates=True), critical=True)
        self.certificate = builder.sign((issuer or self)._key, hashes.SHA256())
        self._issuers: tuple[x509.Certificate, ...] = ()
        if issuer is not None:
            self._issuers = (self.certificate, *issuer._issuers)

    @property
    def certificate_pem(self) -> str:
        return _pem(self.certificate)

    def write_truststore(self, path: Path) -> Path:
        """Writes the certificate of this authority as a PEM file. Returns the path."""
        return _write(path, self.certificate_pem.encode())

    def write_pkcs12_truststore(self, path: Path, password: str) -> Path:
        """Writes the certificate of this authority as a PKCS12 truststore that Java also reads. Returns the path."""
        entries = [pkcs12.PKCS12Certificate(self.certificate, b"ca")]
        return _write(path, pkcs12.serialize_java_truststore(entries, _pkcs12_encryption(password)))

    def issue(
        self,
        common_name: str,
        *,
        hosts: Iterable[str] = (),
        subject: Mapping[str, str] | None = None,
        valid_from: timedelta = timedelta(days=-1),
        valid_until: timedelta = timedelta(days=1),
        use_rsa: bool = False,
    ) -> Certificate:
        """Returns a new certificate for servers and clients.

        - `hosts`: the host names and IP addresses that it is valid for. A client's certificate needs none.
        - `subject`: more parts of the name, such as `{"OU": "sales", "O": "Example"}`, from the most general to the
          most special; the common name comes last.
        - `valid_from`, `valid_until`: relative to now. For example, `valid_until=timedelta(hours=-1)` has expired.
        """
        name = _name({**(subject or {}), "CN": common_name})
        return self.issue_to(name, hosts=hosts, valid_from=valid_from, valid_until=valid_until, use_rsa=use_rsa)

    def issue_to(
        self,
        name: x509.Name,
        *,
        hosts: Iterable[str] = (),
        valid_from: timedelta = timedelta(days=-1),
        valid_until: timedelta = timedelta(days=1),
        use_rsa: bool = False,
    ) -> Certificate:
        """Like `issue`, for any distinguished name."""
        key: _PrivateKey = rsa.generate_private_key(65537, 2048) if use_rsa else ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(name, key, self._now + valid_from, self._now + valid_until, self)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_key_usage(signs_certificates=False), critical=True)
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        names = [_host(host) for host in hosts]
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return Certificate(builder.sign(self._key, hashes.SHA256()), key, self._issuers)

    def _builder(
        self, name: x509.Name, key: _PrivateKey, start: datetime, end: datetime, issuer: "CertificateAuthority"
    ) -> x509.CertificateBuilder:
        issuer_name = name if issuer is self and not hasattr(self, "certificate") else issuer.certificate.subject
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(issuer_name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(start)
            .not_valid_after(end)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer._key.public_key()), critical=False)
        )


def _name(parts: Mapping[str, str]) -> x509.Name:
    return x509.Name([x509.NameAttribute(_OIDS[key], value) for key, value in parts.items()])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=not signs_certificates,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _pkcs12_encryption(password: str) -> serialization.KeySerializationEncryption:
    builder = serialization.PrivateFormat.PKCS12.encryption_builder()
    return builder.kdf_rounds(1000).build(password.encode())


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _write(path: Path, data: bytes) -> Path:
    """Writes a file that only the owner may read. A reader of an old one never sees a part of the new one."""
    temporary = path.with_name(f"{path.name}.new")
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(data)
    temporary.replace(path)
    return path
