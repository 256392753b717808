"""`ssl.cipher.suites`: Java's names of cipher suites, and OpenSSL's.

    TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256  is  ECDHE-RSA-AES128-GCM-SHA256
    TLS_AES_256_GCM_SHA384                 has one name (TLS 1.3)

The suites of TLS 1.3 cannot be chosen one by one through Python's ssl module. A list with all of them, or with none,
can be honored: without them, TLS 1.3 is off.
"""

import re
import ssl
from collections.abc import Sequence

from headrace.common.errors import ConfigError

__all__ = ["TLS13_SUITES", "apply_cipher_suites"]

TLS13_SUITES = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")

_KEY_EXCHANGES = {
    "ECDHE_RSA": "ECDHE-RSA-",
    "ECDHE_ECDSA": "ECDHE-ECDSA-",
    "DHE_RSA": "DHE-RSA-",
    "RSA": "",
}
_JAVA_NAME = re.compile(
    r"TLS_(?P<exchange>[A-Z_]+)_WITH_(?:(?P<cipher>AES_(?:128|256)_(?:GCM|CBC))|(?P<chacha>CHACHA20_POLY1305))_(?P<mac>SHA\d*)"
)


def apply_cipher_suites(context: ssl.SSLContext, suites: Sequence[str], name: str) -> None:
    """Lets a context use only these suites. `name`: the config, for errors. Raises ConfigError."""
    if not suites:
        return
    modern = [suite for suite in suites if suite in TLS13_SUITES]
    older = [openssl_name(suite, name) for suite in suites if suite not in TLS13_SUITES]
    if modern and len(modern) < len(TLS13_SUITES):
        raise ConfigError(
            f"{name} has only some suites of TLS 1.3, but OpenSSL is used through Python, which cannot choose among "
            f"them: list all of them ({', '.join(TLS13_SUITES)}), or none"
        )
    if not modern:
        if context.minimum_version == ssl.TLSVersion.TLSv1_3:
            raise ConfigError(f"{name} has no suite of TLS 1.3, but ssl.enabled.protocols has only TLSv1.3")
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    if not older:
        if context.maximum_version == ssl.TLSVersion.TLSv1_2:
            raise ConfigError(f"{name} has only suites of TLS 1.3, but ssl.enabled.protocols has only TLSv1.2")
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return
    for suite in older:
        _set_ciphers(context, suite, name)
    _set_ciphers(context, ":".join(older), name)


def openssl_name(suite: str, name: str) -> str:
    """Returns OpenSSL's name of a suite. Raises ConfigError for one that is unknown."""
    match = _JAVA_NAME.fullmatch(suite)
    if match is None or match["exchange"] not in _KEY_EXCHANGES:
        if suite.startswith("TLS_") or not re.fullmatch(r"[A-Z0-9\-]+", suite):
            raise ConfigError(
                f"{name}: {suite!r} is not supported: expected a name such as TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 or "
                "OpenSSL's name, ECDHE-RSA-AES128-GCM-SHA256"
            )
        return suite
    if match["chacha"]:
        return f"{_KEY_EXCHANGES[match['exchange']]}CHACHA20-POLY1305"
    cipher = match["cipher"].replace("AES_", "AES").replace("_GCM", "-GCM").replace("_CBC", "")
    return f"{_KEY_EXCHANGES[match['exchange']]}{cipher}-{match['mac']}"


def _set_ciphers(context: ssl.SSLContext, ciphers: str, name: str) -> None:
    try:
        context.set_ciphers(ciphers)
    except ssl.SSLError:
        raise ConfigError(f"{name}: OpenSSL has no cipher suite {ciphers}, or its security level forbids it") from None
