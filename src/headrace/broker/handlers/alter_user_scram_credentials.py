"""AlterUserScramCredentials: creates, replaces and deletes users' SCRAM credentials (KIP-554).

Behavior:
- All changes of a user are made, or none. Each user has one result.
- UNACCEPTABLE_CREDENTIAL: no user name, or iterations out of 4096 to 16384. UNSUPPORTED_SASL_MECHANISM: an unknown
  mechanism. DUPLICATE_RESOURCE: a credential is changed twice. RESOURCE_NOT_FOUND: a deleted credential does not exist.
- Any broker makes the change, unlike Kafka, whose controller does.

Version notes: only version 0, which is flexible.
"""

from headrace.broker.apis import api
from headrace.broker.dispatch import RequestContext
from headrace.broker.required_rights import requires_cluster
from headrace.broker.scram_admin import Change, Deletion, ScramAdmin, Upsertion
from headrace.common.errors import code_of, message_of
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from headrace.security.acls import Operation


@api(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, 0, needs=requires_cluster(Operation.ALTER))
async def handle(
    request: AlterUserScramCredentialsRequest, context: RequestContext, *, scram_admin: ScramAdmin
) -> AlterUserScramCredentialsResponse:
    changes: list[Change] = [
        Upsertion(item.name, item.mechanism, item.iterations, bytes(item.salt), bytes(item.salted_password))
        for item in request.upsertions
    ]
    changes += [Deletion(item.name, item.mechanism) for item in request.deletions]
    errors = await scram_admin.alter(changes, context.give_way)
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(
                user=user, error_code=code_of(error), error_message=None if error is None else message_of(error)
            )
            for user, error in errors.items()
        ]
    )
