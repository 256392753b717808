"""Access: users with SCRAM credentials, ACLs, quotas, delegation tokens.

Everything acts as the logged-in principal, so the cluster decides who sees and changes what. Passwords and the
secrets of tokens are not logged.
"""

import base64
import binascii
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from headrace.client.admin.acl_types import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)
from headrace.client.admin.quota_types import ClientQuotaAlteration, ClientQuotaEntity
from headrace.client.admin.scram_types import (
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from headrace.console.calls import Call
from headrace.console.errors import ApiError
from headrace.console.paging import PageQuery, page_of, select
from headrace.console.routing import Router
from headrace.console.schema import Length, Range

router = Router("access")
_ACCESS = "/api/clusters/{cluster}/access"
_Mechanism = Literal["SCRAM-SHA-256", "SCRAM-SHA-512"]
_NAME = Length(1, 1000)

# ---- users


@dataclass(frozen=True)
class ScramCredentialItem:
    """What can be read of a credential."""

    mechanism: str
    iterations: int


@dataclass(frozen=True)
class ScramUserItem:
    """A user with SCRAM credentials."""

    name: str
    mechanisms: list[ScramCredentialItem]


@dataclass(frozen=True)
class ScramUsersPage:
    """A part of the users."""

    items: list[ScramUserItem]
    total: int
    page: int
    per_page: int


@dataclass(frozen=True)
class ScramPassword:
    """A new password of a user. Only a key that is derived from it is sent to the cluster."""

    mechanism: _Mechanism
    password: Annotated[str, Length(1, 1024)]
    iterations: Annotated[int, Range(4096, 16384)] | None = None


@dataclass(frozen=True)
class ScramMechanismQuery:
    """Which credential."""

    mechanism: _Mechanism


@router.get(f"{_ACCESS}/users", query=PageQuery, response=ScramUsersPage, summary="List users")
async def list_scram_users(call: Call, query: PageQuery) -> ScramUsersPage:
    """The users with SCRAM credentials."""
    described = await (await call.admin()).describe_user_scram_credentials()
    users = [
        ScramUserItem(
            user.user,
            [ScramCredentialItem(info.mechanism.sasl_name, info.iterations) for info in user.credential_infos],
        )
        for user in described.values()
    ]
    found = select(users, query, lambda user: user.name, {"name": lambda user: user.name})
    return ScramUsersPage(page_of(found, query), len(found), query.page, query.per_page)


@router.put(
    f"{_ACCESS}/users/{{user}}",
    body=ScramPassword,
    response=ScramUserItem,
    change="set SCRAM credential",
    summary="Create a user, or set its password",
)
async def put_scram_user(call: Call, body: ScramPassword) -> ScramUserItem:
    """Creates or replaces the SCRAM credential of a mechanism."""
    user = call.path["user"]
    call.audit(f"User:{user}", mechanism=body.mechanism)
    mechanism = ScramMechanism[body.mechanism.replace("-", "_")]
    iterations = body.iterations or 4096
    upsertion = UserScramCredentialUpsertion(user, mechanism, body.password, iterations)
    await (await call.admin()).alter_user_scram_credentials([upsertion])
    return ScramUserItem(user, [ScramCredentialItem(body.mechanism, iterations)])


@router.delete(
    f"{_ACCESS}/users/{{user}}",
    query=ScramMechanismQuery,
    change="delete SCRAM credential",
    summary="Delete a credential",
)
async def delete_scram_user(call: Call, query: ScramMechanismQuery) -> None:
    """Deletes the credential of a mechanism. A user without a credential does not exist any more."""
    call.audit(f"User:{call.path['user']}", mechanism=query.mechanism)
    deletion = UserScramCredentialDeletion(call.path["user"], ScramMechanism[query.mechanism.replace("-", "_")])
    await (await call.admin()).alter_user_scram_credentials([deletion])


# ---- ACLs

_ResourceName = Literal["TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER"]


@dataclass(frozen=True)
class AclItem:
    """An access control list entry."""

    principal: Annotated[str, _NAME]
    operation: Annotated[str, Length(1, 32)]
    """Such as READ or ALL."""
    resource_type: _ResourceName
    resource_name: Annotated[str, _NAME]
    host: Annotated[str, _NAME] = "*"
    permission: Literal["ALLOW", "DENY"] = "ALLOW"
    pattern_type: Literal["LITERAL", "PREFIXED"] = "LITERAL"


@dataclass(frozen=True, kw_only=True)
class AclsQuery(PageQuery):
    """Which ACLs."""

    sort: str = "principal"
    per_page: Annotated[int, Range(1, 500)] = 200
    principal: Annotated[str, Length(0, 1000)] = ""
    resource_type: _ResourceName | None = None
    resource_name: Annotated[str, Length(0, 1000)] = ""
    matching: bool = False
    """With resource_name: all ACLs that apply to the resource, also prefixed ones and those for all names."""


@dataclass(frozen=True)
class AclsPage:
    """A part of the ACLs."""

    items: list[AclItem]
    total: int
    page: int
    per_page: int


@dataclass(frozen=True)
class DeletedAclCount:
    """How many ACLs were deleted."""

    deleted: int


@router.get(f"{_ACCESS}/acls", query=AclsQuery, response=AclsPage, summary="List ACLs")
async def list_acls(call: Call, query: AclsQuery) -> AclsPage:
    """The ACLs, optionally of a principal or of a resource. `search` looks at the principal and the resource."""
    pattern = ACLResourcePatternType.MATCH if query.matching and query.resource_name else ACLResourcePatternType.ANY
    acl_filter = ACLFilter(
        principal=query.principal or None,
        resource_pattern=ResourcePatternFilter(
            ResourceType.ANY if query.resource_type is None else ResourceType[query.resource_type],
            query.resource_name or None,
            pattern,
        ),
    )
    acls = await (await call.admin()).describe_acls(acl_filter)
    items = [_acl_item(acl) for acl in acls]
    found = select(
        items,
        query,
        lambda item: f"{item.principal} {item.resource_type} {item.resource_name} {item.operation} {item.host}",
        {
            "principal": lambda item: item.principal,
            "operation": lambda item: item.operation,
            "resource_type": lambda item: item.resource_type,
            "resource_name": lambda item: item.resource_name,
        },
    )
    return AclsPage(page_of(found, query), len(found), query.page, query.per_page)


def _acl_item(acl: ACL) -> AclItem:
    pattern: Any = acl.resource_pattern
    return AclItem(
        acl.principal or "",
        acl.operation.name,
        pattern.resource_type.name,
        pattern.resource_name,
        acl.host or "*",
        acl.permission_type.name,  # type: ignore[arg-type]
        pattern.pattern_type.name,
    )


def _acl(item: AclItem) -> ACL:
    if ":" not in item.principal:
        message = f"principal {item.principal!r}: expected a type and a name, such as User:alice"
        raise ApiError(400, "INVALID_REQUEST", message, "principal")
    operation = ACLOperation.__members__.get(item.operation.upper())
    if operation is None or operation.name in ("UNKNOWN", "ANY"):
        raise ApiError(400, "INVALID_REQUEST", f"operation {item.operation!r}: expected one such as READ", "operation")
    return ACL(
        item.principal,
        item.host,
        operation,
        ACLPermissionType[item.permission],
        ResourcePattern(
            ResourceType[item.resource_type], item.resource_name, ACLResourcePatternType[item.pattern_type]
        ),
    )


def _acl_text(item: AclItem) -> str:
    return (
        f"{item.permission} {item.operation} on {item.resource_type}:{item.pattern_type}:{item.resource_name} "
        f"to {item.principal} from {item.host}"
    )


@router.post(
    f"{_ACCESS}/acls", body=AclItem, response=AclItem, status=201, change="create ACL", summary="Create an ACL"
)
async def create_acl(call: Call, body: AclItem) -> AclItem:
    """Creates an ACL. One that exists already succeeds."""
    call.audit(_acl_text(body))
    acl = _acl(body)
    await (await call.admin()).create_acls([acl])
    return _acl_item(acl)


@router.post(
    f"{_ACCESS}/acls/delete", body=AclItem, response=DeletedAclCount, change="delete ACL", summary="Delete an ACL"
)
async def delete_acl(call: Call, body: AclItem) -> DeletedAclCount:
    """Deletes exactly this ACL."""
    call.audit(_acl_text(body))
    acl = _acl(body)
    results = await (await call.admin()).delete_acls([acl])
    return DeletedAclCount(sum(len(result.acls) for result in results.values()))


# ---- quotas


@dataclass(frozen=True)
class QuotaItem:
    """The quotas of an entity: of `user`, `client-id`, both, or `ip`. A name of null is the default."""

    entity: dict[str, str | None]
    quotas: dict[str, float]


@dataclass(frozen=True)
class QuotaList:
    """All quotas."""

    items: list[QuotaItem]


@dataclass(frozen=True)
class QuotaChange:
    """Quotas of an entity to set, such as `producer_byte_rate`, and to remove."""

    entity: dict[str, str | None]
    set: dict[str, float] = field(default_factory=dict)
    remove: Annotated[list[str], Length(0, 50)] = field(default_factory=list)


_ENTITY_TYPES = ("user", "client-id", "ip")


@router.get(f"{_ACCESS}/quotas", response=QuotaList, summary="List quotas")
async def list_quotas(call: Call) -> QuotaList:
    """The quotas of users, client ids and IP addresses."""
    described = await (await call.admin()).describe_client_quotas()
    items = [QuotaItem(entity.entries, dict(quotas)) for entity, quotas in described.items()]
    return QuotaList(sorted(items, key=lambda item: sorted((k, v or "") for k, v in item.entity.items())))


@router.put(f"{_ACCESS}/quotas", body=QuotaChange, response=QuotaItem, change="change quota", summary="Change quotas")
async def put_quota(call: Call, body: QuotaChange) -> QuotaItem:
    """Sets and removes quotas of an entity."""
    names = {kind: "<default>" if name is None else name for kind, name in body.entity.items()}
    call.audit(",".join(f"{kind}={name}" for kind, name in names.items()), set=dict(body.set), remove=body.remove)
    unknown = [kind for kind in body.entity if kind not in _ENTITY_TYPES]
    if unknown or not body.entity:
        raise ApiError(400, "INVALID_REQUEST", f"entity: expected {', '.join(_ENTITY_TYPES)}", "entity")
    if not body.set and not body.remove:
        raise ApiError(400, "INVALID_REQUEST", "Expected quotas to set or to remove", "set")
    entity = ClientQuotaEntity(body.entity)
    ops: dict[str, float | None] = {**dict.fromkeys(body.remove), **body.set}
    admin = await call.admin()
    await admin.alter_client_quotas([ClientQuotaAlteration(entity, ops)])
    return QuotaItem(body.entity, dict(body.set))


# ---- delegation tokens


@dataclass(frozen=True)
class TokenItem:
    """A delegation token, without its secret."""

    token_id: str
    owner: str
    requester: str
    issue_time_ms: int
    expiry_time_ms: int
    max_time_ms: int
    renewers: list[str]


@dataclass(frozen=True)
class TokenList:
    """The tokens that the user may see."""

    items: list[TokenItem]


@dataclass(frozen=True)
class NewToken:
    """A token for the logged-in user."""

    renewers: Annotated[list[Annotated[str, _NAME]], Length(0, 100)] = field(default_factory=list)
    max_lifetime_ms: Annotated[int, Range(1, 2**53)] | None = None
    owner: Annotated[str, _NAME] | None = None


@dataclass(frozen=True)
class CreatedToken(TokenItem):
    """A new token. Its secret is shown only now: the password of SCRAM logins with the token id as user name."""

    hmac: str


@dataclass(frozen=True)
class TokenRenewal:
    """How long a token lives from now on."""

    hmac: Annotated[str, Length(0, 1000)] | None = None
    """The secret of the token in base64, if the header X-Token-Hmac does not have it."""
    period_ms: Annotated[int, Range(1, 2**53)] | None = None


@dataclass(frozen=True)
class RenewedToken:
    """When the token expires."""

    expiry_time_ms: int


def _token_fields(information: Any) -> dict[str, Any]:
    return {
        "token_id": information.token_id,
        "owner": information.owner,
        "requester": information.token_requester,
        "issue_time_ms": information.issue_timestamp,
        "expiry_time_ms": information.expiry_timestamp,
        "max_time_ms": information.max_timestamp,
        "renewers": list(information.renewers),
    }


@router.get(f"{_ACCESS}/tokens", response=TokenList, summary="List delegation tokens")
async def list_tokens(call: Call) -> TokenList:
    """The delegation tokens that the user may see. Clients that are not authenticated, or only with a token, see
    none."""
    tokens = await (await call.admin()).describe_delegation_token()
    return TokenList([TokenItem(**_token_fields(token.token_info)) for token in tokens])


@router.post(
    f"{_ACCESS}/tokens",
    body=NewToken,
    response=CreatedToken,
    status=201,
    change="create token",
    summary="Create a delegation token",
)
async def create_token(call: Call, body: NewToken) -> CreatedToken:
    """Creates a token. The response has its secret; it cannot be read again."""
    lifetime = -1 if body.max_lifetime_ms is None else body.max_lifetime_ms
    call.audit("new", owner=body.owner or call.user, renewers=body.renewers)
    token = await (await call.admin()).create_delegation_token(body.renewers, lifetime, body.owner)
    call.audit(token.token_info.token_id, owner=token.token_info.owner)
    return CreatedToken(**_token_fields(token.token_info), hmac=token.hmac_as_base64_string)


@router.post(
    f"{_ACCESS}/tokens/{{token}}/renew",
    body=TokenRenewal,
    response=RenewedToken,
    change="renew token",
    summary="Renew a delegation token",
)
async def renew_token(call: Call, body: TokenRenewal) -> RenewedToken:
    """Moves the time when a token expires, up to its maximum lifetime."""
    hmac = await _secret(call, body.hmac)
    return RenewedToken(await (await call.admin()).renew_delegation_token(hmac, body.period_ms or -1))


@router.delete(f"{_ACCESS}/tokens/{{token}}", change="delete token", summary="Delete a delegation token")
async def delete_token(call: Call) -> None:
    """Deletes a token at once. The header X-Token-Hmac has its secret; without it, the console asks the cluster for it,
    which tells it to the owner and the renewers."""
    await (await call.admin()).expire_delegation_token(await _secret(call, None))


async def _secret(call: Call, given: str | None) -> bytes:
    """Returns the HMAC of the token in the path."""
    text = given or call.request.headers.get("x-token-hmac")
    if text:
        try:
            return base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise ApiError(400, "INVALID_REQUEST", "The secret of the token is not base64", "hmac") from None
    wanted = call.path["token"]
    for token in await (await call.admin()).describe_delegation_token():
        if token.token_info.token_id == wanted:
            hmac: bytes = token.hmac
            return hmac
    raise ApiError(404, "DELEGATION_TOKEN_NOT_FOUND", f"There is no token {wanted!r} that you may see")
