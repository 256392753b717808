"""AlterClientQuotas: sets and removes quotas of users, client ids, both, and IP addresses (KIP-546).

Behavior:
- Each entry succeeds or fails on its own, with all its changes.
- A name of null is the default of all users (client ids, IP addresses) without an own quota.
- All brokers apply a change when the store notifies them; this broker does at once.

Not supported: host names in place of IP addresses.

Version notes (0 to 1): 1 is flexible.
"""

from headrace.broker.apis import api
from headrace.broker.dispatch import RequestContext
from headrace.broker.quotas.entities import changed_quotas, check_entity
from headrace.broker.quotas.quotas import Quotas
from headrace.broker.required_rights import requires_cluster
from headrace.cluster.config_store import ConfigStore
from headrace.cluster.store import CoordinationStore
from headrace.common.errors import HeadraceError, code_of, message_of
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryDataRequest,
    EntryDataResponse,
)
from headrace.security.acls import Operation


@api(ApiKey.ALTER_CLIENT_QUOTAS, 0, 1, needs=requires_cluster(Operation.ALTER_CONFIGS))
async def handle(
    request: AlterClientQuotasRequest, context: RequestContext, *, quotas: Quotas, store: CoordinationStore
) -> AlterClientQuotasResponse:
    configs = ConfigStore(store)
    entries: list[EntryDataResponse] = []
    for entry in request.entries:
        response = EntryDataResponse(
            error_message=None,
            entity=[EntityData(entity_type=part.entity_type, entity_name=part.entity_name) for part in entry.entity],
        )
        entries.append(response)
        try:
            await _alter(configs, quotas, entry, request.validate_only)
        except HeadraceError as error:
            response.error_code, response.error_message = code_of(error), message_of(error)
        await context.give_way()
    return AlterClientQuotasResponse(entries=entries)


async def _alter(configs: ConfigStore, quotas: Quotas, entry: EntryDataRequest, validate_only: bool) -> None:
    entity = check_entity((part.entity_type, part.entity_name) for part in entry.entity)
    changes = [(op.key, None if op.remove else op.value) for op in entry.ops]
    if validate_only:
        changed_quotas(entity, await configs.get(entity), changes)
        return
    after = await configs.alter(entity, lambda before: changed_quotas(entity, before, changes))
    quotas.config_changed(entity, after)
