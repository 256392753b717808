"""ListConfigResources: the names of all resources that can have configs.

Behavior:
- An unknown resource type fails the whole request with UNSUPPORTED_VERSION, as in Kafka.
- Groups and client metrics subscriptions are listed if they have configs.

Version notes (0 to 1):
- 0 lists client metrics only (KIP-714, as ListClientMetricsResources)
- 1 lists the requested types, or all (KIP-1142)
"""

from headrace.broker.apis import api
from headrace.broker.config.dynamic import DynamicConfig
from headrace.broker.config_resources import ResourceType
from headrace.broker.dispatch import RequestContext
from headrace.broker.required_rights import requires_cluster
from headrace.cluster.metadata_image import MetadataImage
from headrace.common.errors import UnsupportedVersionError
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from headrace.security.acls import Operation


@api(ApiKey.LIST_CONFIG_RESOURCES, 0, 1, needs=requires_cluster(Operation.DESCRIBE_CONFIGS))
def handle(
    request: ListConfigResourcesRequest,
    context: RequestContext,
    *,
    dynamic_config: DynamicConfig,
    image: MetadataImage,
) -> ListConfigResourcesResponse:
    types = set(request.resource_types or ResourceType) if context.api_version > 0 else {ResourceType.CLIENT_METRICS}
    if not types <= set(ResourceType):
        return ListConfigResourcesResponse(error_code=UnsupportedVersionError.code)
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=resource_type)
            for resource_type in sorted(types)
            for name in _names(dynamic_config, image, ResourceType(resource_type))
        ]
    )


def _names(dynamic_config: DynamicConfig, image: MetadataImage, resource_type: ResourceType) -> list[str]:
    if resource_type is ResourceType.TOPIC:
        return sorted(image.topics)
    if resource_type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        return [str(broker_id) for broker_id in sorted(image.brokers)]
    return sorted(dynamic_config.groups if resource_type is ResourceType.GROUP else dynamic_config.client_metrics)
