"""TLS between broker and ZooKeeper: the configuration, and the `ssl.SSLContext` made from it.

Keystore and truststore are PEM files. Java's stores (JKS, PKCS12) are refused with the command that converts them,
because Python's ssl module reads PEM only.
"""

import ssl
from dataclasses import dataclass, field
from pathlib import Path

from headrace.common.errors import ConfigError

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_TYPES = {".jks": "JKS", ".p12": "PKCS12", ".pfx": "PKCS12", ".pem": "PEM", ".crt": "PEM", ".cer": "PEM"}


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """How to authenticate ZooKeeper, and this broker to it."""

    keystore: str | None = None
    keystore_password: str | None = field(default=None, repr=False)
    keystore_type: str | None = None
    truststore: str | None = None
    truststore_type: str | None = None
    protocols: tuple[str, ...] = ("TLSv1.2",)
    ciphers: tuple[str, ...] = ()
    check_hostname: bool = True

    def check(self) -> None:
        """Raises ConfigError if a store has an unsupported format, or a protocol is unknown. Opens no file."""
        _check_type("keystore", self.keystore, self.keystore_type)
        _check_type("truststore", self.truststore, self.truststore_type)
        for protocol in self.protocols:
            if protocol not in _VERSIONS:
                raise ConfigError(
                    f"zookeeper.ssl: protocol {protocol} is not supported: expected {', '.join(_VERSIONS)}"
                )

    def context(self) -> ssl.SSLContext:
        """Reads the files. Raises ConfigError if one of them cannot be used."""
        self.check()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        versions = [_VERSIONS[protocol] for protocol in self.protocols]
        context.minimum_version, context.maximum_version = min(versions), max(versions)
        context.check_hostname = self.check_hostname
        if self.ciphers:
            try:
                context.set_ciphers(":".join(self.ciphers))
            except ssl.SSLError:
                raise ConfigError(
                    f"zookeeper.ssl.cipher.suites={','.join(self.ciphers)} has no cipher that OpenSSL knows: expected "
                    "OpenSSL's names, such as ECDHE-RSA-AES128-GCM-SHA256"
                ) from None
        try:
            if self.truststore is None:
                context.load_default_certs(ssl.Purpose.SERVER_AUTH)
            else:
                context.load_verify_locations(self.truststore)
        except (ssl.SSLError, OSError) as error:
            raise _unusable("truststore", self.truststore, error) from error
        if self.keystore is not None:
            try:
                # An empty password: OpenSSL would ask for a missing one on the terminal.
                context.load_cert_chain(self.keystore, password=self.keystore_password or "")
            except (ssl.SSLError, OSError) as error:
                raise _unusable("keystore", self.keystore, error) from error
        return context


def _check_type(store: str, location: str | None, given_type: str | None) -> None:
    if location is None:
        return
    store_type = (given_type or _TYPES.get(Path(location).suffix.lower(), "JKS")).upper()
    if store_type == "PEM":
        return
    converted = f"{Path(location).stem}.pem"
    if store_type == "PKCS12":
        how = f"openssl pkcs12 -in {location} -out {converted} -nodes"
    else:
        how = (
            f"keytool -importkeystore -srckeystore {location} -destkeystore store.p12 -deststoretype PKCS12, then "
            f"openssl pkcs12 -in store.p12 -out {converted} -nodes"
        )
    raise ConfigError(
        f"zookeeper.ssl.{store}.location={location} is a {store_type} file, but only PEM is supported. Convert it with "
        f"{how}; or set zookeeper.ssl.{store}.type=PEM if it is a PEM file"
    )


def _unusable(store: str, location: str | None, error: OSError) -> ConfigError:
    reason = error.strerror or error.__class__.__name__
    if isinstance(error, ssl.SSLError):
        reason = f"{error.reason or error}: expected PEM" + (", and the right password" if store == "keystore" else "")
    return ConfigError(f"zookeeper.ssl.{store}.location={location} cannot be used: {reason}")
