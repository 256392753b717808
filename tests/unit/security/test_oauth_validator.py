import base64
import contextlib
import dataclasses
import hashlib
import hmac
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.security.oauth import Issuer, unsecured_token

from headrace.security.oauth_keys import parse_jwks
from headrace.security.oauth_validator import (
    ClaimRules,
    InvalidTokenError,
    SignedTokenValidator,
    UnsecuredTokenValidator,
)
from headrace.testing.clock import ManualClock

CLOCK = ManualClock()
NOW = CLOCK.time_ms() // 1000
CLAIMS = {"sub": "alice", "iss": "https://issuer", "aud": "kafka", "iat": NOW - 10, "exp": NOW + 60, "scope": "a b"}
RULES = ClaimRules(issuer="https://issuer", audiences=("kafka", "other"))
ISSUER = Issuer()


class Keys:
    def __init__(self, *issuers: Issuer):
        self.known = tuple(key for issuer in issuers for key in parse_jwks(issuer.jwks_text()))
        self.missing = 0

    def current(self):
        return self.known

    def key_is_missing(self) -> None:
        self.missing += 1


def validator(rules: ClaimRules = RULES, keys: Keys | None = None) -> SignedTokenValidator:
    return SignedTokenValidator(keys or Keys(ISSUER), rules, CLOCK)


@pytest.mark.parametrize("algorithm", ["RS256", "PS512", "ES256", "EdDSA"])
@pytest.mark.filterwarnings("ignore:EdDSA")
def test_signed_tokens(algorithm: str) -> None:
    issuer = Issuer(algorithm)
    verified = validator(keys=Keys(issuer)).validate(issuer.sign(CLAIMS))
    assert verified.principal == "alice"
    assert verified.expires_at_ms == (NOW + 60) * 1000
    assert verified.scopes == {"a", "b"}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"exp": None}, "does not say when it expires"),
        ({"exp": NOW - 30}, "has expired"),
        ({"exp": "soon"}, "claim exp of the token is not a time"),
        ({"exp": True}, "claim exp of the token is not a time"),
        ({"exp": float("inf")}, "claim exp of the token is not a time"),
        ({"nbf": NOW + 31}, "not valid yet"),
        ({"iat": None}, "when it was issued"),
        ({"iat": NOW + 100}, "expires before it was issued"),
        ({"iss": "https://other"}, "another issuer than sasl.oauthbearer.expected.issuer"),
        ({"iss": None}, "another issuer"),
        ({"aud": "somebody"}, "not for an audience"),
        ({"aud": ["somebody", 7]}, "not for an audience"),
        ({"aud": None}, "not for an audience"),
        ({"sub": None}, "no claim sub"),
        ({"sub": " "}, "no claim sub"),
        ({"sub": 7}, "no claim sub"),
    ],
)
def test_rejected_claims(changes: dict[str, object], problem: str) -> None:
    claims = {name: value for name, value in {**CLAIMS, **changes}.items() if value is not None}
    with pytest.raises(InvalidTokenError, match=problem) as caught:
        validator().validate(ISSUER.sign(claims))
    assert caught.value.status == "invalid_token"


@pytest.mark.parametrize(
    "changes",
    [
        {"exp": NOW - 29, "iat": NOW - 90},
        {"nbf": NOW + 30},
        {"aud": ["x", "other"]},
        {"exp": NOW + 60.5},
        {"exp": 1e300},
        {"scope": 7},
    ],
)
def test_accepted_claims(changes: dict[str, object]) -> None:
    assert validator().validate(ISSUER.sign({**CLAIMS, **changes})).principal == "alice"


def test_names_of_claims() -> None:
    rules = dataclasses.replace(RULES, subject_claim="azp", scope_claim="scp", required_scopes=frozenset({"kafka"}))
    claims = {**CLAIMS, "azp": "service", "scp": ["kafka"]}
    assert validator(rules).validate(ISSUER.sign(claims)).principal == "service"
    with pytest.raises(InvalidTokenError, match="required scopes") as caught:
        validator(rules).validate(ISSUER.sign({**claims, "scp": "x"}))
    assert caught.value.status == "insufficient_scope"


def test_a_token_for_somebody_is_rejected_without_an_expected_audience() -> None:
    rules = dataclasses.replace(RULES, audiences=())
    with pytest.raises(InvalidTokenError, match="not for an audience"):
        validator(rules).validate(ISSUER.sign(CLAIMS))
    claims = {name: value for name, value in CLAIMS.items() if name != "aud"}
    assert validator(rules).validate(ISSUER.sign(claims)).principal == "alice"


def test_a_foreign_signature_is_rejected() -> None:
    token = Issuer().sign(CLAIMS)
    with pytest.raises(InvalidTokenError, match="signature of the token is not valid"):
        validator().validate(token)
    header, payload, signature = ISSUER.sign(CLAIMS).split(".")
    other = ISSUER.sign({**CLAIMS, "sub": "admin"}).split(".")[1]
    for changed in (f"{header}.{other}.{signature}", f"{header}.{payload}.", f"{header}.{payload}.AAAA"):
        with pytest.raises(InvalidTokenError, match="signature"):
            validator().validate(changed)


def test_only_asymmetric_algorithms() -> None:
    keys = Keys(Issuer("RS256"))
    public = keys.known[0].as_pem(private=False)
    header = {"alg": "HS256", "kid": "key-1"}
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in (header, CLAIMS)]
    signature = base64.urlsafe_b64encode(hmac.digest(public, b".".join(parts), hashlib.sha256)).rstrip(b"=")
    for token in (
        b".".join([*parts, signature]).decode(),
        unsecured_token(CLAIMS),
        unsecured_token(CLAIMS, "None"),
        unsecured_token(CLAIMS, "HS256", "AAAA"),
    ):
        with pytest.raises(InvalidTokenError, match="must be signed with one of RS256"):
            validator(keys=keys).validate(token)


def test_the_algorithm_must_fit_the_key() -> None:
    keys = Keys(Issuer("ES256"))
    with pytest.raises(InvalidTokenError, match="does not know"):
        validator(keys=keys).validate(Issuer("RS256").sign(CLAIMS))
    issuer = Issuer("RS256")
    restricted = Keys()
    restricted.known = parse_jwks(json.dumps(issuer.jwks(alg="RS512")).encode())
    with pytest.raises(InvalidTokenError, match="signature"):
        validator(keys=restricted).validate(issuer.sign(CLAIMS))


def test_a_missing_key_is_reported() -> None:
    keys = Keys(Issuer(kid="old"))
    with pytest.raises(InvalidTokenError, match="key that the broker does not know"):
        validator(keys=keys).validate(Issuer(kid="new").sign(CLAIMS))
    assert keys.missing == 1


def test_a_critical_header_must_be_known() -> None:
    assert validator().validate(ISSUER.sign(CLAIMS, nonce="x")).principal == "alice"
    with pytest.raises(InvalidTokenError):
        validator().validate(ISSUER.sign(CLAIMS, nonce="x", crit=["nonce"]))


@pytest.mark.parametrize(
    "token", ["", "a.b", "a.b.c.d", "!.e30.", "e30.!.", "e30.W10.", "W10.e30.", "e30." + "A" * 300_000 + "."]
)
def test_what_is_not_a_token(token: str) -> None:
    with pytest.raises(InvalidTokenError):
        validator().validate(token)


def test_unsecured_tokens() -> None:
    rules = ClaimRules(needs_issue_time=False, checks_audience=False, clock_skew_ms=0)
    unsecured = UnsecuredTokenValidator(rules, CLOCK)
    assert unsecured.validate(unsecured_token({"sub": "alice", "exp": NOW + 1})).principal == "alice"
    with pytest.raises(InvalidTokenError, match="expired"):
        unsecured.validate(unsecured_token({"sub": "alice", "exp": NOW}))
    with pytest.raises(InvalidTokenError, match="only unsecured tokens"):
        unsecured.validate(ISSUER.sign(CLAIMS))


ODD_VALUES = (
    None,
    True,
    -1,
    0,
    2**80,
    10**400,
    1e308,
    float("nan"),
    "",
    "alice",
    "1",
    [],
    ["kafka"],
    [[]],
    {},
    {"a": [1]},
)


@given(st.dictionaries(st.sampled_from(sorted(CLAIMS)), st.sampled_from(ODD_VALUES)))
def test_hostile_claims(claims: dict[str, object]) -> None:
    unsecured = UnsecuredTokenValidator(RULES, CLOCK)
    with contextlib.suppress(InvalidTokenError):
        assert unsecured.validate(unsecured_token(claims)).principal


@given(st.text(max_size=100) | st.from_regex(r"[A-Za-z0-9_-]{0,50}\.[A-Za-z0-9_-]{0,50}\.[A-Za-z0-9_-]{0,50}"))
def test_hostile_text(token: str) -> None:
    with pytest.raises(InvalidTokenError):
        validator().validate(token)
