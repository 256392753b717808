"""Names of certificates, as Java writes them. `compat/security/test_tls_java.py` compares them with Java's."""

import ssl

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from headrace.security.distinguished_names import InvalidCertificateError, certificate_names
from headrace.testing.certificates import Certificate, CertificateAuthority

CA = CertificateAuthority()


def der(certificate: Certificate) -> bytes:
    return ssl.PEM_cert_to_DER_cert(certificate.chain_pem)


def subject(common_name: str, **parts: str) -> str:
    return certificate_names(der(CA.issue(common_name, subject=parts))).subject


def test_the_most_special_part_comes_first() -> None:
    assert subject("alice", C="DE", ST="Berlin", L="Mitte", O="Example", OU="sales") == (
        "CN=alice,OU=sales,O=Example,L=Mitte,ST=Berlin,C=DE"
    )
    assert subject("alice", DC="com", UID="a1") == "CN=alice,UID=a1,DC=com"


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("Example, Inc.", "Example\\, Inc."),
        ('a+b=c<d>e#f;g"h\\i', 'a\\+b\\=c\\<d\\>e\\#f\\;g\\"h\\\\i'),
        (" two spaces ", "\\ two spaces\\ "),
        ("Müller 😀", "Müller 😀"),
    ],
)
def test_special_characters_are_escaped(text: str, escaped: str) -> None:
    assert subject(text) == f"CN={escaped}"


def test_other_attributes_are_hexadecimal() -> None:
    assert subject("alice", EMAIL="a@b.c") == "CN=alice,1.2.840.113549.1.9.1=#1605614062" + "2e63"


def test_alternative_names() -> None:
    hosts = ["a.example", "10.0.0.1"]
    assert len(certificate_names(der(CA.issue("b", hosts=hosts))).alternative_names) == 2
    names = certificate_names(der(CA.issue("b", hosts=hosts))).alternative_names
    assert names == certificate_names(der(CA.issue("c", hosts=reversed(hosts)))).alternative_names
    assert certificate_names(der(CA.issue("b"))).alternative_names == frozenset()


def test_several_attributes_of_one_level() -> None:
    name = x509.Name(
        [
            x509.RelativeDistinguishedName([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "O1")]),
            x509.RelativeDistinguishedName(
                [x509.NameAttribute(NameOID.COMMON_NAME, "a"), x509.NameAttribute(NameOID.USER_ID, "u")]
            ),
        ]
    )
    certificate = CA.issue_to(name)
    assert certificate_names(der(certificate)).subject in ("CN=a+UID=u,O=O1", "UID=u+CN=a,O=O1")


def test_damaged_certificates_are_refused() -> None:
    data = der(CA.issue("alice"))
    for damaged in (b"", b"\x30", data[:50], b"\x31" + data[1:], data[:20] + b"\xff" * 200):
        with pytest.raises(InvalidCertificateError):
            certificate_names(damaged)
