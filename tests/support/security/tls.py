"""Brokers with TLS listeners, and the configs of their clients. One authority signs everything."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace.testing.certificates import LOCAL_HOSTS, Certificate, CertificateAuthority

CA = CertificateAuthority()
OTHER_CA = CertificateAuthority("Other CA")
PASSWORD = "store-secret"
SUBJECT = {"C": "DE", "O": "Example, Inc.", "OU": "sales"}
ALICE = "User:CN=alice,OU=sales,O=Example\\, Inc.,C=DE"
"""The principal of the certificate of `alice`."""


class TlsFiles:
    """Keystores and truststores of a test, in its directory."""

    def __init__(self, directory: Path):
        self.directory = directory
        self.ca = str(CA.write_truststore(directory / "ca.pem"))
        self.other_ca = str(OTHER_CA.write_truststore(directory / "other-ca.pem"))
        self.broker = self.keystore("broker", CA.issue("broker", hosts=LOCAL_HOSTS, subject={"O": "Example"}))
        self.alice = self.keystore("alice", CA.issue("alice", subject=SUBJECT))

    def keystore(self, name: str, certificate: Certificate) -> str:
        """Writes a PEM keystore, in place of an old one."""
        return str(certificate.write_keystore(self.directory / f"{name}.pem"))

    def pkcs12(self, name: str, certificate: Certificate) -> str:
        return str(certificate.write_pkcs12(self.directory / f"{name}.p12", PASSWORD))

    @property
    def pkcs12_truststore(self) -> str:
        return str(CA.write_pkcs12_truststore(self.directory / "ca.p12", PASSWORD))

    def broker_properties(self, protocol: str = "SSL", **more: object) -> dict[str, object]:
        """Returns broker configs: one listener with TLS. `_` stands for `.`."""
        return {
            "listeners": f"{protocol}://127.0.0.1:0",
            "security.inter.broker.protocol": protocol,
            "ssl.keystore.location": self.broker,
            "ssl.truststore.location": self.ca,
            **{key if "." in key else key.replace("_", "."): value for key, value in more.items()},
        }

    def client_config(self, servers: str, keystore: str | None = None, **more: Any) -> dict[str, Any]:
        """Returns the configs of one of our clients."""
        own: Mapping[str, str] = {} if keystore is None else {"ssl.certfile": keystore, "ssl.keyfile": keystore}
        return {
            "bootstrap.servers": servers,
            "security.protocol": "SSL",
            "ssl.cafile": self.ca,
            **own,
            **{key if "." in key else key.replace("_", "."): value for key, value in more.items()},
        }
