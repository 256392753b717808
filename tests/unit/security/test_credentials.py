import base64

import pytest

from headrace.common.errors import ConfigError
from headrace.security.credentials import SCRAM_MECHANISMS, ScramCredential, new_salt

SHA_256, SHA_512 = SCRAM_MECHANISMS["SCRAM-SHA-256"], SCRAM_MECHANISMS["SCRAM-SHA-512"]


def test_a_credential_of_a_known_password() -> None:
    credential = ScramCredential.from_password(SHA_256, "pencil", 4096, base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="))
    assert credential.format() == (
        "salt=W22ZaJ0SNY7soEsUEjb6gQ==,stored_key=WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=,"
        "server_key=wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=,iterations=4096"
    )
    assert ScramCredential.parse(SHA_256, credential.format()) == credential


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
def test_text_round_trip(mechanism) -> None:
    credential = ScramCredential.from_password(mechanism, "secret")
    assert credential.iterations == 4096
    assert len(credential.salt) == len(new_salt()) == 26
    assert ScramCredential.parse(mechanism, credential.format()) == credential
    assert credential != ScramCredential.from_password(mechanism, "secret"), "salts are random"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda text: "", "each once"),
        (lambda text: text.replace("salt", "pepper"), "each once"),
        (lambda text: text + ",extra=1", "each once"),
        (lambda text: text.replace("iterations=4096", "iterations=many"), "not a number"),
        (lambda text: text.replace("salt=", "salt=!"), "not base64"),
        (lambda text: text.replace("stored_key=", "stored_key=AAAA"), "wrong length"),
        (lambda text: text.replace("4096", "4095"), "from 4096 to 16384, not 4095"),
        (lambda text: text.replace("4096", "16385"), "from 4096 to 16384, not 16385"),
    ],
)
def test_rejects_invalid_text(change, problem: str) -> None:
    text = ScramCredential.from_password(SHA_512, "secret").format()
    with pytest.raises(ConfigError, match=problem) as caught:
        ScramCredential.parse(SHA_512, change(text))
    assert text.split(",")[1][len("stored_key=") :] not in str(caught.value)


def test_rejects_bad_passwords_and_iterations() -> None:
    with pytest.raises(ConfigError, match="must not be empty"):
        ScramCredential.from_password(SHA_256, "")
    with pytest.raises(ConfigError, match="from 4096 to 16384"):
        ScramCredential.from_password(SHA_256, "secret", 100)


def test_no_key_is_shown() -> None:
    credential = ScramCredential.from_password(SHA_256, "secret")
    assert repr(credential) == "ScramCredential(iterations=4096)"
