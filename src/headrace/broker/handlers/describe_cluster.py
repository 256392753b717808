"""DescribeCluster: the cluster id, the controller and the brokers (KIP-700).

Behavior:
- Addresses are those of the listener that received the request.
- Only brokers are listed. Endpoint type 2 (controllers) gets MISMATCHED_ENDPOINT_TYPE, because controllers have no
  listeners of their own.

Version notes (0 to 2):
- 1 has the endpoint type (KIP-919)
- 2 has fenced brokers on request (KIP-1073; no broker is ever fenced here: it is registered or it is not)
"""

from headrace.broker.apis import api
from headrace.broker.authorized_operations import cluster_operations
from headrace.broker.dispatch import RequestContext
from headrace.broker.required_rights import on_cluster, requires
from headrace.cluster.metadata_image import MetadataImage
from headrace.common.errors import KafkaError, MismatchedEndpointTypeError, UnsupportedEndpointTypeError, message_of
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from headrace.security.acls import Operation

BROKERS = 1
CONTROLLERS = 2


@api(
    ApiKey.DESCRIBE_CLUSTER,
    0,
    2,
    needs=requires(
        on_cluster(
            Operation.DESCRIBE, "if it asks for authorized operations of the cluster", "no authorized operations"
        )
    ),
)
def handle(
    request: DescribeClusterRequest, context: RequestContext, *, cluster_id: str, image: MetadataImage
) -> DescribeClusterResponse:
    try:
        _check_endpoint_type(request.endpoint_type)
    except KafkaError as error:
        return DescribeClusterResponse(error_code=error.code, error_message=message_of(error))
    return DescribeClusterResponse(
        cluster_id=cluster_id,
        controller_id=image.controller_id,
        brokers=[
            DescribeClusterBroker(
                broker_id=broker_id, host=endpoint.host, port=endpoint.port, rack=image.brokers[broker_id].rack
            )
            for broker_id, endpoint in sorted(image.endpoints(context.connection.listener_name).items())
        ],
        cluster_authorized_operations=cluster_operations(
            context, is_requested=request.include_cluster_authorized_operations
        ),
    )


def _check_endpoint_type(requested: int) -> None:
    if requested == CONTROLLERS:
        raise MismatchedEndpointTypeError(
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
        )
    if requested != BROKERS:
        raise UnsupportedEndpointTypeError(
            f"Unsupported endpoint type {requested}: expected {BROKERS} (brokers) or {CONTROLLERS} (controllers)"
        )
