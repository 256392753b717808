"""The secret of a token and its node, as Kafka has them."""

import json

import pytest

from headrace.cluster.znodes import DamagedNode
from headrace.common.principal import Principal
from headrace.security.delegation_tokens import (
    DelegationToken,
    decode_token,
    encode_token,
    token_hmac,
    token_password,
    token_path,
)

ALICE, BOB, EVE = Principal("User", "alice"), Principal("User", "CN=bob,O=a b~*"), Principal("User", "eve")
TOKEN = DelegationToken("xYz", ALICE, EVE, (BOB,), 1, 30, 20)
PATH = token_path("xYz")


def test_node() -> None:
    assert PATH == "/delegation_token/tokens/xYz"
    fields = json.loads(encode_token(TOKEN))
    assert fields == {
        "version": 3,
        "owner": "User%3Aalice",
        "tokenRequester": "User%3Aeve",
        "renewers": ["User%3ACN%3Dbob%2CO%3Da%20b%7E%2A"],
        "issueTimestamp": 1,
        "maxTimestamp": 30,
        "expiryTimestamp": 20,
        "tokenId": "xYz",
    }
    assert decode_token(PATH, encode_token(TOKEN)) == TOKEN


def test_old_nodes_have_no_requester() -> None:
    fields = json.loads(encode_token(TOKEN)) | {"version": 1}
    del fields["tokenRequester"]
    assert decode_token(PATH, json.dumps(fields).encode()).requester == ALICE


@pytest.mark.parametrize(
    "change", [{"version": 4}, {"version": "x"}, {"owner": "alice"}, {"renewers": None}, {"maxTimestamp": "soon"}]
)
def test_damaged_nodes(change: dict[str, object]) -> None:
    fields = json.loads(encode_token(TOKEN)) | change
    with pytest.raises(DamagedNode, match=PATH):
        decode_token(PATH, json.dumps(fields).encode())
    for data in (b"", b"[]", b"{}", b"null"):
        with pytest.raises(DamagedNode):
            decode_token(PATH, data)


def test_secret() -> None:
    hmac = token_hmac("secret", "xYz")
    assert len(hmac) == 64
    assert hmac != token_hmac("other", "xYz")
    assert token_password(b"\xff\xfe") == "//4="


def test_who_may_do_what() -> None:
    assert TOKEN.may_be_renewed_by(ALICE)
    assert TOKEN.may_be_renewed_by(BOB)
    assert not TOKEN.may_be_renewed_by(EVE)
    assert all(TOKEN.belongs_to(principal) for principal in (ALICE, BOB, EVE))
    assert not TOKEN.belongs_to(Principal("User", "mallory"))


def test_expiry() -> None:
    assert [TOKEN.is_expired(now) for now in (19, 20, 21)] == [False, False, True]
