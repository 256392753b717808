"""IncrementalAlterConfigs: changes single configs (KIP-339), and log levels (KIP-412).

    0 SET        sets a value
    1 DELETE     returns to the default; succeeds if the config was not set
    2 APPEND     adds missing values to a list; a list that is not set starts with its effective value
    3 SUBTRACT   removes values from a list

Behavior:
- Resources are topics, this broker, all brokers (name ""), this broker's loggers, groups, and client metrics
  subscriptions. Each resource succeeds or fails on its own, with all its changes.

Not supported: policies (`alter.config.policy.class.name`).

Version notes (0 to 1): 1 is flexible.
"""

from enum import IntEnum

from headrace.broker.apis import api
from headrace.broker.broker_loggers import check_level, set_level
from headrace.broker.config.entries import show_value
from headrace.broker.config_resources import (
    ConfigResources,
    ResourceType,
    attempt_each,
    check_names,
    find_key,
)
from headrace.broker.dispatch import RequestContext
from headrace.broker.required_rights import on_cluster, on_group, on_topic, requires
from headrace.broker.rights import check_configs
from headrace.common.config import ConfigType
from headrace.common.errors import InvalidConfigurationError, InvalidRequestError
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from headrace.security import acls


class Operation(IntEnum):
    """The protocol's numbers."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@api(
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    0,
    1,
    needs=requires(
        on_topic(acls.Operation.ALTER_CONFIGS, "each topic"),
        on_group(acls.Operation.ALTER_CONFIGS, "each group"),
        on_cluster(acls.Operation.ALTER_CONFIGS, "brokers, loggers and client metrics subscriptions"),
    ),
)
async def handle(
    request: IncrementalAlterConfigsRequest, context: RequestContext, *, config_resources: ConfigResources
) -> IncrementalAlterConfigsResponse:
    async def change(resource: AlterConfigsResource) -> None:
        check_configs(context, acls.Operation.ALTER_CONFIGS, resource.resource_type, resource.resource_name)
        _check(resource)
        if resource.resource_type == ResourceType.BROKER_LOGGER:
            _change_loggers(config_resources, resource, request.validate_only)
            return
        await config_resources.alter(
            resource.resource_type,
            resource.resource_name,
            lambda before: _changed(config_resources, resource, before),
            request.validate_only,
        )

    responses = await attempt_each(request.resources, change, _response, context.give_way)
    return IncrementalAlterConfigsResponse(responses=responses)


def _response(
    resource: AlterConfigsResource, error_code: int, error_message: str | None
) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=error_code,
        error_message=error_message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _check(resource: AlterConfigsResource) -> None:
    check_names([config.name for config in resource.configs])
    for config in resource.configs:
        if config.config_operation not in list(Operation):
            raise InvalidRequestError(
                f"Unknown config operation {config.config_operation} for {config.name}: expected 0 to 3"
            )
        if config.value is None and config.config_operation != Operation.DELETE:
            raise InvalidRequestError(f"Null value not supported for : {config.name} (only DELETE has no value)")


def _changed(
    config_resources: ConfigResources, resource: AlterConfigsResource, before: dict[str, str]
) -> dict[str, str]:
    after = dict(before)
    for config in resource.configs:
        if config.config_operation == Operation.DELETE:
            after.pop(config.name, None)
        elif config.config_operation == Operation.SET:
            after[config.name] = config.value or ""
        else:
            after[config.name] = _changed_list(config_resources, resource.resource_type, config, after.get(config.name))
    return after


def _changed_list(
    config_resources: ConfigResources, resource_type: int, config: AlterableConfig, before: str | None
) -> str:
    operation = Operation(config.config_operation)
    key = find_key(resource_type, config.name)
    if key is None or key.type is not ConfigType.LIST:
        raise InvalidConfigurationError(f"Can't {operation.name} to key {config.name} because its type is not LIST.")
    if before is None:
        before = show_value(config_resources.inherited_value(resource_type, key))
    items, operands = _split(before), _split(config.value)
    if operation is Operation.APPEND:
        return ",".join(dict.fromkeys([*items, *operands]))
    return ",".join(item for item in items if item not in operands)


def _split(text: str | None) -> list[str]:
    return [item.strip() for item in (text or "").split(",") if item.strip()]


def _change_loggers(config_resources: ConfigResources, resource: AlterConfigsResource, validate_only: bool) -> None:
    config_resources.check_broker_id(resource.resource_name)
    for config in resource.configs:
        operation = Operation(config.config_operation)
        if operation not in (Operation.SET, Operation.DELETE):
            raise InvalidRequestError(
                f"{operation.name} operation is not allowed for the BROKER_LOGGER resource (logger {config.name})"
            )
        check_level(config.name, _level_of(config))
    if not validate_only:
        for config in resource.configs:
            set_level(config.name, _level_of(config))


def _level_of(config: AlterableConfig) -> str | None:
    return config.value if config.config_operation == Operation.SET else None
