"""From Kafka's `ssl.*` configs to the `ssl.SSLContext` of a listener, or of a client.

The same values serve both sides: a broker is also a client of other brokers.
"""

import ssl
from collections.abc import Mapping
from typing import Any

from headrace.common.errors import ConfigError
from headrace.security.cipher_suites import apply_cipher_suites
from headrace.security.key_stores import KeyStore, load_keystore, load_truststore

__all__ = ["client_context", "load_context", "server_context"]

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_VERIFY = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


def server_context(values: Mapping[str, Any], keystore: KeyStore, prefix: str = "") -> ssl.SSLContext:
    """Returns the context of a listener. `prefix`: of the configs, for errors. Raises ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = _VERIFY[values.get("ssl.client.auth") or "none"]
    # A client must not make the broker repeat its most expensive work.
    context.options |= ssl.OP_NO_RENEGOTIATION
    _configure(context, values, keystore, prefix, context.verify_mode != ssl.CERT_NONE)
    return context


def client_context(
    values: Mapping[str, Any], keystore: KeyStore | None, prefix: str = "", *, needs_authorities: bool = True
) -> ssl.SSLContext:
    """Returns the context of connections to brokers. `needs_authorities`: without a truststore it gets those of the
    operating system. Raises ConfigError.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    algorithm = values.get("ssl.endpoint.identification.algorithm")
    context.check_hostname = ("https" if algorithm is None else algorithm.strip().lower()) == "https"
    _configure(context, values, keystore, prefix, needs_authorities)
    return context


def load_context(values: Mapping[str, Any], prefix: str = "") -> ssl.SSLContext:
    """Returns the context of a client, with the keystore that its values name. Raises ConfigError."""
    return client_context(values, load_keystore(values, prefix), prefix)


def _configure(
    context: ssl.SSLContext,
    values: Mapping[str, Any],
    keystore: KeyStore | None,
    prefix: str,
    needs_authorities: bool,
) -> None:
    versions = [_VERSIONS[version] for version in values.get("ssl.enabled.protocols") or _VERSIONS]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    apply_cipher_suites(context, values.get("ssl.cipher.suites") or (), f"{prefix}ssl.cipher.suites")
    # As in Java, an intermediate authority in the truststore is trusted without its issuer.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if keystore is not None:
        keystore.load_into(context)
    certificates = load_truststore(values, prefix)
    if certificates is not None:
        try:
            context.load_verify_locations(cadata=certificates)
        except (ssl.SSLError, ValueError) as error:
            raise ConfigError(f"{prefix}ssl.truststore: a certificate is damaged: {error}") from None
    elif needs_authorities:
        purpose = ssl.Purpose.SERVER_AUTH if context.protocol == ssl.PROTOCOL_TLS_CLIENT else ssl.Purpose.CLIENT_AUTH
        context.load_default_certs(purpose)
