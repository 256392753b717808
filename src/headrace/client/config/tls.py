"""The clients' `ssl.*` keys: those of Kafka, kafka-python and librdkafka, and the `ssl.SSLContext` made from them.

    Kafka                           kafka-python                librdkafka
    ssl.truststore.location         ssl_cafile (PEM)            ssl.ca.location (PEM)
    ssl.truststore.certificates                                 ssl.ca.pem
    ssl.keystore.location           ssl_certfile, ssl_keyfile   ssl.certificate.location, ssl.key.location
    ssl.keystore.key, ...chain                                  ssl.key.pem, ssl.certificate.pem
    ssl.key.password                ssl_password                ssl.key.password

Files are read when a client is created.
"""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from headrace.client.config.mapping import ConfigMapping
from headrace.common.config import ConfigKey, ConfigType
from headrace.common.errors import ConfigError
from headrace.net.errors import describe_os_error
from headrace.security.key_stores import load_keystore
from headrace.security.tls_context import client_context
from headrace.security.tls_keys import TLS_KEYS

__all__ = ["TLS_ALIASES", "TLS_CLIENT_KEYS", "TLS_REFUSED", "make_ssl_context"]

STRING = ConfigType.STRING

_DOCS = {
    "ssl.keystore.type": "The format of the keystore: PEM or PKCS12. The default is the format that the file's content "
    "shows. Java's old format JKS must be converted.",
    "ssl.keystore.location": "A file with this client's private key and certificate chain, if brokers require one.",
    "ssl.keystore.password": "The password of a PKCS12 keystore.",
    "ssl.key.password": "The password of the private key, if it has one.",
    "ssl.keystore.key": "The private key as PEM text (PKCS #8), in place of a file.",
    "ssl.keystore.certificate.chain": "The certificate of `ssl.keystore.key` as PEM text, followed by its issuers.",
    "ssl.truststore.type": "The format of the truststore: PEM or PKCS12. The default is what the file's content shows.",
    "ssl.truststore.location": "A file with the certificates of the authorities that sign the brokers' certificates. "
    "The default is the operating system's list.",
    "ssl.truststore.password": "The password of a PKCS12 truststore.",
    "ssl.truststore.certificates": "The certificates of the authorities as PEM text, in place of a file.",
    "ssl.enabled.protocols": "The enabled TLS versions.",
    "ssl.protocol": "Accepted as in Kafka. `ssl.enabled.protocols` decides which versions are used.",
    "ssl.cipher.suites": "The enabled cipher suites, with Java's names or OpenSSL's.",
    "ssl.endpoint.identification.algorithm": "`https` checks that a broker's certificate matches the host name by "
    "which it is reached; an empty value, or `none`, disables the check.",
}


def _kafka_key(name: str, doc: str) -> ConfigKey:
    key = replace(TLS_KEYS.keys[name], doc=doc, dynamic=False)
    if name == "ssl.endpoint.identification.algorithm":
        return replace(key, choices=("https", "HTTPS", "none", ""))
    return key


TLS_CLIENT_KEYS: tuple[ConfigKey, ...] = (
    *(_kafka_key(name, doc) for name, doc in _DOCS.items()),
    ConfigKey(
        "ssl.check.hostname",
        ConfigType.BOOLEAN,
        True,
        "As in kafka-python: False is the same as an empty `ssl.endpoint.identification.algorithm`.",
    ),
    ConfigKey(
        "enable.ssl.certificate.verification",
        ConfigType.BOOLEAN,
        True,
        "As in librdkafka: False accepts any certificate of a broker, and so anybody between client and broker.",
    ),
    ConfigKey("ssl.cafile", STRING, None, "As in kafka-python: a truststore in a PEM file."),
    ConfigKey("ssl.certfile", STRING, None, "As in kafka-python: a PEM file with this client's certificate chain."),
    ConfigKey("ssl.keyfile", STRING, None, "As in kafka-python: a PEM file with the private key of `ssl.certfile`."),
    ConfigKey("ssl.crlfile", STRING, None, "PEM file with revoked certificates."),
    ConfigKey("ssl.ciphers", STRING, None, "The allowed ciphers, in OpenSSL's notation."),
)

TLS_ALIASES = {
    "ssl.ca.location": "ssl.cafile",
    "ssl.certificate.location": "ssl.certfile",
    "ssl.key.location": "ssl.keyfile",
    "ssl.crl.location": "ssl.crlfile",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.pem": "ssl.keystore.key",
    "ssl.password": "ssl.key.password",
}
"""librdkafka's and kafka-python's names."""

_JAVA_CLASS = "Java classes cannot be loaded: pass an `ssl.SSLContext` as `ssl_context`"
_CONTEXT = "pass an `ssl.SSLContext` as `ssl_context`"
TLS_REFUSED = {
    "ssl.engine.factory.class": _JAVA_CLASS,
    "ssl.provider": "OpenSSL is the only provider of TLS",
    "ssl.providers": "OpenSSL's own providers are used",
    "ssl.engine.location": "engines of OpenSSL are not supported",
    "ssl.secure.random.implementation": "OpenSSL's random numbers are always used",
    "ssl.keymanager.algorithm": _JAVA_CLASS,
    "ssl.trustmanager.algorithm": _JAVA_CLASS,
    "security.providers": _JAVA_CLASS,
    "ssl.ca.certificate.stores": "they exist only in Windows",
    "ssl.curves.list": _CONTEXT,
    "ssl.sigalgs.list": _CONTEXT,
    "ssl.certificate.verify.cb": _CONTEXT,
}


def make_ssl_context(config: ConfigMapping) -> ssl.SSLContext | None:
    """Returns the SSL context for connections to brokers, or None without TLS. Raises ConfigError."""
    context: ssl.SSLContext | None = config["ssl_context"]
    protocol = config["security_protocol"]
    if protocol not in ("SSL", "SASL_SSL"):
        if context is not None:
            raise ConfigError(f"ssl.context is set, but security.protocol is {protocol}: expected SSL or SASL_SSL")
        return None
    if context is not None:
        return context
    values = {key.name: config[key.attribute] for key in TLS_CLIENT_KEYS}
    if values["ssl.endpoint.identification.algorithm"] == "none" or not values["ssl.check.hostname"]:
        values["ssl.endpoint.identification.algorithm"] = ""
    values["ssl.cipher.suites"] = tuple(
        suite for item in values["ssl.cipher.suites"] for suite in item.split(":") if suite
    )
    _check_combinations(values)
    ca_file = values["ssl.cafile"]
    context = client_context(values, load_keystore(values), needs_authorities=ca_file is None)
    if ca_file is not None:
        with _names_file("ssl.cafile", ca_file):
            context.load_verify_locations(ca_file)
    _load_certificate(context, values)
    if values["ssl.crlfile"] is not None:
        with _names_file("ssl.crlfile", values["ssl.crlfile"]):
            context.load_verify_locations(values["ssl.crlfile"])
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    if values["ssl.ciphers"] is not None:
        with _names_file("ssl.ciphers", values["ssl.ciphers"]):
            context.set_ciphers(values["ssl.ciphers"])
    if not values["enable.ssl.certificate.verification"]:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _check_combinations(values: dict[str, Any]) -> None:
    if values["ssl.cafile"] is not None:
        for name in ("ssl.truststore.location", "ssl.truststore.certificates"):
            if values[name]:
                raise ConfigError(f"ssl.cafile and {name} are both set: set only one")
    if values["ssl.certfile"] is not None:
        for name in ("ssl.keystore.location", "ssl.keystore.key"):
            if values[name]:
                raise ConfigError(f"ssl.certfile and {name} are both set: set only one")
    elif values["ssl.keyfile"] is not None:
        raise ConfigError("ssl.keyfile is set, so ssl.certfile must be set, too")


def _load_certificate(context: ssl.SSLContext, values: dict[str, Any]) -> None:
    certificate, key = values["ssl.certfile"], values["ssl.keyfile"]
    if certificate is None:
        return
    for name, file in (("ssl.certfile", certificate), ("ssl.keyfile", key)):
        # OpenSSL's error does not say which of the two files cannot be read.
        with _names_file(name, file), Path(file or certificate).open("rb"):
            pass
    password = values["ssl.key.password"]
    with _names_file("ssl.certfile and ssl.keyfile", certificate if key is None else f"{certificate}, {key}"):
        context.load_cert_chain(certificate, key, password or "")


@contextmanager
def _names_file(key: str, value: str | None) -> Iterator[None]:
    """Turns an error of a file, or of another value, into one that names it."""
    try:
        yield
    except (OSError, ValueError) as error:
        reason = describe_os_error(error) if isinstance(error, OSError) else str(error)
        raise ConfigError(f"{key}={value} cannot be used: {reason}") from error
