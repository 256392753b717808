"""ApiVersions: the APIs and versions that this broker serves. It is the first request of every client.

Behavior:
- The dispatcher responds to an unsupported version with UNSUPPORTED_VERSION, in the format of version 0.
- The only feature is `transaction.version` (KIP-890). At its highest level 2, producers get a new epoch for each
  transaction, and Produce and TxnOffsetCommit add partitions to the transaction. Brokers of Apache Kafka 3.9 do not
  support it, so a cluster on ZooKeeper has level 0, unless the node /feature names another one.

Version notes (0 to 4):
- 1 has the throttle time
- 3 is flexible, and has the client's name and version (KIP-511) and features (KIP-584)
- 4 has features with a minimum version of 0 (KIP-1022)
"""

import re
from functools import lru_cache

from headrace.broker.apis import REGISTRY, HandlerResult, api, api_version_entry
from headrace.broker.dispatch import RequestContext
from headrace.broker.required_rights import requires_nothing
from headrace.broker.telemetry.client_telemetry import ClientTelemetry
from headrace.cluster.features import SUPPORTED_FEATURES, FinalizedFeatures
from headrace.common.errors import InvalidRequestError
from headrace.common.logs import shorten
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

TELEMETRY_APIS = frozenset((ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY))
"""Announced only if the broker serves metrics."""
_FIRST_WITH_SOFTWARE = 3
_FIRST_WITH_LOWEST_0 = 4
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@api(ApiKey.API_VERSIONS, 0, 4, needs=requires_nothing("Clients send it first, before they authenticate."))
def handle(
    request: ApiVersionsRequest,
    context: RequestContext,
    *,
    features: FinalizedFeatures,
    telemetry: ClientTelemetry,
) -> HandlerResult:
    if context.api_version >= _FIRST_WITH_SOFTWARE:
        name, software_version = request.client_software_name, request.client_software_version
        if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(software_version)):
            return ApiVersionsResponse(error_code=InvalidRequestError.code)
        context.connection.software = shorten(name), shorten(software_version)
    return _response(context.api_version, tuple(features.levels.items()), features.epoch, telemetry.enabled)


@lru_cache(maxsize=16)
def _response(
    version: int, levels: tuple[tuple[str, int], ...], epoch: int, has_telemetry: bool
) -> ApiVersionsResponse:
    """Returns the response to a valid request. After the start, only the features change."""
    supported = [
        SupportedFeatureKey(name=name, min_version=0, max_version=level) for name, level in SUPPORTED_FEATURES.items()
    ]
    finalized = [
        FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level) for name, level in levels
    ]
    return ApiVersionsResponse(
        api_keys=[
            api_version_entry(REGISTRY[key]) for key in sorted(REGISTRY) if has_telemetry or key not in TELEMETRY_APIS
        ],
        supported_features=supported if version >= _FIRST_WITH_LOWEST_0 else [],
        finalized_features_epoch=epoch,
        finalized_features=finalized,
    )
