"""Changes SCRAM credentials for clients, with Kafka's rules: which changes of a request fail, and why.

- All changes of a user are made, or none. Other users of the request are not affected.
- A change is written to `/config/users/<user>`, next to the user's quotas. This broker applies it when it responds;
  other brokers when the store notifies them.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from headrace.broker.credentials import CredentialCache
from headrace.cluster.config_store import ConfigEntity, ConfigStore
from headrace.common.errors import (
    DuplicateResourceError,
    HeadraceError,
    KafkaError,
    ResourceNotFoundError,
    UnacceptableCredentialError,
    UnsupportedSaslMechanismError,
)
from headrace.security.credentials import SCRAM_MECHANISMS, ScramCredential, ScramMechanism

MECHANISMS_BY_CODE = {mechanism.code: mechanism for mechanism in SCRAM_MECHANISMS.values()}
_NO_NAME = "Username must not be empty"
_UNKNOWN_MECHANISM = "Unknown SCRAM mechanism"


@dataclass(frozen=True, slots=True)
class Upsertion:
    """A credential to create or replace."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes


@dataclass(frozen=True, slots=True)
class Deletion:
    """A credential to delete."""

    user: str
    mechanism: int


Change = Upsertion | Deletion
GiveWay = Callable[[], Awaitable[None]]
"""Lets other requests run. Called for each element of a request."""


class ScramAdmin:
    """Describes and alters SCRAM credentials. Owned by the broker's loop."""

    def __init__(self, credentials: CredentialCache, config_store: ConfigStore):
        self._credentials = credentials
        self._config_store = config_store

    async def describe(
        self, users: Sequence[str] | None, give_way: GiveWay
    ) -> dict[str, Mapping[str, ScramCredential] | KafkaError]:
        """Returns the credentials of each user by mechanism, or the error. None or no users: of all users with one."""
        if not users:
            return {user: self._credentials.scram_credentials_of(user) for user in self._credentials.scram_users()}
        result: dict[str, Mapping[str, ScramCredential] | KafkaError] = {}
        for user in users:
            await give_way()
            found = self._credentials.scram_credentials_of(user)
            if not user:
                result[user] = ResourceNotFoundError(_NO_NAME)
            elif user in result:
                result[user] = DuplicateResourceError(
                    f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
                )
            elif not found:
                result[user] = ResourceNotFoundError(
                    f"Attempt to describe a user credential that does not exist: {user}"
                )
            else:
                result[user] = found
        return result

    async def alter(self, changes: Sequence[Change], give_way: GiveWay) -> dict[str, HeadraceError | None]:
        """Returns the error of each user, None for success."""
        errors = await _find_errors(changes, give_way)
        by_user: dict[str, list[Change]] = {}
        for change in changes:
            by_user.setdefault(change.user, []).append(change)
        results: dict[str, HeadraceError | None] = {}
        for user, own in by_user.items():
            await give_way()
            results[user] = errors.get(user) or await self._alter_user(user, own)
        return results

    async def _alter_user(self, user: str, changes: Sequence[Change]) -> HeadraceError | None:
        def apply(config: dict[str, str]) -> dict[str, str]:
            for change in changes:
                mechanism = MECHANISMS_BY_CODE[change.mechanism]
                if isinstance(change, Upsertion):
                    config[mechanism.name] = _credential(mechanism, change).format()
                elif config.pop(mechanism.name, None) is None:
                    raise ResourceNotFoundError(f"Attempt to delete a user credential that does not exist: {user}")
            return config

        try:
            updated = await self._config_store.alter(ConfigEntity.user(user), apply)
        except HeadraceError as error:
            return error
        self._credentials.set_user(user, updated)
        return None


async def _find_errors(changes: Sequence[Change], give_way: GiveWay) -> dict[str, KafkaError]:
    """Returns an error for each user whose changes are not valid, without a look at existing credentials."""
    errors: dict[str, KafkaError] = {}
    seen: set[tuple[str, int]] = set()
    for change in changes:
        await give_way()
        error = _error(change)
        if error is None and (change.user, change.mechanism) in seen:
            error = DuplicateResourceError("A user credential cannot be altered twice in the same request")
        seen.add((change.user, change.mechanism))
        if error is not None:
            errors.setdefault(change.user, error)
    return errors


def _error(change: Change) -> KafkaError | None:
    if not change.user:
        return UnacceptableCredentialError(_NO_NAME)
    mechanism = MECHANISMS_BY_CODE.get(change.mechanism)
    if mechanism is None:
        return UnsupportedSaslMechanismError(_UNKNOWN_MECHANISM)
    if isinstance(change, Deletion):
        return None
    if change.iterations < mechanism.min_iterations:
        return UnacceptableCredentialError(f"Too few iterations: at least {mechanism.min_iterations}")
    if change.iterations > mechanism.max_iterations:
        return UnacceptableCredentialError(f"Too many iterations: at most {mechanism.max_iterations}")
    if not change.salt:
        return UnacceptableCredentialError("The salt must not be empty")
    if len(change.salted_password) != mechanism.digest_bytes:
        return UnacceptableCredentialError(f"The salted password must have {mechanism.digest_bytes} bytes")
    return None


def _credential(mechanism: ScramMechanism, change: Upsertion) -> ScramCredential:
    return ScramCredential.from_salted_password(mechanism, change.salted_password, change.salt, change.iterations)
