"""DescribeCluster: the cluster's id, its controller and its brokers, as seen through the listener that is asked.

Versions 0 to 2: 1 what kind of endpoint is asked (KIP-919), 2 fenced brokers on request (KIP-1073; none is ever fenced
here: a broker is registered or it is not). Version 0 came with KIP-700.

Only brokers are listed. Who wants to know the controllers is told that this is not one: they have no listeners of their
own.
"""

from headrace.broker.authorized_operations import CLUSTER_OPERATIONS, NOT_ASKED_FOR
from headrace.broker.dispatch import RequestContext, api
from headrace.cluster.metadata_image import MetadataImage
from headrace.common.errors import KafkaError, MismatchedEndpointTypeError, UnsupportedEndpointTypeError, message_of
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS = 1
CONTROLLERS = 2


@api(ApiKey.DESCRIBE_CLUSTER, 0, 2)
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
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED_FOR
        ),
    )


def _check_endpoint_type(asked: int) -> None:
    if asked == CONTROLLERS:
        raise MismatchedEndpointTypeError(
            f"this is a broker's listener (endpoint type {BROKERS}), controllers (type {asked}) have none"
        )
    if asked != BROKERS:
        raise UnsupportedEndpointTypeError(
            f"endpoint type is {BROKERS} (brokers) or {CONTROLLERS} (controllers), not {asked}"
        )
