"""AlterConfigs: replaces all configs of a resource. Configs that are not in the request return to their defaults.

This is the older API (KIP-133). IncrementalAlterConfigs changes single configs.

Behavior:
- Resources are topics, this broker, all brokers (name ""), groups, and client metrics subscriptions. Each succeeds or
  fails on its own.
- Loggers can be changed only with IncrementalAlterConfigs, as in Kafka.

Not supported: policies (`alter.config.policy.class.name`).

Version notes (0 to 2): 2 is flexible.
"""

from headrace.broker.apis import api
from headrace.broker.config_resources import ConfigResources, attempt_each, check_names
from headrace.broker.dispatch import RequestContext
from headrace.broker.required_rights import on_cluster, on_group, on_topic, requires
from headrace.broker.rights import check_configs
from headrace.common.errors import InvalidRequestError
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from headrace.security.acls import Operation


@api(
    ApiKey.ALTER_CONFIGS,
    0,
    2,
    needs=requires(
        on_topic(Operation.ALTER_CONFIGS, "each topic"),
        on_group(Operation.ALTER_CONFIGS, "each group"),
        on_cluster(Operation.ALTER_CONFIGS, "brokers and client metrics subscriptions"),
    ),
)
async def handle(
    request: AlterConfigsRequest, context: RequestContext, *, config_resources: ConfigResources
) -> AlterConfigsResponse:
    async def replace(resource: AlterConfigsResource) -> None:
        check_configs(context, Operation.ALTER_CONFIGS, resource.resource_type, resource.resource_name)
        configs = _configs_of(resource)
        await config_resources.alter(
            resource.resource_type, resource.resource_name, lambda _: configs, request.validate_only
        )

    responses = await attempt_each(request.resources, replace, _response, context.give_way)
    return AlterConfigsResponse(responses=responses)


def _response(
    resource: AlterConfigsResource, error_code: int, error_message: str | None
) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=error_code,
        error_message=error_message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _configs_of(resource: AlterConfigsResource) -> dict[str, str]:
    check_names([config.name for config in resource.configs])
    configs: dict[str, str] = {}
    for config in resource.configs:
        if config.value is None:
            raise InvalidRequestError(f"Null value not supported for : {config.name} (leave it out to use the default)")
        configs[config.name] = config.value
    return configs
