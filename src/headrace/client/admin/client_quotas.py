"""The quotas of users, client ids and IP addresses: describe, alter. Owner: the loop."""

from collections.abc import Iterable

from headrace.client.admin.base import AdminBase
from headrace.client.admin.quota_types import (
    AlteredClientQuota,
    ClientQuotaAlteration,
    ClientQuotaEntity,
    ClientQuotaFilter,
)
from headrace.client.admin.types import Results
from headrace.client.errors import check, error_for
from headrace.protocol.messages import alter_client_quotas as alter
from headrace.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)


class ClientQuotasAdmin(AdminBase):
    """The calls about client quotas."""

    async def describe_client_quotas(
        self, quota_filter: ClientQuotaFilter | None = None, *, timeout_ms: float | None = None
    ) -> dict[ClientQuotaEntity, dict[str, float]]:
        """Returns the quotas of the entities that a filter selects, by default of all (KIP-546)."""
        selected = ClientQuotaFilter.all() if quota_filter is None else quota_filter
        if not isinstance(selected, ClientQuotaFilter):
            raise TypeError(f"quota_filter must be a ClientQuotaFilter, not {selected!r}")

        async def attempt() -> dict[ClientQuotaEntity, dict[str, float]]:
            request = DescribeClientQuotasRequest(
                components=[
                    ComponentData(
                        entity_type=component.entity_type, match_type=component.match_type, match=component.match
                    )
                    for component in selected.components
                ],
                strict=selected.strict,
            )
            response: DescribeClientQuotasResponse = await self._to_any(request)
            check(response.error_code, response.error_message)
            return {
                ClientQuotaEntity({part.entity_type: part.entity_name for part in entry.entity}): {
                    value.key: value.value for value in entry.values
                }
                for entry in response.entries or ()
            }

        return await self._call_with_retries(attempt, timeout_ms, "describing client quotas")

    async def alter_client_quotas(
        self,
        entries: Iterable[ClientQuotaAlteration],
        validate_only: bool = False,
        *,
        timeout_ms: float | None = None,
        raise_errors: bool = True,
    ) -> Results[ClientQuotaEntity, AlteredClientQuota]:
        """Sets and removes quotas. Each entity succeeds or fails on its own (KIP-546)."""
        alterations: dict[ClientQuotaEntity, ClientQuotaAlteration] = {}
        for entry in entries:
            if not isinstance(entry, ClientQuotaAlteration):
                raise TypeError(f"entries must be a list of ClientQuotaAlterations, not of {entry!r}")
            alterations[entry.entity] = entry

        async def attempt(entities: list[ClientQuotaEntity]) -> dict[ClientQuotaEntity, AlteredClientQuota]:
            request = alter.AlterClientQuotasRequest(
                entries=[_entry(alterations[entity]) for entity in entities], validate_only=validate_only
            )
            response: alter.AlterClientQuotasResponse = await self._to_any(request)
            return {
                ClientQuotaEntity({part.entity_type: part.entity_name for part in entry.entity}): AlteredClientQuota(
                    error_for(entry.error_code, entry.error_message)
                )
                for entry in response.entries
            }

        return await self._call_for_items(alterations, attempt, timeout_ms, "altering client quotas", raise_errors)


def _entry(alteration: ClientQuotaAlteration) -> alter.EntryDataRequest:
    return alter.EntryDataRequest(
        entity=[
            alter.EntityData(entity_type=kind, entity_name=name) for kind, name in alteration.entity.entries.items()
        ],
        ops=[
            alter.OpData(key=key, value=0.0 if value is None else float(value), remove=value is None)
            for key, value in alteration.ops.items()
        ],
    )
