"""ApiVersions: which APIs and versions this broker serves; the first thing a client asks.

Versions 0 to 4: 1 throttle time, 3 flexible, with the client's name and version (KIP-511), 4 features with a lowest
version of 0 (KIP-1022). A version that is not known is answered in the form of version 0 with UNSUPPORTED_VERSION; the
dispatcher does that. No features are finalised.
"""

import re
from typing import TYPE_CHECKING

from headrace.broker.dispatch import REGISTRY, HandlerResult, RequestContext, api, api_version_entry
from headrace.common.errors import InvalidRequestError
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

if TYPE_CHECKING:
    from headrace.broker.server import Broker

_FIRST_WITH_SOFTWARE = 3
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@api(ApiKey.API_VERSIONS, 0, 4)
def handle(broker: "Broker", request: ApiVersionsRequest, context: RequestContext) -> HandlerResult:
    if context.api_version >= _FIRST_WITH_SOFTWARE and not (
        _SOFTWARE.fullmatch(request.client_software_name) and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=InvalidRequestError.code)
    return ApiVersionsResponse(api_keys=[api_version_entry(REGISTRY[key]) for key in sorted(REGISTRY)])
