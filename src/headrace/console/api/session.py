"""Login and logout, and what a page needs to know first."""

import asyncio
import json
from dataclasses import dataclass
from typing import Annotated, Literal

from starlette.responses import Response

from headrace import __version__
from headrace.client.errors import KafkaTimeoutError
from headrace.common.errors import KafkaError, SaslAuthenticationFailedError, UnsupportedSaslMechanismError
from headrace.console.audit import address_of, log_change
from headrace.console.calls import Call
from headrace.console.clusters import Cluster
from headrace.console.errors import ApiError
from headrace.console.identity import Identity
from headrace.console.routing import Router
from headrace.console.schema import Length, as_json
from headrace.console.sessions import Session

router = Router("session")
_LOGIN_TIMEOUT_MS = 10_000


@dataclass(frozen=True)
class ClusterEntry:
    """A cluster of the console."""

    name: str
    login: Literal["none", "required"]
    user: str | None
    """The principal, if logged in."""
    mechanisms: list[str]
    writable: bool
    """Whether the console lets changes through; ACLs still decide."""
    reachable: bool
    error: str | None
    cluster_id: str | None


@dataclass(frozen=True)
class SessionInfo:
    """The session of this browser."""

    csrf_token: str
    version: str
    write: bool
    clusters: list[ClusterEntry]
    expires_at_ms: int | None


@dataclass(frozen=True)
class Login:
    """The credentials of a person."""

    cluster: str
    username: Annotated[str, Length(1, 255)]
    password: Annotated[str, Length(0, 4096)]
    mechanism: str | None = None


@dataclass(frozen=True)
class Logout:
    """Where to log out: null for everywhere."""

    cluster: str | None = None


@router.get(
    "/api/session", response=SessionInfo, summary="The session, its CSRF token, and the clusters", needs_login=False
)
async def get_session(call: Call) -> Response:
    """Creates the session if there is none."""
    session = call.session if call.session.id else call.console.sessions.new()
    return _respond(call, session)


@router.post("/api/login", body=Login, response=SessionInfo, summary="Log in to a cluster", needs_login=False)
async def login(call: Call, body: Login) -> Response:
    """Connects with the credentials. The console acts as that principal afterwards, so the ACLs of the cluster
    decide."""
    cluster = call.console.clusters.get(body.cluster)
    if cluster is None:
        raise ApiError(404, "NOT_FOUND", f"There is no cluster {body.cluster!r}", "cluster")
    settings = cluster.settings
    if not settings.needs_login:
        raise ApiError(400, "INVALID_REQUEST", f"Cluster {cluster.name!r} has no login", "cluster")
    mechanism = body.mechanism or settings.mechanisms[0]
    if mechanism not in settings.mechanisms:
        raise ApiError(400, "INVALID_REQUEST", f"mechanism: expected {', '.join(settings.mechanisms)}", "mechanism")
    address = address_of(call.request)
    keys = (f"address {address}", f"user {cluster.name} {body.username}")
    limit = call.console.login_limit
    wait = limit.wait_seconds(*keys)
    if wait > 0:
        log_change(f"User:{body.username}", address, "login", cluster.name, {}, "refused: TOO_MANY_LOGINS")
        message = f"Too many failed logins. Try again in {wait:.0f} s."
        raise ApiError(429, "TOO_MANY_LOGINS", message, retry_after=max(1, round(wait)))
    limit.failed(*keys)  # until it has succeeded: attempts at the same time count, too
    try:
        identity = await _connect(call, cluster, body, mechanism)
    except ApiError as error:
        if error.code != "LOGIN_FAILED":
            limit.succeeded(*keys)
        log_change(f"User:{body.username}", address, "login", cluster.name, {}, f"failed: {error.code}")
        raise
    limit.succeeded(*keys)
    log_change(f"User:{body.username}", address, "login", cluster.name, {"mechanism": mechanism}, "done")
    return _respond(call, call.console.sessions.log_in(call.session, identity))


@router.post("/api/logout", body=Logout, response=SessionInfo, summary="Log out", needs_login=False)
async def logout(call: Call, body: Logout) -> Response:
    """Closes the connections that act as the principal."""
    users = {name: identity.user for name, identity in call.session.identities.items()}
    call.console.sessions.log_out(call.session, body.cluster)
    for name, user in users.items():
        if body.cluster in (None, name):
            log_change(user or "", address_of(call.request), "logout", name, {}, "done")
    return _respond(call, call.session)


async def _connect(call: Call, cluster: Cluster, body: Login, mechanism: str) -> Identity:
    credentials = {
        "security.protocol": cluster.settings.protocol,
        "sasl.mechanism": mechanism,
        "sasl.username": body.username,
        "sasl.password": body.password,
    }
    identity = Identity(
        cluster.settings,
        call.clock,
        f"User:{body.username}",
        credentials,
        is_reachable=lambda: cluster.is_reachable or cluster.snapshot is None,
    )
    try:
        await identity.admin.describe_cluster(timeout_ms=_LOGIN_TIMEOUT_MS)
    except (SaslAuthenticationFailedError, UnsupportedSaslMechanismError):
        await identity.close()
        raise ApiError(401, "LOGIN_FAILED", "The cluster does not accept this user and password.") from None
    except KafkaTimeoutError as error:
        await identity.close()
        raise ApiError(503, "CLUSTER_UNREACHABLE", f"Cluster {cluster.name!r} does not respond: {error}") from None
    except (KafkaError, asyncio.CancelledError):
        await identity.close()
        raise
    return identity


def _respond(call: Call, session: Session) -> Response:
    console = call.console
    info = SessionInfo(
        session.csrf_token,
        __version__,
        console.settings.write,
        [_entry(call, session, cluster) for cluster in console.clusters.values()],
        call.clock.time_ms() + round(console.sessions.expires_in(session) * 1000),
    )
    response = Response(json.dumps(as_json(info)), media_type="application/json")
    console.set_cookie(response, session)
    return response


def _entry(call: Call, session: Session, cluster: Cluster) -> ClusterEntry:
    settings = cluster.settings
    identity = session.identities.get(cluster.name)
    may_see = identity is not None or not settings.needs_login
    snapshot = cluster.snapshot
    return ClusterEntry(
        cluster.name,
        "required" if settings.needs_login else "none",
        None if identity is None else identity.user,
        list(settings.mechanisms),
        may_see and call.console.is_writable(cluster),
        cluster.is_reachable,
        cluster.error if may_see else None,
        snapshot.cluster.cluster_id if may_see and snapshot is not None else None,
    )
