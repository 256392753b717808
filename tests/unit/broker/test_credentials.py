import pytest

from headrace.broker.credentials import CredentialCache
from headrace.common.principal import USER, Principal
from headrace.security.credentials import SCRAM_MECHANISMS, ScramCredential, TokenCredential

SHA_256 = SCRAM_MECHANISMS["SCRAM-SHA-256"]
CREDENTIAL = ScramCredential.from_salted_password(SHA_256, b"x" * 32, b"salt", 4096)


def test_credentials_of_users() -> None:
    cache = CredentialCache()
    cache.set_user("alice", {"SCRAM-SHA-256": CREDENTIAL.format(), "producer_byte_rate": "1"})
    cache.set_user("bob", {"producer_byte_rate": "1"})
    assert cache.scram_credential("SCRAM-SHA-256", "alice") == CREDENTIAL
    assert cache.scram_credential("SCRAM-SHA-512", "alice") is None
    assert cache.scram_users() == ["alice"]
    assert cache.scram_credentials_of("alice") == {"SCRAM-SHA-256": CREDENTIAL}
    cache.set_user("alice", {})
    assert cache.scram_credential("SCRAM-SHA-256", "alice") is None
    assert cache.scram_users() == []


def test_a_damaged_credential_is_logged_without_its_text(caplog: pytest.LogCaptureFixture) -> None:
    cache = CredentialCache()
    cache.set_user("alice", {"SCRAM-SHA-256": "salt=SECRET"})
    assert cache.scram_credential("SCRAM-SHA-256", "alice") is None
    assert "User alice cannot authenticate with SCRAM-SHA-256" in caplog.text
    assert "SECRET" not in caplog.text


def test_tokens() -> None:
    cache = CredentialCache()
    token = TokenCredential(CREDENTIAL, Principal(USER, "alice"), 1000)
    cache.set_token("id", {"SCRAM-SHA-256": token})
    assert cache.token_credential("SCRAM-SHA-256", "id") == token
    assert cache.scram_credential("SCRAM-SHA-256", "id") is None
    cache.remove_token("id")
    assert cache.token_credential("SCRAM-SHA-256", "id") is None
