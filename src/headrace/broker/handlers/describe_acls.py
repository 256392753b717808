"""DescribeAcls: there is no authorizer, so the response is SECURITY_DISABLED, as in Kafka without one.

Version notes (1 to 3): 1 has pattern types (KIP-290), 2 is flexible, 3 has user resources.
"""

from headrace.broker.apis import api
from headrace.broker.dispatch import RequestContext
from headrace.broker.required_rights import requires_cluster
from headrace.common.errors import SecurityDisabledError
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from headrace.security.acls import Operation


@api(ApiKey.DESCRIBE_ACLS, 1, 3, needs=requires_cluster(Operation.DESCRIBE))
def handle(_request: DescribeAclsRequest, _: RequestContext) -> DescribeAclsResponse:
    return DescribeAclsResponse(
        error_code=SecurityDisabledError.code, error_message="No Authorizer is configured on the broker"
    )
