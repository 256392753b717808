"""Cipher suites by Java's and OpenSSL's names."""

import ssl

import pytest

from headrace.common.errors import ConfigError
from headrace.security.cipher_suites import TLS13_SUITES, apply_cipher_suites, openssl_name


@pytest.mark.parametrize(
    ("suite", "expected"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384", "ECDHE-RSA-AES256-SHA384"),
        ("TLS_DHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "DHE-RSA-CHACHA20-POLY1305"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA", "AES128-SHA"),
        ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
    ],
)
def test_names(suite: str, expected: str) -> None:
    assert openssl_name(suite, "ssl.cipher.suites") == expected
    apply_cipher_suites(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), [suite], "ssl.cipher.suites")


def context() -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version, made.maximum_version = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
    return made


def test_the_list_decides_about_tls_1_3() -> None:
    made = context()
    apply_cipher_suites(made, (), "x")
    assert made.maximum_version == ssl.TLSVersion.TLSv1_3
    apply_cipher_suites(made, ["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"], "x")
    assert made.maximum_version == ssl.TLSVersion.TLSv1_2
    made = context()
    apply_cipher_suites(made, TLS13_SUITES, "x")
    assert made.minimum_version == ssl.TLSVersion.TLSv1_3
    made = context()
    apply_cipher_suites(made, [*TLS13_SUITES, "ECDHE-RSA-AES128-GCM-SHA256"], "x")
    assert (made.minimum_version, made.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
    older = [cipher["name"] for cipher in made.get_ciphers() if cipher["protocol"] != "TLSv1.3"]
    assert older == ["ECDHE-RSA-AES128-GCM-SHA256"]


@pytest.mark.parametrize(
    ("suites", "words"),
    [
        (["TLS_AES_128_GCM_SHA256"], "only some suites of TLS 1.3"),
        (["TLS_KRB5_WITH_RC4_128_MD5"], "is not supported: expected a name such as"),
        (["ecdhe!"], "is not supported"),
        (["NO-SUCH-CIPHER"], "OpenSSL has no cipher suite NO-SUCH-CIPHER"),
    ],
)
def test_suites_that_cannot_be_honored(suites: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        apply_cipher_suites(context(), suites, "ssl.cipher.suites")


def test_contradictions_of_versions_and_suites() -> None:
    made = context()
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    with pytest.raises(ConfigError, match=r"has only TLSv1\.3"):
        apply_cipher_suites(made, ["ECDHE-RSA-AES128-GCM-SHA256"], "x")
    made = context()
    made.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ConfigError, match=r"has only TLSv1\.2"):
        apply_cipher_suites(made, TLS13_SUITES, "x")
