"""Kafka's `ssl.*` configs of a broker: of all its listeners, or of one with the prefix `listener.name.<listener>.`"""

from collections.abc import Mapping
from typing import Any

from headrace.common.config import ConfigKey, ConfigTable, ConfigType
from headrace.common.errors import ConfigError

STORE_TYPES = ("PEM", "PKCS12", "JKS")
TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")


def _key(name: str, kind: ConfigType, default: Any, doc: str, *, dynamic: bool = True, **limits: Any) -> ConfigKey:
    return ConfigKey(f"ssl.{name}", kind, default, doc, dynamic=dynamic, **limits)


TLS_KEYS = ConfigTable(
    [
        _key(
            "keystore.type",
            ConfigType.STRING,
            None,
            "The format of the keystore: PEM or PKCS12. The default is the format that the file's content shows. (JKS, "
            "Kafka's default, must be converted.)",
            choices=STORE_TYPES,
        ),
        _key(
            "keystore.location",
            ConfigType.STRING,
            None,
            "A file with the private key and the certificate chain. The broker reads it again when it changes.",
        ),
        _key("keystore.password", ConfigType.PASSWORD, None, "The password of a PKCS12 keystore."),
        _key(
            "key.password",
            ConfigType.PASSWORD,
            None,
            "The password of the private key, if it has one.",
        ),
        _key(
            "keystore.key",
            ConfigType.PASSWORD,
            None,
            "The private key as PEM text (PKCS #8), in place of a file.",
        ),
        _key(
            "keystore.certificate.chain",
            ConfigType.PASSWORD,
            None,
            "The certificate of `ssl.keystore.key` as PEM text, followed by those of its issuers.",
        ),
        _key(
            "truststore.type",
            ConfigType.STRING,
            None,
            "The format of the truststore: PEM or PKCS12. The default is the format that the file's content shows.",
            choices=STORE_TYPES,
        ),
        _key(
            "truststore.location",
            ConfigType.STRING,
            None,
            "A file with the certificates of the authorities that sign the certificates of clients and brokers. The "
            "default is the operating system's list. The broker reads the file again when it changes.",
        ),
        _key("truststore.password", ConfigType.PASSWORD, None, "The password of a PKCS12 truststore."),
        _key(
            "truststore.certificates",
            ConfigType.PASSWORD,
            None,
            "The certificates of the authorities as PEM text, in place of a file.",
        ),
        _key(
            "client.auth",
            ConfigType.STRING,
            "none",
            "Whether clients must have a certificate: `none`, `requested` or `required`. SASL_SSL listeners use only "
            "the value that is set for the listener itself, as in Kafka.",
            choices=("required", "requested", "none"),
            dynamic=False,
        ),
        _key(
            "enabled.protocols",
            ConfigType.LIST,
            TLS_VERSIONS,
            "The enabled TLS versions.",
            choices=TLS_VERSIONS,
            dynamic=False,
        ),
        _key(
            "protocol",
            ConfigType.STRING,
            "TLSv1.3",
            "The context that Java would create. `ssl.enabled.protocols` decides which versions are used.",
            choices=("TLS", *TLS_VERSIONS),
            dynamic=False,
        ),
        _key(
            "cipher.suites",
            ConfigType.LIST,
            (),
            "The enabled cipher suites, with Java's names (TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256) or OpenSSL's. The "
            "default is OpenSSL's list.",
            dynamic=False,
        ),
        _key(
            "endpoint.identification.algorithm",
            ConfigType.STRING,
            "https",
            "`https` checks that the certificate of another broker matches its host name; an empty value disables the "
            "check.",
            choices=("https", "HTTPS", ""),
            dynamic=False,
        ),
        _key(
            "principal.mapping.rules",
            ConfigType.STRING,
            "DEFAULT",
            "How a client's certificate becomes a principal: a list of `RULE:pattern/replacement/`, with `L` or `U` at "
            "its end for lower or upper case, and `DEFAULT`. The first rule that matches wins. DEFAULT is the whole "
            "distinguished name.",
            dynamic=False,
        ),
        _key(
            "allow.dn.changes",
            ConfigType.BOOLEAN,
            False,
            "Whether a changed keystore may have another distinguished name than before.",
            dynamic=False,
        ),
        _key(
            "allow.san.changes",
            ConfigType.BOOLEAN,
            False,
            "Whether a changed keystore may lack alternative names of the certificate before.",
            dynamic=False,
        ),
    ]
)

UNSUPPORTED = {
    "ssl.engine.factory.class": "Java classes cannot be loaded",
    "ssl.provider": "OpenSSL is the only provider of TLS",
    "ssl.secure.random.implementation": "OpenSSL's random numbers are always used",
    "ssl.keymanager.algorithm": "it chooses a Java class",
    "ssl.trustmanager.algorithm": "it chooses a Java class",
    "security.providers": "Java classes cannot be loaded",
}
"""Kafka's keys that cannot be honored, with the reason."""

_JAVA_DEFAULTS = {"ssl.keymanager.algorithm": "SUNX509", "ssl.trustmanager.algorithm": "PKIX"}


def check_unsupported(key: str, value: object, name: str | None = None) -> None:
    """Raises ConfigError if a key that cannot be honored is set to something else than Java's default."""
    text = "" if value is None else str(value).strip()
    if text and text.upper() != _JAVA_DEFAULTS.get(key):
        raise ConfigError(f"{name or key} cannot be set: {UNSUPPORTED[key]}")


def listener_values(values: Mapping[str, Any], own: Mapping[str, Any], *, uses_sasl: bool) -> dict[str, Any]:
    """Returns the TLS values of a listener: its own, or else the broker's.

    KIP-684: a broker's `ssl.client.auth` does not apply to SASL_SSL listeners, whose clients authenticate with SASL.
    """
    merged = {**values, **own}
    if uses_sasl:
        merged["ssl.client.auth"] = own.get("ssl.client.auth", "none")
    return merged
