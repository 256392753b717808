import ssl
from pathlib import Path

import pytest
from tests.support.net.certificates import make_certificate

from headrace.cluster.zookeeper.tls import TlsConfig
from headrace.common.errors import ConfigError


def test_pem_stores(tmp_path: Path) -> None:
    both = str(make_certificate(tmp_path))
    context = TlsConfig(keystore=both, truststore=both, protocols=("TLSv1.2", "TLSv1.3")).context()
    assert (context.minimum_version, context.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert len(context.get_ca_certs()) == 1


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (TlsConfig(keystore="k.jks"), r"keystore.location=k.jks is a JKS file, but only PEM is supported.*keytool"),
        (TlsConfig(keystore="k"), "is a JKS file"),
        (TlsConfig(truststore="k.p12"), r"truststore.location=k.p12 is a PKCS12 file.*openssl pkcs12 -in k.p12"),
        (TlsConfig(truststore="k.pem", truststore_type="JKS"), "is a JKS file"),
        (TlsConfig(protocols=("SSLv3",)), "protocol SSLv3 is not supported"),
    ],
)
def test_unsupported(config: TlsConfig, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config.check()


def test_unusable_files(tmp_path: Path) -> None:
    (tmp_path / "bad.pem").write_text("nothing")
    with pytest.raises(ConfigError, match=r"none.pem cannot be used: No such file"):
        TlsConfig(truststore=str(tmp_path / "none.pem")).context()
    with pytest.raises(ConfigError, match=r"truststore.location=.*bad.pem cannot be used: .*expected PEM"):
        TlsConfig(truststore=str(tmp_path / "bad.pem")).context()
    with pytest.raises(ConfigError, match=r"keystore.location=.*bad.pem cannot be used: .*expected PEM"):
        TlsConfig(keystore=str(tmp_path / "bad.pem")).context()
    with pytest.raises(ConfigError, match="OpenSSL's names"):
        TlsConfig(ciphers=("TLS_NO_SUCH",)).context()
