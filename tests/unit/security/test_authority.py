from datetime import timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.verification import PolicyBuilder, Store

from headrace.common.clock import SystemClock
from headrace.security.authority import make_certificates


def test_broker_certificate_is_valid_for_its_hosts() -> None:
    made = make_certificates(["broker.example.com", "127.0.0.1"], SystemClock().time_ms())
    authority = x509.load_pem_x509_certificate(made.authority)
    certificate = x509.load_pem_x509_certificate(made.keystore)
    key = load_pem_private_key(made.keystore, None)
    assert key.public_key() == certificate.public_key()
    assert load_pem_private_key(made.authority_key, None).public_key() == authority.public_key()
    for host in (x509.DNSName("broker.example.com"), x509.IPAddress(ip_address("127.0.0.1"))):
        verifier = PolicyBuilder().store(Store([authority])).build_server_verifier(host)
        assert verifier.verify(certificate, []) == [certificate, authority]
    assert authority.not_valid_after_utc - certificate.not_valid_after_utc > timedelta(days=2000)


def test_every_authority_is_new() -> None:
    first, second = (make_certificates(["h"], 0) for _ in range(2))
    assert first.authority_key != second.authority_key
    assert first.keystore != second.keystore
