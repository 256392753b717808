"""SCRAM credentials of users (KIP-554). Owner: the loop."""

import asyncio
from collections.abc import Iterable

from headrace.client.admin.base import AdminBase
from headrace.client.admin.scram_types import (
    AlteredScramCredentials,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialsDescription,
    UserScramCredentialUpsertion,
)
from headrace.client.admin.types import Results
from headrace.client.errors import check, error_for
from headrace.common.errors import NotControllerError
from headrace.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from headrace.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from headrace.security.credentials import SCRAM_MECHANISMS, new_salt, salted_password

_KNOWN = frozenset(ScramMechanism)


class ScramAdmin(AdminBase):
    """The calls about SCRAM credentials."""

    async def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None, *, timeout_ms: float | None = None, raise_errors: bool = True
    ) -> Results[str, UserScramCredentialsDescription]:
        """Returns mechanisms and iterations of the credentials of these users, by default of all that have one."""
        if isinstance(users, str):
            raise TypeError(f"users must be a list of names, not {users!r}")
        names = None if users is None else [UserName(name=user) for user in users]

        async def attempt() -> Results[str, UserScramCredentialsDescription]:
            response: DescribeUserScramCredentialsResponse = await self._to_any(
                DescribeUserScramCredentialsRequest(users=names)
            )
            check(response.error_code, response.error_message)
            results: Results[str, UserScramCredentialsDescription] = Results()
            for result in response.results:
                infos = tuple(
                    ScramCredentialInfo(
                        ScramMechanism(info.mechanism if info.mechanism in _KNOWN else 0), info.iterations
                    )
                    for info in result.credential_infos
                )
                error = error_for(result.error_code, result.error_message)
                results[result.user] = UserScramCredentialsDescription(result.user, infos, error)
            return results

        results = await self._call_with_retries(attempt, timeout_ms, "describing SCRAM credentials")
        if raise_errors:
            results.raise_errors()
        return results

    async def alter_user_scram_credentials(
        self,
        alterations: Iterable[UserScramCredentialUpsertion | UserScramCredentialDeletion],
        *,
        timeout_ms: float | None = None,
        raise_errors: bool = True,
    ) -> Results[str, AlteredScramCredentials]:
        """Creates, replaces and deletes credentials. All changes of a user are made, or none."""
        changes = list(alterations)
        request = await asyncio.get_running_loop().run_in_executor(None, _request, changes)  # derives keys

        async def attempt(users: list[str]) -> dict[str, AlteredScramCredentials]:
            wanted = set(users)
            part = AlterUserScramCredentialsRequest(
                deletions=[item for item in request.deletions if item.name in wanted],
                upsertions=[item for item in request.upsertions if item.name in wanted],
            )
            response: AlterUserScramCredentialsResponse = await self._to_controller(part)
            results = {
                result.user: AlteredScramCredentials(error_for(result.error_code, result.error_message))
                for result in response.results
            }
            await self._refresh_controller(result.error for result in results.values())
            return results

        users = [change.user for change in changes]
        return await self._call_for_items(
            users, attempt, timeout_ms, "altering SCRAM credentials", raise_errors, (NotControllerError,)
        )


def _mechanism(code: int) -> ScramMechanism:
    return ScramMechanism(code) if code in _KNOWN else ScramMechanism.UNKNOWN


def _request(
    changes: Iterable[UserScramCredentialUpsertion | UserScramCredentialDeletion],
) -> AlterUserScramCredentialsRequest:
    request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[])
    for change in changes:
        if isinstance(change, UserScramCredentialDeletion):
            request.deletions.append(ScramCredentialDeletion(name=change.user, mechanism=change.mechanism))
            continue
        mechanism = SCRAM_MECHANISMS[change.mechanism.sasl_name]
        password = change.password.decode() if isinstance(change.password, bytes) else change.password
        salt = new_salt() if change.salt is None else change.salt
        # Too few or too many iterations: the broker refuses them, so nothing is computed for them.
        accepted = mechanism.min_iterations <= change.iterations <= mechanism.max_iterations
        request.upsertions.append(
            ScramCredentialUpsertion(
                name=change.user,
                mechanism=change.mechanism,
                iterations=change.iterations,
                salt=salt,
                salted_password=salted_password(mechanism, password, salt, change.iterations) if accepted else b"",
            )
        )
    return request
