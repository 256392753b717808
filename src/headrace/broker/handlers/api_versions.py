"""ApiVersions: the APIs and versions that this broker serves. It is the first request of every client.

Behavior:
- The dispatcher responds to an unsupported version with UNSUPPORTED_VERSION, in the format of version 0.
- The only feature is `transaction.version`, fixed at its highest level 2 (KIP-890). Producers get a new epoch for each
  transaction. Produce and TxnOffsetCommit add partitions to the transaction.

Version notes (0 to 4):
- 1 has the throttle time
- 3 is flexible, and has the client's name and version (KIP-511) and features (KIP-584)
- 4 has features with a minimum version of 0 (KIP-1022)
"""

import re
from functools import cache

from headrace.broker.apis import REGISTRY, HandlerResult, api, api_version_entry
from headrace.broker.dispatch import RequestContext
from headrace.common.errors import InvalidRequestError
from headrace.coordinator.transaction.metadata import EPOCH_PER_TRANSACTION
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

_FIRST_WITH_SOFTWARE = 3
_FIRST_WITH_LOWEST_0 = 4
_TRANSACTION_VERSION = "transaction.version"
_FEATURES_EPOCH = 0
"""The finalized features never change."""
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@api(ApiKey.API_VERSIONS, 0, 4)
def handle(request: ApiVersionsRequest, context: RequestContext) -> HandlerResult:
    if context.api_version >= _FIRST_WITH_SOFTWARE and not (
        _SOFTWARE.fullmatch(request.client_software_name) and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=InvalidRequestError.code)
    return _response(context.api_version)


@cache
def _response(version: int) -> ApiVersionsResponse:
    """Returns the response to a valid request. It never changes after the start."""
    supported = SupportedFeatureKey(name=_TRANSACTION_VERSION, min_version=0, max_version=EPOCH_PER_TRANSACTION)
    finalized = FinalizedFeatureKey(
        name=_TRANSACTION_VERSION, min_version_level=EPOCH_PER_TRANSACTION, max_version_level=EPOCH_PER_TRANSACTION
    )
    return ApiVersionsResponse(
        api_keys=[api_version_entry(REGISTRY[key]) for key in sorted(REGISTRY)],
        supported_features=[supported] if version >= _FIRST_WITH_LOWEST_0 else [],
        finalized_features_epoch=_FEATURES_EPOCH,
        finalized_features=[finalized],
    )
