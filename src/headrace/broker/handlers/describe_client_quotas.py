"""DescribeClientQuotas: the quotas of users, client ids and IP addresses that match a filter (KIP-546).

    0 EXACT      the entity has this name
    1 DEFAULT    the entity is the default of the type
    2 ANY        the entity has the type

Behavior:
- An entity matches if it matches all components. A strict filter matches no entity with further types.
- Only quotas are described, not the credentials of users.

Version notes (0 to 1): 1 is flexible.
"""

from enum import IntEnum

from headrace.broker.apis import api
from headrace.broker.dispatch import RequestContext
from headrace.broker.quotas.entities import (
    IP,
    FilterComponent,
    QuotaEntity,
    QuotaFilter,
    entity_of,
    stored_quotas,
)
from headrace.broker.required_rights import requires_cluster
from headrace.cluster import znodes
from headrace.cluster.config_store import ConfigEntity, ConfigStore
from headrace.cluster.store import CoordinationStore
from headrace.common.errors import HeadraceError, InvalidRequestError, code_of, message_of
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from headrace.security.acls import Operation


class MatchType(IntEnum):
    """The protocol's numbers."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


@api(ApiKey.DESCRIBE_CLIENT_QUOTAS, 0, 1, needs=requires_cluster(Operation.DESCRIBE_CONFIGS))
async def handle(
    request: DescribeClientQuotasRequest, context: RequestContext, *, store: CoordinationStore
) -> DescribeClientQuotasResponse:
    configs = ConfigStore(store)
    entries: list[EntryData] = []
    try:
        selected = QuotaFilter(
            [(component.entity_type, _component(component)) for component in request.components], request.strict
        )
        for kind in _kinds(selected):
            for name, config in (await configs.get_all(kind)).items():
                entity = entity_of(ConfigEntity(kind, name))
                quotas = stored_quotas(config)
                if quotas and selected.matches(entity):
                    entries.append(_entry(entity, quotas))
                await context.give_way()
    except HeadraceError as error:
        return DescribeClientQuotasResponse(error_code=code_of(error), error_message=message_of(error), entries=None)
    return DescribeClientQuotasResponse(error_message="", entries=entries)


def _component(component: ComponentData) -> FilterComponent:
    if component.match_type == MatchType.EXACT:
        if component.match is None:
            raise InvalidRequestError("Unexpected null match of an exact filter component")
        return FilterComponent(component.match)
    if component.match_type not in list(MatchType):
        raise InvalidRequestError(f"Unknown match type {component.match_type}")
    if component.match is not None:
        raise InvalidRequestError(f"Unexpected match {component.match!r} of a filter component that is not exact")
    return FilterComponent(is_any=component.match_type == MatchType.ANY)


def _kinds(selected: QuotaFilter) -> list[str]:
    if not selected.components:
        return [znodes.USER_CONFIGS, znodes.CLIENT_CONFIGS, znodes.IP_CONFIGS]
    return [znodes.IP_CONFIGS] if IP in selected.components else [znodes.USER_CONFIGS, znodes.CLIENT_CONFIGS]


def _entry(entity: QuotaEntity, quotas: dict[str, float]) -> EntryData:
    return EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        values=[ValueData(key=key, value=value) for key, value in quotas.items()],
    )
