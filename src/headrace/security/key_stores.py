"""Keystores and truststores of TLS: PEM, in files or in the configs themselves, and PKCS12.

    ssl.keystore.location=/etc/headrace/broker.pem      private key and certificate chain
    ssl.keystore.key=-----BEGIN PRIVATE KEY----- ...    the same without a file
    ssl.keystore.certificate.chain=-----BEGIN CERTIFICATE----- ...
    ssl.truststore.location=/etc/headrace/ca.p12        certificates of authorities
    ssl.truststore.password=...

- Without a type, the content of a file decides. Java's `.jks` files are PKCS12 since Java 9; only the old format is
  refused, with the command that converts it.
- OpenSSL reads private keys from files. One that is not in a file of its own goes through an anonymous file in memory.
- PEM text may be on one line, as in a `.properties` file.
"""

import os
import re
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.common.errors import ConfigError
from headrace.common.extras import requires_extra

__all__ = ["KeyStore", "load_keystore", "load_truststore", "store_files"]

_JKS_MAGIC = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_BLOCK = re.compile(r"-----BEGIN (?P<label>[A-Z0-9 ]+)-----(?P<body>.*?)-----END (?P=label)-----", re.DOTALL)
_BASE64 = re.compile(r"[A-Za-z0-9+/=\s]+")
_COLUMNS = 64


@dataclass(frozen=True)
class KeyStore:
    """A private key and its certificate chain, as PEM."""

    name: str
    """The config and its value, for errors."""
    chain: str
    key: str = field(repr=False)
    password: str | None = field(repr=False)

    @property
    def certificate(self) -> bytes:
        """The first certificate of the chain, as DER."""
        return ssl.PEM_cert_to_DER_cert(_pem_blocks(self.chain, "CERTIFICATE")[0])

    def load_into(self, context: ssl.SSLContext) -> None:
        """Makes a context use it. Raises ConfigError."""
        with _file_in_memory((self.chain + self.key).encode()) as path:
            try:
                # An empty password: OpenSSL would ask for a missing one on the terminal.
                context.load_cert_chain(path, password=self.password or "")
            except (ssl.SSLError, ValueError) as error:
                raise ConfigError(f"{self.name} cannot be used: {self._reason(error)}") from None

    def _reason(self, error: Exception) -> str:
        reason = getattr(error, "reason", None) or ""
        if reason == "KEY_VALUES_MISMATCH":
            return "the private key does not belong to the first certificate of the chain"
        if "ENCRYPTED" in self.key:
            if self.password is None:
                return "the private key is encrypted: set ssl.key.password"
            return "the private key cannot be decrypted: ssl.key.password is wrong, or the key is damaged"
        return reason.replace("_", " ").lower() or "it is damaged"


def store_files(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the files that a listener reads."""
    names = ("ssl.keystore.location", "ssl.truststore.location")
    return tuple(values[name] for name in names if values.get(name))


def load_keystore(values: Mapping[str, Any], prefix: str = "") -> KeyStore | None:
    """Returns the keystore that `ssl.keystore.*` describe; None without one. `prefix`: of the configs, for errors.

    Raises ConfigError.
    """
    location, key, chain = (values.get(f"ssl.keystore.{name}") for name in ("location", "key", "certificate.chain"))
    if not location:
        if not key and not chain:
            return None
        if not (key and chain):
            given, missing = ("key", "certificate.chain") if key else ("certificate.chain", "key")
            raise ConfigError(
                f"{prefix}ssl.keystore.{given} is set, so {prefix}ssl.keystore.{missing} must be set, too"
            )
        _check_inline(values, "keystore", prefix)
        return _pem_keystore(
            f"{prefix}ssl.keystore.key and {prefix}ssl.keystore.certificate.chain",
            chain, key, values.get("ssl.key.password"),
        )  # fmt: skip
    if key or chain:
        raise ConfigError(f"{prefix}ssl.keystore.location and {prefix}ssl.keystore.key are both set: set only one")
    name = f"{prefix}ssl.keystore.location={location}"
    data = _read(name, location)
    password = values.get("ssl.keystore.password")
    if _format(name, "keystore", location, data, values, prefix) == "PKCS12":
        return _pkcs12_keystore(name, data, password)
    if password:
        raise ConfigError(
            f"{name} is a PEM file, which has no store password: set {prefix}ssl.key.password in place of "
            f"{prefix}ssl.keystore.password"
        )
    text = _text(name, data)
    return _pem_keystore(name, text, text, values.get("ssl.key.password"))


def load_truststore(values: Mapping[str, Any], prefix: str = "") -> str | None:
    """Returns the certificates that `ssl.truststore.*` describe as PEM; None without them. Raises ConfigError."""
    location, certificates = values.get("ssl.truststore.location"), values.get("ssl.truststore.certificates")
    if not location:
        if not certificates:
            return None
        _check_inline(values, "truststore", prefix)
        return _pem_certificates(f"{prefix}ssl.truststore.certificates", certificates)
    if certificates:
        raise ConfigError(
            f"{prefix}ssl.truststore.location and {prefix}ssl.truststore.certificates are both set: set only one"
        )
    name = f"{prefix}ssl.truststore.location={location}"
    data = _read(name, location)
    password = values.get("ssl.truststore.password")
    if _format(name, "truststore", location, data, values, prefix) == "PKCS12":
        return _pkcs12_certificates(name, data, password)
    if password:
        raise ConfigError(f"{name} is a PEM file, which has no password: remove {prefix}ssl.truststore.password")
    return _pem_certificates(name, _text(name, data))


# ---- files


def _read(name: str, location: str) -> bytes:
    try:
        return Path(location).read_bytes()
    except OSError as error:
        raise ConfigError(f"{name} cannot be read: {error.strerror}") from error


def _format(name: str, store: str, location: str, data: bytes, values: Mapping[str, Any], prefix: str) -> str:
    """Returns PEM or PKCS12. Raises ConfigError if the content is something else than the type says."""
    given = (values.get(f"ssl.{store}.type") or "").upper()
    if data.startswith(_JKS_MAGIC):
        converted = f"{Path(location).stem}.p12"
        raise ConfigError(
            f"{name} is a JKS file, which only Java reads. Convert it with: keytool -importkeystore -srckeystore "
            f"{location} -destkeystore {converted} -deststoretype PKCS12, then set {prefix}ssl.{store}.location to "
            f"{converted} and {prefix}ssl.{store}.type=PKCS12"
        )
    found = "PEM" if b"-----BEGIN " in data else "PKCS12" if data[:1] == b"\x30" else ""
    if not found:
        raise ConfigError(f"{name} is neither a PEM nor a PKCS12 file")
    # Java reads PKCS12 files as JKS, too.
    if given and given != found and not (given == "JKS" and found == "PKCS12"):
        raise ConfigError(f"{name} is a {found} file, but {prefix}ssl.{store}.type={given}")
    return found


def _check_inline(values: Mapping[str, Any], store: str, prefix: str) -> None:
    given = values.get(f"ssl.{store}.type")
    if given and given.upper() != "PEM":
        raise ConfigError(f"{prefix}ssl.{store}.type={given}, but the configs have PEM text: expected PEM")
    if values.get(f"ssl.{store}.password"):
        raise ConfigError(f"{prefix}ssl.{store}.password cannot be set with PEM text, which has no store password")


@contextmanager
def _file_in_memory(data: bytes) -> Iterator[str]:
    """Yields the name of a file with this content, for OpenSSL: in memory, or readable only by this user."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("keystore", os.MFD_CLOEXEC)
        path = f"/proc/self/fd/{fd}"
        with open(fd, "wb", buffering=0) as file:
            if os.path.exists(path):
                file.write(data)
                yield path
                return
    with tempfile.NamedTemporaryFile(prefix="headrace-") as temporary:
        temporary.write(data)
        temporary.flush()
        yield temporary.name


# ---- PEM


def _text(name: str, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ConfigError(f"{name} is not a PEM file: it has other bytes than text") from None


def _pem_blocks(text: str, suffix: str) -> list[str]:
    """Returns the blocks whose labels end like this, each with a line break at its end."""
    blocks: list[str] = []
    for match in _BLOCK.finditer(text):
        if match["label"].endswith(suffix):
            body = match["body"]
            if _BASE64.fullmatch(body):
                joined = "".join(body.split())
                lines = [joined[start : start + _COLUMNS] for start in range(0, len(joined), _COLUMNS)]
                body = "\n" + "\n".join(lines) + "\n"
            blocks.append(f"-----BEGIN {match['label']}-----{body}-----END {match['label']}-----\n")
    return blocks


def _pem_keystore(name: str, chain_text: str, key_text: str, password: str | None) -> KeyStore:
    keys = _pem_blocks(key_text, "PRIVATE KEY")
    if len(keys) != 1:
        raise ConfigError(f"{name} must have one private key as PEM, but it has {len(keys)}")
    return KeyStore(name, _pem_certificates(name, chain_text), keys[0], password)


def _pem_certificates(name: str, text: str) -> str:
    blocks = _pem_blocks(text, "CERTIFICATE")
    if not blocks:
        raise ConfigError(f"{name} has no certificate as PEM (-----BEGIN CERTIFICATE-----)")
    return "".join(blocks)


# ---- PKCS12


def _load_pkcs12(name: str, data: bytes, password: str | None) -> Any:
    with requires_extra("security"):
        from cryptography.hazmat.primitives.serialization import pkcs12
    try:
        return pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except ValueError as error:
        what = "its password is missing" if password is None else "its password is wrong, or it is damaged"
        raise ConfigError(f"{name} cannot be read as PKCS12: {what} ({error})") from None


def _pkcs12_keystore(name: str, data: bytes, password: str | None) -> KeyStore:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    store = _load_pkcs12(name, data, password)
    if store.key is None or store.cert is None:
        raise ConfigError(f"{name} has no private key with a certificate")
    chain = [store.cert.certificate, *(each.certificate for each in store.additional_certs)]
    key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return KeyStore(name, _to_pem(chain), key.decode(), None)


def _pkcs12_certificates(name: str, data: bytes, password: str | None) -> str:
    store = _load_pkcs12(name, data, password)
    found = [each.certificate for each in ([store.cert] if store.cert else []) + store.additional_certs]
    if not found:
        raise ConfigError(f"{name} has no certificate")
    return _to_pem(found)


def _to_pem(certificates: list[Any]) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    return "".join(each.public_bytes(Encoding.PEM).decode() for each in certificates)
