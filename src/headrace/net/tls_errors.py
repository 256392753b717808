"""Why TLS connections fail, in words that say what to change. Servers write them to their log, clients raise them."""

import re
import ssl

__all__ = ["PLAINTEXT", "TlsHandshakeError", "describe_for_client", "describe_for_server", "is_permanent"]

PLAINTEXT = "the peer does not speak TLS"

_SSL_SOURCE = re.compile(r"\s*\(_ssl\.c:\d+\)")

_NO_CLIENT_CERTIFICATE = frozenset(
    {"PEER_DID_NOT_RETURN_A_CERTIFICATE", "TLSV13_ALERT_CERTIFICATE_REQUIRED", "TLSV1_ALERT_CERTIFICATE_REQUIRED"}
)
_NOT_TLS = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "RECORD_LAYER_FAILURE"})
_VERSIONS = frozenset({"UNSUPPORTED_PROTOCOL", "TLSV1_ALERT_PROTOCOL_VERSION", "NO_PROTOCOLS_AVAILABLE"})
_CIPHERS = frozenset({"NO_SHARED_CIPHER", "NO_SUITABLE_SIGNATURE_ALGORITHM", "SSLV3_ALERT_HANDSHAKE_FAILURE"})
_ALERTS = {
    "TLSV1_ALERT_UNKNOWN_CA": "it does not know the authority that signed the certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the certificate has expired, or is not valid yet",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "the certificate is revoked",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it does not accept the certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it does not accept the certificate",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "it does not accept certificates of this kind",
    "TLSV1_ALERT_DECRYPT_ERROR": "the signature of the certificate is wrong",
    "TLSV1_ALERT_ACCESS_DENIED": "it denies access",
}
"""What the alerts of a peer say about the certificate that it got."""

_EXPIRED, _NOT_YET_VALID = 10, 9
_SELF_SIGNED = (18, 19)
_UNKNOWN_ISSUER = (2, 20, 21)
_REVOKED = 23
_WRONG_HOST = (62, 64)
"""OpenSSL's codes of a certificate that is not accepted."""


class TlsHandshakeError(ConnectionError):
    """The handshake failed without an error of OpenSSL. `ended`: the peer closed the connection."""

    def __init__(self, message: str, *, ended: bool = False):
        super().__init__(message)
        self.ended = ended


def _plain(error: BaseException) -> str:
    text = getattr(error, "strerror", None) or (error.args[0] if error.args else error)
    return _SSL_SOURCE.sub("", str(text))


def describe_for_client(error: OSError) -> str:
    """Returns why a client's connection failed, and what to do."""
    if isinstance(error, TlsHandshakeError):
        if error.ended:
            return (
                "the broker closed the connection during the TLS handshake: if its listener has no TLS, set "
                "security.protocol=PLAINTEXT or SASL_PLAINTEXT"
            )
        return _not_tls() if str(error) == PLAINTEXT else str(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        return _certificate(error, "broker")
    reason = getattr(error, "reason", None) or ""
    if reason in _NO_CLIENT_CERTIFICATE:
        return (
            "the broker requires a client certificate (ssl.client.auth=required): set ssl.keystore.location (or "
            "ssl.certfile and ssl.keyfile, ssl.certificate.location and ssl.key.location)"
        )
    if reason in _ALERTS:
        return (
            f"the broker refused this client's certificate: {_ALERTS[reason]}. Check ssl.keystore.location here and "
            "ssl.truststore.location of the broker"
        )
    if reason in _NOT_TLS:
        return _not_tls()
    if reason in _VERSIONS:
        return f"client and broker have no TLS version in common: check ssl.enabled.protocols ({_plain(error)})"
    if reason in _CIPHERS:
        return (
            "client and broker have no cipher suite in common, or the broker has no certificate for them: check "
            f"ssl.cipher.suites ({_plain(error)})"
        )
    return _plain(error)


def _not_tls() -> str:
    return (
        "the broker's answer is not TLS: its listener probably has no TLS. Set security.protocol=PLAINTEXT or "
        "SASL_PLAINTEXT, or use the port of a listener with TLS"
    )


def describe_for_server(error: Exception) -> str:
    """Returns why a client's handshake failed, for a broker's log."""
    if isinstance(error, TlsHandshakeError) and str(error) == PLAINTEXT:
        return (
            "the client does not speak TLS: it sent plaintext. Set security.protocol=SSL or SASL_SSL in its configs, "
            "or use another port"
        )
    if isinstance(error, ssl.SSLCertVerificationError):
        return _certificate(error, "client")
    reason = getattr(error, "reason", None) or ""
    if reason in _NO_CLIENT_CERTIFICATE:
        return "the client sent no certificate, but ssl.client.auth=required"
    if reason in _ALERTS:
        return (
            f"the client refused the broker's certificate: {_ALERTS[reason]}. Check the client's truststore, and the "
            "host name by which it connects"
        )
    if reason in _NOT_TLS:
        return "the client does not speak TLS, or sent damaged bytes"
    if reason in _VERSIONS:
        return f"the client has no TLS version in common with ssl.enabled.protocols ({_plain(error)})"
    if reason in _CIPHERS:
        return f"the client has no cipher suite in common with this listener ({_plain(error)})"
    return _plain(error)


def _certificate(error: ssl.SSLCertVerificationError, peer: str) -> str:
    """Explains a certificate that is not accepted. `peer`: broker or client."""
    code = error.verify_code
    message = error.verify_message.rstrip(".")
    start = f"the certificate of the {peer} is not accepted: {message}"
    if code == _EXPIRED:
        return f"{start}. Renew it, or correct the clock of this machine"
    if code == _NOT_YET_VALID:
        return f"{start}. Wait until it is, or correct the clock of this machine"
    if code in _WRONG_HOST:
        return (
            f"{start}. Connect by a name of the certificate, add this name to its subjectAltName, or set "
            "ssl.endpoint.identification.algorithm to an empty value to disable the check"
        )
    if code in _SELF_SIGNED or code in _UNKNOWN_ISSUER:
        return (
            f"{start}. Set ssl.truststore.location (or ssl.cafile, ssl.ca.location) to a file with the certificate of "
            "the authority that signed it"
            if peer == "broker"
            else f"{start}. Its authority must be in ssl.truststore.location"
        )
    if code == _REVOKED:
        return f"{start}. Get a new one"
    return start


def is_permanent(error: OSError) -> bool:
    """Returns True if another attempt would fail likewise: certificates or settings are wrong."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return True
    reason = getattr(error, "reason", None) or ""
    return isinstance(error, ssl.SSLError) and (
        reason in _NO_CLIENT_CERTIFICATE or reason in _ALERTS or reason in _VERSIONS or reason in _CIPHERS
    )
