"""DescribeUserScramCredentials: mechanisms and iterations of users' SCRAM credentials (KIP-554).

Behavior:
- Null or no users: all users with a credential.
- A user without a credential: RESOURCE_NOT_FOUND. A user that is named twice: DUPLICATE_RESOURCE.
- Salts and keys are not in the response.

Version notes: only version 0, which is flexible.
"""

from collections.abc import Mapping

from headrace.broker.apis import api
from headrace.broker.dispatch import RequestContext
from headrace.broker.required_rights import requires_cluster
from headrace.broker.scram_admin import ScramAdmin
from headrace.common.errors import KafkaError, message_of
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from headrace.security.acls import Operation
from headrace.security.credentials import SCRAM_MECHANISMS, ScramCredential


@api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, 0, needs=requires_cluster(Operation.DESCRIBE))
async def handle(
    request: DescribeUserScramCredentialsRequest, context: RequestContext, *, scram_admin: ScramAdmin
) -> DescribeUserScramCredentialsResponse:
    users = None if request.users is None else [user.name for user in request.users]
    credentials = await scram_admin.describe(users, context.give_way)
    results = [_result(user, found) for user, found in credentials.items()]
    return DescribeUserScramCredentialsResponse(results=results)


def _result(user: str, found: Mapping[str, ScramCredential] | KafkaError) -> DescribeUserScramCredentialsResult:
    if isinstance(found, KafkaError):
        return DescribeUserScramCredentialsResult(user=user, error_code=found.code, error_message=message_of(found))
    infos = [
        CredentialInfo(mechanism=SCRAM_MECHANISMS[name].code, iterations=credential.iterations)
        for name, credential in found.items()
    ]
    return DescribeUserScramCredentialsResult(user=user, credential_infos=infos)
