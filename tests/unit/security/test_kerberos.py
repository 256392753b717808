"""The settings of GSSAPI. `tests/compat/security/test_kerberos.py` has the exchanges, with a KDC."""

import sys
from pathlib import Path

import pytest
from tests.support.security.sasl import CredentialsInMemory

from headrace.common.errors import ConfigError
from headrace.security.jaas import parse_jaas_for
from headrace.security.kerberos import KerberosIdentity
from headrace.security.sasl_client import SaslClientConfig, SaslLogin
from headrace.security.sasl_server import SaslServerConfig, make_server_mechanism_factory
from headrace.testing.clock import ManualClock

MODULE = "com.sun.security.auth.module.Krb5LoginModule"


@pytest.fixture
def keytab(tmp_path: Path) -> str:
    path = tmp_path / "x.keytab"
    path.touch()
    return str(path)


def identity(options: str, service: str | None = "kafka") -> KerberosIdentity:
    return KerberosIdentity.make(parse_jaas_for("GSSAPI", f"{MODULE} required {options};"), service)


def test_keytab(keytab: str) -> None:
    options = f'useKeyTab=true storeKey=true doNotPrompt=true keyTab="{keytab}" principal="alice@X"'
    assert identity(options) == KerberosIdentity("alice@X", keytab, None, "kafka")
    assert KerberosIdentity.make(None, None, "alice@X", keytab) == KerberosIdentity("alice@X", keytab, None, "kafka")


def test_ticket_cache() -> None:
    assert identity("useTicketCache=true") == KerberosIdentity(None, None, None, "kafka")
    options = 'useTicketCache=true ticketCache="FILE:/c" principal=alice serviceName=events'
    assert identity(options) == KerberosIdentity("alice", None, "FILE:/c", "events")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("", "set useKeyTab=true"),
        ("useKeyTab=true", "the option keyTab of .* is missing"),
        ('useKeyTab=true keyTab="{keytab}"', "needs the principal"),
        ('useKeyTab=true keyTab="/none" principal=a', "The keytab /none cannot be read: No such file"),
        ("useTicketCache=true password=x", "has no options password here"),
        ("useTicketCache=true serviceName=other", "serviceName=other, but sasl.kerberos.service.name is events"),
    ],
)
def test_wrong_settings(keytab: str, options: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        identity(options.format(keytab=keytab), "events")


def test_two_identities(keytab: str) -> None:
    jaas = parse_jaas_for("GSSAPI", f"{MODULE} required useTicketCache=true;")
    with pytest.raises(ConfigError, match="not both"):
        KerberosIdentity.make(jaas, None, "alice", keytab)


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, keytab: str) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(ConfigError, match=r"pip install 'headrace\[kerberos\]'"):
        SaslLogin(SaslClientConfig(mechanism="GSSAPI"), ManualClock())
    jaas = f'{MODULE} required useKeyTab=true keyTab="{keytab}" principal=kafka;'
    config = SaslServerConfig({"sasl.jaas.config": jaas})
    with pytest.raises(ConfigError, match=r"pip install 'headrace\[kerberos\]'"):
        make_server_mechanism_factory("GSSAPI", config, CredentialsInMemory(), ManualClock())


def test_broker_needs_a_keytab() -> None:
    with pytest.raises(ConfigError, match="needs the broker's key: set sasl"):
        make_server_mechanism_factory("GSSAPI", SaslServerConfig({}), CredentialsInMemory(), ManualClock())
